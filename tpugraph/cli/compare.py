"""``tpugraph compare``: the first tensor of a step that differs between engines, and where it lives."""

from __future__ import annotations

from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.support.wording import counted
from tpugraph.testing.tensor_comparison import XLA, TensorComparison, TensorDifference, compare

_MOST = 10


def run(flags: Parsed, console: Console) -> Outcome:
    graph = programs.unconverted(flags.model)
    layout = programs.layout_of(flags, None if "engines" in flags.given else flags["platform"])
    engines = flags["engines"] if layout is None or "engines" in flags.given else ["plain", "xla"]
    found = compare(graph, programs.options(flags), engines=engines, tensors=flags["tensors"],
                    steps=flags["steps"], tolerance=flags["tolerance"], checkpoint=flags["checkpoint"],
                    rebind=rebinds(flags["rebind"]), layout=layout, platform=flags["platform"] or "cpu",
                    progress=console.progress)  # fmt: skip
    console.say(*lines(found))
    return Outcome(found.as_dict(), 1 if found.differences else 0)


def lines(found: TensorComparison) -> list[str]:
    places = [counted(found.cores, "core")] if {"emulator", "pjrt"} & set(found.engines) else []
    places += [f"the mesh {found.mesh}"] if found.mesh else []
    told = [
        f"compared    {counted(len(found.compared), 'tensor')} on {' and '.join(places)}: {', '.join(found.engines)}"
    ]
    told += [f"note        {note}" for note in found.notes]
    if found.first is None:
        return [*told, f"no tensor differs by more than {found.tolerance:g}"]
    told.append(f"{counted(len(found.differences), 'differing tensor')} in step {found.first.step}, the first is")
    told += _first(found.first, found)
    return told + [f"  then      {d.tensor} ({d.op}) by {d.difference:.1e}" for d in found.differences[1:_MOST]]


def _first(first: TensorDifference, found: TensorComparison) -> list[str]:
    told = [f"  tensor    {first.tensor} ({first.op})",
            f"  differs   by {first.difference:.1e} between {found.engines[0]} and {first.engine}"
            + (f", first on core {first.core}" if first.core is not None else "")]  # fmt: skip
    if found.cores > 1 or first.engine == XLA:
        told.append(f"  lives     {first.lives}")
        told += [f"  because   {first.because}"] if first.because else []
        told += [f"  as read   by {first.reader}"] if first.reader else []
    told += [f"  made of   {', '.join(first.reads)}: the same"] if first.reads else []
    told += [f"  made of   {', '.join(first.unseen)}: not compared, or different"] if first.unseen else []
    return told

"""``tpugraph compare``: the first tensor of a step that differs between engines, and where it lives."""

from __future__ import annotations

from tpugraph.analysis import is_tpu_graph
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import graphdef
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.testing.tensor_comparison import TensorComparison, TensorDifference, compare

_MOST = 10


def run(flags: Parsed, console: Console) -> Outcome:
    """Compare and print; the exit code is 1 where a tensor differs by more than ``--tolerance``."""
    model = flags.model
    graph = graphdef.load(model)
    if is_tpu_graph(graph):
        raise UsageError(f"'{model}' is converted already; there is no plain graph to compare it with",
                         fix="give the plain graph")  # fmt: skip
    found = compare(graph, ConvertOptions(**flags.options()), engines=flags["engines"], tensors=flags["tensors"],
                    steps=flags["steps"], tolerance=flags["tolerance"], checkpoint=flags["checkpoint"],
                    rebind=rebinds(flags["rebind"]),
                    progress=(lambda text: console.say(f"running: {text}")) if console.stream.isatty() else None)  # fmt: skip
    for line in lines(found):
        console.say(line)
    return Outcome(found.as_dict(), 1 if found.differences else 0)


def lines(found: TensorComparison) -> list[str]:
    """What was found, readable."""
    told = [f"compared    {counted(count, 'tensor')} on {counted(cores, 'core')}: {', '.join(found.engines)}"
            for cores, count in found.compared.items()]  # fmt: skip
    told += [f"note        {note}" for note in found.notes]
    if found.first is None:
        return [*told, "the same: no tensor differs"]
    for cores in found.compared:
        differing = [difference for difference in found.differences if difference.cores == cores]
        if differing:
            told += [
                f"{counted(cores, 'core')}: {counted(len(differing), 'differing tensor')} in step {differing[0].step}, the first is"
            ]
            told += _first(differing[0], found.engines[0])
            told += [f"  then      {d.tensor} ({d.op}) by {d.difference:.1e}" for d in differing[1:_MOST]]
    return told


def _first(found: TensorDifference, reference: str) -> list[str]:
    """All about the first tensor that differs."""
    on = f"on core {found.core}" if found.core is not None and found.cores > 1 else "in the whole"
    told = [f"  tensor    {found.tensor} ({found.op})",
            f"  differs   by {found.difference:.1e} between {reference} and {found.engine}"
            + (f", first {on}" if found.cores > 1 else "")]  # fmt: skip
    if found.cores > 1:
        told.append(f"  lives     {found.lives}, {found.how}")
        told += [f"  because   {found.because}"] if found.because else []
    told += [f"  reads     {', '.join(found.reads)}: the same"] if found.reads else []
    told += [f"  reads     {', '.join(found.unseen)}: not compared, or different"] if found.unseen else []
    return told

"""``tpugraph reduce``: the smallest graph that still shows a fault, with a pytest that holds it."""

from __future__ import annotations

from pathlib import Path

from tpugraph import ops
from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.ir.text import format_node
from tpugraph.support.wording import counted
from tpugraph.testing.reduce import Reduction, reduce
from tpugraph.xla import jax_client

_MOST = 30


def run(flags: Parsed, console: Console) -> Outcome:
    if flags["when"].startswith("xla:"):
        jax_client.need("tpu", "libtpu", "jax")
    place = check_writable(Path(flags["output"] or f"{Path(flags.model).stem}_reduced.pb"), "--output")
    found = reduce(flags.model, flags["when"], programs.options(flags), steps=flags["steps"],
                   tolerance=flags["tolerance"], topology=flags["topology"], checkpoint=flags["checkpoint"],
                   rebind=rebinds(flags["rebind"]), try_seconds=flags["try_seconds"], seconds=flags["seconds"],
                   progress=console.say)  # fmt: skip
    test = found.write(place)
    console.say(*lines(found, place, test))
    return Outcome(found.as_dict() | {"output": str(place), "test": str(test)})


def lines(found: Reduction, place: Path, test: Path) -> list[str]:
    told = [f"reduced {found.source}: {counted(found.nodes_before, 'node')} -> {found.nodes:,} in {found.seconds:.0f} s, "
            f"{found.tries:,} tries", f"shows       {found.words}"]  # fmt: skip
    told += [f"node        {format_node(node)}" for node in list(found.graph)[:_MOST] if node.op not in ops.CONSTANTS]
    told += [f"note        {note}" for note in found.notes]
    options = {key: value for key, value in found.question.changed().items() if hasattr(found.question.options, key)}
    flags = (f"--{key}={','.join(value) if isinstance(value, tuple) else value}" for key, value in options.items())
    told += [f"flags       {' '.join(flags)}"]
    return [*told, f"wrote {place} and {test}, which fails for as long as it shows"]

"""The program that a command runs: MODEL as it is, or converted first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tpugraph import compiler
from tpugraph.cli.console import Console
from tpugraph.cli.flags import Parsed
from tpugraph.cli.table import CONVERSION
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.reach import files_touched
from tpugraph.support.errors import UsageError
from tpugraph.tpu.program import Program

_MOST = 12


def mode_of(flags: Parsed) -> str:
    """What MODEL is for: as it was converted, or as ``--mode`` says of a plain graph."""
    nodes = {node.name for node in graphdef.sniff(Path(flags.model)).graph_def.node}
    for name, mode in (("tpugraph/evaluate", "eval"), ("tpugraph/predict", "predict")):
        if name in nodes:
            return mode
    return str(flags["mode"])


def load(flags: Parsed, console: Console) -> Program:
    """The converted graph in MODEL, or the plain one converted; says the batch.

    Raises:
        UsageError: flags of the conversion for a graph that is converted already.
    """
    loaded = graphdef.sniff(Path(flags.model))
    if not any(node.op == "TPUReplicateMetadata" for node in loaded.graph_def.node):
        program = compiler.convert(flags.model, compiler.ConvertOptions(**flags.options()))
        console.say(program.summary().splitlines()[0])
        console.say(program.report["batch"]["line"])
        return program
    refuse_late(flags)
    graph = graphdef.from_graph_def(loaded.graph_def, source=flags.model)
    console.say(batch_line(graph))
    return Program(loaded.graph_def, {"source": flags.model})


def files_lines(program: Program, rebind: Mapping[str, str]) -> list[str]:
    """The files that a program reads and writes when it runs, beside what the flags name: a line for each kind."""
    touched = files_touched(graphdef.from_graph_def(program.graph_def))
    lines = []
    for does in ("reads", "writes"):
        names = [rebind.get(name, name) for name in touched.get(does, ())]
        more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
        lines += [f"{does:<11} {', '.join(names[:_MOST])}{more}"] if names else []
    return lines


def refuse_late(flags: Parsed) -> None:
    """Refuse flags of the conversion for a graph that is converted already.

    Raises:
        UsageError: such a flag was given.
    """
    late = sorted(flags.given & {flag.name for flag in CONVERSION})
    if late:
        raise UsageError(f"'{flags.model}' is converted already, which --{late[0]} cannot change",
                         fix=f"convert the plain graph again with --{late[0]}={flags[late[0]]}")  # fmt: skip


def batch_line(graph: Graph) -> str:
    """The batch of a converted graph, such as ``global batch 128 = 8 cores x 16``."""
    cores = graph.of_type("TPUReplicateMetadata")[0].attr("num_replicas")
    shapes = [shape for node in graph.of_type("InfeedDequeueTuple") for shape in node.attr("shapes") or []]
    counts = Counter(shape[0] for shape in shapes if shape)
    if not counts:
        return f"{cores} cores"
    rows = max(counts, key=lambda n: (counts[n], n))
    return f"global batch {rows * cores} = {cores} cores x {rows}"

"""Compiles graphs with the real TPU compiler and writes what it said, and what `tpugraph check` says, as a table in Markdown.

    python tools/verdicts.py tests/data/corpus tests/data/oracle > docs/verdicts.md
    python tools/verdicts.py --check_only tests/data/corpus tests/data/oracle

A folder stands for the graphs in it: ``*_tpu.pb`` as they are, ``NAME/model.pb`` (or ``model.pb.gz``) converted for 8
replicas. The graphs of tests/data/corpus are read from that folder, since some name their data by a relative path.
With --check_only nothing is compiled: the column of check is printed, a graph a line, which needs no libtpu.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tpugraph.compiler import adopt_tpu_estimator, convert
from tpugraph.compiler.tpu_check import check
from tpugraph.ir import Graph, graphdef
from tpugraph.support.errors import TpuGraphError
from tpugraph.xla import stablehlo, topologies

TOPOLOGIES = ("v3:2x2", "v5e:2x4")
COLUMNS = (
    "graph",
    "check",
    "lowered in s",
    *(f"{t}: {c}" for t in TOPOLOGIES for c in ("compiled in s", "MiB per core", "us per step")),
)


def graphs(folder: Path) -> Iterator[tuple[str, Path]]:
    """The graphs of a folder by name."""
    for path in sorted(folder.glob("*_tpu.pb")):
        yield path.name, path
    for path in sorted([*folder.glob("*/model.pb"), *folder.glob("*/model.pb.gz")]):
        yield path.parent.name, path


def load(path: Path) -> Graph:
    """A graph, which may be stored compressed."""
    if path.suffix != ".gz":
        return graphdef.load(path)
    definition = tf.compat.v1.GraphDef.FromString(gzip.decompress(path.read_bytes()))
    return graphdef.from_graph_def(definition, source=path.name)


def checked(path: Path) -> str:
    """The cell of check: ``yes``, or which op types stop how many of the device's nodes."""
    report = check(load(path))
    if report.compiles:
        return "yes"
    stopping = dict.fromkeys(finding.op for finding in report.stopping)
    return f"no, {report.percent:.1f} % of {report.device_nodes} nodes: {', '.join(stopping)}"


def verdict(graph: Graph) -> list[str]:
    """The cells of the compiler."""
    if not graph.of_type("TPUReplicateMetadata"):
        graph = graphdef.from_graph_def(convert(graph).graph_def, source=graph.source)
    if "tpugraph/train" not in graph:
        adopt_tpu_estimator.add_entry_points(graph)
    module = stablehlo.lower(graph)
    cells = [f"{sum(module.seconds.values()):.1f}"]
    for topology in TOPOLOGIES:
        try:
            found = topologies.compile_for(module, topology)
        except TpuGraphError as error:
            cells += [_why(error), "", ""]
            continue
        cells += [f"{found.seconds:.1f}", f"{found.peak / 2**20:,.1f}", f"{found.step_seconds * 1e6:,.1f}"]
    return cells


def _why(error: TpuGraphError) -> str:
    text = error.fault if error.node is None else f"{error.fault}: `{error.node}`"
    return text.replace("|", "\\|").replace("\n", " ")[:400]


def _row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def main(arguments: list[str]) -> None:
    """Print the table, or the column of check."""
    found = [pair for folder in arguments if folder != "--check_only" for pair in graphs(Path(folder))]
    if "--check_only" in arguments:
        for name, path in found:
            _row([name, checked(path)])
        return
    _row(list(COLUMNS))
    _row(["---" for _ in COLUMNS])
    for name, path in found:
        try:
            cells = verdict(load(path))
        except TpuGraphError as error:
            cells = [f"no: {_why(error)}", *[""] * 6]
        _row([name, checked(path), *cells])


if __name__ == "__main__":
    main(sys.argv[1:])

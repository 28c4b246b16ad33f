"""Compiles graphs with the real TPU compiler, and prints what it and `tpugraph check` say as a table in Markdown.

    python tools/verdicts.py tests/data/corpus tests/data/oracle > docs/verdicts.md

A folder stands for the graphs in it: ``*_tpu.pb`` as they are, ``NAME/model.pb`` (or ``model.pb.gz``) converted for 8 replicas.
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


def graphs(folder: Path) -> Iterator[tuple[str, Path]]:
    yield from ((path.name, path) for path in sorted(folder.glob("*_tpu.pb")))
    plain = sorted([*folder.glob("*/model.pb"), *folder.glob("*/model.pb.gz")])
    yield from ((path.parent.name, path) for path in plain)


def load(path: Path) -> Graph:
    if path.suffix != ".gz":
        return graphdef.load(path)
    definition = tf.compat.v1.GraphDef.FromString(gzip.decompress(path.read_bytes()))
    return graphdef.from_graph_def(definition, source=path.name)


def checked(path: Path) -> str:
    """The cell of check: ``yes``, or which op types stop how many of the device's nodes."""
    report = check(load(path))
    stopping = dict.fromkeys(finding.op for finding in report.stopping)
    no = f"no, {report.percent:.1f} % of {report.device_nodes} nodes: {', '.join(stopping)}"
    return "yes" if report.compiles else no


def verdict(graph: Graph) -> Iterator[str]:
    """The cells of the compiler."""
    try:
        if not graph.of_type("TPUReplicateMetadata"):
            graph = graphdef.from_graph_def(convert(graph).graph_def, source=graph.source)
        adopt_tpu_estimator.add_entry_points(graph)
        module = stablehlo.lower(graph)
    except TpuGraphError as error:
        yield from (f"no: {_why(error)}", *[""] * 6)
        return
    yield f"{sum(module.seconds.values()):.1f}"
    for topology in TOPOLOGIES:
        try:
            found = topologies.compile_for(module, topology)
            yield from (f"{found.seconds:.1f}", f"{found.peak / 2**20:,.1f}", f"{found.step_seconds * 1e6:,.1f}")
        except TpuGraphError as error:
            yield from (_why(error), "", "")


def _why(error: TpuGraphError) -> str:
    text = error.fault if error.node is None else f"{error.fault}: `{error.node}`"
    return text.replace("|", "\\|").replace("\n", " ")[:400]


if __name__ == "__main__":
    columns = [f"{t}: {c}" for t in TOPOLOGIES for c in ("compiled in s", "MiB per core", "us per step")]
    for row in (["graph", "check", "lowered in s", *columns], ["---"] * 9):
        print("|", " | ".join(row), "|")
    for name, path in (pair for folder in sys.argv[1:] for pair in graphs(Path(folder))):
        print("|", " | ".join([name, checked(path), *verdict(load(path))]), "|", flush=True)

"""Compiles graphs with the real TPU compiler and writes what it said as a table in Markdown.

    python tools/verdicts.py tests/data/corpus tests/data/oracle > docs/verdicts.md

A folder stands for the graphs in it: ``*_tpu.pb`` as they are, ``NAME/model.pb`` (or ``model.pb.gz``) converted for 8
replicas. The graphs of tests/data/corpus are read from that folder, since some name their data by a relative path.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tpugraph import graphdef
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.errors import TpuGraphError
from tpugraph.ir import Graph
from tpugraph.runtime import foreign, stablehlo, topologies

TOPOLOGIES = ("v3:2x2", "v5e:2x4")
COLUMNS = (
    "graph",
    "lowered in s",
    *(f"{t}: {c}" for t in TOPOLOGIES for c in ("compiled in s", "MiB per core", "us per step")),
)


def graphs(folder: Path) -> Iterator[tuple[str, Graph]]:
    """The TPU graphs of a folder by name; a conversion that is refused raises when it is asked for."""
    for path in sorted(folder.glob("*_tpu.pb")):
        yield path.name, graphdef.load(path)
    for path in sorted([*folder.glob("*/model.pb"), *folder.glob("*/model.pb.gz")]):
        yield path.parent.name, _plain(path)


def _plain(path: Path) -> Graph:
    if path.suffix != ".gz":
        return graphdef.load(path)
    definition = tf.compat.v1.GraphDef.FromString(gzip.decompress(path.read_bytes()))
    return graphdef.from_graph_def(definition, source=path.name)


def verdict(graph: Graph) -> list[str]:
    """The cells behind the graph's name."""
    if not graph.of_type("TPUReplicateMetadata"):
        graph = graphdef.from_graph_def(convert(graph, ConvertOptions(num_replicas=8)).graph_def, source=graph.source)
    if "tpugraph/train" not in graph:
        foreign.add_entry_points(graph)
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


def main(folders: list[str]) -> None:
    """Print the table."""
    print("| " + " | ".join(COLUMNS) + " |")
    print("| " + " | ".join("---" for _ in COLUMNS) + " |")
    for folder in folders:
        for name, graph in graphs(Path(folder)):
            try:
                cells = verdict(graph)
            except TpuGraphError as error:
                cells = [f"no: {_why(error)}", *[""] * 6]
            print("| " + " | ".join([name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

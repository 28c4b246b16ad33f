"""Checks the form of a TPU graph from a file: its entry points with their op types, and the cores that it feeds.

docs/tpu_graph.md describes the form. tpugraph.ir.validate has checked each node against its op's definition; this checks that
the nodes that a session runs by name are of the kind that the name says.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis import by_core
from tpugraph.analysis.values import constant_at
from tpugraph.ir import Graph, Node
from tpugraph.ir.builder import output_dtypes
from tpugraph.support.errors import LoadError
from tpugraph.tpu.program import DEVICE_PARTS, mode_of

FIX = "convert the plain graph again"
MOST_CORES = 4096
"""A limit above the largest TPU's: each emulated core is a copy of a part of the step."""

_LIMIT = "tpugraph/iterations_per_loop"
_NEEDED = ("configure", "init", "init_local", "init_input", "iterations_per_loop", "iterations_per_loop/Initializer", "enqueue",
           "dequeue", "global_step", "checkpoint", "save", "restore", "shutdown")  # fmt: skip
_NEEDED_BY = {"train": ("loss",), "eval": ("init_metrics", "restart_input"), "predict": ("restart_input",)}
_INTEGERS = ("int32", "int64")
_DTYPES = {
    _LIMIT: ("resource",),
    f"{_LIMIT}/Initializer": ("int32",),
    "tpugraph/global_step": _INTEGERS,
    "tpugraph/checkpoint": ("string",),
    "tpugraph/summaries": ("string",),
    "tpugraph/state_summaries": ("string",),
}


def check_form(graph: Graph) -> None:
    """Raise a LoadError where a TPU graph lacks its form; in a graph of TPUEstimator, check only the cores."""
    for fault, node in _faults(graph):
        raise LoadError(f"the TPU graph is damaged: {fault}", node=node, origin=graph.source, fix=FIX)


def missing_entry_points(graph: Graph, mode: str) -> list[str]:
    """The nodes that a session runs by name and a graph lacks."""
    named = [DEVICE_PARTS[mode], *(f"tpugraph/{name}" for name in (*_NEEDED, *_NEEDED_BY[mode]))]
    return [name for name in named if name not in graph]


def _faults(graph: Graph) -> Iterator[tuple[str, Node | None]]:
    yield from _faults_of_cores(graph)
    if not any(name in graph for name in DEVICE_PARTS.values()):
        return
    for name in missing_entry_points(graph, mode_of(graph)):
        yield f"it has lost the entry point '{name}'", None
    for name, kinds in _DTYPES.items():
        if name in graph and _dtype(graph[name]) not in kinds:
            yield f"'{name}' gives {_dtype(graph[name]) or 'nothing'}, not {' or '.join(kinds)}", graph[name]
    first = graph[f"{_LIMIT}/Initializer"]
    limit = constant_at(first.out())  # a session reads it before it runs anything
    if limit is None or limit.shape != () or limit.item() < 1:
        yield "the number of steps per loop is no constant of at least 1", first


def _faults_of_cores(graph: Graph) -> Iterator[tuple[str, Node | None]]:
    found = graph.of_type("TPUReplicateMetadata")
    cores = found[0].attr("num_replicas")
    if any(node.attr("num_replicas") != cores for node in found):
        yield "its clusters have not the same number of cores", found[0]
    if not 1 <= cores <= MOST_CORES:
        yield f"it claims {cores:,} cores; 1 to {MOST_CORES:,} can be", found[0]
    for op in ("InfeedEnqueueTuple", "OutfeedDequeueTuple"):
        ends = graph.of_type(op)
        served = [node.attr("device_ordinal", 0) for node in by_core(ends)]
        hosts = max(served.count(0), 1)  # each host counts its cores from 0
        if ends and "tpugraph/train" in graph and served != list(range(cores // hosts)) * hosts:
            yield f"it has {cores:,} cores, and {op} for {_some(served)}", ends[0]


def _dtype(node: Node) -> str:
    if ops.op_def(node.op) is None:
        return ""
    return next((kind.name for kind in output_dtypes(node.op, node.raw_attrs)), "")


def _some(numbers: list[int]) -> str:
    return f"{', '.join(map(str, numbers[:6]))}{', ...' if len(numbers) > 6 else ''}" or "none"

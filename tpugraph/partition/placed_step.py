"""The placements of a step: what comes in from the host, which dimensions are the batch, where every value lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpugraph import analysis, ops
from tpugraph.analysis import dimension_rules as _dimension_rules  # registers its rules
from tpugraph.analysis import evidence
from tpugraph.analysis import placement_rules as _placement_rules  # registers its rules
from tpugraph.analysis.dimensions import Dimensions, Dims, Elements, fixed
from tpugraph.analysis.input_rows import rows_from_input
from tpugraph.analysis.placements import REPLICATE, Entries, PerCore, Placement, Shard
from tpugraph.analysis.placing import Placing, shard_of
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown
from tpugraph.analysis.step import ClosedShapes, SplitConstants
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.partition import one_row

_ = (_dimension_rules, _placement_rules)
_Seeds = tuple[dict[Tensor, Dims], dict[Tensor, Placement], dict[Tensor, Elements]]


def analyse(graph: Graph, rows: int, count: int = 1, *, policies: Mapping[str, str] | None = None,
            chosen: Mapping[str, bool] | None = None, nodes: analysis.NodeSet | None = None,
            split: SplitConstants | None = None) -> Placing:  # fmt: skip
    """The placements of a training step, with its dimensions and sizes.

    Args:
        graph: the graph, placed on host and device, with shapes.
        rows: rows of one core's batch.
        count: number of cores.
        policies: see :class:`Placing`.
        chosen: constants that are settled: by name, whether they hold the size of the batch.
        nodes: the nodes to analyse; those on the device by default.
        split: which constants hold sizes of a batch that was split.
    """
    device = analysis.cluster_nodes(graph) if nodes is None else nodes
    closed = graph.kept(ClosedShapes) or ClosedShapes()
    after = (
        _sources(graph, closed.shape_of) if rows == 1 else None
    )  # what asks whether a 1 is a row must find it settled
    order = analysis.loop_order(graph, device, after)
    dims, placements, sizes = _seeds(graph, device, rows)
    if split is not None:
        dims |= {graph[name].out(): held for name, held in split.dims.items() if name in graph}
        sizes |= {graph[name].out(): held for name, held in split.elements.items() if name in graph}
    shape_of, literal_ones = closed.shape_of, closed.ones
    only = set(split.names()) if split is not None else None
    if literal_ones is not None and only is None:  # no shape of the batch was a constant before
        only = {*shape_of, *(chosen or ())}

    def found(ones: bool) -> Dimensions:
        made = Dimensions(graph, order, rows, dims, sizes, shape_of=shape_of, chosen=chosen, whole=rows * count,
                          only=only, ones=ones, literal_ones=literal_ones)  # fmt: skip
        evidence.weigh(made)
        return made

    dimensions = found(ones=False)
    if rows > 1 and (dimensions.sizes.conflicts or dimensions.has_parts_of_one_row()):
        other = found(ones=True)
        if len(other.sizes.conflicts) < max(len(dimensions.sizes.conflicts), 1):
            dimensions = other
    if dimensions.ones and count > 1 and one_row.mend(graph, dimensions):
        order = analysis.loop_order(graph, analysis.cluster_nodes(graph), after)
        dimensions = found(ones=True)
    return Placing(graph, order, dimensions, placements, policies=policies)


def _of_dims(dims: Dims) -> Placement:
    """How a value lives of whose dimensions all is known."""
    rows = [shard_of(dims, axis) for axis, size in enumerate(dims) if isinstance(size, Poly)]  # type: ignore[arg-type]
    return rows[0] if len(rows) == 1 and rows[0] else PerCore("each core reads its own part of the input")


_FIRST_COLUMN = {"StridedSlice": 1, "Slice": 1, "Squeeze": None, "Reshape": None, "Cast": None, "Identity": None}
"""Ops that may take the first column of places on the host, by the operand that says where they begin."""


def _are_places(tensor: Tensor) -> bool:
    """Whether entries from the host are places among the rows of a core (int64 [entries, dimensions], as of a sparse tensor
    and of ``Where``), or the first column of those: the numbers of its rows."""
    while tensor.node.op in _FIRST_COLUMN and len(tensor.shape or ()) == 1:
        begin = _FIRST_COLUMN[tensor.node.op]
        first = [0] if begin is None else fixed(tensor.node.inputs[begin]) or [0]
        if any(first[1:]):
            return False
        tensor = tensor.node.inputs[0]
    return len(tensor.shape or ()) == 2 and tensor.dtype.name == "int64"


def _sources(graph: Graph, shape_of: Mapping[str, str]) -> dict[Node, Node]:
    """By constant the node whose shape it is."""
    made = {name: graph.get(tensor.partition(":")[0]) for name, tensor in shape_of.items()}
    return {graph[name]: source for name, source in made.items() if source is not None and name in graph}


def _seeds(graph: Graph, device: Mapping[Any, Any], rows: int) -> _Seeds:
    """What the host hands to the device: rows of the batch, entries of sparse rows, or the same for all cores."""
    fed = {t: None for n in device for t in n.inputs if t.node not in device and t.node.op not in ops.VARIABLES}
    inputs = graph.descendants([n for n in graph.of_type(*ops.INPUTS, *ops.RANDOM)], data_only=True)
    dims: dict[Tensor, Dims] = {}
    placements: dict[Tensor, Placement] = {}
    sizes: dict[Tensor, Elements] = {}
    found = rows_from_input(graph)
    told = found[1] if found is not None and found[0] == rows else {}
    for tensor in fed:
        if tensor.node not in inputs:
            placements[tensor] = REPLICATE
            continue
        if tensor in told:
            dims[tensor] = told[tensor]
            placements[tensor] = _of_dims(told[tensor])
            continue
        shape = tensor.shape
        if shape and shape[0] == rows:
            placements[tensor] = Shard(0)
        elif shape and shape[0] is None:
            placements[tensor] = Entries("local" if _are_places(tensor) else "values")
        elif shape and len(shape) == 1 and tensor.dtype.name == "int64":
            placements[tensor] = Entries("shape")
        else:
            placements[tensor] = PerCore("each core reads its own part of the input")
        if placements[tensor] == Entries("shape") and shape is not None:
            sizes[tensor] = [ROWS, *[None] * (int(shape[0] or 1) - 1)]
        if shape is not None:
            made: list[Size] = [Unknown(-1) if s is None else int(s) for s in shape]
            if placements[tensor] == Shard(0):
                made[0] = ROWS
            dims[tensor] = tuple(made)
    return dims, placements, sizes

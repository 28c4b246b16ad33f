"""Sparse columns: the lists of ids and weights that are looked up, and the bound on their entries per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.analysis.batched_input import rows_read
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.values import known_vector
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import reached
from tpugraph.lookups.entries import Entries, Lists, is_row_of_entries
from tpugraph.lookups.lookup_nodes import LookupNodes
from tpugraph.lookups.padded_lists import NO_IDS, Bound
from tpugraph.support.errors import ShapeError


def sparse_lists(graph: Graph) -> Lists:
    """The lists of ids and weights that SparseFillEmptyRows makes, with at least one entry per row."""
    starts: dict[Tensor, Entries] = {}
    if graph.of_type(*ops.SPARSE_SEGMENTS, *ops.SEGMENTS) and fill_rows(graph, _free_of_variables(graph)):
        shapes.infer(graph)
    fills = graph.of_type("SparseFillEmptyRows")
    free = _free_of_variables(graph) if fills else {}
    for fill in fills:
        if fill in free and not fill.uses(3):  # output 3 passes gradients to trained weights
            starts[fill.out(0)] = Entries("indices", (fill,))
            starts[fill.out(1)] = Entries("values", (fill,))
    return Lists(graph, starts)


def bounds_of(graph: Graph, lists: Lists, max_ids: int) -> dict[Node, Bound]:
    """The padded size of each list, by its producer; ``max_ids`` is the bound per row where no shape has one, or 0."""
    looked_up = _looked_up(graph, lists)
    found: dict[Node, Bound] = {}
    for group in lists.groups():
        bound = _bound(graph, group, max_ids) if not looked_up.isdisjoint(group) else None
        if bound is not None:
            found.update(dict.fromkeys(group, bound))
    return found


def _bound(graph: Graph, group: list[Node], max_ids: int) -> Bound | None:
    """The common size of grouped lists; None where the number of rows is unknown or no bound is needed."""
    known = [known_vector(fill.inputs[2]) or [None, None] for fill in group]
    rows, lengths = {shape[0] for shape in known}, [shape[-1] for shape in known]
    count = rows.pop() if len(rows) == 1 else None
    if count is None:
        return None
    if None not in lengths:
        return Bound(count, max(1, *(length or 0 for length in lengths)), by_flag=False)
    if max_ids:
        return Bound(count, max_ids, by_flag=True)
    whole = bounded_shape(group[0].out(1))
    if whole is not None and None not in whole:
        return None
    maker = graph.get(group[0].origin or "") or group[0]
    raise ShapeError(
        f"'{maker.name}' makes lists of any length, and a TPU takes none",
        node=maker,
        origin=graph.source,
        fix="--max_ids=N (max_ids=N from Python), the most ids that a row has: rows are padded to so many",
    )


def _looked_up(graph: Graph, lists: Lists) -> set[Node]:
    """The lists whose reduction by row depends on variables."""
    found: set[Node] = set()
    segments = {tensor: entries for tensor, entries in lists.of.items() if entries.role == "segments"}
    trained = graph.descendants(graph.of_type(*ops.VARIABLES), data_only=True) if segments else {}
    for tensor, entries in segments.items():
        if any(use.node in trained for use in tensor.node.uses(tensor.port)):
            found.update(entries.makers)
    return found


def _free_of_variables(graph: Graph) -> dict[Node, None]:
    """Nodes outside of loops and branches that depend on no variable."""
    bound = graph.descendants(graph.of_type(*ops.VARIABLES), data_only=True) | analysis.nested(graph)
    return {node: None for node in graph if node not in bound}


_SAME_LIST = ops.IDENTITIES | ops.RESHAPES | ops.EXPANSIONS | ops.UNIQUE


def fill_rows(graph: Graph, free: Mapping[Node, None]) -> int:
    """Insert a SparseFillEmptyRows behind lists of unknown length that are looked up; returns their number.

    ``tf.nn.embedding_lookup_sparse`` does not fill empty rows. Where each row has an id, filling changes nothing, and the
    lookup has the form of ``tf.nn.safe_embedding_lookup_sparse``. A batch with an empty row ends the run.
    """
    rows = rows_read(graph) if graph.roles.mode == "train" else None
    if not rows:
        return 0
    count = 0
    filled = {fill.out() for fill in graph.of_type("SparseFillEmptyRows")}
    columns = [n for n in graph.of_type(*ops.STRIDED_SLICES) if n in free and n.inputs[0] not in filled]
    for column in filter(is_row_of_entries, columns):
        lists = dict.fromkeys(tensor for node in _sums_by(column) for tensor in _lists(node, free))
        ids = [tensor for tensor in lists if not tensor.dtype.floating]
        if len(ids) == 1 and not any(shapes.is_static(bounded_shape(tensor)) for tensor in lists):
            _fill(graph, column, [*ids, *(tensor for tensor in lists if tensor not in ids)], rows)
            count += len(lists)
    return count


def _sums_by(column: Node) -> Iterator[Node]:
    """The segment sums that use a column of coordinates as row of the batch."""
    casts = reached((column,), lambda node: (u.node for u in node.uses(0) if u.node.op in ops.CASTS | ops.IDENTITIES))
    return (
        use.node
        for node in casts
        for use in node.uses(0)
        if use.node.op in ops.SPARSE_SEGMENTS | ops.SEGMENTS and use.index > 0
    )


def _lists(node: Node, free: Mapping[Node, None]) -> Iterator[Tensor]:
    """The host's lists of ids and weights, one element per entry, that a sum over entries is computed from."""
    pending, seen = list(node.inputs[:-1]), set()
    while pending:
        tensor = pending.pop()
        while tensor.node in free and tensor.node.op in _SAME_LIST:
            tensor = tensor.node.inputs[0]
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor.node not in free:
            pending += tensor.node.inputs
        elif tensor.shape is not None and tensor.shape == (None,):
            yield tensor


def _fill(graph: Graph, column: Node, lists: list[Tensor], rows: int) -> None:
    make, indices = LookupNodes(graph, f"{column.name}/filled", source=column), column.inputs[0]
    number = make.const(np.int64(rows))
    ones = make.add("OnesLike", [column.out()])
    entries = make.add("UnsortedSegmentSum", [ones, column.out(), number])
    fewest = make.add("Min", [entries, make.const(np.asarray([0], np.int32))], keep_dims=False)
    full = make.add("Less", [make.const(np.int64(0)), make.as_dtype(fewest, number.dtype)])
    text = make.const(np.asarray(f"{NO_IDS} {lists[0].node.name}:", object))
    check = make.node("Assert", [full, text, fewest], summarize=1)
    for position, values in enumerate(lists):
        near = LookupNodes(graph, f"{values.node.name}/filled", source=values.node)
        given = near.add("Identity", [values])
        graph.add_control(given.node, check)
        length = near.add("Size", [given], out_type=number.dtype)
        shape = near.add("Pack", [number, length], axis=0)
        default = near.const(np.zeros((), values.dtype.name))
        fill = near.node("SparseFillEmptyRows", [indices, given, shape, default])
        graph.replace_uses(values, fill.out(1))
        graph.set_input(given.node, 0, values)
        if position == 0:
            own = graph.clone_subgraph([column], lambda name: f"{name}/rows")[column]
            graph.set_input(own, 0, fill.out(0))
            graph.replace_uses(column.out(), own.out(), where=lambda use: use.node.made_by != graph.stage)

"""Sparse columns: the lists of ids and weights that are looked up in tables, and how many of them a row has at most."""

from __future__ import annotations

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.values import known_vector
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.lookups.entries import Entries, Lists
from tpugraph.lookups.filled_rows import fill_rows
from tpugraph.lookups.padded_lists import Bound
from tpugraph.support.errors import ShapeError


def sparse_lists(graph: Graph) -> Lists:
    """The lists of ids and weights of sparse columns, as SparseFillEmptyRows makes them: each row has an entry at least."""
    starts: dict[Tensor, Entries] = {}
    if graph.of_type(*ops.SPARSE_SEGMENTS, *ops.SEGMENTS) and fill_rows(graph, _free_of_variables(graph)):
        shapes.infer(graph)
    fills = graph.of_type("SparseFillEmptyRows")
    free = _free_of_variables(graph) if fills else {}
    for fill in fills:
        if fill in free and not fill.uses(3):  # which gives gradients to weights that are learnt
            starts[fill.out(0)] = Entries("indices", (fill,))
            starts[fill.out(1)] = Entries("values", (fill,))
    return Lists(graph, starts)


def bounds_of(graph: Graph, lists: Lists, max_ids: int) -> dict[Node, Bound]:
    """The size to which each list is padded that can be, by the node that made it.

    Args:
        graph: the graph, with shapes.
        max_ids: the most ids of a row where no shape tells; 0 where nobody said it.

    Raises:
        ShapeError: no shape tells how many ids a row has at most, and nobody said it.
    """
    looked_up = _looked_up(graph, lists)
    found: dict[Node, Bound] = {}
    for group in lists.groups():
        bound = _bound(graph, group, max_ids) if not looked_up.isdisjoint(group) else None
        if bound is not None:
            found.update(dict.fromkeys(group, bound))
    return found


def _bound(graph: Graph, group: list[Node], max_ids: int) -> Bound | None:
    """The size of lists whose entries meet; None where the number of rows is not known, or that of ids need not be."""
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
    raise ShapeError(
        f"'{group[0].name}' makes lists of any length, and a TPU takes none",
        node=group[0],
        origin=graph.source,
        fix="--max_ids=N (max_ids=N from Python), the most ids that a row has: rows are padded to so many",
    )


def _looked_up(graph: Graph, lists: Lists) -> set[Node]:
    """The lists of which rows of the batch get something that depends on variables."""
    found: set[Node] = set()
    segments = {tensor: entries for tensor, entries in lists.of.items() if entries.role == "segments"}
    trained = graph.descendants(graph.of_type(*ops.VARIABLES), data_only=True) if segments else {}
    for tensor, entries in segments.items():
        if any(use.node in trained for use in tensor.node.uses(tensor.port)):
            found.update(entries.makers)
    return found


def _free_of_variables(graph: Graph) -> dict[Node, None]:
    """What does not depend on a variable, and is in no loop or branch."""
    bound = graph.descendants(graph.of_type(*ops.VARIABLES), data_only=True)
    bound.update(dict.fromkeys(analysis.conditional(graph)))
    frames = analysis.frames(graph)
    return {node: None for node in graph if node not in bound and not frames[node]}

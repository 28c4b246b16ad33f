"""Constants of a graph that was traced with a fixed number of rows, where the host must follow the true number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tpugraph import ops, shapes
from tpugraph.batch_dims import BatchDims
from tpugraph.errors import ShapeError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.row_states import MIXED, Rows, Sizes, State

AT_TWICE = "at-twice-the-rows"
"""Fact of a graph that was traced once more, with twice as many rows: of each constant its value there, by name; None where
it is the same."""

_LONGEST = 16
_SCALES = frozenset({"Mul", "RealDiv", "Div", "DivNoNan", "FloorDiv", "TruncateDiv"})


def find_baked(
    graph: Graph, rows: int, seeds: list[Tensor], nodes: Iterable[Node], state_of: Callable[[Tensor], State]
) -> dict[Tensor, Sizes | Rows]:
    """The constants among what ``nodes`` read that hold the number of rows of a core's batch.

    Args:
        graph: the graph, traced with that number, with shapes.
        rows: that number.
        seeds: the padded batch.
        nodes: what runs on the rows of all cores.
        state_of: what each tensor of the step is (see :mod:`tpugraph.rows`).

    Returns:
        What each such constant becomes: sizes some of which grow, or rows that are all the same.

    Raises:
        ShapeError: it is not certain whether a constant holds the number, or it depends on it in another way; it is named.
    """
    nodes = list(nodes)
    constants = dict.fromkeys(t for node in nodes for t in node.inputs if t.node.op == "Const")
    found: dict[Tensor, Sizes | Rows] = {}
    for tensor, state in told(graph, rows, (t.node for t in constants)).items():
        if not isinstance(state, (Sizes, Rows)):
            raise _otherwise(graph, tensor)
        found[tensor] = state
    open_ones = [tensor for tensor in constants if tensor.node.name not in graph.facts.get(AT_TWICE, {})]
    if open_ones:
        found |= _deduced(graph, rows, seeds, nodes, open_ones, state_of)
    for tensor in found:
        graph.note(tensor.node, "follows the true number of rows on the host")
    return found


def told(graph: Graph, rows: int, nodes: Iterable[Node]) -> dict[Tensor, State]:
    """What a second trace tells of the constants among ``nodes`` that differ there.

    Args:
        graph: the graph; without the fact :data:`AT_TWICE` nothing is told.
        rows: the rows of a core's batch in the first trace.
        nodes: the nodes.

    Returns:
        Sizes or rows that grow with the batch; ``MIXED`` of what depends on it in another way.
    """
    at_twice = graph.facts.get(AT_TWICE, {})
    differ = [(node, at_twice[node.name]) for node in nodes if node.op == "Const" and node.name in at_twice]
    return {
        node.out(): _growth(np.asarray(node.attr("value")), other, rows) for node, other in differ if other is not None
    }


def _growth(value: np.ndarray, twice: np.ndarray, rows: int) -> State:
    """How a constant grows with the rows of a batch, from its values with so many rows and with twice as many."""
    if value.shape == twice.shape and value.ndim <= 1 and value.dtype.kind in "iuf":
        pairs = list(zip(value.ravel().tolist(), twice.ravel().tolist(), strict=True))
        times = [None if a == b else int(a // rows) if a > 0 and b == 2 * a and not a % rows else 0 for a, b in pairs]
        return MIXED if 0 in times else Sizes(tuple(times))
    grown = [axis for axis, (a, b) in enumerate(zip(value.shape, twice.shape, strict=False)) if a != b]
    if value.ndim != twice.ndim or len(grown) != 1 or not value.size or not (value == value.flat[0]).all():
        return MIXED
    axis = grown[0]
    inner, rest = divmod(value.shape[axis], rows)
    alike = bool((twice == value.flat[0]).all()) and twice.shape[axis] == 2 * value.shape[axis]
    return Rows(axis, 1, inner) if alike and not rest else MIXED


def _deduced(
    graph: Graph,
    rows: int,
    seeds: list[Tensor],
    nodes: list[Node],
    constants: list[Tensor],
    state: Callable[[Tensor], State],
) -> dict[Tensor, Sizes | Rows]:
    """What the graph alone says of constants that may hold the number of rows."""
    if rows == 1:
        raise ShapeError(
            "the graph was traced with batches of one row, so any 1 in it may be the number of rows",
            origin=graph.source,
            fix=_FIX,
        )
    around = graph.ancestors(nodes)
    tables = [node.out() for node in around if node.op == "Const" and _is_table(node.attr("value"))]
    dims = BatchDims(graph, around, rows, seeds, tables)
    found: dict[Tensor, Sizes | Rows] = {}
    for tensor in constants:
        value = np.asarray(tensor.node.attr("value"))
        made = _numbers(graph, tensor, value, dims, rows, state) or _same_rows(graph, tensor, value, dims, rows)
        if made is not None:
            found[tensor] = made
    return found


def _is_table(value: np.ndarray) -> bool:
    """Whether a constant has rows of its own: numbers that differ belong to no example."""
    return value.ndim > 0 and value.dtype.kind == "f" and value.size > 0 and not bool((value == value.flat[0]).all())


_FIX = "batch the dataset without drop_remainder, so that the graph is traced with an open number of rows"


def _numbers(
    graph: Graph, tensor: Tensor, value: np.ndarray, dims: BatchDims, rows: int, state: Callable[[Tensor], State]
) -> Sizes | None:
    """Whole numbers some of which are the number of rows."""
    if value.ndim > 1 or value.size > _LONGEST or value.dtype.kind not in "iuf":
        return None
    if value.dtype.kind == "f":
        if value.ndim == 0 and value == rows and any(use.node.op in _SCALES for use in tensor.node.uses()):
            raise _uncertain(graph, tensor, value)
        return None
    times: list[int | None] = []
    for index, element in enumerate(int(v) for v in value.ravel()):
        grows = dims.element(tensor, index, element)
        if grows is None:
            if not _counts_rows(tensor, element, rows, state):
                raise _uncertain(graph, tensor, value)
            grows = True
        times.append(element // rows if grows else None)
    return Sizes(tuple(times)) if any(times) else None


def _counts_rows(tensor: Tensor, element: int, rows: int, state: Callable[[Tensor], State]) -> bool:
    """Whether a number counts the elements of rows: it is added to a metric that waits for as many of them."""
    stack, seen = [tensor.node], {tensor.node}
    while stack:
        for use in stack.pop().uses():
            node = use.node
            if node.op in ops.WRITES:
                waited = [c.out() for c in node.controls if c.outputs]
                return any(isinstance(state(t), Rows) and shapes.element_count(t.shape) == element for t in waited)
            if node.op in ops.IDENTITIES | {"Cast"} and node not in seen:
                seen.add(node)
                stack.append(node)
    return False


def _same_rows(graph: Graph, tensor: Tensor, value: np.ndarray, dims: BatchDims, rows: int) -> Rows | None:
    """A constant with a row for each example, all rows of which are the same."""
    axis = next((axis for axis in range(value.ndim) if dims.certain(tensor, axis)), None)
    if axis is None:
        return None
    if value.size and not (value == value.flat[0]).all():
        raise ShapeError(
            f"the constant '{tensor}' has {value.shape[axis]} rows of its own, which cannot follow the true number",
            node=tensor.node,
            origin=graph.source,
            fix=_FIX,
        )
    return Rows(axis, 1, value.shape[axis] // rows)


def _otherwise(graph: Graph, tensor: Tensor) -> ShapeError:
    return ShapeError(
        f"the constant '{tensor}' depends on the number of rows of a batch, and is no multiple of it",
        node=tensor.node,
        origin=graph.source,
        fix="compute it from tf.shape(features)[0]",
    )


def _uncertain(graph: Graph, tensor: Tensor, value: np.ndarray) -> ShapeError:
    return ShapeError(
        f"it is not certain whether the constant '{tensor}' = {value.tolist()} is the number of rows of a batch",
        node=tensor.node,
        origin=graph.source,
        fix=_FIX,
    )

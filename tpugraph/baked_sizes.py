"""Constants of a graph that was traced with a fixed number of rows, where the host must follow the true number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tpugraph import ops, shapes
from tpugraph.batch_dims import BatchDims
from tpugraph.errors import ShapeError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.row_states import Rows, Sizes, State

_LONGEST = 16
_SCALES = frozenset({"Mul", "RealDiv", "Div", "DivNoNan", "FloorDiv", "TruncateDiv"})


def find_baked(
    graph: Graph, rows: int, seeds: list[Tensor], nodes: Iterable[Node], state: Callable[[Tensor], State]
) -> dict[Tensor, Sizes | Rows]:
    """The constants among what ``nodes`` read that hold the number of rows of a core's batch.

    Args:
        graph: the graph, traced with that number, with shapes.
        rows: that number.
        seeds: the padded batch.
        nodes: what runs on the rows of all cores.
        state: what each tensor of the step is (see :mod:`tpugraph.rows`).

    Returns:
        What each such constant becomes: sizes some of which grow, or rows that are all the same.

    Raises:
        ShapeError: it is not certain whether a constant holds the number; it is named.
    """
    nodes = list(nodes)
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
    constants = dict.fromkeys(t for node in nodes for t in node.inputs if t.node.op == "Const")
    for tensor in constants:
        value = np.asarray(tensor.node.attr("value"))
        made = _numbers(graph, tensor, value, dims, rows, state) or _same_rows(graph, tensor, value, dims, rows)
        if made is not None:
            found[tensor] = made
            graph.note(tensor.node, "follows the true number of rows on the host")
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


def _uncertain(graph: Graph, tensor: Tensor, value: np.ndarray) -> ShapeError:
    return ShapeError(
        f"it is not certain whether the constant '{tensor}' = {value.tolist()} is the number of rows of a batch",
        node=tensor.node,
        origin=graph.source,
        fix=_FIX,
    )

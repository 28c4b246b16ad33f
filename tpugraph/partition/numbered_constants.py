"""Constants with a row for each example that follow a rule, as ``np.arange(rows)`` and ``np.eye(rows)``: computed instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.constant_values import constant, constant_at
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.readings import share_of_rows
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.support.errors import ConversionError

_INT32 = attrs.dtype("int32")
_Array = np.ndarray[Any, Any]


def compute_instead(graph: Graph, d: Dimensions) -> bool:
    """Let ops make the constants of which the rows of other cores follow; returns whether there are some."""
    found = False
    for node in own_rows(d) if d.rows > 1 else []:
        value = constant(node)
        starts = _starts(value, d.rows)
        if starts and (d.constants.choice(node.name) or not _may_be_spread(value)):
            made = _numbers(graph, node, starts, d.rows)
        elif _is_diagonal(value) and len(d.axes(node.out())) == 2 and not _holds_shares(d, node):
            made = _diagonal(graph, node)
        else:
            continue
        for use in node.uses():
            graph.set_input(use.node, use.index, made)
        found = True
    return found


def own_rows(d: Dimensions) -> list[Node]:
    """The constants with rows of the batch that differ from one another."""
    found = []
    for node in d.order:
        value = constant_at(node.out()) if node.outputs else None
        axes = d.axes(node.out()) if value is not None else []
        if value is not None and value.size and any((value != value.take([0], axis)).any() for axis in axes):
            found.append(node)
    return found


def refuse_own_rows(placing: Placing) -> None:
    """Refuse constants that have other rows for each example of a core's batch.

    Raises:
        ConversionError: it names the constant.
    """
    for node in own_rows(placing.d):
        name, otherwise = node.name, "compute them from tf.shape of a feature"
        if _may_be_spread(constant(node)):
            fault = (
                f"the constant '{name}' is [0, 1] for the two rows of a core's batch: it numbers them, as np.arange, or spreads them "
                "from 0 to 1, as np.linspace"
            )
            fix = f"--batch_constants={name} if it numbers the rows, --literals={name} if these are no rows; otherwise {otherwise}"
        else:
            fault = (
                f"the constant '{name}' has {placing.d.rows} rows of its own, one for each row of a core's batch: which the other "
                "cores' rows would have is not known"
            )
            fix = (
                f"--literals={name} if these are no rows of the batch; otherwise let them come with those of the input, one for each "
                f"example, or {otherwise}"
            )
        raise ConversionError(fault, node=node, origin=placing.graph.source, fix=fix)


def _starts(value: _Array, rows: int) -> list[int]:
    """Where the numbers of each batch begin, of a vector that numbers the rows of one or several batches; else nothing."""
    if value.ndim != 1 or value.dtype.kind not in "iuf" or value.size % rows:
        return []
    batches = value.reshape(-1, rows)
    first = batches[:, :1]
    numbered = (batches == first + np.arange(rows)).all() and (first % rows == 0).all()
    return [int(start) for start in first[:, 0]] if numbered else []


def _may_be_spread(value: _Array) -> bool:
    """Whether numbers of rows are from 0 to 1 as well, however many rows there are: two rows cannot tell."""
    return bool(value.dtype.kind == "f" and value.tolist() == [0.0, 1.0])


def _is_diagonal(value: _Array) -> bool:
    """Whether a matrix has one number on its diagonal and one elsewhere."""
    square = value.ndim == 2 and value.shape[0] == value.shape[1] > 1
    return square and bool((value == np.where(np.eye(len(value), dtype=bool), value[0, 0], value[0, 1])).all())


def _holds_shares(d: Dimensions, node: Node) -> bool:
    """Whether what stands beside a diagonal may be one over the rows, as in the matrix that centres them."""
    beside = float(constant(node)[0, 1]) if constant(node).dtype.kind == "f" else 0.0
    reading = share_of_rows(beside, d.rows)
    return reading is not None and reading.is_one_over() and reading.of in (d.rows, d.rows**2)


def _numbers(graph: Graph, node: Node, starts: list[int], rows: int) -> Tensor:
    """The numbers of the rows of several batches, one after the other."""
    kind = node.out().dtype
    one = _constant(graph, node, "delta", np.asarray(1, kind.name))
    parts = []
    for start in starts:
        ends = [_constant(graph, node, "end", np.asarray(end, kind.name)) for end in (start, start + rows)]
        parts.append(_made(graph, node, "Range", [*ends, one], {"Tidx": kind}, (rows,)))
    if len(parts) == 1:
        return parts[0]
    axis = _constant(graph, node, "axis", np.asarray(0, "int32"))
    return _made(graph, node, "ConcatV2", [*parts, axis], {"T": kind, "N": len(parts), "Tidx": _INT32},
                 (rows * len(parts),))  # fmt: skip


def _diagonal(graph: Graph, node: Node) -> Tensor:
    """A matrix of as many rows and columns as there are rows."""
    value, kind = constant(node), node.out().dtype
    size = np.full((), -1, "int32")
    inputs = [
        _constant(graph, node, name, held)
        for name, held in (("diagonal", value.diagonal().copy()), ("k", np.zeros((), "int32")), ("rows", size), ("columns", size),
                           ("elsewhere", value[0, 1]))
    ]  # fmt: skip
    return _made(graph, node, "MatrixDiagV3", inputs, {"T": kind, "align": "RIGHT_LEFT"}, value.shape)


def _constant(graph: Graph, node: Node, name: str, value: Any) -> Tensor:
    array = np.asarray(value)
    kind = attrs.dtype(array.dtype.name)
    made = graph.add("Const", f"{node.name}/{name}", controls=node.controls, attrs={"dtype": kind, "value": array,
                     CLUSTER_ATTR: CLUSTER}, outputs=[(kind, array.shape)], source=node)  # fmt: skip
    return made.out()


def _made(
    graph: Graph, node: Node, op: str, inputs: list[Tensor], held: dict[str, Any], shape: tuple[int, ...]
) -> Tensor:
    made = graph.add(op, f"{node.name}/rows", inputs, attrs={**held, CLUSTER_ATTR: CLUSTER},
                     outputs=[(node.out().dtype, shape)], source=node)  # fmt: skip
    graph.note(made, f"makes what the constant '{node.name}' holds of one core's batch for any number of rows")
    return made.out()

"""Small whole-number values that are made of constants and static shapes by the ops that shape arithmetic uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.questions import Answer, ask
from tpugraph.ir import Node, Tensor

_LARGEST = 2**20
"""Elements of an operand: shape arithmetic has few."""

_KINDS = frozenset({"bool", "int32", "int64", "float16", "float32", "float64"})
"""The dtypes that NumPy computes with as TensorFlow does."""


def known_value(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a tensor where constants and static shapes alone decide it, else None."""
    value: np.ndarray[Any, Any] | None = ask(_value, tensor)
    return value


def _value(tensor: Tensor) -> Answer:
    node = tensor.node
    if node.op in ops.CONSTANTS:
        return np.asarray(node.attr("value"))
    if node.op in ops.SHAPE_OF:
        return _of_shape(node, tensor.port)
    if node.op not in _COMPUTED:
        return None
    operands = []
    for operand in node.inputs:
        value = yield _value, operand
        if value is None or value.size > _LARGEST:
            return None
        operands.append(value)
    return _COMPUTED[node.op](node, operands)


def _of_shape(node: Node, port: int) -> np.ndarray[Any, Any] | None:
    shape = node.inputs[port].shape
    if node.op in ops.RANKS_OF:
        return None if shape is None else np.asarray(len(shape))
    if not shapes.is_static(shape):
        return None
    return np.asarray(shapes.element_count(shape) if node.op in ops.SIZES else shape)


def _slice(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    source, begin, end, strides = operands
    if len(begin) != 1 or node.attr("new_axis_mask", 0) or node.attr("ellipsis_mask", 0) or source.ndim != 1:
        return None
    if node.attr("shrink_axis_mask", 0) & 1:
        return np.asarray(source[begin[0]])
    first = None if node.attr("begin_mask", 0) & 1 else begin[0]
    last = None if node.attr("end_mask", 0) & 1 else end[0]
    return np.asarray(source[first : last : strides[0]])


def _computed(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    """What arithmetic makes of numbers, in the dtype of the node: a quotient of whole numbers is cut to one."""
    with np.errstate(all="ignore"):
        made = np.asarray(ops.COMPUTES[node.op](*operands))
    if node.outputs is None:  # as in the body of a function: what is no longer a whole number may be cut to one
        return made if made.dtype.kind == operands[0].dtype.kind else None
    kind = node.out().dtype.name
    return made.astype(kind) if kind in _KINDS else None


def _concat(node: Node, operands: list[Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([operands[index] for index in ops.record(node.op).data_operands(len(operands))])


def _same(node: Node, operands: list[Any]) -> np.ndarray[Any, Any]:
    return np.asarray(operands[0])


_COMPUTED: dict[str, Callable[[Node, list[Any]], np.ndarray[Any, Any] | None]] = {
    **dict.fromkeys(ops.COMPUTES, _computed),
    **dict.fromkeys(ops.IDENTITIES | ops.ENTER, _same),
    **dict.fromkeys(ops.RANGES, lambda node, operands: np.arange(*operands)),
    **dict.fromkeys(ops.CONCATS, _concat),
    **dict.fromkeys(ops.PACKS, lambda node, operands: np.stack(operands) if node.attr("axis", 0) == 0 else None),
    **dict.fromkeys(ops.STRIDED_SLICES, _slice),
    **dict.fromkeys(ops.EXPANSIONS, lambda node, operands: np.expand_dims(operands[0], int(operands[1]))),
    **dict.fromkeys(ops.INVERSE_ORDERS, lambda node, operands: np.argsort(operands[0])),
    **dict.fromkeys(ops.RESHAPES, lambda node, operands: operands[0].reshape(operands[1])),
    **dict.fromkeys(
        ops.reducing("prod"), lambda node, operands: np.asarray(operands[0].prod()) if operands[0].ndim == 1 else None
    ),
}

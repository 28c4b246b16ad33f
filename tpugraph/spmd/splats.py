"""Splats: tensors whose elements are all equal (zeros, ones, fills), which each core can build at its local shape."""

from __future__ import annotations

import math

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dataflow import Answer, ask
from tpugraph.analysis.values import constant
from tpugraph.ir import Node, Tensor

_SAME = (
    ops.IDENTITIES | ops.ENTER | ops.CASTS | ops.RESHAPING | ops.TILES | ops.BROADCASTS | ops.SLICES | ops.TRANSPOSES | ops.SWITCH
    | ops.NEXT_ITERATION | ops.EXIT
)  # fmt: skip


def splat_value(tensor: Tensor) -> float | None:
    """The value of all elements; None where they differ or are unknown."""
    found: float | None = ask(_splat_value, tensor)
    return found


def is_zero(tensor: Tensor) -> bool:
    """Whether all elements are known to be zero: such a tensor is a partial sum as it stands."""
    return splat_value(tensor) == 0


def is_splat(tensor: Tensor) -> bool:
    """Whether all elements share one value, known or not."""
    return bool(ask(_is_splat, tensor))


def _is_splat(tensor: Tensor) -> Answer:
    node = tensor.node
    if (tensor.shape is not None and math.prod(size or 0 for size in tensor.shape) == 1) or node.op in ops.FILLS:
        return True
    if node.op in _SAME:
        return (yield _is_splat, node.inputs[0])
    if node.op not in ops.COMPUTES:
        return (yield _splat_value, tensor) is not None
    for operand in node.inputs:
        if not (yield _is_splat, operand):
            return False
    return True


def _splat_value(tensor: Tensor) -> Answer:
    node = tensor.node
    if node.op in ops.CONSTANTS:
        value = constant(node)
        if value.dtype.kind not in "fiub" or not value.size or (value != value.flat[0]).any():
            return None
        return float(value.flat[0])
    if node.op in ops.FILLS:
        return (yield _splat_value, node.inputs[1])
    if node.op in ops.FILLED_LIKE:
        return float(ops.COMPUTES[node.op](0.0))
    if node.op in _SAME:
        number = yield _splat_value, node.inputs[0]
        casts = number is not None and node.op in ops.CASTS and tensor.dtype.name != "bfloat16"
        return float(np.asarray(number).astype(tensor.dtype.name)) if casts else number
    if node.op in ops.COMPUTES and tensor.dtype.name in ("float32", "float64"):
        return (yield from _computed(node, tensor.dtype.name))
    return None


def _computed(node: Node, kind: str) -> Answer:
    """Folds an elementwise op whose operands are splats, such as 1/n in the gradient of a mean."""
    operands = []
    for operand in node.inputs:
        number = yield _splat_value, operand
        if number is None or operand.dtype.name != kind:
            return None
        operands.append(np.asarray(number, kind))
    with np.errstate(all="ignore"):
        return float(ops.COMPUTES[node.op](*operands))

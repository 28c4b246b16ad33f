"""Rows that are put beside others, looked up together and taken apart again.

Sampled losses do so (``tf.nn.nce_loss``, ``tf.nn.sampled_softmax_loss``): the labels of the batch and then the samples are
looked up as one list, and of what comes out the first part belongs to the labels.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import ops
from tpugraph.batch_ties import vector_value
from tpugraph.ir import Node, Tensor


@dataclass(frozen=True)
class Part:
    """One operand of a concatenation along axis 0, and those in front of it."""

    part: Tensor
    before: tuple[Tensor, ...]


def part(node: Node) -> Part | None:
    """What a slice takes whole out of a concatenation, or out of what was looked up by one; None where it does not."""
    if node.op not in ("Slice", "StridedSlice") or not node.out().shape:
        return None
    parts = _parts(node.inputs[0])
    count = (node.out().shape or ())[0]
    if parts is None or count is None:
        return None
    start = _start(node, count)
    offset = 0
    for number, tensor in enumerate(parts):
        length = (tensor.shape or (None,))[0]
        if length is None:
            return None
        if (offset, length) == (start, count):
            return Part(tensor, parts[:number])
        offset += length
    return None


def _start(node: Node, count: int) -> int | None:
    """The first row that a slice of so many rows takes, where that is known."""
    source, begin, until = node.inputs[:3]
    starts, ends = vector_value(begin), vector_value(until)
    whole = (source.shape or (None,))[0]
    to_the_end = ends is not None and ends[0] == -1
    if node.op == "StridedSlice":
        reshapes = any(node.attr(f"{name}_mask", 0) & 1 for name in ("ellipsis", "new_axis", "shrink_axis"))
        if reshapes or (vector_value(node.inputs[3]) or [0])[0] != 1:
            return None
        if node.attr("begin_mask", 0) & 1:
            return 0
        to_the_end = bool(node.attr("end_mask", 0) & 1)
    if starts is not None and starts[0] >= 0:
        return starts[0]
    return whole - count if to_the_end and whole is not None else None


def _parts(tensor: Tensor) -> tuple[Tensor, ...] | None:
    """The operands of the concatenation that a tensor is, or that its rows were looked up by."""
    while tensor.node.op in ops.IDENTITIES or _looks_up(tensor.node):
        tensor = tensor.node.inputs[1 if _looks_up(tensor.node) else 0]
    if tensor.node.op != "ConcatV2":
        return None
    *parts, axis = tensor.node.inputs
    return tuple(parts) if vector_value(axis) == [0] else None


def _looks_up(node: Node) -> bool:
    if node.op not in ops.LOOKS_UP_ROWS or node.attr("batch_dims", 0) or len(node.inputs[1].shape or ()) != 1:
        return False
    return len(node.inputs) < 3 or vector_value(node.inputs[2]) == [0]

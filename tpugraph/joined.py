"""Rows that are put beside others, looked up together and taken apart again.

Sampled losses do so (``tf.nn.nce_loss``, ``tf.nn.sampled_softmax_loss``): the labels of the batch and then the samples are
looked up as one list, and of what comes out the first part belongs to the labels.
"""

from __future__ import annotations

from collections.abc import Collection
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
    """What a Slice takes whole out of a concatenation, or out of what was looked up by one; None where it does not."""
    if node.op != "Slice" or not node.out().shape:
        return None
    source, begin, size = node.inputs
    parts = _parts(source)
    count, whole = (node.out().shape or ())[0], (source.shape or (None,))[0]
    starts, sizes = vector_value(begin), vector_value(size)
    if parts is None or count is None or whole is None:
        return None
    if starts is not None:
        start = starts[0]
    elif sizes is not None and sizes[0] == -1:  # all that follows
        start = whole - count
    else:
        return None
    offset = 0
    for number, tensor in enumerate(parts):
        length = (tensor.shape or (None,))[0]
        if length is None:
            return None
        if (offset, length) == (start, count):
            return Part(tensor, parts[:number])
        offset += length
    return None


def taken_apart(concat: Node, within: Collection[Node]) -> list[Tensor]:
    """The concatenation and what is looked up by it, if floating values leave them as whole parts only; else nothing.

    Args:
        concat: a ConcatV2 along axis 0.
        within: the nodes that count; what else reads it does not.
    """
    found: dict[Tensor, None] = {concat.out(): None}
    stack = [concat.out()]
    while stack:
        tensor = stack.pop()
        for use in tensor.node.uses(tensor.port):
            node = use.node
            if node not in within or node.op in ops.SHAPE_OF or part(node) is not None:
                continue
            onward = [node.out(port) for port in range(len(node.outputs or ()))]
            hands_on = node.op in ops.IDENTITIES or (node.op in ops.LOOKS_UP_ROWS and use.index == 1)
            if not hands_on and any(t.dtype.floating for t in onward):
                return []
            stack += [t for t in onward if t not in found]
            found.update(dict.fromkeys(onward))
    return list(found) if any(t.dtype.floating for t in found) else []


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

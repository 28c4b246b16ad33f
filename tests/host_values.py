"""What the host makes of what the cores have sent, computed with NumPy from the graph behind the outfeed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Node, Tensor

_REDUCED = {"Sum": np.sum, "Max": np.max, "Min": np.min, "Mean": np.mean, "Any": np.any, "All": np.all}


def value_of(tensor: Tensor, sent: Sequence[Sequence[Any]]) -> Any:
    """The value of a tensor of the host; None on the side of a branch that is not taken.

    Args:
        tensor: the tensor.
        sent: for each place in the tuple of an outfeed, what each core has sent.
    """
    node = tensor.node
    if node.op == "OutfeedDequeueTuple":
        return np.asarray(sent[tensor.port][node.attr("device_ordinal")])
    if node.op == "Const":
        return node.attr("value")
    operands = [value_of(t, sent) for t in node.inputs]
    if node.op == "Switch":
        return operands[0] if bool(operands[1]) == bool(tensor.port) else None
    return None if any(operand is None for operand in operands) else _computed(node, operands)


def _computed(node: Node, operands: list[Any]) -> Any:
    first, last = operands[0], operands[-1]
    if node.op in ops.COMPUTES:
        return ops.COMPUTES[node.op](*operands)
    if node.op in _REDUCED:
        return _REDUCED[node.op](first, tuple(last))
    if node.op == "AddN":
        return sum(operands)
    if node.op == "Reshape":
        return first.reshape(last)
    if node.op == "ConcatV2":
        return np.concatenate(operands[:-1], last)
    if node.op == "Pack":
        return np.stack(operands)
    assert node.op == "Slice", node.op
    begin, size = operands[1:]
    return first[tuple(slice(b, None if s < 0 else b + s) for b, s in zip(begin, size, strict=True))]

"""What processing made of gradients by ops that are not linear in them: clipping, sorting, whitening, signs.

A sum over cores may be taken before or behind an op that is linear in the gradients, with the same result. Behind any
other op it may not: the op has to see the sum.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tpugraph import ops
from tpugraph.ir import Node, Tensor


def processed(
    edges: Iterable[tuple[Tensor, Tensor]], sources: Collection[Tensor], candidates: Collection[Tensor]
) -> dict[Tensor, Node]:
    """The tensors that are no linear function of the gradients, each with the op that made it so.

    Args:
        edges: producer and consumer, between backpropagation and the updates.
        sources: where backpropagation begins.
        candidates: what may be a raw gradient.
    """
    reads: dict[Tensor, list[Tensor]] = {}
    readers: dict[Tensor, list[Tensor]] = {}
    for producer, consumer in edges:
        reads.setdefault(consumer, []).append(producer)
        readers.setdefault(producer, []).append(consumer)
    open_ = _reached(sources, readers, candidates)
    stack = [
        (tensor, tensor.node)
        for tensor, operands in reads.items()
        if tensor not in sources and _bends(tensor.node, operands, open_, candidates)
    ]
    found: dict[Tensor, Node] = {}
    while stack:
        tensor, cause = stack.pop()
        if tensor not in found:
            found[tensor] = cause
            stack += [(reader, cause) for reader in readers.get(tensor, ())]
    return found


def is_linear(node: Node, operands: Collection[Tensor]) -> bool:
    """Whether the node is linear in some of its operands, while the others are the same on every core."""
    if node.op in ops.LINEAR_IN_ALL:
        return True
    places = [index for index, tensor in enumerate(node.inputs) if tensor in operands]
    if node.op in ops.MULTILINEAR:
        condition = node.op in ops.SELECTS and 0 in places
        return not condition and (len(places) <= 1 or node.op in ops.SELECTS)
    return places in ([], [ops.LINEAR_OPERAND.get(node.op)])


def _bends(node: Node, operands: list[Tensor], open_: Collection[Tensor], candidates: Collection[Tensor]) -> bool:
    """Whether a node is certainly processing, and not linear.

    It is processing when candidates stand between backpropagation and all that it reads; or when it scales something
    behind candidates by a single number of another origin, such as the loss.
    """
    if is_linear(node, operands):
        return False
    others = [t for t in operands if t in open_ and t not in candidates]
    behind = [t for t in operands if t not in others]
    return bool(behind) and (not others or (all(map(_single, others)) and not all(map(_single, behind))))


def _reached(
    sources: Iterable[Tensor], readers: dict[Tensor, list[Tensor]], candidates: Collection[Tensor]
) -> dict[Tensor, None]:
    """What backpropagation reaches without passing through a candidate."""
    found: dict[Tensor, None] = {}
    stack = list(sources)
    while stack:
        tensor = stack.pop()
        if tensor not in found:
            found[tensor] = None
            if tensor not in candidates:
                stack += readers.get(tensor, ())
    return found


def _single(tensor: Tensor) -> bool:
    return tensor.shape is not None and math.prod(d or 0 for d in tensor.shape) == 1

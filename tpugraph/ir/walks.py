"""Walks: back through identities to the source of a value, forward to the readers of a handle, and reachability."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TypeVar

from tpugraph import ops
from tpugraph.ir.node import Node, Tensor

_T = TypeVar("_T")


def source_of(
    tensor: Tensor, through: Container[str] = ops.IDENTITIES, *, where: Callable[[Node], bool] | None = None
) -> Tensor:
    """The tensor behind nodes of some op types that hand a value on, or ``tensor`` itself; in a circle, the tensor that is met again.

    An identity of several values hands on the one that it was given for this output, other ops their first input. ``where`` says
    which of the nodes to look behind.
    """
    node, port = tensor
    if node.op not in through:  # as with most tensors
        return tensor
    seen: set[Node] = set()
    while node.op in through and node.inputs and node not in seen and (where is None or where(node)):
        seen.add(node)
        tensor = node.inputs[port if node.op in ops.IDENTITIES else 0]
        node, port = tensor
    return tensor


def variable_of(tensor: Tensor, through: Container[str] = ops.SAME_VARIABLE) -> Node | None:
    """The variable whose handle or reference the tensor is, or None; ``through`` are the op types that hand it on."""
    node = source_of(tensor, through).node
    return node if node.op in ops.VARIABLES else None


def readers(handle: Node, *, through: Container[str] = ops.HANDLE_ALIASES) -> dict[Node, None]:
    """What reads the handle of a variable, a stack or an iterator, directly or through nodes that hand it on, and these."""
    found = reached((handle,), lambda node: (use.node for use in node.uses() if node is handle or node.op in through))
    del found[handle]
    return found


def reached(starts: Iterable[_T], following: Callable[[_T], Iterable[_T]]) -> dict[_T, None]:
    """The starts, what follows them, what follows that and so on, each once (a dict as an ordered set)."""
    found = dict.fromkeys(starts)
    stack = list(found)
    while stack:
        for item in following(stack.pop()):
            if item not in found:
                found[item] = None
                stack.append(item)
    return found

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
    """The tensor behind nodes that hand a value on.

    Args:
        tensor: where to start.
        through: the op types of the nodes to look behind: each hands on its first input, an identity of several values the one
            that it was given for this output.
        where: which nodes of these types to look behind; all where None.

    Returns:
        The first tensor that is made by another node: ``tensor`` itself, perhaps. In a circle, the tensor that is met again.
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
    """The variable whose handle or reference the tensor is, or None.

    Args:
        tensor: a handle, a reference, or any other tensor.
        through: the op types that hand it on.
    """
    node = source_of(tensor, through).node
    return node if node.op in ops.VARIABLES else None


def readers(handle: Node, *, through: Container[str] = ops.HANDLE_ALIASES) -> dict[Node, None]:
    """The nodes that read a handle, directly or through nodes that hand it on, and those nodes (a dict as an ordered set).

    Args:
        handle: what makes the handle: a variable, a stack, an iterator.
        through: the op types of the nodes that hand it on.
    """
    found = reached((handle,), lambda node: (use.node for use in node.uses() if node is handle or node.op in through))
    del found[handle]
    return found


def reached(starts: Iterable[_T], following: Callable[[_T], Iterable[_T]]) -> dict[_T, None]:
    """The starts, what follows them, what follows that and so on, each once (a dict as an ordered set).

    Args:
        starts: nodes, tensors, or anything else with a hash.
        following: what comes after one of them; called once for each that is reached.
    """
    found = dict.fromkeys(starts)
    stack = list(found)
    while stack:
        for item in following(stack.pop()):
            if item not in found:
                found[item] = None
                stack.append(item)
    return found

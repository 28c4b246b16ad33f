"""Walks of a graph: topological order with TF1 loops, what depends on what, the source of a value, readers of a handle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tpugraph import ops
from tpugraph.ir.node import Node, Tensor, Wait
from tpugraph.support.errors import GraphError

_T = TypeVar("_T")


def is_back_edge(producer: Node, consumer: Node) -> bool:
    """Whether the edge closes a TF1 loop."""
    return consumer.op in ops.MERGE and producer.op in ops.NEXT_ITERATION


def topological(
    nodes: Mapping[Node, Any],
    *,
    whole: bool = False,
    last: Container[Node] = (),
    extra: Mapping[Node, Sequence[Node]] | None = None,
) -> list[Node]:
    """Kahn's algorithm, as :meth:`~tpugraph.ir.Graph.topological_order`; ``whole`` where no edge leads out of the nodes."""
    followers: dict[Node, list[Node]] = {}
    degrees: dict[Node, int] = {}
    pending: dict[Wait, int] = {}  # thousands of nodes may wait for the same hundreds, which are counted once for all
    ready: deque[Node] = deque()
    held: deque[Node] = deque()
    for node in nodes:
        degree = len(node.inputs) if whole else len([p for p, _ in node.inputs if p in nodes])
        followed = extra.get(node, ()) if extra else ()
        wait = node._wait
        if node.op in ops.MERGE:  # does not wait for the NextIterations of its loop, over data or control edges
            degree -= len([p for p, _ in node.inputs if p.op in ops.NEXT_ITERATION and (whole or p in nodes)])
            waits = (c for c in node.controls if c.op not in ops.NEXT_ITERATION and (whole or c in nodes))
            followed = (*followed, *waits)
        elif wait is not None:
            if wait not in pending:
                pending[wait] = len(wait.controls if whole else [c for c in wait.controls if c in nodes])
            degree += pending[wait] > 0
        for other in followed:
            followers.setdefault(other, []).append(node)
            degree += 1
        if degree:
            degrees[node] = degree
        else:
            (held if node in last else ready).append(node)
    order: list[Node] = []
    while ready or held:
        node = ready.popleft() if ready else held.popleft()
        order.append(node)
        closes = node.op in ops.NEXT_ITERATION
        consumers = [consumer for consumer, _ in node._uses]
        for wait in node._awaited:
            if wait in pending:
                pending[wait] -= 1
                if not pending[wait]:
                    consumers += [waiting for waiting in wait.nodes if waiting.op not in ops.MERGE]
        if followers:
            consumers += followers.get(node, ())
        for consumer in consumers:
            degree = degrees.get(consumer, 0)
            if not degree or (closes and consumer.op in ops.MERGE):
                continue
            if degree > 1:
                degrees[consumer] = degree - 1
            else:
                del degrees[consumer]
                (held if consumer in last else ready).append(consumer)
    if degrees:
        raise _cycle(degrees)
    return order


def _cycle(stuck: Mapping[Node, int]) -> GraphError:
    node = next(iter(stuck))
    seen: dict[Node, None] = {}
    while node not in seen:
        seen[node] = None
        node = next(p for p in node.producers() if p in stuck and not is_back_edge(p, node))
    path = list(seen)
    cycle = path[path.index(node) :]
    names = " <- ".join(n.name for n in cycle[:6]) + (" <- ..." if len(cycle) > 6 else "")
    return GraphError(
        f"the graph has a cycle that is no loop: {names}",
        node=node,
        fix="break it where the graph is written; a loop needs Merge and NextIteration, as tf.while_loop makes them",
    )


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


def ancestors(nodes: Iterable[Node], *, data_only: bool = False) -> dict[Node, None]:
    """The nodes and all that they depend on (a dict as an ordered set)."""
    return _walk(nodes, data_only, forward=False)


def descendants(nodes: Iterable[Node], *, data_only: bool = False, until: Container[str] = ()) -> dict[Node, None]:
    """The nodes and all that depends on them (a dict as an ordered set), past no node of the op types ``until``."""
    return _walk(nodes, data_only, forward=True, until=until)


def _walk(nodes: Iterable[Node], data_only: bool, *, forward: bool, until: Container[str] = ()) -> dict[Node, None]:
    """As :func:`reached`, in half of the time: passes walk over most of a graph many times."""
    found = dict.fromkeys(nodes)
    stack = list(found)
    walked: set[Wait | None] = {None}
    while stack:
        node = stack.pop()
        if node.op in until:
            continue
        for other, _ in node._uses if forward else node.inputs:
            if other not in found:
                found[other] = None
                stack.append(other)
        for wait in () if data_only else node._awaited if forward else (node._wait,):
            if wait not in walked:
                walked.add(wait)
                for other in wait.nodes if forward else wait.controls:  # type: ignore[union-attr]
                    if other not in found:
                        found[other] = None
                        stack.append(other)
    return found


def source_of(
    tensor: Tensor, through: Container[str] = ops.IDENTITIES, *, where: Callable[[Node], bool] | None = None
) -> Tensor:
    """The tensor that nodes of some op types forward, or ``tensor`` itself; in a cycle, the first tensor that is met again.

    An IdentityN forwards the input of the same index, other ops their first input. ``where`` limits the nodes that are passed.
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
    """The readers of the handle of a variable, stack or iterator, directly or through nodes that forward it, and these nodes."""
    found = reached((handle,), lambda node: (use.node for use in node.uses() if node is handle or node.op in through))
    del found[handle]
    return found

"""Topological order of a graph with TF1 loops, whose back edges (NextIteration to Merge) are ignored."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from tpugraph import ops
from tpugraph.ir.node import Node, Wait
from tpugraph.support.errors import GraphError


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
    controls = _ControlDegrees(None if whole else nodes)
    followers: dict[Node, list[Node]] = {}
    degrees: dict[Node, int] = {}
    ready: deque[Node] = deque()
    held: deque[Node] = deque()
    for node in nodes:
        degree = len(node.inputs) if whole else len([p for p, _ in node.inputs if p in nodes])
        followed = extra.get(node, ()) if extra else ()
        if node.op in ops.MERGE:  # does not wait for the end of its own loop, by a control edge either
            degree -= len([p for p, _ in node.inputs if p.op in ops.NEXT_ITERATION and (whole or p in nodes)])
            waits = (c for c in node.controls if c.op not in ops.NEXT_ITERATION and (whole or c in nodes))
            followed = (*followed, *waits)
        elif node._wait is not None:
            degree += controls.pending(node._wait)
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
        if node._awaited:
            consumers += controls.released(node)
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


class _ControlDegrees:
    """In-degrees by control edges. Thousands of nodes may wait for the same hundreds: each of these is counted once for all."""

    def __init__(self, chosen: Container[Node] | None) -> None:
        self._chosen = chosen  # what is ordered; all where None
        self._left: dict[Wait, int] = {}

    def pending(self, wait: Wait) -> bool:
        if wait not in self._left:
            chosen = self._chosen
            self._left[wait] = len(wait.controls if chosen is None else [c for c in wait.controls if c in chosen])
        return self._left[wait] > 0

    def released(self, control: Node) -> list[Node]:
        """The nodes that wait for nothing any more, now that one more node has its place."""
        found: list[Node] = []
        for wait in control._awaited:
            left = self._left.get(wait)
            if left is not None:
                self._left[wait] = left - 1
                if left == 1:
                    found += [node for node in wait.nodes if node.op not in ops.MERGE]
        return found


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


def ancestors(nodes: Iterable[Node], *, data_only: bool = False) -> dict[Node, None]:
    """The nodes and all that they depend on (a dict as an ordered set)."""
    seen = dict.fromkeys(nodes)
    stack = list(seen)
    walked: set[Wait] = set()
    while stack:
        node = stack.pop()
        for producer, _ in node.inputs:
            if producer not in seen:
                seen[producer] = None
                stack.append(producer)
        wait = node._wait
        if data_only or wait is None or wait in walked:
            continue
        walked.add(wait)
        for control in wait.controls:
            if control not in seen:
                seen[control] = None
                stack.append(control)
    return seen


def descendants(nodes: Iterable[Node], *, data_only: bool = False, until: Container[str] = ()) -> dict[Node, None]:
    """The nodes and all that depends on them (a dict as an ordered set), past no node of the op types ``until``."""
    seen = dict.fromkeys(nodes)
    stack = list(seen)
    walked: set[Wait] = set()
    while stack:
        node = stack.pop()
        if node.op in until:
            continue
        for consumer, _ in node._uses:
            if consumer not in seen:
                seen[consumer] = None
                stack.append(consumer)
        if data_only or not node._awaited:
            continue
        for wait in node._awaited.keys() - walked:
            walked.add(wait)
            for waiting in wait.nodes:
                if waiting not in seen:
                    seen[waiting] = None
                    stack.append(waiting)
    return seen

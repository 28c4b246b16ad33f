"""Topological order of a graph with TF1 loops, whose back edges (NextIteration to Merge) are ignored."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
        if node.op in ops.MERGE:
            degree -= len([p for p, _ in node.inputs if p.op in ops.NEXT_ITERATION and (whole or p in nodes)])
        degree += node._wait is not None and controls.pending(node, node._wait)
        for other in extra.get(node, ()) if extra else ():
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
        self._left_of: dict[Node, int] = {}  # of each Merge, which does not wait for the end of its own loop

    def pending(self, node: Node, wait: Wait) -> bool:
        if node.op in ops.MERGE:
            left = self._left_of[node] = len([c for c in self._ordered(wait) if not is_back_edge(c, node)])
            return left > 0
        if wait not in self._left:
            self._left[wait] = len(self._ordered(wait))
        return self._left[wait] > 0

    def _ordered(self, wait: Wait) -> Sequence[Node]:
        chosen = self._chosen
        return wait.controls if chosen is None else [control for control in wait.controls if control in chosen]

    def released(self, control: Node) -> list[Node]:
        """The nodes that wait for nothing any more, now that one more node has its place."""
        found: list[Node] = []
        for wait in control._awaited:
            left = self._left.get(wait)
            if left is not None:
                self._left[wait] = left - 1
                if left == 1:
                    found += [node for node in wait.nodes if node not in self._left_of] if self._left_of else wait.nodes
            if self._left_of:
                found += self._released_merges(control, wait)
        return found

    def _released_merges(self, control: Node, wait: Wait) -> Iterator[Node]:
        for node in wait.nodes:
            if node in self._left_of and not is_back_edge(control, node):
                self._left_of[node] -= 1
                if not self._left_of[node]:
                    yield node


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
    """The nodes and all that depends on them (a dict as an ordered set).

    Args:
        nodes: where the walk begins.
        data_only: whether control edges are left out.
        until: op types that the walk finds and does not go past.
    """
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

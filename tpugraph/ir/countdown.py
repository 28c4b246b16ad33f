"""What an order of nodes needs: which edges close a loop, how many a node still waits for, and what a cycle is called."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from tpugraph import ops
from tpugraph.ir.node import Node, Wait
from tpugraph.support.errors import GraphError


class Countdown:
    """The waits of a graph, in an order: all nodes of one are released by the last of those that they wait for.

    Thousands of nodes may wait for hundreds: each that comes is counted once, and not once for each that waits.

    Args:
        chosen: the nodes that are ordered; all where None.
    """

    def __init__(self, chosen: Container[Node] | None) -> None:
        self._chosen = chosen
        self._left: dict[Wait, int] = {}  # how many are still to come
        self._left_of: dict[Node, int] = {}  # the same for a merge, which does not wait for the end of its own loop

    def pending(self, node: Node, wait: Wait) -> bool:
        """Whether anything is to come that a node waits for."""
        if node.op in ops.MERGE:
            left = self._left_of[node] = len([c for c in self._to_come(wait) if not is_back_edge(c, node)])
            return left > 0
        if wait not in self._left:
            self._left[wait] = len(self._to_come(wait))
        return self._left[wait] > 0

    def _to_come(self, wait: Wait) -> Sequence[Node]:
        chosen = self._chosen
        return wait.controls if chosen is None else [control for control in wait.controls if control in chosen]

    def released(self, control: Node) -> list[Node]:
        """The nodes that wait for nothing any more, now that one more has come."""
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


def is_back_edge(producer: Node, consumer: Node) -> bool:
    """Whether the edge closes a TF1 loop."""
    return consumer.op in ops.MERGE and producer.op in ops.NEXT_ITERATION


def cycle_error(waiting: Mapping[Node, int]) -> GraphError:
    """The error of an order that some nodes have no place in: it names the nodes of a cycle among them."""
    node = next(iter(waiting))
    seen: dict[Node, None] = {}
    while node not in seen:
        seen[node] = None
        node = next(p for p in node.producers() if p in waiting and not is_back_edge(p, node))
    path = list(seen)
    cycle = path[path.index(node) :]
    names = " <- ".join(n.name for n in cycle[:6]) + (" <- ..." if len(cycle) > 6 else "")
    return GraphError(
        f"the graph has a cycle that is no loop: {names}",
        node=node,
        fix="break it where the graph is written; a loop needs Merge and NextIteration, as tf.while_loop makes them",
    )

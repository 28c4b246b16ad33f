"""Removes what a rewrite left behind: nodes that nothing reads any more."""

from __future__ import annotations

from collections.abc import Iterable

from tpugraph import ops
from tpugraph.ir import Graph, Node


def ends_of(nodes: Iterable[Node]) -> frozenset[Node]:
    """Those of the nodes that nothing reads or waits for: to be asked before a rewrite, since they are there for themselves."""
    return frozenset(node for node in nodes if not node.consumers())


def remove_unread(graph: Graph, nodes: Iterable[Node], *, keep: frozenset[Node] = frozenset()) -> int:
    """Remove those of the nodes that nothing reads or waits for, and what was there for them alone; returns how many.

    Args:
        graph: the graph.
        nodes: where to begin.
        keep: nodes that stay.
    """
    pending, removed = list(nodes), 0
    while pending:
        node = pending.pop()
        if node not in graph or node in keep or node.consumers() or node.op in ops.WRITES:
            continue
        before = node.producers()
        graph.remove(node)
        removed += 1
        pending += [p for p in before if p.op not in ops.VARIABLES]
    return removed

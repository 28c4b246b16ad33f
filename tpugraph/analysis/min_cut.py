"""The cheapest vertices that separate sources from sinks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from tpugraph.support.max_flow import Network


def minimum_cut(
    edges: Collection[tuple[Hashable, Hashable]],
    capacity: Mapping[Any, int],
    sources: Collection[Hashable],
    sinks: Collection[Hashable],
) -> tuple[int, list[Any]] | None:
    """The cheapest set of vertices that separates sources from sinks; of several, the one closest to the sources.

    Args:
        edges: directed edges between vertices.
        capacity: cost of cutting a vertex; a vertex without one cannot be cut.
        sources: vertices where flow starts.
        sinks: vertices where flow ends.

    Returns:
        The total cost and the vertices, or None where no cut exists.
    """
    vertices = list(dict.fromkeys([*capacity, *sources, *sinks, *(v for edge in edges for v in edge)]))
    if not sources or not sinks:
        return 0, []
    unlimited = sum(capacity.values()) + 1
    network = Network()
    start, end = network.vertex(), network.vertex()
    arrives = {vertex: network.vertex() for vertex in vertices}
    leaves = {vertex: network.vertex() for vertex in vertices}
    for vertex in vertices:
        network.edge(arrives[vertex], leaves[vertex], capacity.get(vertex, unlimited))
    for producer, consumer in edges:
        network.edge(leaves[producer], arrives[consumer], unlimited)
    for vertex in sources:
        network.edge(start, arrives[vertex], unlimited)
    for vertex in sinks:
        network.edge(leaves[vertex], end, unlimited)
    cost = network.push(start, end, unlimited)
    if cost >= unlimited:
        return None
    near = network.reached(start)
    return cost, [v for v in vertices if arrives[v] in near and leaves[v] not in near]

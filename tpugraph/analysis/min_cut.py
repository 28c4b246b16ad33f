"""The cheapest vertices that separate sources from sinks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any


def minimum_cut(
    edges: Collection[tuple[Hashable, Hashable]],
    capacity: Mapping[Any, int],
    sources: Collection[Hashable],
    sinks: Collection[Hashable],
) -> tuple[int, list[Any]] | None:
    """The cheapest set of vertices that separates sources from sinks, of several the one closest to the sources, and its cost.

    A vertex without a capacity cannot be cut; None where no cut exists.
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


# --------------------------------------------------------------------------- max flow
# Maximum flow by shortest augmenting paths (Dinic), on numbered vertices.
#
# The residual network that it leaves tells the minimum cut: :meth:`Network.reached` is the side of the source, and of all
# minimum cuts the one closest to the source, whichever way the flow took.


class Network:
    """A directed network with whole-number capacities."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []  # of each vertex, the numbers of its edges; edge e ^ 1 is the reverse of e
        self._target: list[int] = []
        self._room: list[int] = []

    def vertex(self) -> int:
        """Add a vertex; returns its number."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge."""
        number = len(self._target)
        self._edges[tail].append(number)
        self._edges[head].append(number + 1)
        self._target += (head, tail)
        self._room += (capacity, 0)

    def push(self, source: int, sink: int, limit: int) -> int:
        """Send flow until no path has room or ``limit`` is reached; returns the flow."""
        flow = 0
        while flow < limit:
            level = self._levels(source, sink)
            if level is None:
                break
            flow += self._block(source, sink, level, limit - flow)
        return flow

    def reached(self, source: int) -> set[int]:
        """The vertices that the source still reaches over edges with room."""
        seen = {source}
        stack = [source]
        while stack:
            for edge in self._edges[stack.pop()]:
                head = self._target[edge]
                if self._room[edge] and head not in seen:
                    seen.add(head)
                    stack.append(head)
        return seen

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """The distance of each vertex from the source, or None where the sink is out of reach."""
        level = [-1] * len(self._edges)
        level[source] = 0
        queue = [source]
        for vertex in queue:  # grows while it is walked
            following = level[vertex] + 1
            for edge in self._edges[vertex]:
                head = self._target[edge]
                if level[head] < 0 and self._room[edge]:
                    level[head] = following
                    queue.append(head)
            if level[sink] >= 0:
                return level
        return None

    def _block(self, source: int, sink: int, level: list[int], limit: int) -> int:
        """Fill all shortest paths."""
        room, target, edges = self._room, self._target, self._edges
        following = [0] * len(edges)  # the edge of each vertex to try next
        flow = 0
        path: list[int] = []
        vertex = source
        while flow < limit:
            if vertex == sink:
                amount = min(limit - flow, min(room[edge] for edge in path))
                flow += amount
                for edge in path:
                    room[edge] -= amount
                    room[edge ^ 1] += amount
                first = next((p for p, edge in enumerate(path) if not room[edge]), 0)
                vertex = target[path[first] ^ 1]
                del path[first:]
                continue
            around = edges[vertex]
            position = following[vertex]
            while position < len(around):
                edge = around[position]
                if room[edge] and level[target[edge]] == level[vertex] + 1:
                    break
                position += 1
            following[vertex] = position
            if position < len(around):
                path.append(around[position])
                vertex = target[around[position]]
            elif path:
                vertex = target[path.pop() ^ 1]
                following[vertex] += 1
            else:
                break
        return flow

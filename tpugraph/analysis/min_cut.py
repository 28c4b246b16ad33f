"""Minimum vertex cut between sources and sinks, by maximum flow (Dinic)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any


def minimum_cut(
    edges: Collection[tuple[Hashable, Hashable]],
    capacity: Mapping[Any, int],
    sources: Collection[Hashable],
    sinks: Collection[Hashable],
) -> tuple[int, list[Any]] | None:
    """The minimum vertex cut, of several the one closest to the sources, and its cost.

    A vertex without a capacity cannot be cut; None where no cut exists.
    """
    if not sources or not sinks:
        return 0, []
    names = dict.fromkeys([*capacity, *sources, *sinks, *(v for edge in edges for v in edge)])
    arrives = {
        name: 2 + 2 * number for number, name in enumerate(names)
    }  # 0 and 1 are source and sink; v + 1 is where flow leaves v
    unlimited = sum(capacity.values()) + 1
    network = _Network(2 + 2 * len(names))
    for name, vertex in arrives.items():
        network.edge(vertex, vertex + 1, capacity.get(name, unlimited))
    for producer, consumer in edges:
        network.edge(arrives[producer] + 1, arrives[consumer], unlimited)
    for source in sources:
        network.edge(0, arrives[source], unlimited)
    for sink in sinks:
        network.edge(arrives[sink] + 1, 1, unlimited)
    flow = 0
    while (level := network.levels())[1] >= 0 and flow < unlimited:
        flow += network.block(level, unlimited - flow)
    # The vertices that are reachable in the residual network: of all minimum cuts the one closest to the sources.
    return None if flow >= unlimited else (flow, [n for n, v in arrives.items() if level[v] >= 0 > level[v + 1]])


class _Network:
    """A directed network with integer capacities, from vertex 0 to vertex 1."""

    def __init__(self, vertices: int) -> None:
        self._edges: list[list[int]] = [[] for _ in range(vertices)]  # edge e ^ 1 is the reverse of e
        self._target: list[int] = []
        self._room: list[int] = []

    def edge(self, tail: int, head: int, capacity: int) -> None:
        number = len(self._target)
        self._edges[tail].append(number)
        self._edges[head].append(number + 1)
        self._target += (head, tail)
        self._room += (capacity, 0)

    def levels(self) -> list[int]:
        """The distance of each vertex from the source over edges with residual capacity, up to the sink; -1 if unreachable."""
        level = [-1] * len(self._edges)
        level[0] = 0
        queue = [0]
        for vertex in queue:  # grows while it is walked
            following = level[vertex] + 1
            for edge in self._edges[vertex]:
                head = self._target[edge]
                if level[head] < 0 and self._room[edge]:
                    level[head] = following
                    queue.append(head)
            if level[1] >= 0:
                break
        return level

    def block(self, level: list[int], limit: int) -> int:
        """Find a blocking flow of at most ``limit``; returns the flow."""
        room, target, edges = self._room, self._target, self._edges
        following = [0] * len(edges)  # the edge of each vertex to try next
        flow, vertex = 0, 0
        path: list[int] = []
        while flow < limit:
            if vertex == 1:
                amount = min(limit - flow, min(room[edge] for edge in path))
                flow += amount
                for edge in path:
                    room[edge] -= amount
                    room[edge ^ 1] += amount
                first = next((p for p, edge in enumerate(path) if not room[edge]), 0)
                vertex = target[path[first] ^ 1]
                del path[first:]
                continue
            around, position = edges[vertex], following[vertex]
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

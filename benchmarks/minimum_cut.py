"""The minimum cut between host and device, ours beside that of networkx, on a network like those of input pipelines.

    python benchmarks/minimum_cut.py

Prints how long each takes and the ratio; both cuts must cost the same.
"""

from __future__ import annotations

import random
import time

import networkx as nx

from tpugraph.analysis.min_cut import minimum_cut

VERTICES = 20_000
"""As many as a large input part has tensors."""


def network(seed: int) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Chains of a few ops each that meet now and then, with a number of bytes for each tensor."""
    draw = random.Random(seed)
    edges = [(vertex - draw.randint(1, min(vertex, 40)), vertex) for vertex in range(1, VERTICES)]
    edges += [(draw.randrange(vertex), vertex) for vertex in draw.sample(range(1, VERTICES), VERTICES // 10)]
    return edges, {vertex: draw.choice((4, 64, 1024, 65536)) for vertex in range(VERTICES)}


def by_networkx(edges: list[tuple[int, int]], capacity: dict[int, int], sources: list[int], sinks: list[int]) -> int:
    """The cost of the cheapest cut of vertices: each is an edge from where flow arrives to where it leaves."""
    graph = nx.DiGraph()
    for vertex, cost in capacity.items():
        graph.add_edge((vertex, "in"), (vertex, "out"), capacity=cost)
    for producer, consumer in edges:
        graph.add_edge((producer, "out"), (consumer, "in"))
    for vertex in sources:
        graph.add_edge("start", (vertex, "in"))
    for vertex in sinks:
        graph.add_edge((vertex, "out"), "end")
    cost, _ = nx.minimum_cut(graph, "start", "end")
    return int(cost)


def main() -> None:
    """Measures both in one run."""
    edges, capacity = network(1)
    sources, sinks = list(range(20)), list(range(VERTICES - 200, VERTICES))
    started = time.perf_counter()
    found = minimum_cut(edges, capacity, sources, sinks)
    ours = time.perf_counter() - started
    started = time.perf_counter()
    expected = by_networkx(edges, capacity, sources, sinks)
    theirs = time.perf_counter() - started
    if found is None or found[0] != expected:
        raise SystemExit(f"the cuts differ: {found and found[0]} and {expected}")
    print(
        f"{VERTICES:,} vertices, {len(edges):,} edges: ours {ours:.2f} s, networkx {theirs:.2f} s, {theirs / ours:.1f} times"
    )


if __name__ == "__main__":
    main()

"""What mutators of graphs share: how they draw nodes, and how a mutant is made of several mutations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.core.protobuf import meta_graph_pb2

Mutation = Callable[[random.Random, Any], None]
"""Changes a MetaGraphDef in place."""


def nodes_of(rng: random.Random, meta: Any) -> Any:
    """The nodes of the graph, or now and then those of one of its functions."""
    functions = meta.graph_def.library.function
    return rng.choice(functions).node_def if functions and rng.random() < 0.25 else meta.graph_def.node


def any_node(rng: random.Random, meta: Any) -> Any:
    """A node; one is made where there is none."""
    nodes = nodes_of(rng, meta)
    return rng.choice(nodes) if nodes else meta.graph_def.node.add(name="made", op="NoOp")


def node_with(rng: random.Random, meta: Any, holds: Callable[[Any], bool]) -> Any:
    """A node that has something, or any node where few have it."""
    found = any_node(rng, meta)
    for _ in range(50):
        if holds(found):
            break
        found = any_node(rng, meta)
    return found


def mutated(meta: Any, seed: str, count: int, mutations: Sequence[Mutation], without: frozenset[int]) -> Any:
    """A copy of a MetaGraphDef after some mutations.

    Args:
        meta: the sound graph; it stays as it is.
        seed: what to draw from; each mutation draws from its own.
        count: how many mutations.
        mutations: what to choose from.
        without: the numbers of those to leave out.
    """
    changed = meta_graph_pb2.MetaGraphDef()
    changed.CopyFrom(meta)
    for number in range(count):
        own = random.Random(f"{seed}/{number}")
        mutation = own.choice(mutations)
        if number not in without:
            mutation(own, changed)
    return changed

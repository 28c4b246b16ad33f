"""Finds replica-varying values: those that differ between cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tpugraph import ops
from tpugraph.analysis.shapes import is_static
from tpugraph.analysis.sides_of_step import REPLICATED_ATTR, NodeSet, cluster_nodes
from tpugraph.ir import Graph, Node
from tpugraph.ir.conditionals import behind
from tpugraph.ir.loops import frames
from tpugraph.ir.walks import readers, source_of


def varying_from(graph: Graph, sources: Iterable[Node], *, within: Mapping[Node, Any] | None = None) -> NodeSet:
    """The replica-varying nodes: those whose values differ between cores.

    A value varies when it depends on a source through data, when a Switch on a varying predicate decides whether it
    exists, when it is inside a loop whose trip count varies, or when it lives in a container that holds varying
    values. CrossReplicaSum makes values replicated, and the shape of a statically shaped value is replicated.
    """
    chosen = within if within is not None else dict.fromkeys(graph)
    frame_of: dict[Node, str] | None = None
    containers = [node for node in graph.of_type(*ops.CONTAINERS) if node in chosen]
    varying: NodeSet = {}
    varying_frames: set[str] = set()
    stack = [node for node in sources if node in chosen]
    while stack:
        _spread(stack, varying, chosen)
        aliases = ops.HANDLE_ALIASES | ops.CONTAINER_GRADIENTS
        stack = [c for c in containers if c not in varying and any(n in varying for n in readers(c, through=aliases))]
        loops = [n for n in varying if n.op in ops.LOOP_COND]
        if not loops:
            continue
        if frame_of is None:
            frame_of = frames(graph)
        new = {frame_of[n] for n in loops} - varying_frames
        varying_frames |= new
        if new:
            stack.extend(n for n in chosen if frame_of[n] in new and n not in varying)
    return varying


def replica_varying(graph: Graph) -> NodeSet:
    """The replica-varying nodes of the device part of a graph, before or after infeed and loop are built.

    Sources are the infeed (or, before it is built, the tensors that the device reads from the host) and random ops that reach
    a varying value or a CrossReplicaSum: a random op that feeds only replicated state, such as gradient noise, is replicated.
    """
    return graph.remember("replica_varying", lambda graph: varying_on(graph, cluster_nodes(graph)))


def varying_on(graph: Graph, device: NodeSet) -> NodeSet:
    """The replica-varying nodes of one cluster, whose nodes are ``device``."""
    reading = reading_host(device)
    sources = [node for node in device if node.op in ops.INFEEDS or node in reading]
    varying = varying_from(graph, sources, within=device)
    sums = [node for node in graph.of_type("CrossReplicaSum") if node in device]
    apart = graph.ancestors([*varying, *sums], data_only=True)
    streams = [node for node in graph.of_type(*ops.RANDOM) if node in device and node in apart]
    return varying_from(graph, [*sources, *streams], within=device) if streams else varying


def varying_with_input(graph: Graph) -> NodeSet:
    """The replica-varying nodes on the device that depend on the input or on random numbers.

    Other values of the host are equal on all cores, though each core reads its own infeed.
    """
    device = cluster_nodes(graph)
    told = graph.descendants(graph.of_type(*ops.INPUTS, *ops.RANDOM), data_only=True)
    sources = [n for n in graph.of_type("InfeedDequeueTuple", *ops.RANDOM) if n in device]
    sources += [n for n in reading_host(device) if any(t.node in told for t in n.inputs if t.node not in device)]
    return varying_from(graph, sources, within=device)


def reading_host(device: NodeSet) -> NodeSet:
    """The device nodes that read the host other than through a variable."""
    return {
        n: None for n in device for t in n.inputs
        if t.node not in device and t.node.op not in ops.VARIABLES and not n.has_attr(REPLICATED_ATTR)
    }  # fmt: skip


def writes_own(node: Node) -> bool:
    """Whether a node writes a per-core variable."""
    fact = ops.WRITES.get(node.op)
    handles = () if fact is None else (source_of(node.inputs[i], ops.HANDLE_ALIASES) for i in fact.variables)
    return any(handle.node.op in ops.CLUSTER_INPUTS and len(set(handle.node.inputs)) > 1 for handle in handles)


def _spread(stack: list[Node], varying: NodeSet, chosen: Mapping[Node, Any]) -> None:
    """Propagate variation forward over data edges, and over control edges out of regions whose execution varies."""
    while stack:
        node = stack.pop()
        if node in varying:
            continue
        varying[node] = None
        for use in node.uses():
            consumer = use.node
            if consumer in chosen and consumer not in varying and not _is_replicated_anyway(consumer):
                stack.append(consumer)
        if node.op in ops.SWITCH and node.inputs[1].node in varying and node.inputs[1].node.op not in ops.LOOP_COND:
            stack.extend(n for n in behind((node,), until=ops.MERGE) if n in chosen and n not in varying)


def _is_replicated_anyway(node: Node) -> bool:
    """Whether the node's value is replicated although an input varies."""
    if node.op in ops.ALL_REDUCES or node.has_attr(REPLICATED_ATTR):
        return True
    if node.op in ops.SHAPE_OF | ops.FILLED_LIKE:
        return all(t.node.outputs is not None and is_static(t.shape) for t in node.inputs)
    return False

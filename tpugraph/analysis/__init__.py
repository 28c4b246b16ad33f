"""Analyses over a Graph: loop frames, conditional regions, divergence, minimum cuts."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import chain
from typing import Any

from tpugraph import ops
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Node, Tensor, is_back_edge
from tpugraph.support.max_flow import Network

NodeSet = dict[Node, None]
"""An ordered set of nodes."""

CLUSTER_ATTR = "_tpu_replicate"
"""The attribute that marks a node as part of the replicated cluster."""

CLUSTER = "cluster"
"""The name of the cluster in a converted graph."""

HOST_DEVICE = "/job:tpu_worker/task:0/device:CPU:0"
"""Where the host part runs."""

CORE_DEVICE = "/device:TPU_REPLICATED_CORE:0"
"""Where infeed and outfeed ops of the cluster run."""


def in_cluster(node: Node) -> bool:
    """Whether the node is placed on the device."""
    return CLUSTER_ATTR in node._attrs


def cluster_nodes(graph: Graph) -> NodeSet:
    """The nodes on the device, in the order of the graph; the quick way to ask it of many."""
    return graph.with_attr(CLUSTER_ATTR)


def fed_to_device(graph: Graph) -> list[Tensor]:
    """The host tensors that the device reads, in the order of the graph; variables and cluster arguments are none."""
    device = cluster_nodes(graph)
    found = {t for node in device for t in node.inputs if t.node not in device}
    feeding = {t.node for t in found if t.node.op not in ops.RESOURCE_VARIABLES and t.node.op != "TPUReplicatedInput"}
    return [t for node in graph if node in feeding for t in map(node.out, node.used_ports()) if t in found]


def must_be_host(node: Node) -> bool:
    """Whether only a host can run the node: its op says so, or it touches strings."""
    if ops.is_host_only(node.op):
        return True
    if node.op in ops.ASSERTS:
        return False
    if node.op == "Const" and all(use.node.op in ops.ASSERTS for use in node.uses()):
        return False
    for kind, _ in node.outputs or ():
        if kind.name == "string":
            return True
    return any(producer.output(port)[0].name == "string" for producer, port in node.inputs)


# --------------------------------------------------------------------------- loop frames


def frames(graph: Graph) -> dict[Node, str]:
    """The innermost TF1 loop frame of each node; "" is the frame of the graph itself."""
    return graph.remember("frames", _frames)


def _frames(graph: Graph) -> dict[Node, str]:
    parent: dict[str, str] = {"": ""}
    found: dict[Node, str] = dict.fromkeys(graph, "")
    inside = graph.descendants(graph.of_type(*ops.ENTER))  # what follows no Enter is in no loop
    for node in graph.topological_order(inside) if inside else ():
        around = ""
        for producer in chain((producer for producer, _ in node.inputs), node.controls):
            if is_back_edge(producer, node):
                continue
            frame = found[producer]
            around = parent[frame] if producer.op in ops.EXIT else frame
            if around:
                break
        if node.op in ops.ENTER:
            frame = node.attr("frame_name")
            parent.setdefault(frame, around)
            found[node] = frame
        else:
            found[node] = around
    # An Exit is counted to the frame it leaves; what follows it belongs to the frame around.
    return found


def loop_order(graph: Graph, nodes: Mapping[Node, Any]) -> list[Node]:
    """The nodes so that each follows what it reads and waits for, and what leaves a loop follows the loop's whole body."""
    frame_of = frames(graph)
    ends: dict[str, list[Node]] = {}
    leaves: dict[str, list[Node]] = {}
    for node in nodes:
        if node.op in ops.NEXT_ITERATION:
            ends.setdefault(frame_of[node], []).append(node)
        elif node.op in ops.EXIT:
            leaves.setdefault(frame_of[node], []).append(node)
    if not ends:
        return graph.topological_order(nodes)
    waiting: dict[Node, int] = {}
    ready: deque[Node] = deque()
    for node in nodes:
        producers = {producer for producer, _ in node.inputs}.union(node.controls)
        count = len([p for p in producers if p in nodes])
        if node.op in ops.MERGE:
            count -= len([p for p in producers if p in nodes and is_back_edge(p, node)])
        count += len(ends.get(frame_of[node], ())) if node.op in ops.EXIT else 0
        if count:
            waiting[node] = count
        else:
            ready.append(node)
    order: list[Node] = []
    while ready:
        node = ready.popleft()
        order.append(node)
        followers = node.consumers()
        if node.op in ops.NEXT_ITERATION:
            followers = [n for n in followers if not is_back_edge(node, n)] + leaves.get(frame_of[node], [])
        for follower in followers:
            left = waiting.get(follower, 0)
            if left == 1:
                del waiting[follower]
                ready.append(follower)
            elif left:
                waiting[follower] = left - 1
    return order if not waiting else graph.topological_order(nodes)


def in_loop(node: Node) -> bool:
    """Whether the node is in a TF1 loop: an Enter leads to it that no Exit has left."""
    stack, seen = [(node, 0)], {node}  # with how many loops were left on the way here
    while stack:
        at, left = stack.pop()
        if at.op in ops.ENTER:
            if not left:
                return True
            left -= 1
        for producer in at.producers():
            if producer not in seen:
                seen.add(producer)
                stack.append((producer, left + (producer.op in ops.EXIT)))
    return False


_LEAVES = ops.MERGE | ops.EXIT


def conditional(graph: Graph) -> NodeSet:
    """The nodes that may not run: those behind a Switch and not behind the Merge that joins its branches."""
    found: NodeSet = {}
    stack: list[Node] = graph.of_type(*ops.SWITCH)
    while stack:
        for consumer in stack.pop().consumers():
            if consumer in found or consumer.op in _LEAVES:
                continue
            found[consumer] = None
            stack.append(consumer)
    return found


# --------------------------------------------------------------------------- divergence


def divergence(graph: Graph, sources: Iterable[Node], *, within: Mapping[Node, Any] | None = None) -> NodeSet:
    """The replica-varying nodes: those whose values differ between cores.

    A value varies when it depends on a source through data, when a Switch on a varying predicate decides whether it
    exists, when it is inside a loop whose trip count varies, or when it lives in a container that holds varying
    values. CrossReplicaSum makes values uniform, and the shape of a statically shaped value is uniform.

    Args:
        graph: the graph.
        sources: nodes that differ by themselves: infeed, per-core random streams.
        within: limits the analysis to some nodes.
    """
    chosen = within if within is not None else dict.fromkeys(graph)
    frame_of: dict[Node, str] | None = None
    containers = [node for node in graph.of_type(*ops.CONTAINERS) if node in chosen]
    varying: NodeSet = {}
    diverged_frames: set[str] = set()
    stack = [node for node in sources if node in chosen]
    while stack:
        _spread(stack, varying, chosen)
        stack = [c for c in containers if c not in varying and _holds_varying(c, varying)]
        loops = [n for n in varying if n.op in ops.LOOP_COND]
        if not loops:
            continue
        if frame_of is None:
            frame_of = frames(graph)
        new = {frame_of[n] for n in loops} - diverged_frames
        diverged_frames |= new
        if new:
            stack.extend(n for n in chosen if frame_of[n] in new and n not in varying)
    return varying


def replica_varying(graph: Graph) -> NodeSet:
    """The replica-varying nodes of the device part of a graph, before or after infeed and loop were made.

    Sources are the infeed (or, before it is made, what the device reads from the host) and those random ops that reach
    something varying or a CrossReplicaSum: a random op that feeds uniform state only (gradient noise, say) is uniform.
    """
    return graph.remember("replica_varying", _replica_varying)


def _replica_varying(graph: Graph) -> NodeSet:
    device = cluster_nodes(graph)
    reading = reading_host(device)
    sources = [node for node in device if node.op == "InfeedDequeueTuple" or node in reading]
    varying = divergence(graph, sources, within=device)
    streams = [n for n in graph.of_type(*ops.RANDOM) if n in device and _reaches_replicas(n, varying)]
    return divergence(graph, [*sources, *streams], within=device) if streams else varying


def reading_host(device: NodeSet) -> NodeSet:
    """Those of the device nodes that read the host otherwise than through a variable."""
    return {n: None for n in device for t in n.inputs if t.node not in device and t.node.op not in ops.VARIABLES}


def _reaches_replicas(start: Node, varying: NodeSet) -> bool:
    stack, seen = [start], {start}
    while stack:
        for use in stack.pop().uses():
            if use.node in varying or use.node.op == "CrossReplicaSum":
                return True
            if use.node not in seen:
                seen.add(use.node)
                stack.append(use.node)
    return False


def _spread(stack: list[Node], varying: NodeSet, chosen: Mapping[Node, Any]) -> None:
    """Carry divergence forward over data, and over control edges out of regions whose existence varies."""
    while stack:
        node = stack.pop()
        if node in varying:
            continue
        varying[node] = None
        for use in node.uses():
            consumer = use.node
            if consumer in chosen and consumer not in varying and not _levels(consumer):
                stack.append(consumer)
        if node.op in ops.SWITCH and node.inputs[1].node in varying and node.inputs[1].node.op not in ops.LOOP_COND:
            stack.extend(n for n in _behind_switch(node) if n in chosen and n not in varying)


def _behind_switch(switch: Node) -> NodeSet:
    found: NodeSet = {}
    stack = [switch]
    while stack:
        for consumer in stack.pop().consumers():
            if consumer not in found and consumer.op not in ops.MERGE:
                found[consumer] = None
                stack.append(consumer)
    return found


def _levels(node: Node) -> bool:
    """Whether the node's value is uniform although an input varies."""
    if node.op == "CrossReplicaSum":
        return True
    if node.op in ops.SHAPE_OF | ops.FILLED_LIKE:
        return all(t.node.outputs is not None and is_static(t.shape) for t in node.inputs)
    return False


def _holds_varying(container: Node, varying: NodeSet) -> bool:
    """Whether something varying is put into the container (its handle is followed through aliases)."""
    stack, seen = [container], {container}
    while stack:
        for use in stack.pop().uses():
            if use.node in varying:
                return True
            if use.node not in seen and (
                use.node.op in ops.HANDLE_ALIASES or use.node.op.startswith("TensorArrayGrad")
            ):
                seen.add(use.node)
                stack.append(use.node)
    return False


# --------------------------------------------------------------------------- minimum cut


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


# --------------------------------------------------------------------------- walking


def as_networkx(graph: Graph, nodes: Iterable[Node] | None = None) -> Any:
    """The graph as a ``networkx.DiGraph``, for analyses that the field has written already.

    Vertices are node names with the attribute ``op``; edges carry ``kind``: ``data``, ``control``, or ``back`` for the
    edge that closes a loop.

    Args:
        graph: the graph.
        nodes: limits the view to some nodes; all by default.
    """
    import networkx as nx

    chosen = dict.fromkeys(graph if nodes is None else nodes)
    view: Any = nx.DiGraph()
    for node in chosen:
        view.add_node(node.name, op=node.op)
    for node in chosen:
        for control in node.controls:
            if control in chosen:
                view.add_edge(control.name, node.name, kind="control")
        for tensor in node.inputs:
            if tensor.node in chosen:
                kind = "back" if is_back_edge(tensor.node, node) else "data"
                view.add_edge(tensor.node.name, node.name, kind=kind)
    return view

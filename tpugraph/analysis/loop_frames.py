"""TF1 loop frames and conditional regions: where each node is, and in which order loops run."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import chain
from typing import Any

from tpugraph import ops
from tpugraph.analysis.sides_of_step import NodeSet
from tpugraph.ir import Graph, Node, is_back_edge


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


def loop_order(graph: Graph, nodes: Mapping[Node, Any], after: Mapping[Node, Node] | None = None) -> list[Node]:
    """The nodes so that each follows what it reads and waits for, and what leaves a loop follows the loop's whole body.

    Args:
        graph: the graph.
        nodes: some of its nodes.
        after: nodes that follow another one, too, such as a constant the tensor whose shape it is.
    """
    behind: dict[Node, list[Node]] = {}
    for node, other in (after or {}).items():
        if node in nodes and other in nodes:
            behind.setdefault(other, []).append(node)
    frame_of = frames(graph)
    ends: dict[str, list[Node]] = {}
    leaves: dict[str, list[Node]] = {}
    for node in nodes:
        if node.op in ops.NEXT_ITERATION:
            ends.setdefault(frame_of[node], []).append(node)
        elif node.op in ops.EXIT:
            leaves.setdefault(frame_of[node], []).append(node)
    if not ends and not behind:
        return graph.topological_order(nodes)
    waiting: dict[Node, int] = {}
    ready: deque[Node] = deque()
    for node in nodes:
        producers = {producer for producer, _ in node.inputs}.union(node.controls)
        count = len([p for p in producers if p in nodes])
        if node.op in ops.MERGE:
            count -= len([p for p in producers if p in nodes and is_back_edge(p, node)])
        count += len(ends.get(frame_of[node], ())) if node.op in ops.EXIT else 0
        count += 1 if after and node in after and after[node] in nodes else 0
        if count:
            waiting[node] = count
        else:
            ready.append(node)
    order: list[Node] = []
    while ready:
        node = ready.popleft()
        order.append(node)
        followers = [*node.consumers(), *behind.get(node, ())]
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

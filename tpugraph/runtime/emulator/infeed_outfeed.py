"""Infeed and outfeed of the emulator: edges of one loop where possible, else a queue per core.

Two loops can be one when both run ``i < limit`` over the same limit variable. Then their frames are united: the host's
part of an iteration runs in the device's iteration, and no value is copied through a queue."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph import analysis, ops
from tpugraph.control_flow.loops import loop_of_frame, unite
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import Counted
from tpugraph.runtime.emulator.copies import Copies
from tpugraph.runtime.emulator.hosts import Hosts
from tpugraph.runtime.emulator.reads import read_together, stop_at_end_of_data
from tpugraph.support.errors import RunError


def connect(graph: Graph, copies: Copies, *, queues: bool = False, hosts: Hosts | None = None) -> bool:
    """Join both sides of infeed and outfeed, once what varies is copied; returns whether one loop does everything."""
    frame_of = analysis.frames(graph)
    infeed_in = analysis.by_core(graph.of_type("InfeedEnqueueTuple"))
    infeed_out = _cluster_ops(graph, "InfeedDequeueTuple", copies)
    outfeed_in = _cluster_ops(graph, "OutfeedEnqueueTuple", copies)
    outfeed_out = analysis.by_core(graph.of_type("OutfeedDequeueTuple")) if outfeed_in else []
    if not infeed_out and not outfeed_in:
        return False
    if len(infeed_in) < len(infeed_out):
        raise RunError(f"nothing is enqueued for core {len(infeed_in)}", node=infeed_out[-1])
    device = loop_of_frame(graph, frame_of[(infeed_out or outfeed_in)[0]])
    ends = [infeed_in, outfeed_out] if outfeed_in else [infeed_in]
    loops = [_loop_around(graph, frame_of, nodes) for nodes in ends]
    alike = [loop for loop in loops if loop and device and loop.limit is device.limit]
    if queues or device is None or len(alike) < len(loops):
        outfeed_in += [duplicate(graph, outfeed_in[0]) for _ in range(len(outfeed_out) - len(outfeed_in))]
        closing = None if device is None else device.counter.closing
        if closing is not None:  # what a core carries on alone may be read by nothing
            graph.add_controls(closing, [node for node in outfeed_in if node not in closing.controls])
        for nodes in (infeed_in[: len(infeed_out)], infeed_out, outfeed_in, outfeed_out):
            for core, node in enumerate(nodes):
                use_queue(graph, node, core, most=4)
        if infeed_in:
            _read_together(graph, frame_of, frame_of[infeed_in[0]])
        return False
    for loop in alike:
        unite(graph, loop, device)
    for enqueue, dequeue in zip(infeed_in, infeed_out, strict=False):
        _replace_dequeue(graph, dequeue, enqueue.inputs)
        _drop_sink(graph, enqueue, device)
    for core, dequeue in enumerate(outfeed_out):
        _replace_dequeue(graph, dequeue, outfeed_in[core if len(outfeed_in) > 1 else 0].inputs)
    for enqueue in outfeed_in:
        _drop_sink(graph, enqueue, device)
    frame_of = analysis.frames(graph)
    for queue in graph.of_type("FIFOQueueV2"):
        _replace_host_queue(graph, queue, frame_of, device)
    _read_together(graph, frame_of, device.frame, hosts)
    stop_at_end_of_data(graph, device.condition)
    return True


def _read_together(graph: Graph, frame_of: dict[Node, str], frame: str, hosts: Hosts | None = None) -> None:
    """Read the input once per step: however host and device are joined, a position of the input means the same."""
    read_together(graph, [node for node in graph.of_type("IteratorGetNext") if frame_of[node] == frame], hosts)


def duplicate(graph: Graph, enqueue: Node) -> Node:
    """A second enqueue of a replicated value, which every core sends all the same."""
    copy = graph.clone_subgraph([enqueue], lambda name: f"{name}/again")[enqueue]
    for waiting in enqueue.control_uses():
        graph.add_control(waiting, copy)
    return copy


def _cluster_ops(graph: Graph, op: str, copies: Copies) -> list[Node]:
    found = [node for node in graph.of_type(op) if copies.core_of(node) == 0]
    if len(found) > 1:
        raise RunError(f"the cluster has {len(found)} {op}, not one", node=found[0])
    return list(copies.nodes(found[0])) if found and copies.varies(found[0]) else found


def _loop_around(graph: Graph, frame_of: dict[Node, str], nodes: list[Node]) -> Counted | None:
    frames = {frame_of[node] for node in nodes}
    return loop_of_frame(graph, frames.pop()) if len(frames) == 1 else None


def _replace_dequeue(graph: Graph, dequeue: Node, values: Sequence[Tensor]) -> None:
    for port, tensor in enumerate(values):
        graph.replace_uses(dequeue.out(port), tensor)
    graph.replace_control_uses(dequeue, [t.node for t in values[:1]])
    graph.remove(dequeue)


def _replace_host_queue(graph: Graph, queue: Node, frame_of: dict[Node, str], device: Counted) -> None:
    """What goes from host to host beside the device goes directly where both ends are in the one loop."""
    enters = [node for node in queue.consumers() if node.op in ops.ENTER]
    ends = {use.node.op: use.node for node in [queue, *enters] for use in node.uses() if use.node not in enters}
    enqueue, dequeue = ends.get("QueueEnqueueV2"), ends.get("QueueDequeueV2")
    if enqueue is None or dequeue is None or {frame_of[enqueue], frame_of[dequeue]} != {device.frame}:
        return
    _replace_dequeue(graph, dequeue, enqueue.inputs[1:])
    _drop_sink(graph, enqueue, device)
    for enter in enters:
        graph.replace_control_uses(enter, [])
    graph.remove_all([*enters, queue])


def _drop_sink(graph: Graph, sink: Node, device: Counted) -> None:
    """Remove a node that only consumes; what it waited for still runs in each iteration."""
    waits = list(sink.controls)
    graph.replace_control_uses(sink, [*waits, *(t.node for t in sink.inputs)])
    graph.remove(sink)
    graph.add_controls(device.counter.closing, [node for node in waits if node is not device.pivot])


def use_queue(graph: Graph, node: Node, core: int, *, most: int) -> None:
    """Let a node use a queue in the place of a core's infeed or outfeed: nodes of one shared name mean the same queue.

    An infeed holds ``most`` elements, an outfeed any number.
    """
    infeed, kinds = node.op.startswith("Infeed"), node.attr("dtypes")
    name = f"tpugraph/{'infeed' if infeed else 'outfeed'}/queue/{core}"
    queue = graph.add("FIFOQueueV2", name, outputs=[(attrs.dtype("resource"), ())],
                      attrs={"component_types": kinds, "shapes": [], "capacity": most if infeed else -1, "shared_name": name,
                             "container": ""})  # fmt: skip
    frame = analysis.frames(graph)[node]
    handle = Builder(graph, name).enter(queue.out(), frame) if frame else queue.out()
    if not node.outputs:
        given = {"Tcomponents": kinds, "timeout_ms": -1}
        graph.retype(node, "QueueEnqueueV2", inputs=[handle, *node.inputs], attrs=given)
    else:
        given = {"component_types": kinds, "timeout_ms": -1}
        graph.retype(node, "QueueDequeueV2", inputs=[handle], attrs=given, outputs=node.outputs)

"""Infeed and outfeed of the emulator: edges of one loop where possible, else a queue per core.

Two loops can be one when both run ``i < limit`` over the same limit variable. Then their frames are united: the host's
part of an iteration runs in the device's iteration, and no value is copied through a queue."""

from __future__ import annotations

from tpugraph import analysis, ops
from tpugraph.control_flow.loops import loop_of_frame, unite
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import Counted
from tpugraph.runtime.emulator.copies import Copies
from tpugraph.runtime.emulator.end_of_data import stop_at_end_of_data
from tpugraph.runtime.emulator.hosts import Hosts
from tpugraph.runtime.emulator.reads import read_together
from tpugraph.support.errors import RunError

_RESOURCE = attrs.dtype("resource")


def connect(graph: Graph, copies: Copies, *, queues: bool = False, hosts: Hosts | None = None) -> bool:
    """Join both sides of infeed and outfeed; returns whether one loop does everything.

    Args:
        graph: the graph, with the replica-varying part copied.
        copies: the copies.
        queues: keep the loops apart and join them by queues, as a TPU does.
        hosts: the hosts, where there are many.
    """
    frame_of = analysis.frames(graph)
    takes = _cluster_ops(graph, "InfeedDequeueTuple", copies)
    gives = _cluster_ops(graph, "OutfeedEnqueueTuple", copies)
    puts = analysis.by_core(graph.of_type("InfeedEnqueueTuple"))
    gets = analysis.by_core(graph.of_type("OutfeedDequeueTuple"))
    boundary = takes[:1] or gives[:1]
    if not boundary:
        return False
    device = loop_of_frame(graph, frame_of[boundary[0]])
    fed = not queues and _unite(graph, frame_of, device, puts)
    read = not queues and _unite(graph, frame_of, device, gets)
    for core, take in enumerate(takes):
        if core >= len(puts):
            raise RunError(f"nothing is enqueued for core {core}", node=take)
        if fed:
            _direct(graph, puts[core], take, device)
        else:
            join_by_queue(graph, f"tpugraph/infeed/queue/{core}", [puts[core]], [take], capacity=4)
    if gives and not read:
        gives += [again(graph, gives[0]) for _ in range(len(gets) - len(gives))]
        closing = None if device is None else device.counter.closing
        if closing is not None:  # what a core carries on alone may be read by nothing
            graph.add_controls(closing, [give for give in gives if give not in closing.controls])
    for core, get in enumerate(gets if gives else ()):
        source = gives[core] if len(gives) > 1 else gives[0]
        if read:
            _direct_out(graph, source, get)
        else:
            join_by_queue(graph, f"tpugraph/outfeed/queue/{core}", [source], [get], capacity=-1)
    for give in gives if read else ():
        _drop_sink(graph, give, device)
    if fed and device is not None:
        frame_of = analysis.frames(graph)
        for queue in graph.of_type("FIFOQueueV2") if read else ():
            _direct_beside(graph, queue, frame_of, device)
        _read_together(graph, frame_of, device.frame, hosts)
        stop_at_end_of_data(graph, device.condition)
    elif puts:
        _read_together(graph, frame_of, frame_of[puts[0]])
    return fed and (read or not gives)


def _read_together(graph: Graph, frame_of: dict[Node, str], frame: str, hosts: Hosts | None = None) -> None:
    """Read the input once per step: however host and device are joined, a position of the input means the same."""
    read_together(graph, [node for node in graph.of_type("IteratorGetNext") if frame_of[node] == frame], hosts)


def again(graph: Graph, give: Node) -> Node:
    """A replicated value is sent once per core all the same."""
    copy = graph.clone_subgraph([give], lambda name: f"{name}/again")[give]
    for waiting in give.control_uses():
        graph.add_control(waiting, copy)
    return copy


def _cluster_ops(graph: Graph, op: str, copies: Copies) -> list[Node]:
    found = [node for node in graph.of_type(op) if copies.core_of(node) == 0]
    if len(found) > 1:
        raise RunError(f"the cluster has {len(found)} {op}, not one", node=found[0])
    return copies.nodes(found[0]) if found and copies.varies(found[0]) else found


def _unite(graph: Graph, frame_of: dict[Node, str], device: Counted | None, nodes: list[Node]) -> bool:
    """Let the loop around ``nodes`` be the device loop; returns False where they are not in a like loop."""
    frames = {frame_of[node] for node in nodes}
    if device is None or len(frames) != 1:
        return False
    host = loop_of_frame(graph, frames.pop())
    return host is not None and unite(graph, host, device)


def _direct(graph: Graph, put: Node, take: Node, device: Counted | None) -> None:
    for port, tensor in enumerate(put.inputs):
        graph.replace_uses(take.out(port), tensor)
    graph.replace_control_uses(take, [t.node for t in put.inputs[:1]])
    graph.remove(take)
    _drop_sink(graph, put, device)


def _direct_out(graph: Graph, give: Node, get: Node) -> None:
    for port, tensor in enumerate(give.inputs):
        graph.replace_uses(get.out(port), tensor)
    graph.replace_control_uses(get, [t.node for t in give.inputs[:1]])
    graph.remove(get)


def _direct_beside(graph: Graph, queue: Node, frame_of: dict[Node, str], device: Counted) -> None:
    """What goes from host to host beside the device goes directly where both ends are in the one loop."""
    enters = [node for node in queue.consumers() if node.op in ops.ENTER]
    ends = {use.node.op: use.node for node in [queue, *enters] for use in node.uses() if use.node not in enters}
    put, get = ends.get("QueueEnqueueV2"), ends.get("QueueDequeueV2")
    if put is None or get is None or {frame_of[put], frame_of[get]} != {device.frame}:
        return
    for port, tensor in enumerate(put.inputs[1:]):
        graph.replace_uses(get.out(port), tensor)
    graph.replace_control_uses(get, [t.node for t in put.inputs[1:2]])
    graph.remove(get)
    _drop_sink(graph, put, device)
    for enter in enters:
        graph.replace_control_uses(enter, [])
    graph.remove_all([*enters, queue])


def _drop_sink(graph: Graph, sink: Node, device: Counted | None) -> None:
    """Remove a node that only consumes; what it waited for still runs in each iteration."""
    waits = list(sink.controls)
    graph.replace_control_uses(sink, [*waits, *(t.node for t in sink.inputs)])
    graph.remove(sink)
    if device is not None:
        for node in waits:
            if node is not device.pivot:
                graph.add_control(device.counter.closing, node)


def join_by_queue(
    graph: Graph, name: str, puts: list[Node], gets: list[Node], *, capacity: int, shared_name: str = ""
) -> None:
    """Let nodes that enqueue and nodes that dequeue use a queue; either list may be empty.

    Args:
        graph: the graph.
        name: of the queue's node.
        puts: InfeedEnqueueTuple or OutfeedEnqueueTuple nodes.
        gets: InfeedDequeueTuple or OutfeedDequeueTuple nodes.
        capacity: elements that it holds at most; any number when -1.
        shared_name: what a session calls the queue, so that several nodes mean the same one; ``name`` when "".
    """
    kinds = [*puts, *gets][0].attr("dtypes")
    shared = {"shapes": [], "capacity": capacity, "shared_name": shared_name or name, "container": ""}
    made = graph.add("FIFOQueueV2", name, outputs=[(_RESOURCE, ())], attrs={"component_types": kinds, **shared})
    for put in puts:
        handle = _handle(graph, made, put)
        inputs = list(put.inputs)
        graph.retype(put, "QueueEnqueueV2", inputs=[handle, *inputs], attrs={"Tcomponents": kinds, "timeout_ms": -1})
    for get in gets:
        attributes = {"component_types": kinds, "timeout_ms": -1}
        graph.retype(get, "QueueDequeueV2", inputs=[_handle(graph, made, get)], attrs=attributes, outputs=get.outputs)


def _handle(graph: Graph, queue: Node, user: Node) -> Tensor:
    """The queue's handle in the frame of its user."""
    frame = analysis.frames(graph)[user]
    return Builder(graph, queue.name).enter(queue.out(), frame) if frame else queue.out()

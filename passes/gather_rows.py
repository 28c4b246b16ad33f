"""Builds the outfeed of evaluation and prediction."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph.analysis import HOST_DEVICE, shapes
from tpugraph.analysis.placements import REPLICATE
from tpugraph.analysis.step import DeviceEnds, Outfed, Partitioned, Queues, Results
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.tpu.evaluation_split import ALL_ROWS, TIMES, PlainRows
from tpugraph.tpu.outfeed import HostSide, receive, send
from tpugraph.tpu.pipeline import Pass

_RESOURCE = attrs.dtype("resource")


@dataclass(frozen=True)
class GatherRows(Pass):
    """The tensors that the host reads leave the device in one OutfeedEnqueueTuple per step, the number of true rows first.

    The host combines the values of all cores by their placements and slices off the padding, which gives the values of the plain
    batch. In a step without rows, after the end of the data, they are not used.
    """

    num_replicas: int = 8

    requires = ("placed", "rows_separate")
    ensures = ("fed_to_outfeed",)
    reads = (DeviceEnds,)
    reads_if_given = (Partitioned,)
    gives = (Outfed, Queues, Results)

    def run(self, graph: Graph) -> None:
        found, leaving = graph.result(DeviceEnds), graph.kept_or_empty(Partitioned).leaving
        marks = [n for n in graph.of_type(ALL_ROWS) if n.has_attr(TIMES)]
        beside = [n for n in marks if n.inputs[0].node.name in found.beside]
        through = [n for n in marks if n not in beside]  # the number of rows comes first
        enqueue = send(graph, [n.inputs[0] for n in through], vector=("shape", "vector"))
        cores = HostSide(graph, receive(graph, enqueue.inputs, self.num_replicas))
        host = PlainRows(graph, cores.dequeues[0].out(0))
        names, made = {}, {through[0]: host.total}
        for index, mark in enumerate(through[1:], 1):
            tensor = mark.inputs[0]
            value, how = cores.combined(index, tensor, leaving.get(str(tensor), REPLICATE))
            made[mark], names[tensor.node.origin or tensor.node.name] = host.plain(value, mark.attr(TIMES)), how
        arriving = _dequeue_bypassing(graph, [n.inputs[0] for n in beside])
        made |= {mark: host.plain(tensor, 0) for mark, tensor in zip(beside, arriving, strict=True)}
        for mark, tensor in made.items():
            graph.replace_uses(mark.out(), tensor)
            graph.remove(mark)
        host.guard_writes()
        size = sum(shapes.byte_size(t) or 0 for t in enqueue.inputs)
        graph.keep(Outfed(enqueue.name, names, size * self.num_replicas))


def _dequeue_bypassing(graph: Graph, ends: list[Tensor]) -> list[Tensor]:
    """The tensors that bypass the device through a queue, which the infeed's loop fills."""
    if not ends:
        return []
    kinds = [tensor.dtype for tensor in ends]
    name = "tpugraph/beside/queue"
    attributes = {"component_types": kinds, "shapes": [], "capacity": -1, "shared_name": name, "container": ""}
    queue = graph.add("FIFOQueueV2", name, attrs=attributes, device=HOST_DEVICE, outputs=[(_RESOURCE, ())])
    make = Builder(graph, device=HOST_DEVICE)
    taken = make.node("QueueDequeueV2", [queue.out()], name="tpugraph/beside/dequeue", shapes=[t.shape for t in ends],
                      component_types=kinds, timeout_ms=-1)  # fmt: skip
    graph.keep(Queues((queue.name,)))
    return [taken.out(index) for index in range(len(ends))]

"""The true rows of all cores leave the device through the outfeed and meet on the host."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph.analysis import HOST_DEVICE, shapes
from tpugraph.analysis.step import DeviceEnds, Outfed, Queues, Results
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.tpu.gathered_rows import GatheredRows
from tpugraph.tpu.host_epilogue import ALL_ROWS
from tpugraph.tpu.outfeed_nodes import receive, send
from tpugraph.tpu.pipeline import Pass

_RESOURCE = attrs.dtype("resource")


@dataclass(frozen=True)
class GatherRows(Pass):
    """What the host reads leaves the device by one OutfeedEnqueueTuple per step, the number of true rows first.

    On the host the padding of each core is cut off, and the rows of all cores stand one after the other, as in the
    global batch. In a step without rows, behind the end of the data, nothing is computed with them.
    """

    num_replicas: int = 8

    requires = ("placed", "rows_separate")
    ensures = ("fed_to_outfeed",)
    reads = (DeviceEnds,)
    gives = (Outfed, Queues, Results)

    def run(self, graph: Graph) -> None:
        found = graph.result(DeviceEnds)
        ends = [graph[name] for name in found.nodes]
        enqueue = send(graph, [end.out() for end in ends], vector=("shape", "vector"))
        sent = enqueue.inputs
        beside = [graph[name] for name in found.beside]
        nodes = receive(graph, sent, self.num_replicas)
        arriving = [[node.out(index) for node in nodes] for index in range(len(sent))]
        arriving += _arriving_beside(graph, [end.out() for end in beside], self.num_replicas)
        host = GatheredRows(graph, arriving)
        for index, end in enumerate([*ends, *beside]):
            for use in end.uses():
                if use.node.op == ALL_ROWS:
                    graph.replace_uses(use.node.out(), host.gathered(index, use.node))
                    graph.remove(use.node)
        host.guard_writes()
        size = sum(shapes.byte_size(t) or 0 for t in sent)
        names = {end.origin or end.name: "rows of all cores" for end in ends[1:]}
        graph.keep(Outfed(enqueue.name, names, size * self.num_replicas))


def _arriving_beside(graph: Graph, ends: list[Tensor], cores: int) -> list[list[Tensor]]:
    """What the host in front of the device hands to the host behind it, by a queue per core; the infeed fills them."""
    if not ends:
        return []
    kinds, outputs = [t.dtype for t in ends], [(t.dtype, t.shape) for t in ends]
    nodes, queues = [], []
    for core in range(cores):
        name = f"tpugraph/beside/queue/{core}"
        queue = graph.add(
            "FIFOQueueV2",
            name,
            attrs={"component_types": kinds, "shapes": [], "capacity": -1, "shared_name": name, "container": ""},
            device=HOST_DEVICE,
            outputs=[(_RESOURCE, ())],
        )
        kept = {"component_types": kinds, "timeout_ms": -1}
        nodes.append(graph.add("QueueDequeueV2", f"tpugraph/beside/dequeue/{core}", [queue.out()], attrs=kept,
                               device=HOST_DEVICE, outputs=outputs))  # fmt: skip
        queues.append(queue.name)
    graph.keep(Queues(tuple(queues)))
    return [[node.out(index) for node in nodes] for index in range(len(ends))]

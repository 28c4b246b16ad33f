"""The true rows of all cores leave the device through the outfeed and meet on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, CORE_DEVICE, HOST_DEVICE, shapes
from tpugraph.analysis.step import DeviceEnds, Outfed, Queues, Results
from tpugraph.control_flow.loops import add_results
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.tpu.host_epilogue import ALL_ROWS, TIMES
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")
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
        sent = [_at_least_vector(graph, end.out()) for end in ends]
        enqueue = graph.add(
            "OutfeedEnqueueTuple",
            "tpugraph/outfeed/enqueue",
            sent,
            attrs={"dtypes": [t.dtype for t in sent], CLUSTER_ATTR: CLUSTER},
            device=CORE_DEVICE,
            outputs=[],
        )
        beside = [graph[name] for name in found.beside]
        nodes = [_dequeue(graph, sent, core) for core in range(self.num_replicas)]
        arriving = [[node.out(index) for node in nodes] for index in range(len(sent))]
        arriving += _arriving_beside(graph, [end.out() for end in beside], self.num_replicas)
        host = _Host(graph, arriving)
        for index, end in enumerate([*ends, *beside]):
            for use in end.uses():
                if use.node.op == ALL_ROWS:
                    graph.replace_uses(use.node.out(), host.gathered(index, use.node))
                    graph.remove(use.node)
        host.guard_writes()
        size = sum(shapes.byte_size(t) or 0 for t in sent)
        names = {end.origin or end.name: "rows of all cores" for end in ends[1:]}
        graph.keep(Outfed(enqueue.name, names, size * self.num_replicas))


class _Host:
    """The host side of the outfeed: of each tensor what arrives from each core, the number of rows first."""

    def __init__(self, graph: Graph, arriving: list[list[Tensor]]) -> None:
        self.graph = graph
        self.counts = arriving[0]
        self.arriving = arriving
        self._sizes: dict[tuple[int, int, int], Tensor] = {}
        self._make = Builder(graph, "tpugraph/rows", device=HOST_DEVICE)
        total = self._total()
        some = self._make.add("Greater", [total, self._constant(0)], (), name="any")
        self.some = some
        self.total = self._if_any(total)
        self.pivot = self._make.identity(self.total, name="pivot").node
        add_results(graph, rows=str(total), some=str(some), pivot=self.pivot.name)

    def gathered(self, index: int, what: Node) -> Tensor:
        """The true rows of all cores; for index 0 how many they are."""
        if index == 0:
            return self.total
        times = what.attr(TIMES)
        parts = [self._true_rows(core, index, times) for core in range(len(self.counts))]
        whole = parts[0]
        if len(parts) > 1:
            whole = self._make.add("ConcatV2", [*parts, self._constant(0)], what.out().shape, name=f"concat/{index}")
        return self._if_any(whole)

    def guard_writes(self) -> None:
        """Nothing is written in a step without rows."""
        frame_of = analysis.frames(self.graph)
        device = analysis.in_cluster
        step = self.graph.ancestors(self.graph[name] for name in self.graph.roles.roots)
        for node in step:
            if node.op in ops.WRITES and not device(node) and not frame_of[node]:
                self.graph.add_control(node, self.pivot)

    def _total(self) -> Tensor:
        counts = self.counts
        whole = counts[0]
        if len(counts) > 1:
            whole = self._make.add("AddN", counts, (1,), name="sum")
        return self._make.add("Reshape", [whole, self._constant(np.zeros(0))], (), name="rows")

    def _true_rows(self, core: int, index: int, times: int) -> Tensor:
        tensor = self.arriving[index][core]
        shape = tensor.shape or ()
        begin = self._constant(np.zeros(len(shape)))
        size = self._size(core, len(shape), times)
        return self._make.add("Slice", [tensor, begin, size], (None, *shape[1:]), name=f"core_{core}/{index}")

    def _size(self, core: int, rank: int, times: int) -> Tensor:
        """The size of a slice that has a core's true rows and all else."""
        if (core, rank, times) not in self._sizes:
            size = self.counts[core]
            if times != 1:
                size = self._make.add("Mul", [size, self._constant(times)], (1,), name=f"core_{core}/times")
            if rank > 1:
                rest, axis = self._constant(np.full(rank - 1, -1)), self._constant(0)
                size = self._make.add("ConcatV2", [size, rest, axis], (rank,), name=f"core_{core}/size")
            self._sizes[core, rank, times] = size
        return self._sizes[core, rank, times]

    def _if_any(self, tensor: Tensor) -> Tensor:
        return self._make.node("Switch", [tensor, self.some], name="if_any", shapes=[tensor.shape] * 2).out(1)

    def _constant(self, value: Any) -> Tensor:
        return self._make.constant(value, _INT32)


def _dequeue(graph: Graph, sent: list[Tensor], core: int) -> Node:
    return graph.add(
        "OutfeedDequeueTuple",
        f"tpugraph/outfeed/dequeue/{core}",
        attrs={
            "dtypes": [t.dtype for t in sent],
            "shapes": [tuple(t.shape or ()) for t in sent],
            "device_ordinal": core,
        },
        device=HOST_DEVICE,
        outputs=[(t.dtype, t.shape) for t in sent],
    )


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


def _at_least_vector(graph: Graph, tensor: Tensor) -> Tensor:
    """The number of rows is a scalar; the outfeed takes vectors."""
    if tensor.shape != ():
        return tensor
    make = Builder(graph, tensor.node.name, marks={CLUSTER_ATTR: CLUSTER}, source=tensor.node)
    return make.reshape(tensor, [1], name="vector", target="shape")

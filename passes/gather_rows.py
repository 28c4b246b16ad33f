"""The true rows of all cores leave the device through the outfeed and meet on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, CORE_DEVICE, HOST_DEVICE, shapes
from tpugraph.analysis.step import DeviceEnds, Outfed, Queues, Results
from tpugraph.control_flow.loops import add_results
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.tpu.host_epilogue import ALL_ROWS, TIMES
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")
_BOOL = attrs.dtype("bool")
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
        total = self._total()
        some = self._add("Greater", "any", [total, self._constant(0)], {"T": _INT32}, (_BOOL, ()))
        self.some = some
        self.total = self._if_any(total)
        self.pivot = self._add("Identity", "pivot", [self.total], {"T": _INT32}, (_INT32, ())).node
        add_results(graph, rows=str(total), some=str(some), pivot=self.pivot.name)

    def gathered(self, index: int, what: Node) -> Tensor:
        """The true rows of all cores; for index 0 how many they are."""
        if index == 0:
            return self.total
        times, kind = what.attr(TIMES), what.out().dtype
        parts = [self._true_rows(core, index, times) for core in range(len(self.counts))]
        whole = parts[0]
        if len(parts) > 1:
            attributes = {"N": len(parts), "T": kind, "Tidx": _INT32}
            whole = self._add(
                "ConcatV2", f"concat/{index}", [*parts, self._constant(0)], attributes, (kind, what.out().shape)
            )
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
            whole = self._add("AddN", "sum", counts, {"N": len(counts), "T": _INT32}, (_INT32, (1,)))
        scalar = self._constant(np.zeros(0))
        return self._add("Reshape", "rows", [whole, scalar], {"T": _INT32, "Tshape": _INT32}, (_INT32, ()))

    def _true_rows(self, core: int, index: int, times: int) -> Tensor:
        tensor = self.arriving[index][core]
        kind, shape = tensor.dtype, tensor.shape or ()
        begin = self._constant(np.zeros(len(shape)))
        size = self._size(core, len(shape), times)
        cut = (None, *shape[1:])
        return self._add(
            "Slice", f"core_{core}/{index}", [tensor, begin, size], {"T": kind, "Index": _INT32}, (kind, cut)
        )

    def _size(self, core: int, rank: int, times: int) -> Tensor:
        """The size of a slice that has a core's true rows and all else."""
        if (core, rank, times) not in self._sizes:
            size = self.counts[core]
            if times != 1:
                size = self._add(
                    "Mul", f"core_{core}/times", [size, self._constant(times)], {"T": _INT32}, (_INT32, (1,))
                )
            if rank > 1:
                rest, axis = self._constant(np.full(rank - 1, -1)), self._constant(0)
                attributes = {"N": 2, "T": _INT32, "Tidx": _INT32}
                size = self._add("ConcatV2", f"core_{core}/size", [size, rest, axis], attributes, (_INT32, (rank,)))
            self._sizes[core, rank, times] = size
        return self._sizes[core, rank, times]

    def _if_any(self, tensor: Tensor) -> Tensor:
        output = (tensor.dtype, tensor.shape)
        return self._add("Switch", "if_any", [tensor, self.some], {"T": tensor.dtype}, output, output).node.out(1)

    def _constant(self, value: Any) -> Tensor:
        array = np.asarray(value, "int32")
        return self._add("Const", "const", [], {"dtype": _INT32, "value": array}, (_INT32, array.shape))

    def _add(self, op: str, name: str, inputs: list[Tensor], attributes: dict[str, Any], *outputs: Output) -> Tensor:
        name = f"tpugraph/rows/{name}"
        return self.graph.add(op, name, inputs, attrs=attributes, device=HOST_DEVICE, outputs=list(outputs)).out()


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
    name, mark = tensor.node.name, {CLUSTER_ATTR: CLUSTER}
    one = {"dtype": _INT32, "value": np.ones(1, "int32"), **mark}
    target = graph.add("Const", f"{name}/shape", attrs=one, outputs=[(_INT32, (1,))], source=tensor.node)
    return graph.add(
        "Reshape",
        f"{name}/vector",
        [tensor, target.out()],
        attrs={"T": tensor.dtype, "Tshape": _INT32, **mark},
        outputs=[(tensor.dtype, (1,))],
        source=tensor.node,
    ).out()

"""Builds the infeed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, CORE_DEVICE, HOST_DEVICE, fed_to_device, in_cluster
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.shapes import is_static
from tpugraph.analysis.step import Cut, DeviceEnds, Enqueues, Queues
from tpugraph.control_flow.loops import per_batch
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.rewrite.step_nodes import remove_unread
from tpugraph.support.errors import ConversionError
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class Infeed(Pass):
    """The device reads host tensors from one InfeedDequeueTuple; the host enqueues one tuple per core.

    The host takes one batch and splits it over the cores; replicated tensors go whole to each. For a replica program it takes
    one batch per core, in order. A tensor with an unknown number of rows is sent padded, with its number of rows.
    """

    num_replicas: int = 8

    requires = ("placed",)
    ensures = ("static_infeed", "fed_by_infeed")
    reads = (Cut,)
    reads_if_given = (DeviceEnds, Queues)
    gives = (Enqueues,)

    def run(self, graph: Graph) -> None:
        padding = [n for n in graph if n.made_by == "pad-batches" and not ops.is_stateful(n.op)]
        remove_unread(graph, padding, keep=frozenset(graph) - frozenset(padding))  # such as those of an unused feature
        crossing = fed_to_device(graph)
        if not crossing:
            raise ConversionError("the device reads no host tensor: the step does not depend on the input",
                                  fix="name the train op with --train_op")  # fmt: skip
        waits = [graph[name] for name in graph.result(Cut).waits if name in graph]
        padded = {tensor: _pad(graph, tensor) for tensor in crossing if not is_static(tensor.shape)}
        sent = [padded[t][0] if t in padded else t for t in crossing] + [rows for _, rows in padded.values()]
        counts, kinds = count(len(crossing)), _kinds(sent)
        about = {"dtypes": kinds["dtypes"], "shapes": kinds["shapes"], CLUSTER_ATTR: CLUSTER}
        dequeue = graph.add("InfeedDequeueTuple", "tpugraph/infeed/dequeue", attrs=about, device=CORE_DEVICE,
                            outputs=[(t.dtype, t.shape) for t in sent])  # fmt: skip
        for index, tensor in enumerate(crossing):
            arrived = dequeue.out(index)
            if tensor in padded:
                arrived = slice_to_true_rows(graph, arrived, dequeue.out(next(counts)), tensor)
            for use in tensor.node.uses(tensor.port):
                if in_cluster(use.node):
                    graph.set_input(use.node, use.index, arrived)
        whole = self.num_replicas == 1 or graph.roles.replica
        enqueues = (self._copy if whole else self._split)(graph, sent, kinds, waits)
        graph.keep(Enqueues(tuple(node.name for node in [*enqueues, *_enqueue_bypassing(graph)])))

    def _enqueue(
        self, graph: Graph, core: int, inputs: list[Tensor], kinds: dict[str, Any], controls: list[Node]
    ) -> Node:
        return graph.add("InfeedEnqueueTuple", f"tpugraph/infeed/enqueue/{core}", inputs, controls=controls,
                         attrs={**kinds, "device_ordinal": core}, device=HOST_DEVICE, outputs=[])  # fmt: skip

    def _copy(self, graph: Graph, sent: list[Tensor], kinds: dict[str, Any], waits: list[Node]) -> list[Node]:
        """One run of the input part per core, in order: core r of step t takes batch N*t + r."""
        body = per_batch(graph, [*(t.node for t in sent), *waits])
        takes = [node for node in body if node.op in ops.INPUTS]
        enqueues = [self._enqueue(graph, 0, sent, kinds, waits)]
        before = takes
        for core in range(1, self.num_replicas):
            copies = graph.clone_subgraph(body, lambda name, core=core: f"{name}/core_{core}")  # type: ignore[misc]
            for last, take in zip(before, takes, strict=True):
                graph.add_control(copies[take], last)
            for copy in filter(lambda n: n.op in ops.ENTER, copies.values()):
                graph.set_attr(copy, "frame_name", f"{copy.attr('frame_name')}/core_{core}")
            before = [copies[take] for take in takes]
            inputs = [copies[t.node].out(t.port) if t.node in copies else t for t in sent]
            enqueues.append(self._enqueue(graph, core, inputs, kinds, [copies.get(w, w) for w in waits]))
        return enqueues

    def _split(self, graph: Graph, sent: list[Tensor], kinds: dict[str, Any], waits: list[Node]) -> list[Node]:
        """One batch per step: core r gets the r-th piece of sharded tensors, and replicated ones whole."""
        pieces = {t for t in sent if t.node.op in ops.SPLITS and t.node.made_by == "partition"}
        return [
            self._enqueue(graph, core, [t.node.out(core) if t in pieces else t for t in sent], kinds, waits)
            for core in range(self.num_replicas)
        ]


def _enqueue_bypassing(graph: Graph) -> list[Node]:
    """Enqueue the tensors that bypass the device."""
    queues, ends = graph.kept(Queues), graph.kept(DeviceEnds)
    if queues is None or ends is None:
        return []
    handed = [graph[name].out() for name in (queues.names[0], *ends.beside)]
    make = Builder(graph, "tpugraph/beside", device=HOST_DEVICE)
    return [make.node("QueueEnqueueV2", handed, name="enqueue", timeout_ms=-1)]


def _kinds(sent: list[Tensor]) -> dict[str, Any]:
    """Dtypes and shapes of a tuple as attributes, shared by all cores."""
    values = {"dtypes": [t.dtype for t in sent], "shapes": [tuple(t.shape or ()) for t in sent], "layouts": []}
    return {name: attrs.encode(value) for name, value in values.items()}


def _pad(graph: Graph, tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor of unknown shape, padded to its bound, and its number of rows."""
    source, bound = tensor.node, bounded_shape(tensor)
    rank = len(bound or ())
    make = Builder(graph, f"{source.name}/infeed", device=HOST_DEVICE, source=source)
    shape = make.add("Shape", [tensor], (rank,), name="shape", out_type=_INT32)
    target = make.constant(np.asarray(bound, "int32"), name="bound")
    missing = make.add("Sub", [target, shape], (rank,), name="missing")
    zeros = make.constant(np.zeros(rank, "int32"), name="zeros")
    padding = make.add("Pack", [zeros, missing], (rank, 2), name="padding", axis=1)
    padded = make.add("Pad", [tensor, padding], bound, name="padded")
    ends = [make.constant(np.asarray([v], "int32"), name=n) for n, v in (("b", 0), ("e", 1), ("s", 1))]
    return padded, make.add("StridedSlice", [shape, *ends], (), name="rows", **attrs.first_element())


def slice_to_true_rows(graph: Graph, arrived: Tensor, count: Tensor, original: Tensor) -> Tensor:
    """Slice a tensor from the infeed to its true number of rows."""
    source = original.node
    make = Builder(graph, source.name, marks={CLUSTER_ATTR: CLUSTER}, source=source)
    axis = make.constant(np.int32(0), name="axis")
    return make.add("XlaSetDynamicDimensionSize", [arrived, axis, count], original.shape, name="dynamic")

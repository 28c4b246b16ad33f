"""With ``batch_mode=global``: the traced batch is the global one, each core gets its share of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster, shapes
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.sizes import ROWS
from tpugraph.analysis.step import ClosedShapes, SplitConstants
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.partition.rebatch import Resizing
from tpugraph.support.errors import GraphError, ShapeError
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")
_FIX = "--batch_mode=per_replica, which changes no constant"


@dataclass(frozen=True)
class SplitBatch(Pass):
    """With batch_mode=global the device part is traced anew for one core's share of the batch; else nothing changes.

    Every constant that shapes the batch is re-derived: reshape targets, tile multiples, zero states. A number that only
    enters arithmetic keeps its value, since it is the global batch that it speaks of, forward and backward. Where it is not
    certain that a constant shapes the batch, the pass refuses and names it.
    """

    num_replicas: int = 8
    batch_mode: str = "per_replica"

    requires = ("placed", "shapes_known")
    ensures = ("placed", "shapes_known")
    reads_if_given = (ClosedShapes,)
    gives = (SplitConstants,)

    def run(self, graph: Graph) -> None:
        if self.batch_mode != "global" or self.num_replicas == 1:
            return
        crossing = _crossing(graph)
        batch = self._batch(graph, crossing)
        device = [node for node in graph if in_cluster(node)]
        seeds: dict[Tensor, Dims] = {
            tensor: (ROWS, *(int(d or 0) for d in (tensor.shape or ())[1:])) for tensor in crossing
        }
        resizing = Resizing(graph, device, batch, batch // self.num_replicas, seeds, what="split", fix=_FIX)
        before = {node: list(node.outputs or []) for node in device}
        held = resizing.constants()
        whole = graph.ancestors([tensor.node for tensor in crossing])
        for node in graph:
            if node.has_attr("_output_shapes") and node not in whole:
                graph.set_attr(node, "_output_shapes", None)
            if in_cluster(node):
                resizing.attributes(node)
        for tensor in crossing:
            self._split(graph, tensor, batch)
        try:
            shapes.infer(graph)
            if shapes.tell_lookups(graph):
                shapes.infer(graph)
        except GraphError as error:
            raise resizing.uncertain(error.node or crossing[0].node, error.fault) from error
        resizing.verify(before)
        graph.keep(held)

    def _batch(self, graph: Graph, crossing: list[Tensor]) -> int:
        rows = [t.shape[0] for t in crossing if t.shape and t.shape[0]]
        batch = max(set(rows), key=rows.count) if rows else None
        odd = next((t for t in crossing if not t.shape or t.shape[0] != batch), None)
        if batch is None or odd is not None:
            raise ShapeError(
                f"the batch cannot be split with certainty: '{odd}' crosses to the device without a batch dimension",
                node=(odd or crossing[0]).node,
                origin=graph.source,
                fix=_FIX,
            )
        if batch % self.num_replicas:
            low = batch // self.num_replicas * self.num_replicas
            sizes = " or ".join(str(s) for s in (low, low + self.num_replicas) if s)
            raise ShapeError(
                f"a batch of {batch} rows cannot be split over {self.num_replicas} cores",
                node=crossing[0].node,
                fix=f"batch {sizes} rows, choose --num_replicas to divide {batch}, or --batch_mode=per_replica",
            )
        return int(batch)

    def _split(self, graph: Graph, tensor: Tensor, batch: int) -> None:
        axis = graph.add(
            "Const",
            f"{tensor.node.name}/split/axis",
            attrs={"dtype": _INT32, "value": np.asarray(0, "int32")},
            device=HOST_DEVICE,
            outputs=[(_INT32, ())],
            source=tensor.node,
        )
        share = (batch // self.num_replicas, *(tensor.shape or ())[1:])
        pieces = graph.add(
            "Split",
            f"{tensor.node.name}/split",
            [axis.out(), tensor],
            device=HOST_DEVICE,
            attrs={"T": tensor.dtype, "num_split": self.num_replicas},
            source=tensor.node,
            outputs=[(tensor.dtype, share)] * self.num_replicas,
        )
        graph.replace_uses(tensor, pieces.out(), where=lambda use: in_cluster(use.node))


def _crossing(graph: Graph) -> list[Tensor]:
    found: list[Tensor] = []
    for node in graph:
        if in_cluster(node) or node.op in ops.RESOURCE_VARIABLES:
            continue
        found.extend(node.out(p) for p in node.used_ports() if any(in_cluster(u.node) for u in node.uses(p)))
    return found

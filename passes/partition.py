"""Partitions the plain step at the global batch over the cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE, REPLICATED_ATTR, in_cluster, loop_shapes
from tpugraph.analysis.placements import Placement, Shard
from tpugraph.analysis.step import PaddedBatches, Partitioned
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.rewrite.partition import Rewriting
from tpugraph.spmd.analysis import analyse, batch_of, fed, refuse_uneven
from tpugraph.spmd.demands import Demands
from tpugraph.tpu.evaluation_split import ALL_ROWS, TIMES
from tpugraph.tpu.pipeline import Pass, check_choices

_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class Partition(Pass):
    """Each core computes its rows of the plain step; every loss and every variable equals the plain graph's.

    Each value is replicated, sharded by rows, or partial. Where an op needs another placement a collective converts it: raw
    gradients are all-reduced before clipping and the optimizer, rows are all-gathered where an op mixes them.
    """

    num_replicas: int = 8
    varying_updates: str = "mean"
    batch_norm: str = "global"
    random: str = "per_core"

    requires = ("placed", "shapes_known")
    ensures = ("gradients_reduced", "uniform_writes")
    reads_if_given = (PaddedBatches,)
    gives = (Partitioned,)

    def placements(self, graph: Graph, seeds: Mapping[Tensor, Placement] | None = None) -> Demands:
        """The placements of the step, and where its partial values are reduced; the graph is not changed."""
        policies = {"batch_norm": self.batch_norm, "random": self.random}
        return analyse(graph, self.num_replicas, policies=policies, seeds=seeds)

    def run(self, graph: Graph) -> None:
        check_choices(self)
        roles, rows, cores = graph.roles, batch_of(graph), self.num_replicas
        loss = graph.tensor(roles.loss.name) if roles.mode == "train" else None
        if cores == 1:
            graph.keep(Partitioned(1, rows, str(loss or "")))
            return
        refuse_uneven(graph, rows, cores)
        seeds = {_split(graph, t, p, cores): p for t, p in fed(graph, cores).items()}
        demands = self.placements(graph, seeds)
        step = Rewriting(demands.placing, self.varying_updates)
        step.apply()
        share = "" if loss is None else str(step.share_of_loss(loss))
        leaving = step.leaving()
        if roles.mode == "train":
            _mark_leaving(graph, leaving)
        _tell_local_shapes(graph, seeds)
        loop_shapes.infer(graph)
        graph.keep(Partitioned(cores, None if rows is None else rows // cores, share, step.notes(),
                               {str(t): p for t, p in leaving.items()}, step.conversions.made, step.conversions.gathered,
                               step.conversions.combined))  # fmt: skip


def _split(graph: Graph, tensor: Tensor, placement: Placement, cores: int) -> Tensor:
    """Split a fed tensor, or mark it as replicated; the first piece, with the global shape, represents the core's."""
    name, source = tensor.node.name, tensor.node
    if isinstance(placement, Shard):
        make = Builder(graph, name, device=HOST_DEVICE, source=source)
        axis = make.constant(placement.axis, _INT32, name="split/axis")
        made = make.node("Split", [axis, tensor], name="split", shapes=[tensor.shape] * cores, num_split=cores).out()
    else:
        made = Builder(graph, name, marks={CLUSTER_ATTR: CLUSTER, REPLICATED_ATTR: True}, source=source).identity(
            tensor, name="whole"
        )
    graph.replace_uses(tensor, made, where=lambda use: in_cluster(use.node) and use.node is not made.node)
    return made


def _mark_leaving(graph: Graph, leaving: Mapping[Tensor, Placement]) -> None:
    """Mark the tensors that leave the device, with unknown rows: the host reads those of all cores, the device has its own."""
    for tensor, placement in leaving.items():
        if tensor.shape is None or None in tensor.shape:
            continue  # the pass outfeed names the reader
        axis = placement.axis if isinstance(placement, Shard) else None
        shape = tuple(None if index == axis else size for index, size in enumerate(tensor.shape))
        make = Builder(graph, source=tensor.node, device=HOST_DEVICE, marks={TIMES: 0})
        mark = make.node(
            ALL_ROWS, [tensor], name=f"tpugraph/all/{tensor.node.name}", shapes=(shape,), shape=attrs.encode(shape)
        )
        for use in [use for use in tensor.node.uses(tensor.port) if not in_cluster(use.node) and use.node is not mark]:
            graph.set_input(use.node, use.index, mark.out())


def _tell_local_shapes(graph: Graph, seeds: dict[Tensor, Placement]) -> None:
    """Set ``_output_shapes`` to local shapes on the device, and drop them on the host after it."""
    whole = graph.ancestors([tensor.node for tensor in seeds])
    for node in list(graph.with_attr("_output_shapes")):
        if node not in whole:
            told = [shape for _, shape in node.outputs or ()] if in_cluster(node) else None
            graph.set_attr(node, "_output_shapes", told)

"""Partition the plain step at the global batch over the cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE, REPLICATED_ATTR, in_cluster, shapes
from tpugraph.analysis.placements import SUM, Placement, Shard
from tpugraph.analysis.step import Partitioned
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.rewrite.partition import Rewriting
from tpugraph.spmd.analysis import analyse, batch_of, fed
from tpugraph.spmd.demands import Demands
from tpugraph.support.errors import ShapeError, UsageError
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")
_CHOICES = {
    "varying_updates": ("mean", "replica0", "error"),
    "batch_norm": ("global", "per_core"),
    "random": ("per_core", "plain"),
}


@dataclass(frozen=True)
class Partition(Pass):
    """Each core computes its share of the rows of the plain step; every loss and every variable is the plain graph's.

    Each value is the same on every core, holds the core's rows, or is its part of a sum; where an op reads it otherwise the cores
    combine it: raw gradients are summed before clipping and the optimizer, rows are gathered where rows meet.
    """

    num_replicas: int = 8
    varying_updates: str = "mean"
    batch_norm: str = "global"
    random: str = "per_core"

    requires = ("placed", "shapes_known")
    ensures = ("gradients_reduced", "uniform_writes")
    gives = (Partitioned,)

    def placements(self, graph: Graph, seeds: Mapping[Tensor, Placement] | None = None) -> Demands:
        """Where the values of the step live, and where its partial values are reduced; the graph stays as it is."""
        policies = {"batch_norm": self.batch_norm, "random": self.random}
        return analyse(graph, self.num_replicas, policies=policies, seeds=seeds)

    def run(self, graph: Graph) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(f"'{getattr(self, name)}' is no {name.replace('_', ' ')}",
                                 fix=f"--{name}={', '.join(choices[:-1])} or {choices[-1]}")  # fmt: skip
        loss, rows, cores = graph.tensor(graph.roles.loss.name), batch_of(graph), self.num_replicas
        if cores == 1:
            graph.keep(Partitioned(1, rows, str(loss), "whole", "one core has the whole batch"))
            return
        _refuse_uneven(graph, rows, cores)
        seeds = {_split(graph, t, p, cores): p for t, p in fed(graph, cores).items()}
        demands = self.placements(graph, seeds)
        step = Rewriting(demands.placing, self.varying_updates)
        step.apply()
        share, leaving = step.share_of_loss(loss), step.leaving()
        _forget_shapes(graph, seeds)
        shapes.infer(graph)
        verdict = demands.placing.verdicts.get(loss.node)
        how = _kind(step.placing.made(loss), () if verdict is None else verdict.averaged)
        graph.keep(Partitioned(cores, None if rows is None else rows // cores, str(share), how, "the plain step at its own batch",
                               step.notes(), {str(t): p for t, p in leaving.items()}, step.conversions.made,
                               step.conversions.gathered, step.conversions.combined))  # fmt: skip


def _kind(placement: Placement | None, averaged: tuple[int, ...]) -> str:
    return "mean" if averaged else "sum" if placement == SUM else "whole"


def _refuse_uneven(graph: Graph, rows: int | None, cores: int) -> None:
    if rows is None or rows % cores == 0:
        return
    low = rows // cores * cores
    batches = " or ".join(str(size) for size in (low, low + cores) if size)
    fits = ", ".join(str(n) for n in range(min(rows, cores), 0, -1) if rows % n == 0)
    raise ShapeError(f"a batch of {rows} rows cannot be split over {cores} cores", node=None, origin=graph.source,
                     fix=f"--num_replicas={fits.split(', ')[0]} (cores that divide {rows}: {fits}), "
                         f"or a batch of {batches} rows")  # fmt: skip


def _split(graph: Graph, tensor: Tensor, placement: Placement, cores: int) -> Tensor:
    """The pieces of what the host feeds; the first stands for the core's own on the device, with the whole shape for now."""
    if not isinstance(placement, Shard):
        return _whole(graph, tensor)
    axis = graph.add("Const", f"{tensor.node.name}/split/axis", attrs={"dtype": _INT32, "value": np.asarray(placement.axis, "int32")},
                     device=HOST_DEVICE, outputs=[(_INT32, ())], source=tensor.node)  # fmt: skip
    pieces = graph.add("Split", f"{tensor.node.name}/split", [axis.out(), tensor], device=HOST_DEVICE, source=tensor.node,
                       attrs={"T": tensor.dtype, "num_split": cores}, outputs=[(tensor.dtype, tensor.shape)] * cores)  # fmt: skip
    graph.replace_uses(tensor, pieces.out(), where=lambda use: in_cluster(use.node))
    return pieces.out()


def _whole(graph: Graph, tensor: Tensor) -> Tensor:
    """What every core is fed alike, marked so."""
    same = graph.add("Identity", f"{tensor.node.name}/whole", [tensor], source=tensor.node, outputs=[(tensor.dtype, tensor.shape)],
                     attrs={"T": tensor.dtype, CLUSTER_ATTR: CLUSTER, REPLICATED_ATTR: True})  # fmt: skip
    graph.replace_uses(tensor, same.out(), where=lambda use: in_cluster(use.node) and use.node is not same)
    return same.out()


def _forget_shapes(graph: Graph, seeds: dict[Tensor, Placement]) -> None:
    """Hints of shapes that are no longer those of the nodes."""
    whole = graph.ancestors([tensor.node for tensor in seeds])
    for node in list(graph.with_attr("_output_shapes")):
        if node not in whole:
            graph.set_attr(node, "_output_shapes", None)

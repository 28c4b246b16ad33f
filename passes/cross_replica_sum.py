"""Partition the step over the cores: collectives where values of the whole batch are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis
from tpugraph.analysis.batched_input import batch_rows
from tpugraph.analysis.constant_values import constant, constant_at
from tpugraph.analysis.placements import REPLICATE, SUM, Partial, Placement, Replicate, Shard, Sized
from tpugraph.analysis.step import ClosedShapes, Literals, Partitioned, SplitConstants
from tpugraph.ir import Graph, Tensor
from tpugraph.partition import (
    Demands,
    Partition,
    analyse,
    chosen_reading,
    compute_by_formulas,
    literal_notes,
    parted,
    reduction,
    refuse_doubts,
)
from tpugraph.support.errors import ConversionError, UsageError
from tpugraph.tpu.pipeline import Pass

_CHOICES = {
    "loss_reduction": ("auto", "mean", "sum"),
    "varying_updates": ("mean", "replica0", "error"),
    "batch_norm": ("global", "per_core"),
}


@dataclass(frozen=True)
class CrossReplicaSum(Pass):
    """Every variable is given what the step on the whole batch would give it.

    Each value is the same on every core, holds the core's rows, or is its part of a sum; where an op reads it otherwise, the
    cores combine it: raw gradients are summed before clipping and the optimizer, rows are gathered where rows meet.
    """

    num_replicas: int = 8
    loss_reduction: str = "auto"
    varying_updates: str = "mean"
    batch_norm: str = "global"
    batch_constants: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()

    requires = ("placed", "shapes_known")
    ensures = ("gradients_reduced", "uniform_writes")
    reads_if_given = (ClosedShapes, SplitConstants, Literals)
    gives = (Partitioned,)

    def run(self, graph: Graph) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(f"'{getattr(self, name)}' is no {name.replace('_', ' ')}",
                                 fix=f"--{name}={', '.join(choices[:-1])} or {choices[-1]}")  # fmt: skip
        loss = graph.tensor(graph.roles.loss.name)
        rows = batch_rows(graph)
        if self.num_replicas == 1 or rows is None:
            graph.keep(Partitioned(self.num_replicas, rows, str(loss), "whole", "one core has the whole batch"))
            return
        step = Partition(self.solved(graph, rows).placing, self.num_replicas, self._scaling, self.varying_updates)
        how, reason = reduction(step.placing, loss)
        literals = literal_notes(step.placing)
        if step.scaling is None:
            refuse_doubts(step.placing, self.num_replicas)
        else:
            step.override(loss)
            how, reason = self.loss_reduction, "chosen with --loss_reduction"
        step.apply()
        share = str(_share_of_loss(step, loss))
        leaving = {str(t): p for t, p in _leaving(graph, step).items()}
        notes = (*step.notes(), *literals)
        graph.keep(Partitioned(self.num_replicas, rows, share, how, reason, notes, leaving, step.made, step.gathered,
                               step.combined))  # fmt: skip

    @property
    def _scaling(self) -> str | None:
        return None if self.loss_reduction == "auto" else self.loss_reduction

    def solved(self, graph: Graph, rows: int) -> Demands:
        """The placements of the step and what it asks for, before anything is made in the graph."""
        made = graph.kept(Literals) or Literals()
        chosen = {**dict.fromkeys(made.names, False), **self._chosen(graph, rows)}
        placing = analyse(graph, rows, self.num_replicas, policies={"batch_norm": self.batch_norm}, chosen=chosen,
                          split=graph.kept(SplitConstants))  # fmt: skip
        demands = Demands(placing)
        demands.solve()
        return demands

    def _chosen(self, graph: Graph, rows: int) -> dict[str, bool]:
        """The constants that the user settled: by name, whether they hold the size of the batch."""
        formulas = parted(self.batch_constants)
        chosen = dict.fromkeys(self.literals, False) | dict.fromkeys(formulas, True)
        for name in chosen:
            if name not in graph or constant_at(graph[name].out()) is None:
                raise UsageError(f"there is no constant '{name}' in the step", origin=graph.source,
                                 fix="give the names of Const nodes, as the refusal that asked for them did")  # fmt: skip
        for name in (name for name, formula in formulas.items() if not formula):
            value = constant(graph[name])
            numbers = value.ravel().tolist() if value.dtype.kind in "iuf" else []
            whole = [number for number in numbers if number == int(number)]
            share = len([number for number in whole if number > 0]) == 1  # as half of the rows
            share = share or chosen_reading(graph[name], rows) is not None
            if not share and not any(size > 0 and size % rows == 0 for size in (*numbers, *value.shape)):
                raise UsageError(f"'{name}' holds no number of rows: {value.tolist()} has no multiple of the {rows} rows of a "
                                 "core's batch, nor one number that may be a share of them, or their logarithm or root",
                                 origin=graph.source, fix="leave it out of --batch_constants")  # fmt: skip
        both = set(self.literals) & set(formulas)
        if both:
            raise UsageError(
                f"'{min(both)}' is named by --batch_constants and by --literals", fix="name it by one of them"
            )
        told = {name: formula for name, formula in formulas.items() if formula}
        numbers = compute_by_formulas(graph, rows, told)
        return {name: holds for name, holds in chosen.items() if name not in told} | dict.fromkeys(numbers, True)


def _share_of_loss(step: Partition, loss: Tensor) -> Tensor:
    """This core's part of the loss; the sum of the parts is the loss of the whole batch."""
    placement = step.placing.made(loss)
    source = step.made_behind.get(loss, loss)
    if placement == SUM:
        return source
    if isinstance(placement, Partial):
        return step.collectives.share(step.collectives.extreme(source, placement.reduce_op))
    if placement is None or isinstance(placement, Replicate | Sized):
        return step.collectives.share(step.whole(source, placement))
    raise ConversionError(f"the loss is no number of the whole batch: it is {placement}", node=loss.node,
                          origin=step.placing.graph.source,
                          fix="give each example a row of it; numbers that are drawn in the model, not in the input, are the same "
                          "on all cores")  # fmt: skip


def _leaving(graph: Graph, step: Partition) -> dict[Tensor, Placement]:
    """How what the host reads lives on the cores; sizes are counted, and numbers of rows told, before they leave."""
    device = analysis.cluster_nodes(graph)
    origin = {made: tensor for tensor, made in step.made_behind.items()}
    found: dict[Tensor, Placement] = {}
    for node in [n for n in graph if n not in device]:
        for index, tensor in enumerate(node.inputs):
            if tensor.node not in device:
                continue
            placement = step.placing.made(origin.get(tensor, tensor)) or REPLICATE
            if isinstance(placement, Sized):
                graph.set_input(node, index, step.whole(tensor, placement))
                tensor, placement = node.inputs[index], REPLICATE
            elif isinstance(placement, Shard) and (placement.shift or placement.outer > 1):
                result = step.collectives.gather(step.numbered(tensor, placement), placement)
                graph.set_input(node, index, result)
                tensor, placement = result, REPLICATE
            found[tensor] = placement
    return found

"""Sum the raw gradients over the cores."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops, other_losses, reduction
from tpugraph.adjoints import Adjoints
from tpugraph.analysis import NodeSet
from tpugraph.batch_dims import batch_rows
from tpugraph.degrees import unclear
from tpugraph.errors import ConversionError, UsageError
from tpugraph.gathering import all_gather
from tpugraph.gradients import RawGradient, find_raw_gradients, rows_alike
from tpugraph.ir import Graph, Tensor
from tpugraph.losses import decisions
from tpugraph.pipeline import Pass
from tpugraph.replicas import Replicas
from tpugraph.uniform_parts import share_uniform_parts


@dataclass(frozen=True)
class _Step:
    """The step as it was analysed: what varies, the rows of a core's batch, what leads to the loss and to the gradients."""

    graph: Graph
    loss: Tensor
    varying: NodeSet
    rows: int | None
    forward: NodeSet
    backward: NodeSet


@dataclass(frozen=True)
class CrossReplicaSum(Pass):
    """Every trained variable is updated from its gradient over the global batch, reduced before clipping or scaling.

    The raw gradient of each variable is scaled by the core's share of the batch and summed over the cores. Rows of an
    embedding are gathered instead. Where the loss is a sum, only what depends on the data is summed.
    """

    num_replicas: int = 8
    loss_reduction: str = "auto"

    requires = ("placed", "shapes_known")
    ensures = ("gradients_reduced",)

    def run(self, graph: Graph) -> None:
        if self.loss_reduction not in ("auto", "mean", "sum"):
            raise UsageError(f"'{self.loss_reduction}' is no loss reduction", fix="--loss_reduction=auto, mean or sum")
        loss = graph.tensor(graph.roles.loss.name)
        varying, gradients = self._analyse(graph, loss)
        rows = batch_rows(graph)
        how = self._reduction(graph, loss, varying, rows)
        replicas = Replicas(graph, self.num_replicas, how)
        if how.divisors and self.num_replicas > 1:
            for divisor in how.divisors:
                replicas.globalise(divisor, varying, mean=divisor in how.means)
            varying, gradients = self._analyse(graph, loss)
        deciding = decisions(graph, loss) if self.num_replicas > 1 else []
        share = _share_of_loss(loss, varying, replicas) if deciding else None
        if share is not None:
            whole = replicas.all_sum(share)
            for use in deciding:
                graph.set_input(use.node, use.index, whole)
            varying, gradients = self._analyse(graph, loss)
        if not gradients and graph.roles.updates:
            raise ConversionError(
                "no gradient was found between backpropagation and the updates: they pass through other variables",
                node=graph[graph.roles.updates[0].name],
                origin=graph.source,
                fix="apply the gradient in the step that computes it",
            )
        backward = graph.ancestors((g.tensor.node for g in gradients), data_only=True)
        forward = graph.ancestors([loss.node], data_only=True)
        step = _Step(graph, loss, varying, rows, forward, backward)
        kinds, doubts = self._kinds(step, gradients, how)
        apart = self._of_other_losses(step)
        for gradient in gradients:
            if kinds[gradient.tensor] == "sum" and gradient.kind != "indices":
                share_uniform_parts(graph, replicas, gradient.tensor.node, varying, forward)
            self._reduce(graph, replicas, gradient, backward, kinds[gradient.tensor])
        base = "sum" if how.kind == "sum" else "mean"
        share = share or _share_of_loss(loss, varying, replicas)
        graph.roles.loss_share = str(share)
        graph.facts[self.name] = {
            "loss_reduction": how.kind,
            "reason": how.reason,
            "notes": [note for note in (how.doubt, *doubts, how.departs or apart) if note],
            "batch_rows": rows,
            "own_statistics": sorted(node.name for node in how.statistics),
            "reduced": {str(g.tensor): g.why for g in gradients},
            "kinds": {str(g.tensor): g.kind for g in gradients},
            "of_other_losses": {g.variable: kinds[g.tensor] for g in gradients if kinds[g.tensor] != base},
        }

    def _analyse(self, graph: Graph, loss: Tensor) -> tuple[NodeSet, list[RawGradient]]:
        device = analysis.cluster_nodes(graph)
        forward = graph.ancestors([loss.node], data_only=True)
        sources = analysis.reading_host(device)
        streams = [n for n in graph.of_type(*ops.RANDOM) if n in device and n in forward]
        varying = analysis.divergence(graph, [*sources, *streams], within=device)
        alike = rows_alike(graph, varying, forward)
        if alike:
            sources = {**sources, **dict.fromkeys(alike)}
            varying = analysis.divergence(graph, [*sources, *streams], within=device)
        gradients = find_raw_gradients(graph, varying, forward)
        upstream = graph.ancestors((g.tensor.node for g in gradients), data_only=True)
        more = [n for n in graph.of_type(*ops.RANDOM) if n in device and n in upstream and n not in varying]
        if not more:
            return varying, gradients
        varying = analysis.divergence(graph, [*sources, *streams, *more], within=device)
        return varying, find_raw_gradients(graph, varying, forward)

    def _reduction(self, graph: Graph, loss: Tensor, varying: NodeSet, rows: int | None) -> reduction.Reduction:
        if self.loss_reduction != "auto":
            return reduction.chosen(graph, loss, varying, rows, self.loss_reduction)
        if self.num_replicas == 1:
            return reduction.on_one_core(graph, loss, varying, rows)
        rescaled = graph.facts.get("split-batch", {}).get("constants")
        return reduction.of_loss(graph, loss, varying, rows, rescaled=rescaled)

    def _of_other_losses(self, step: _Step) -> str | None:
        """Refuse losses beside the reported one that no sum or mean of what the cores have is equal to, or note them."""
        if self.num_replicas == 1:
            return None
        found = other_losses.find(step.graph, step.backward, step.forward, step.varying, step.rows)
        if not found.faults:
            return found.note()
        node, fault = next(iter(found.faults.items()))
        where = f"a gradient comes from another loss than '{step.loss}', and '{node.name}' {fault}"
        if self.loss_reduction != "auto":
            return f"{where}, each core among its own: the result is not that of the whole batch"
        raise unclear(step.graph, node, where)

    def _kinds(
        self, step: _Step, gradients: list[RawGradient], how: reduction.Reduction
    ) -> tuple[dict[Tensor, str], list[str]]:
        """How each gradient is reduced: as the loss, unless it comes from another one of another kind; and doubts."""
        base = "sum" if how.kind == "sum" else "mean"
        if self.loss_reduction != "auto" or self.num_replicas == 1:
            return dict.fromkeys((g.tensor for g in gradients), base), []
        rescaled = step.graph.facts.get("split-batch", {}).get("constants")
        adjoints = Adjoints(step.graph, step.varying, step.forward, step.backward, step.rows, rescaled=rescaled)
        found: dict[Tensor, str] = {}
        for gradient in gradients:
            found[gradient.tensor] = adjoints.kind(gradient.tensor) or base
            others = adjoints.divisors.get(gradient.tensor.node, frozenset()) - set(how.divisors)
            if how.kind != "weighted" and others:
                divisor = min(map(str, others))
                raise ConversionError(
                    f"the gradient of '{gradient.variable}' comes from another loss than '{step.loss}', which is divided "
                    f"by '{divisor}', a number that the batch decides",
                    node=gradient.tensor.node,
                    fix="name a loss that holds both with --loss, or choose with --loss_reduction if that is exact",
                )
        doubts = [f"{doubt}, in another loss than '{step.loss}'" for doubt in adjoints.doubts]
        return found, [*doubts, *self._bent(adjoints)]

    def _bent(self, adjoints: Adjoints) -> list[str]:
        """What is said of a gradient that is clipped on its way back, as a custom gradient may."""
        if not adjoints.bent:
            return []
        node = next(iter(adjoints.bent))
        return [
            f"'{node.name}' ({node.op}) bends the gradient on its way back: each core's is of the mean over its own rows, "
            f"{self.num_replicas} times that of the whole batch, and the result is not that of the whole batch"
        ]

    def _reduce(
        self,
        graph: Graph,
        replicas: Replicas,
        gradient: RawGradient,
        backward: NodeSet,
        kind: str,
    ) -> None:
        tensor = gradient.tensor
        readers = [
            use for use in tensor.node.uses(tensor.port) if use.node not in backward or use.node in gradient.readers
        ]
        if not readers:
            raise ConversionError("the gradient is read by backpropagation only", node=tensor.node)
        if gradient.kind == "dense":
            result = replicas.all_reduce(tensor, kind)
        elif gradient.kind == "rows":
            result = all_gather(replicas, replicas.scale(tensor, kind))
        else:
            result = all_gather(replicas, tensor)
        for use in readers:
            graph.set_input(use.node, use.index, result)
        graph.note(tensor.node, f"reduced over the cores ({gradient.kind}): {gradient.why}")


def _share_of_loss(loss: Tensor, varying: NodeSet, replicas: Replicas) -> Tensor:
    """This core's share of the loss; the sum of the shares is the loss of the global batch."""
    return replicas.share_of_sum(loss, varying) if replicas.how.kind == "sum" else replicas.scale(loss)

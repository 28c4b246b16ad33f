"""Sum the raw gradients over the cores."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops, other_losses, reduction
from tpugraph.adjoints import Adjoints
from tpugraph.analysis import NodeSet
from tpugraph.degrees import unclear
from tpugraph.errors import ConversionError, UsageError
from tpugraph.gathering import all_gather
from tpugraph.gradients import RawGradient, find_raw_gradients
from tpugraph.ir import Graph, Node, Tensor, Use
from tpugraph.pipeline import Pass
from tpugraph.replicas import Replicas
from tpugraph.state import variable_of


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
        share = None
        deciding = _decisions(graph, loss) if self.num_replicas > 1 else []
        if deciding:
            share = _share_of_loss(loss, varying, replicas)
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
        kinds, doubts = self._kinds(graph, loss, gradients, varying, how, rows, forward, backward)
        apart = self._of_other_losses(graph, loss, varying, rows, forward, backward)
        for gradient in gradients:
            if kinds[gradient.tensor] == "sum" and gradient.kind != "indices":
                _share_uniform_parts(graph, replicas, gradient.tensor.node, varying, forward)
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
        alike = _rows_alike(graph, varying, forward)
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
        rescaled = graph.facts.get("split-batch", {}).get("constants")
        return reduction.of_loss(graph, loss, varying, rows, rescaled=rescaled)

    def _of_other_losses(
        self, graph: Graph, loss: Tensor, varying: NodeSet, rows: int | None, forward: NodeSet, backward: NodeSet
    ) -> str | None:
        """Refuse losses beside the reported one that no sum or mean of what the cores have is equal to, or note them."""
        if self.num_replicas == 1:
            return None
        found = other_losses.find(graph, backward, forward, varying, rows)
        if not found.faults:
            return found.note()
        node, fault = next(iter(found.faults.items()))
        where = f"a gradient comes from another loss than '{loss}', and '{node.name}' {fault}"
        if self.loss_reduction != "auto":
            return f"{where}, each core among its own: the result is not that of the whole batch"
        raise unclear(graph, node, where)

    def _kinds(
        self,
        graph: Graph,
        loss: Tensor,
        gradients: list[RawGradient],
        varying: NodeSet,
        how: reduction.Reduction,
        rows: int | None,
        forward: NodeSet,
        backward: NodeSet,
    ) -> tuple[dict[Tensor, str], list[str]]:
        """How each gradient is reduced: as the loss, unless it comes from another one of another kind; and doubts."""
        base = "sum" if how.kind == "sum" else "mean"
        if self.loss_reduction != "auto":
            return dict.fromkeys((g.tensor for g in gradients), base), []
        rescaled = graph.facts.get("split-batch", {}).get("constants")
        adjoints = Adjoints(graph, varying, forward, backward, rows, rescaled=rescaled)
        found: dict[Tensor, str] = {}
        for gradient in gradients:
            found[gradient.tensor] = adjoints.kind(gradient.tensor) or base
            others = adjoints.divisors.get(gradient.tensor.node, frozenset()) - set(how.divisors)
            if how.kind != "weighted" and others:
                divisor = min(map(str, others))
                raise ConversionError(
                    f"the gradient of '{gradient.variable}' comes from another loss than '{loss}', which is divided by "
                    f"'{divisor}', a number that the batch decides",
                    node=gradient.tensor.node,
                    fix="name a loss that holds both with --loss, or choose with --loss_reduction if that is exact",
                )
        return found, [f"{doubt}, in another loss than '{loss}'" for doubt in adjoints.doubts]

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


_JOINS = frozenset({"ConcatV2", "AddN", "Add", "AddV2"})


def _share_uniform_parts(graph: Graph, replicas: Replicas, node: Node, varying: NodeSet, forward: NodeSet) -> None:
    """What every core has alike (a regularisation term) counts once under a sum: each core gives its share of it.

    It may have joined the gradient on the way back, before an op that is linear in what comes back, as where the
    regularised value is a function of the variable.
    """
    if node.op in _JOINS:
        parts = node.inputs[:-1] if node.op == "ConcatV2" else node.inputs
        for index, part in enumerate(parts):
            if part.node not in varying:
                graph.set_input(node, index, replicas.scale_evenly(part))
            elif len(part.node.uses()) == 1:
                _share_uniform_parts(graph, replicas, part.node, varying, forward)
        return
    before = _comes_back(node, varying, forward)
    if before is not None and before.node.op not in ("Add", "AddV2"):  # partial gradients meet in AddN
        _share_uniform_parts(graph, replicas, before.node, varying, forward)


def _comes_back(node: Node, varying: NodeSet, forward: NodeSet) -> Tensor | None:
    """The one input of a node of backpropagation that differs between cores, if the node is linear in it."""
    differing = [i for i, t in enumerate(node.inputs) if t.node in varying]
    if node in forward or len(differing) != 1:
        return None
    [index] = differing
    linear = (
        node.op in ops.MULTILINEAR | ops.IDENTITIES | ops.BACKPROPAGATION or ops.LINEAR_OPERAND.get(node.op) == index
    )
    part = node.inputs[index]
    return part if linear and part.node not in forward and len(part.node.uses()) == 1 else None


def batch_rows(graph: Graph) -> int | None:
    """Rows of one core's batch: the commonest leading dimension of what crosses to the device."""
    counts: dict[int, int] = {}
    for tensor in analysis.fed_to_device(graph):
        if tensor.shape and tensor.shape[0]:
            counts[tensor.shape[0]] = counts.get(tensor.shape[0], 0) + 1
    if not counts:
        rows = [s[0] for n in graph.of_type(*ops.GET_NEXT) for _, s in n.outputs or [] if s and s[0]]
        return rows[0] if rows else None
    return max(counts, key=lambda rows: (counts[rows], rows))


def _decisions(graph: Graph, loss: Tensor) -> list[Use]:
    """Where the step reads the value of the loss, as a rate does that is halved on a plateau; backpropagation does not."""
    found, pending = [], [loss]
    while pending:
        tensor = pending.pop()
        for use in tensor.node.uses(tensor.port):
            if not analysis.in_cluster(use.node) or use.node.op in ops.SHAPE_OF | ops.FILLED_LIKE:
                continue
            if use.node.op in ops.IDENTITIES:
                pending.append(use.node.out())
            else:
                found.append(use)
    step = graph.ancestors(graph[finding.name] for finding in graph.roles.train_ops) if found else {}
    return [use for use in found if use.node in step]


def _rows_alike(graph: Graph, varying: NodeSet, forward: NodeSet) -> list[Node]:
    """Rows of gradients that are the same on every core while the numbers of the rows differ: each core has its own.

    What the loss does not read has no gradient: rows of ones that are added to it are a count.
    """
    pairs = []
    for update in (graph[finding.name] for finding in graph.roles.updates):
        fact = ops.WRITES[update.op]
        if fact.rows is not None and variable_of(update.inputs[fact.variables[0]]) in forward:
            pairs.append((update.inputs[fact.value], update.inputs[fact.rows]))
    processing = graph.ancestors((rows.node for rows, _ in pairs), data_only=True)
    pairs += [(n.inputs[0], n.inputs[1]) for n in processing if n.op == "UnsortedSegmentSum" and n not in forward]
    return list({rows.node: None for rows, at in pairs if at.node in varying and rows.node not in varying})


def _share_of_loss(loss: Tensor, varying: NodeSet, replicas: Replicas) -> Tensor:
    """This core's share of the loss; the sum of the shares is the loss of the global batch."""
    return replicas.share_of_sum(loss, varying) if replicas.how.kind == "sum" else replicas.scale(loss)

"""Roles of plain evaluation graphs: metrics and their values, found by structure.

A metric is a variable that no checkpoint holds and that the step writes from the input. Its value is what reads such
variables and does not depend on the batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis.state import written_variables
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import reached, source_of, variable_of
from tpugraph.roles.findings import Finding, Roles, named
from tpugraph.roles.plain_step import NO_LOSS, PlainStep
from tpugraph.support.errors import RolesError

Metrics = Mapping[str, tuple[str, str]]
"""Value tensor and update op of each metric, by its name."""

LOSS = "loss"
"""The name of the metric that is the mean of the batches' losses."""

_QUESTIONS = frozenset({*ops.INITIALIZED, *ops.INITIALIZED.values()})
_GENERIC = frozenset({"value", "value_tensor", "Identity"})


def find_evaluation(
    graph: Graph,
    *,
    metrics: Metrics | None = None,
    loss: str | None = None,
    collected: Mapping[str, str] | None = None,
) -> Roles:
    """Find the roles of a plain evaluation graph.

    Args:
        graph: the graph as loaded.
        metrics: value tensor and update op of each metric by name; found by structure when None.
        loss: name of the loss tensor; found as what a mean over batches is kept of when None.
        collected: by name, tensors of one dimension or more that are handed out of each batch; none when None.

    Raises:
        RolesError: no input, no metric, a graph that trains, or a name that is not in the graph.
    """
    found = PlainStep(graph)
    found.check_input()
    if metrics is None:
        _leave_training_out(found)
        found.check_no_training("eval", found.moving)
        updates = [Finding(end.name, _update_reason(n)) for n in found.moving for end in _ends(found, n)]
        updates = list({finding.name: finding for finding in updates}.values())
        values = _values(found)
        if not updates or not values:
            raise RolesError(
                "the graph has no metric: no unsaved variable accumulates values of the input",
                origin=graph.source,
                fix="give the graph that Estimator.evaluate builds, or name them with --metrics=NAME=VALUE,UPDATE",
            )
    else:
        updates = _named_updates(found, metrics)
        values = {
            name: named(graph, value, f"value of the metric '{name}'").name for name, (value, _) in metrics.items()
        }
    cone = graph.ancestors(graph[f.name] for f in updates)
    losses = _losses(found, [node for node in found.writes if node in cone])
    finding = named(graph, loss, "loss") if loss else losses[0][0] if losses else NO_LOSS
    if metrics is None and finding.name:
        values = _without_shared_scope(_with_loss(found, values, finding, losses))
    if not updates and not finding.name:
        raise RolesError("there is nothing to evaluate: no metric and no loss", origin=graph.source,
                         fix="name the loss with --loss=TENSOR, or metrics with --metrics=NAME=VALUE,UPDATE")  # fmt: skip
    _check_values(found, values)
    kept = {name: named(graph, text, f"tensor '{name}'").name for name, text in (collected or {}).items()}
    return found.roles("eval", loss=finding, updates=updates, more={"values": values, "predictions": kept})


def _leave_training_out(found: PlainStep) -> None:
    """Where the graph both trains and has metrics, go by the metrics alone; what they need must not train."""
    metrics = [node for node in found.moving if found.trains(node) is None]
    if metrics:
        needed = found.graph.ancestors(end for node in metrics for end in _ends(found, node))
        found.moving = [*metrics, *(node for node in found.moving if node not in metrics and node in needed)]


def _ends(found: PlainStep, write: Node) -> list[Node]:
    """The write itself; one inside a loop or a branch is run by what follows that loop or branch."""
    followers = reached((write,), lambda node: node.consumers() if node in found.inside else ())
    return [node for node in followers if node not in found.inside]


def _update_reason(node: Node) -> str:
    return f"accumulates {', '.join(v.name for v in written_variables(node))} from the input"


def _named_updates(found: PlainStep, metrics: Metrics) -> list[Finding]:
    graph = found.graph
    nodes: dict[Node, str] = {}
    for name, (_, update) in metrics.items():
        end = graph.tensor(named(graph, update, f"update op of the metric '{name}'").name).node
        writes = [n for n in graph.ancestors([end]) if n.op in ops.WRITES and n not in found.restored]
        nodes.update((node, f"updates the metric '{name}'") for node in writes or [end])
    found.check_no_training("eval", [n for n in nodes if n.op in ops.WRITES])
    return [Finding(node.name, reason) for node, reason in nodes.items() if node.op not in ops.GROUPS]


def _metric_variables(found: PlainStep) -> list[Node]:
    return list(dict.fromkeys(v for node in found.moving for v in written_variables(node)))


def _values(found: PlainStep) -> dict[str, str]:
    """What reads metric variables, does not depend on the batch, and is itself read by nothing."""
    graph = found.graph
    behind = graph.descendants([*found.inputs, *found.writes])

    def asked_for(node: Node) -> Iterator[Node]:
        return (use.node for use in node.uses() if use.node not in behind and use.node.op not in _QUESTIONS)

    asked = reached(_metric_variables(found), asked_for)
    read = [node for node in graph if node in asked and node.op not in ops.VARIABLES and not _is_bare_read(node)]
    ends = [node for node in read if node.outputs and not node.uses()]
    scopes = [_scope(node.name) for node in ends]
    return {s if scopes.count(s) == 1 else n.name: n.name for n, s in zip(ends, scopes, strict=True)}


def _without_shared_scope(values: dict[str, str]) -> dict[str, str]:
    """The scope that the names of all metrics begin with says nothing (a head of Estimator puts its name there)."""
    names = [name for name in values if name != LOSS]
    shared = f"{os.path.commonpath(names)}/" if len(names) > 1 else ""
    return {name.removeprefix(shared) if name != LOSS else name: value for name, value in values.items()}


def _is_bare_read(node: Node) -> bool:
    return node.op in ops.READS | ops.IDENTITIES and variable_of(node.inputs[0]) is not None


def _scope(name: str) -> str:
    scope, _, last = name.rpartition("/")
    return scope if scope and last in _GENERIC else name


def _check_values(found: PlainStep, values: dict[str, str]) -> None:
    behind = found.graph.descendants(found.inputs)
    for name, value in values.items():
        node = found.graph.tensor(value).node
        if node in behind:
            raise RolesError(
                f"the value of the metric '{name}' depends on the batch, not only on what the metric accumulated",
                node=node,
                origin=found.graph.source,
                fix="name the tensor that reads the metric's variables as its value, and the op that writes them as update",
            )


# --------------------------------------------------------------------------- loss


def _losses(found: PlainStep, updates: list[Node]) -> list[tuple[Finding, Node]]:
    """Scalars that metrics keep a mean of, the likeliest loss first, each with the write that adds it."""
    hinted = {name.removesuffix(":0") for name in found.graph.collections.get("losses", [])}
    ranked = []
    for position, node in enumerate(updates):
        fact = ops.WRITES.get(node.op)
        if fact is None or fact.kind != "assign" or not fact.additive:
            continue
        added = _summand(node.inputs[fact.value])
        if added == node.inputs[fact.value] and added.node.op in ops.REDUCTIONS:
            continue  # a sum over rows, not a number that the batch has
        if added.shape == () and added.dtype.floating and added.node in found.varying and _reads_model(found, added):
            why = "in the collection losses, " if str(added) in hinted else ""
            finding = Finding(
                str(added), f"{why}a scalar of the batch that '{written_variables(node)[0].name}' sums up"
            )
            ranked.append(((str(added) in hinted, position), (finding, node)))
    return [item for _, item in sorted(ranked, key=lambda item: item[0], reverse=True)]


_OF_ONE_ELEMENT = ops.IDENTITIES | ops.SUMS | ops.CASTS | ops.computing(np.multiply)


def _summand(tensor: Tensor) -> Tensor:
    """What was summed up over no dimension, that is, the scalar itself."""
    return source_of(tensor, _OF_ONE_ELEMENT, where=lambda node: node.inputs[0].shape == ())


def _reads_model(found: PlainStep, tensor: Tensor) -> bool:
    return any(node.name in found.kept for node in found.graph.ancestors([tensor.node], data_only=True))


def _with_loss(
    found: PlainStep, values: dict[str, str], loss: Finding, losses: list[tuple[Finding, Node]]
) -> dict[str, str]:
    """The metric that keeps the mean of the loss is called ``loss``, as Estimator calls it."""
    write = next((node for finding, node in losses if finding.name == loss.name), None)
    if write is None or LOSS in values:
        return values
    summed = written_variables(write)[0]
    for name, value in values.items():
        if summed in found.graph.ancestors([found.graph.tensor(value).node]):
            return {LOSS if key == name else key: held for key, held in values.items()}
    return values

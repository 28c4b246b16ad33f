"""Roles of plain evaluation and prediction graphs, found by structure.

A metric is a variable that no checkpoint holds and that the step writes from the input. Its value reads such variables and
does not depend on the batch. A prediction depends on the input and on a variable, and nothing reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.analysis.state import flows_from, written_variables
from tpugraph.ir import Graph, Node
from tpugraph.ir.walks import reached, source_of, variable_of
from tpugraph.roles import find_step, find_variables, input_reason
from tpugraph.roles.findings import Finding, Roles, Variable, named
from tpugraph.roles.training_roles import from_checkpoints, no_input, of_every_mode
from tpugraph.support.errors import RolesError

NO_LOSS = Finding("", "there is none")


class PlainStep:
    """Facts of a plain graph that does not train; shapes are inferred where they are not known."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        if any(node.outputs is None for node in graph):
            shapes.infer(graph)
        self.inputs = graph.of_type(*ops.INPUTS)
        self.writes = graph.of_type(*ops.WRITES)
        self.varying = flows_from(graph, self.inputs)
        self.restored = from_checkpoints(graph)  # descendants of RestoreV2
        behind = graph.descendants(self.inputs)  # over control edges too: a metric may add a constant after each batch
        # the writes that depend on the input
        self.moving = [n for n in self.writes if (n in self.varying or n in behind) and n not in self.restored]
        self.inside = analysis.nested(graph)
        saved = find_variables(graph, ())
        hinted = {name.partition(":")[0] for name in graph.collections.get("trainable_variables", [])}
        # names of variables in checkpoints
        self.kept = {name for name, variable in saved.items() if variable.key is not None} | hinted

    def check_input(self) -> None:
        if not self.inputs:
            fix = "give the graph that Estimator.evaluate or Estimator.predict builds (it holds its input pipeline)"
            raise no_input(self.graph, fix)

    def trains(self, node: Node) -> str | None:
        """The variable of a write that trains: one in checkpoints, or written by an optimizer op; else None."""
        trained = next((v.name for v in written_variables(node) if v.name in self.kept), None)
        if trained is None and ops.WRITES[node.op].kind == "apply":
            return next((v.name for v in written_variables(node)), "?")
        return trained

    def check_no_training(self, mode: str, writes: list[Node]) -> None:
        for node in writes:
            trained = self.trains(node)
            if trained is not None:
                raise RolesError(f"the graph trains: '{node.name}' writes '{trained}', which a checkpoint holds, from the input",
                                 node=node, origin=self.graph.source,
                                 fix=f"--mode=train, or give the graph that Estimator builds for mode '{mode}'")  # fmt: skip

    def roles(self, mode: str, *, loss: Finding, updates: list[Finding], more: dict[str, Any]) -> Roles:
        """The roles of the graph; ``more`` are fields for the mode."""
        graph = self.graph
        roots = [*(f.name for f in updates), *([loss.name] if loss.name else []), *more.get("predictions", {}).values()]
        cone = graph.ancestors(graph.tensor(name).node for name in roots)
        variables = find_variables(graph, cone)
        self._give_keys(variables)
        return Roles(
            loss=loss,
            train_ops=[],
            step=self._step(variables),
            inputs=[Finding(n.name, input_reason(n)) for n in self.inputs if n in cone],
            variables=variables,
            updates=updates,
            **of_every_mode(graph),
            mode=mode,
            **more,
        )

    def _give_keys(self, variables: dict[str, Variable]) -> None:
        """Without a saver, the checkpoint key of every variable that is not local to the evaluation is its name."""
        if any(variable.key is not None for variable in variables.values()):
            return
        local = {name.partition(":")[0] for name in self.graph.collections.get("local_variables", [])}
        local |= {v.name for node in self.moving for v in written_variables(node)}
        for variable in variables.values():
            if variable.name not in local:
                variable.key = variable.name

    def _step(self, variables: dict[str, Variable]) -> Finding | None:
        """The step counter, by collection or name, since no node increments it here."""
        hinted = [name.partition(":")[0] for name in self.graph.collections.get("global_step", [])]
        for name in (*hinted, "global_step"):
            if name in variables:
                return Finding(name, "in the collection global_step" if hinted else "by its name")
        return find_step(self.graph, self.graph)


Metrics = Mapping[str, tuple[str, str]]
"""Value tensor and update op of each metric, by its name."""

LOSS = "loss"
"""The name of the metric with the mean loss."""

_QUESTIONS = frozenset({*ops.INITIALIZED, *ops.INITIALIZED.values()})
_GENERIC = frozenset({"value", "value_tensor", "Identity"})


def find_evaluation(
    graph: Graph, *, metrics: Metrics | None = None, loss: str | None = None, collected: Mapping[str, str] | None = None
) -> Roles:
    """Find the roles of a plain evaluation graph.

    Metrics (value tensor and update op by name) are found by structure when None; the loss is a scalar that a metric averages.
    ``collected`` are tensors of one dimension or more to return for each batch, by name.
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
    finding = losses[0][0] if losses else NO_LOSS
    if loss:
        finding = named(graph, loss, "loss")
    if metrics is None and finding.name:
        values = _without_shared_scope(_with_loss(found, values, finding, losses))
    if not updates and not finding.name:
        raise RolesError("the graph has nothing to evaluate: no metric and no loss", origin=graph.source,
                         fix="name the loss with --loss=TENSOR, or metrics with --metrics=NAME=VALUE,UPDATE")  # fmt: skip
    _check_values(found, values)
    kept = {name: named(graph, text, f"tensor '{name}'").name for name, text in (collected or {}).items()}
    return found.roles("eval", loss=finding, updates=updates, more={"values": values, "predictions": kept})


def _leave_training_out(found: PlainStep) -> None:
    """Keep the writes of metrics and those that they need, of a graph that trains too."""
    metrics = [node for node in found.moving if found.trains(node) is None]
    needed = found.graph.ancestors(end for node in metrics for end in _ends(found, node))
    found.moving = [*metrics, *(node for node in found.moving if node not in metrics and node in needed)]


def _ends(found: PlainStep, write: Node) -> list[Node]:
    """The write itself; for one inside a loop or branch, the nodes behind it that run it."""
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


def _values(found: PlainStep) -> dict[str, str]:
    """Tensors without readers that depend on metric variables but not on the batch."""
    graph = found.graph
    behind = graph.descendants([*found.inputs, *found.writes])

    def asked_for(node: Node) -> Iterator[Node]:
        return (use.node for use in node.uses() if use.node not in behind and use.node.op not in _QUESTIONS)

    variables = dict.fromkeys(v for node in found.moving for v in written_variables(node))
    asked = reached(variables, asked_for)
    read = [node for node in graph if node in asked and node.op not in ops.VARIABLES]
    bare = ops.READS | ops.IDENTITIES  # ops that only forward a variable
    made = [node for node in read if node.op not in bare or variable_of(node.inputs[0]) is None]
    ends = [node for node in made if node.outputs and not node.uses()]
    scopes = [_scope(node.name) for node in ends]
    return {s if scopes.count(s) == 1 else n.name: n.name for n, s in zip(ends, scopes, strict=True)}


def _without_shared_scope(values: dict[str, str]) -> dict[str, str]:
    """Drop the common scope of all names (an Estimator's head prepends its name)."""
    names = [name for name in values if name != LOSS]
    shared = f"{os.path.commonpath(names)}/" if len(names) > 1 else ""
    return {name.removeprefix(shared) if name != LOSS else name: value for name, value in values.items()}


def _scope(name: str) -> str:
    scope, _, last = name.rpartition("/")
    return scope if scope and last in _GENERIC else name


def _check_values(found: PlainStep, values: dict[str, str]) -> None:
    behind = found.graph.descendants(found.inputs)
    for name, value in values.items():
        node = found.graph.tensor(value).node
        if node in behind:
            raise RolesError(
                f"the value of the metric '{name}' depends on the batch, not only on the metric's variables",
                node=node,
                origin=found.graph.source,
                fix="name the tensor that reads the metric's variables as its value, and the op that writes them as update",
            )


# --------------------------------------------------------------------------- loss


def _losses(found: PlainStep, updates: list[Node]) -> list[tuple[Finding, Node]]:
    """Scalars of the batch that metrics accumulate, the likeliest loss first, each with the write."""
    hinted = {name.removesuffix(":0") for name in found.graph.collections.get("losses", [])}
    ranked = []
    for position, node in enumerate(updates):
        fact = ops.WRITES.get(node.op)
        if fact is None or fact.kind != "assign" or not fact.additive:
            continue
        # through sums over no dimension
        added = source_of(node.inputs[fact.value], _OF_ONE_ELEMENT, where=lambda node: node.inputs[0].shape == ())
        if added == node.inputs[fact.value] and added.node.op in ops.REDUCTIONS:
            continue  # a sum over rows, not a scalar of the model
        of_model = any(before.name in found.kept for before in found.graph.ancestors([added.node], data_only=True))
        if added.shape == () and added.dtype.floating and added.node in found.varying and of_model:
            why = "in the collection losses, " if str(added) in hinted else ""
            finding = Finding(
                str(added), f"{why}a scalar of the batch that '{written_variables(node)[0].name}' sums up"
            )
            ranked.append(((str(added) in hinted, position), (finding, node)))
    return [item for _, item in sorted(ranked, key=lambda item: item[0], reverse=True)]


_OF_ONE_ELEMENT = ops.IDENTITIES | ops.SUMS | ops.CASTS | ops.computing(np.multiply)


def _with_loss(
    found: PlainStep, values: dict[str, str], loss: Finding, losses: list[tuple[Finding, Node]]
) -> dict[str, str]:
    """Rename the metric with the mean of the loss to ``loss``, Estimator's name."""
    write = next((node for finding, node in losses if finding.name == loss.name), None)
    if write is None or LOSS in values:
        return values
    summed = written_variables(write)[0]
    for name, value in values.items():
        if summed in found.graph.ancestors([found.graph.tensor(value).node]):
            return {LOSS if key == name else key: held for key, held in values.items()}
    return values


# --------------------------------------------------------------------------- predictions


def find_prediction(graph: Graph, *, predictions: Mapping[str, str] | None = None) -> Roles:
    """Find the roles of a plain prediction graph; ``predictions`` may give the tensor of each prediction by name."""
    found = PlainStep(graph)
    found.check_input()
    if predictions is None:
        found.check_no_training("predict", found.moving)
        tensors = _unread(found)
        if not tensors:
            raise RolesError(
                "the graph has no prediction: no tensor without readers depends on the input and on a variable",
                origin=graph.source,
                fix="give the graph that Estimator.predict builds, or name them with --predictions=NAME=TENSOR",
            )
    else:
        tensors = {name: named(graph, tensor, f"prediction '{name}'").name for name, tensor in predictions.items()}
        _check_predictions(found, tensors)
    return found.roles("predict", loss=NO_LOSS, updates=[], more={"predictions": tensors})


def _unread(found: PlainStep) -> dict[str, str]:
    forward = found.graph.descendants(found.graph.of_type(*ops.VARIABLES), data_only=True)
    inner = ops.SUMMARIES | ops.SHAPE_OF | ops.CONTROL_FLOW | ops.ASSERTS
    nodes = [n for n in found.varying if n in forward and n.outputs and not n.uses() and n.op not in inner]
    return {
        str(node.out(port)): str(node.out(port))
        for node in nodes
        for port, (_, shape) in enumerate(node.outputs or [])
        if shape is None or len(shape) > 0
    }


def _check_predictions(found: PlainStep, tensors: dict[str, str]) -> None:
    for name, text in tensors.items():
        tensor = found.graph.tensor(text)
        if tensor.node not in found.varying:
            fault = f"the prediction '{name}' does not depend on the input"
        elif tensor.shape == ():
            fault = f"the prediction '{name}' is one number for the whole batch, not a row per example"
        else:
            continue
        raise RolesError(fault, node=tensor.node, origin=found.graph.source,
                         fix="name a tensor whose dimension 0 is the batch")  # fmt: skip

"""What each node of a graph is there for, as names with reasons: what :func:`tpugraph.roles.find` fills in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpugraph.ir import Graph
from tpugraph.support.errors import RolesError
from tpugraph.support.suggestions import near_nodes


@dataclass(frozen=True)
class Finding:
    """A node or tensor in a role, and why."""

    name: str
    reason: str


@dataclass
class Variable:
    """One variable of the graph.

    Attributes:
        name: name of the variable's node.
        key: its key in checkpoints, or None where no saver writes it.
        slice: the ``shape_and_slices`` text of its saver entry ("" for the whole variable).
        initializer: name of the op that gives it its first value, or None.
        trained: whether a gradient updates it.
    """

    name: str
    key: str | None = None
    slice: str = ""
    initializer: str | None = None
    trained: bool = False


@dataclass(frozen=True)
class Roles:
    """What :func:`find` found. All values are names, so that rewriting keeps them valid.

    Attributes:
        loss: the loss.
        train_ops: what a step of training runs.
        step: the step counter, or None.
        inputs: the nodes that take a batch.
        variables: by name.
        updates: the nodes that write trained variables; of evaluation those that update metrics.
        summaries: the summaries.
        metrics: the nodes that update metrics while the graph trains.
        savers: the nodes that write checkpoints.
        table_initializers: the nodes that fill tables.
        iterator_initializers: the nodes that start iterators.
        enqueues: the nodes that queue runners run.
        other_candidates: by role, other nodes that could have it.
        mode: ``train``, ``eval`` or ``predict``.
        values: of evaluation, by the name of a metric, the tensor that is its value.
        predictions: by name, the tensors that are handed out.
        replica: whether the graph is one replica of several, which combines them itself.
    """

    loss: Finding
    train_ops: Sequence[Finding]
    step: Finding | None
    inputs: Sequence[Finding]
    variables: Mapping[str, Variable]
    updates: Sequence[Finding]
    summaries: Sequence[Finding] = ()
    metrics: Sequence[Finding] = ()
    savers: Sequence[Finding] = ()
    table_initializers: Sequence[str] = ()
    iterator_initializers: Sequence[str] = ()
    enqueues: Sequence[str] = ()
    other_candidates: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    mode: str = "train"
    values: Mapping[str, str] = field(default_factory=dict)
    predictions: Mapping[str, str] = field(default_factory=dict)
    replica: bool = field(default=False, kw_only=True)

    @property
    def roots(self) -> list[str]:
        """Names of the nodes that a step is run for: train ops and loss, metric updates and loss, or predictions."""
        named = [*(f.name for f in self.train_ops), self.loss.name]
        if self.mode != "train":
            named = [*(f.name for f in self.updates), self.loss.name, *self.predictions.values()]
        return list(dict.fromkeys(name.partition(":")[0] for name in named if name))

    @property
    def kept(self) -> set[str]:
        """Names of the nodes that a step is run for, reads, updates or watches: they stay, whatever reads them."""
        found = (self.summaries, self.metrics, self.updates, self.inputs)
        values = (value.partition(":")[0] for value in self.values.values())
        return {*self.roots, *self.variables, *values, *(one.name for ones in found for one in ones)}

    @property
    def trained(self) -> list[str]:
        """Names of the trained variables."""
        return [variable.name for variable in self.variables.values() if variable.trained]


def named(graph: Graph, name: str, role: str) -> Finding:
    """What the user named.

    Raises:
        RolesError: there is no such node; the names that come close are given.
    """
    if name.partition(":")[0] not in graph:
        close = near_nodes(name.partition(":")[0], [node.name for node in graph])
        raise RolesError(
            f"the {role} '{name}' is not in the graph",
            origin=graph.source,
            fix=f"did you mean {' or '.join(close)}?" if close else "`tpugraph inspect` lists the candidates",
        )
    return Finding(name.removesuffix(":0"), "named by the user")

"""What each node of a graph is there for, as names with reasons: what :func:`tpugraph.roles.find` fills in."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from tpugraph.ir import Graph
from tpugraph.support.errors import RolesError


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


@dataclass
class Roles:
    """What :func:`find` found. All values are names, so that rewriting keeps them valid."""

    loss: Finding
    train_ops: list[Finding]
    step: Finding | None
    inputs: list[Finding]
    variables: dict[str, Variable]
    updates: list[Finding]
    summaries: list[Finding] = field(default_factory=list)
    metrics: list[Finding] = field(default_factory=list)
    savers: list[Finding] = field(default_factory=list)
    table_initializers: list[str] = field(default_factory=list)
    iterator_initializers: list[str] = field(default_factory=list)
    enqueues: list[str] = field(default_factory=list)
    other_candidates: dict[str, list[Finding]] = field(default_factory=dict)
    # Of evaluation and prediction only: see tpugraph.roles.evaluation_roles.
    mode: str = "train"
    values: dict[str, str] = field(default_factory=dict)
    predictions: dict[str, str] = field(default_factory=dict)
    # Filled in by the passes that make these nodes.
    loss_share: str = ""
    step_loss: str = ""
    tail: list[str] = field(default_factory=list)
    infeed: list[str] = field(default_factory=list)
    outfeed: str = ""
    results: dict[str, str] = field(default_factory=dict)
    batch_rows: int = 0
    rows: str = ""
    device_ends: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    beside_queues: list[str] = field(default_factory=list)

    @property
    def roots(self) -> list[str]:
        """Names of the nodes that a step is run for: train ops and loss, metric updates and loss, or predictions."""
        named = [*(f.name for f in self.train_ops), self.loss.name]
        if self.mode != "train":
            named = [*(f.name for f in self.updates), self.loss.name, *self.predictions.values()]
        return list(dict.fromkeys(name.partition(":")[0] for name in named if name))

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
        last = name.rpartition("/")[2]
        close = [n.name for n in graph if n.name.rpartition("/")[2] == last][:3]
        close = close or difflib.get_close_matches(name, [n.name for n in graph], n=3)
        raise RolesError(
            f"the {role} '{name}' is not in the graph",
            origin=graph.source,
            fix=f"did you mean {' or '.join(close)}?" if close else "`tpugraph inspect` lists the candidates",
        )
    return Finding(name.removesuffix(":0"), "named by the user")

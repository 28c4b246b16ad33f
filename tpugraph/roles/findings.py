"""The roles of a graph's nodes, as names with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.support.errors import GraphError, RolesError
from tpugraph.support.suggestions import near_nodes


@dataclass(frozen=True)
class Finding:
    """A node or tensor in a role, and why."""

    name: str
    reason: str


@dataclass
class Variable:
    """One variable of the graph."""

    name: str
    key: str | None = None
    slice: str = ""  # the ``shape_and_slices`` text of its saver entry ("" for the whole variable)
    initializer: str | None = None
    trained: bool = False


@dataclass(frozen=True)
class Roles:
    """The roles of a graph, by names, which stay valid while the graph is rewritten."""

    loss: Finding
    train_ops: Sequence[Finding]
    step: Finding | None
    inputs: Sequence[Finding]
    variables: Mapping[str, Variable]
    updates: Sequence[Finding]  # the nodes that write trained variables; in evaluation those that update metrics
    summaries: Sequence[Finding] = ()
    metrics: Sequence[Finding] = ()  # the nodes that update metrics while the graph trains
    savers: Sequence[Finding] = ()  # the nodes that write checkpoints
    table_initializers: Sequence[str] = ()
    iterator_initializers: Sequence[str] = ()
    enqueues: Sequence[str] = ()  # the nodes that queue runners run
    other_candidates: Mapping[str, Sequence[Finding]] = field(default_factory=dict)  # further candidates, by role
    mode: str = "train"
    values: Mapping[str, str] = field(default_factory=dict)  # in evaluation, the value tensor by metric name
    predictions: Mapping[str, str] = field(default_factory=dict)  # the tensors returned for each batch, by name
    # whether the graph is the program of one replica, with collectives of its own
    replica: bool = field(default=False, kw_only=True)

    @property
    def roots(self) -> list[str]:
        """Names of the nodes that a step runs: train ops and loss, metric updates and loss, or predictions."""
        named = [*(f.name for f in self.train_ops), self.loss.name]
        if self.mode != "train":
            named = [*(f.name for f in self.updates), self.loss.name, *self.predictions.values()]
        return list(dict.fromkeys(name.partition(":")[0] for name in named if name))

    @property
    def kept(self) -> set[str]:
        """Names of the nodes that are kept though nothing reads them."""
        found = [self.loss, *self.train_ops, *self.summaries, *self.metrics, *self.updates, *self.inputs, *self.savers]
        names = [*(one.name for one in found), *self.variables, *self.values.values(), *self.predictions.values()]
        names += [variable.initializer for variable in self.variables.values() if variable.initializer is not None]
        names += [*self.table_initializers, *self.iterator_initializers, *self.enqueues]
        return {name.partition(":")[0] for name in names}

    @property
    def trained(self) -> list[str]:
        """Names of the variables that gradients update."""
        return [variable.name for variable in self.variables.values() if variable.trained]


def named(graph: Graph, name: str, role: str) -> Finding:
    """The finding that the user named; raises a RolesError with similar names where there is no such node."""
    if name.partition(":")[0] not in graph:
        close = near_nodes(name.partition(":")[0], [node.name for node in graph])
        raise RolesError(
            f"the {role} '{name}' is not in the graph",
            origin=graph.source,
            fix=f"did you mean {' or '.join(close)}?" if close else "`tpugraph inspect` lists the candidates",
        )
    return Finding(name.removesuffix(":0"), "named by the user")


def saved_by(save: Node) -> list[tuple[str, str, Tensor]] | None:
    """The entries of a SaveV2 op in order: key, slice ("" for the whole) and tensor; None where the keys are not constant."""
    if save.op not in ops.TENSOR_SAVES:
        raise GraphError(
            "the node writes no checkpoint: it is no SaveV2", node=save, fix="convert the plain graph again"
        )
    names, slices = save.inputs[1].node, save.inputs[2].node
    if names.op not in ops.CONSTANTS or slices.op not in ops.CONSTANTS:
        return None
    keys, pieces = (
        [text.decode("utf-8", "replace") for text in node.attr("value").ravel()] for node in (names, slices)
    )
    tensors = save.inputs[3:]
    if not len(keys) == len(pieces) == len(tensors):
        raise GraphError(f"the node saves {len(tensors)} tensors under {len(keys)} keys with {len(pieces)} slices", node=save,
                         fix="write the graph again")  # fmt: skip
    return list(zip(keys, pieces, tensors, strict=True))

"""Operands that XLA must know when it compiles, traced back to what makes them known only when the step runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis import in_cluster
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.conditionals import joins_branches
from tpugraph.ir.walks import source_of

_OF_STATIC_SHAPE = ops.SHAPE_OF | ops.FILLED_LIKE | ops.VARIABLE_SHAPES
"""Ops whose value XLA knows whatever their operand's is: its shapes are static."""


@dataclass(frozen=True)
class Unknown:
    """An operand that is not known when the step is compiled.

    Attributes:
        node: the node that reads it.
        operand: its name in the op's definition.
        source: the variable, input, random op or loop that it comes from.
        kind: what the source is.
    """

    node: Node
    operand: str
    source: Node
    kind: str

    @property
    def fault(self) -> str:
        """One sentence."""
        return (f"the operand '{self.operand}' of {self.node.op} must be known when the step is compiled, and it depends on "
                f"{self.kind} '{self.source.name}'")  # fmt: skip


def unknown(graph: Graph, device: Iterable[Node]) -> Iterator[Unknown]:
    """The operands of the device's nodes that XLA must know and cannot.

    Args:
        graph: the graph; what comes from outside of ``device`` counts as input.
        device: the nodes.
    """
    found: dict[Tensor, tuple[Node, str] | None] = {}
    for node in device:
        for index in ops.record(node.op).constant_operands(len(node.inputs)):
            tensor = node.inputs[index]
            if tensor not in found:
                found[tensor] = _source(graph, tensor)
            source = found[tensor]
            if source is not None:
                yield Unknown(node, _operand(node, index), *source)


def _operand(node: Node, index: int) -> str:
    """The name of an operand; those of a list share one."""
    arguments = ops.op_def(node.op).input_arg
    names = [arg.name for arg in arguments for _ in range(node.attr(arg.number_attr) if arg.number_attr else 1)]
    return str(names[index])


def _source(graph: Graph, tensor: Tensor) -> tuple[Node, str] | None:
    """The nearest thing that a value depends on and that is known only when the step runs."""
    seen: set[Node] = set()
    front = [tensor.node]
    while front:
        following: list[Node] = []
        for node in front:
            if node in seen or node.op in ops.CONSTANTS | _OF_STATIC_SHAPE | ops.TAKES_OUT:
                continue
            seen.add(node)
            kind = _kind(graph, node)
            if kind is not None:
                return _named(node), kind
            following.extend(t.node for t in node.inputs)
        front = following
    return None


def _kind(graph: Graph, node: Node) -> str | None:
    """What a node is, if its value is known only when the step runs."""
    if node.op in ops.READS | ops.GATHERS | ops.VARIABLES:
        return "the variable"
    if node.op in ops.RANDOM:
        return "the random op"
    if node.op in ops.INPUTS | ops.INFEEDS or (graph.roles is None and not in_cluster(node)):
        return "the input"
    if node.op in ops.MERGE:
        return "the branch taken at" if joins_branches(node) else "what the loop carries in"
    return None


def _named(node: Node) -> Node:
    """The variable behind a read; else the node itself."""
    return source_of(node.out(), ops.READS | ops.GATHERS | ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS).node

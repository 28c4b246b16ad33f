"""TF1 conditionals: the nodes between a Switch and the Merge that joins its branches."""

from __future__ import annotations

from collections.abc import Container, Iterable

from tpugraph import ops
from tpugraph.ir.graph import Graph
from tpugraph.ir.loops import frames
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.walks import descendants, is_back_edge, source_of

Side = tuple[Tensor, int]
"""A predicate, and the taken output of its Switches."""
Sides = frozenset[Side]
NONE: Sides = frozenset()
"""The sides of a node that always runs."""


def conditional(graph: Graph) -> dict[Node, None]:
    """The nodes that may not run: those between a Switch and the Merge that joins its branches."""
    return behind(graph.of_type(*ops.SWITCH))


def nested(graph: Graph) -> dict[Node, None]:
    """The nodes in loops and branches, which may run zero or many times per step."""
    return conditional(graph) | {node: None for node, frame in frames(graph).items() if frame}


def behind(switches: Iterable[Node], *, until: Container[str] = ops.MERGE | ops.EXIT) -> dict[Node, None]:
    """The descendants of Switches over data and control edges, up to nodes of some op types, exclusive."""
    first = [reader for switch in switches for reader in switch.consumers() if reader.op not in until]
    return {node: None for node in descendants(first, until=until) if node.op not in until}


def joins_branches(node: Node) -> bool:
    """Whether a Merge joins the branches of a conditional, and is not that of a loop variable."""
    return node.op in ops.MERGE and not any(tensor.node.op in ops.NEXT_ITERATION for tensor in node.inputs)


def decides(switch: Node) -> Tensor:
    """The predicate of a Switch, through the identities of ``tf.cond``."""
    return source_of(switch.inputs[1])


def sides(graph: Graph) -> dict[Node, Sides]:
    """The conditionals' sides of each node that has any; loops are given by frames instead."""
    return graph.remember("sides", _sides)


def _sides(graph: Graph) -> dict[Node, Sides]:
    found: dict[Node, Sides] = {}
    for node in graph.topological_order(graph.descendants(graph.of_type(*ops.SWITCH))):
        known = [
            found.get(tensor.node, NONE) | side(tensor) for tensor in node.inputs if not is_back_edge(tensor.node, node)
        ]
        if node.op in ops.MERGE:
            made = NONE.union(*known[:1]).intersection(*known)
        else:
            made = NONE.union(*known, *(found.get(control, NONE) for control in node.controls))
        if made:
            found[node] = made
    return found


def side(tensor: Tensor) -> Sides:
    """The side of a Switch's output: the predicate and the output's index."""
    if tensor.node.op not in ops.SWITCH:
        return NONE
    predicate = decides(tensor.node)
    return NONE if predicate.node.op in ops.LOOP_COND else frozenset({(predicate, tensor.port)})

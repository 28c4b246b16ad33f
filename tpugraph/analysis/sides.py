"""On which sides of branches the nodes of a graph are."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.links import is_back_edge
from tpugraph.ir.walks import source_of

Side = tuple[Tensor, int]
"""A predicate, and the output of the Switches on it that is taken."""
Sides = frozenset[Side]
NONE: Sides = frozenset()
"""What a node that always runs has."""


def sides(graph: Graph) -> dict[Node, Sides]:
    """The sides of branches that each node is on, where it is on any; those of loops are told by their frames."""
    return graph.remember("sides", _sides)


def _sides(graph: Graph) -> dict[Node, Sides]:
    found: dict[Node, Sides] = {}
    for node in graph.topological_order(graph.descendants(graph.of_type(*ops.SWITCH))):
        known = [
            found.get(tensor.node, NONE) | _side(tensor)
            for tensor in node.inputs
            if not is_back_edge(tensor.node, node)
        ]
        if node.op in ops.MERGE:
            made = NONE.union(*known[:1]).intersection(*known)
        else:
            made = NONE.union(*known, *(found.get(control, NONE) for control in node.controls))
        if made:
            found[node] = made
    return found


def _side(tensor: Tensor) -> Sides:
    """What the output of a Switch adds: its predicate and the number of the output."""
    if tensor.node.op not in ops.SWITCH:
        return NONE
    predicate = source_of(tensor.node.inputs[1])
    return NONE if predicate.node.op in ops.LOOP_COND else frozenset({(predicate, tensor.port)})

"""TF1 conditionals: the nodes between a Switch and the Merge that joins its branches."""

from __future__ import annotations

from collections.abc import Container, Iterable

from tpugraph import ops
from tpugraph.ir.graph import Graph
from tpugraph.ir.loops import frames
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.walks import descendants, is_back_edge, source_of

Side = tuple[Tensor, int]
"""A predicate, and the output of the Switches on it that is taken."""
Sides = frozenset[Side]
NONE: Sides = frozenset()
"""What a node that always runs has."""


def conditional(graph: Graph) -> dict[Node, None]:
    """The nodes that may not run: those behind a Switch and not behind the Merge that joins its branches."""
    return behind(graph.of_type(*ops.SWITCH))


def nested(graph: Graph) -> dict[Node, None]:
    """The nodes in loops and branches, which may run never or many times in a step."""
    return conditional(graph) | {node: None for node, frame in frames(graph).items() if frame}


def behind(switches: Iterable[Node], *, until: Container[str] = ops.MERGE | ops.EXIT) -> dict[Node, None]:
    """What reads nodes or waits for them, and what follows that, up to nodes of some op types, which are not among it."""
    first = [reader for switch in switches for reader in switch.consumers() if reader.op not in until]
    return {node: None for node in descendants(first, until=until) if node.op not in until}


def joins_branches(node: Node) -> bool:
    """Whether a Merge takes the value of the branch that ran; that of a loop takes what the loop carries."""
    return node.op in ops.MERGE and not any(tensor.node.op in ops.NEXT_ITERATION for tensor in node.inputs)


def decides(switch: Node) -> Tensor:
    """The predicate of a Switch, behind the identities that ``tf.cond`` puts before it."""
    return source_of(switch.inputs[1])


def sides(graph: Graph) -> dict[Node, Sides]:
    """The sides of branches that each node is on, where it is on any; those of loops are told by their frames."""
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
    """What the output of a Switch adds: its predicate and the number of the output."""
    if tensor.node.op not in ops.SWITCH:
        return NONE
    predicate = decides(tensor.node)
    return NONE if predicate.node.op in ops.LOOP_COND else frozenset({(predicate, tensor.port)})

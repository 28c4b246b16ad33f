"""Units of a step: what a reduction keeps or cuts as a whole. A loop is one unit, so is a conditional with both branches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from networkx.utils import UnionFind

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Node, Tensor

Unit = tuple[Node, ...]
"""Nodes that are kept or cut together, in topological order."""

_Branch = tuple[Tensor, int]  # the predicate of a conditional, and the output of its Switches


def units_of(graph: Graph, nodes: NodeSet) -> list[Unit]:
    """The units that some nodes fall into, in topological order.

    Together stay: all nodes of a loop with the loops inside of it; all nodes behind the Switches of one predicate up to the
    Merges, forward and backward; whoever hands on a handle (a stack, a list, an iterator) with who reads it. Variables are
    units of their own.

    Args:
        graph: the graph, with shapes.
        nodes: the nodes of the step.
    """
    order = graph.topological_order(nodes)
    joined: UnionFind[object] = UnionFind(order)
    for one, other in (*_handles(order, nodes), *_loops(graph, order), *_conditionals(order, nodes)):
        joined.union(one, other)
    found: dict[object, list[Node]] = {}
    for node in order:
        found.setdefault(joined[node], []).append(node)
    return [tuple(unit) for unit in found.values()]


def is_handle(tensor: Tensor) -> bool:
    """Whether a tensor stands for something that lives elsewhere: no value of it can be recorded."""
    kind = tensor.dtype
    return kind.ref or kind.name in ("resource", "variant")


def bypass(unit: Unit, inside: Collection[Node]) -> Tensor | None:
    """What readers of a unit can read instead: an operand of its only node, of the same dtype and shape; None where there is none.

    Args:
        unit: the unit.
        inside: nodes whose outputs are the first choice, so that the way to what is before them stays.
    """
    node, *others = unit
    if others or len(node.outputs or ()) != 1 or node.op in ops.VARIABLES or is_handle(node.out()):
        return None
    alike = [t for t in node.inputs if t.node.output(t.port) == node.output(0) and is_static(t.shape)]
    return min(alike, key=lambda tensor: tensor.node not in inside, default=None)


def _handles(order: Iterable[Node], nodes: NodeSet) -> Iterator[tuple[object, object]]:
    for node in order:
        for tensor in node.inputs:
            if tensor.node in nodes and tensor.node.op not in ops.VARIABLES and is_handle(tensor):
                yield tensor.node, node


def _loops(graph: Graph, order: Iterable[Node]) -> Iterator[tuple[object, object]]:
    """Each node of a loop with the outermost loop around it."""
    frame_of = analysis.frames(graph)
    around: dict[str, str] = {"": ""}
    for node in order:
        if node.op in ops.ENTER:
            outer = frame_of[node.inputs[0].node]
            outer = around[outer] if node.inputs[0].node.op in ops.EXIT else outer
            around.setdefault(frame_of[node], outer)
        frame = frame_of[node]
        while around[frame]:
            frame = around[frame]
        if frame:
            yield node, ("loop", frame)


def _conditionals(order: Iterable[Node], nodes: NodeSet) -> Iterator[tuple[object, object]]:
    """Each node that may not run with the predicates that decide it, and the Switches and Merges of these."""
    left = branches_of(order, nodes)
    for node in left:
        for predicate in {predicate for tensor in node.inputs for predicate, _ in _left_by(tensor, left)}:
            yield node, ("if", predicate)
        for predicate, _ in left[node]:
            yield node, ("if", predicate)
        if _decides(node):
            yield node, ("if", _predicate(node))


def branches_of(order: Iterable[Node], nodes: NodeSet) -> dict[Node, frozenset[_Branch]]:
    """The branches of conditionals that each node's outputs are in; none where it always runs. Loops decide nothing here.

    Args:
        order: the nodes in topological order.
        nodes: the same.
    """
    found: dict[Node, frozenset[_Branch]] = {}
    for node in order:
        behind = [_left_by(tensor, found) for tensor in node.inputs if tensor.node in nodes]
        behind += [found.get(control, frozenset()) for control in node.controls if control in nodes]
        inside: frozenset[_Branch] = frozenset().union(*behind)
        if node.op in ops.MERGE:
            inside = frozenset((p, port) for p, port in inside if (p, 1 - port) not in inside)
        found[node] = inside
    return found


def _left_by(tensor: Tensor, branches: dict[Node, frozenset[_Branch]]) -> frozenset[_Branch]:
    """The branches that a tensor is in."""
    inside = branches.get(tensor.node, frozenset())
    return inside | {(_predicate(tensor.node), tensor.port)} if _decides(tensor.node) else inside


def _predicate(switch: Node) -> Tensor:
    """What decides a Switch; the Switches of one conditional read it directly or through an Identity."""
    found = switch.inputs[1]
    while found.node.op in ops.IDENTITIES:
        found = found.node.inputs[0]
    return found


def _decides(node: Node) -> bool:
    """Whether a node is a Switch of a conditional, and not of a loop."""
    return node.op in ops.SWITCH and node.inputs[1].node.op not in ops.LOOP_COND

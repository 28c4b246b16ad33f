"""Unwraps the optionals in which a control flow v2 conditional passes values of a branch to its gradient.

The other branch has no such value and returns an empty optional. In TF1 control flow the gradient, in a branch of the same
predicate, reads the value directly.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.conditionals import sides
from tpugraph.ir.walks import reached, source_of

_EQUALITIES = ops.computing(np.equal)
_SAME_VALUE = ops.IDENTITIES | ops.SWITCH


def unwrap(graph: Graph) -> int:
    """Replace OptionalGetValue by the wrapped value where only one is possible; returns the number of replacements."""
    if not graph.of_type(*ops.UNWRAPS):
        return 0
    side_of = {
        node: frozenset((_decides(predicate), side) for predicate, side in found)
        for node, found in sides(graph).items()
    }
    _share_predicates(graph, side_of)
    count = 0
    for node in graph.of_type(*ops.UNWRAPS):
        here = side_of.get(node, frozenset())
        there = {wrap: side_of.get(wrap, frozenset()) for wrap in _wraps(node.inputs[0])}
        others = {(predicate, 1 - side) for predicate, side in here}
        wrapped = [wrap for wrap, crossed in there.items() if not crossed & others]
        if len(wrapped) != 1 or not there[wrapped[0]] <= here:
            continue
        for port, value in enumerate(wrapped[0].inputs):
            graph.replace_uses(node.out(port), value)
        graph.replace_control_uses(node, wrapped)
        count += 1
    return count


def _share_predicates(graph: Graph, side_of: Mapping[Node, frozenset[tuple[Hashable, int]]]) -> None:
    """Deduplicate comparisons: a Case and its gradient compare one index with the same numbers."""
    first: dict[Hashable, Node] = {}
    for node in graph.topological_order() if graph.of_type(*_EQUALITIES) else ():
        if node.op in _EQUALITIES and any(use.node.op in ops.SWITCH and use.index == 1 for use in node.uses()):
            before = first.setdefault(_decides(node.out()), node)
            if before is not node and side_of.get(before, frozenset()) <= side_of.get(node, frozenset()):
                graph.replace_uses(node.out(), before.out())


def _wraps(optional: Tensor) -> list[Node]:
    """The possible OptionalFromValue nodes of an optional; none where not all are known."""
    through = _SAME_VALUE | ops.MERGE

    def behind(node: Node) -> list[Node]:
        handed_on = node.inputs if node.op in ops.MERGE else node.inputs[:1]
        return [tensor.node for tensor in handed_on] if node.op in through else []

    found = reached([optional.node], behind)
    known = all(node.op in through | ops.WRAPS | ops.EMPTY_OPTIONALS for node in found)
    return [node for node in found if node.op in ops.WRAPS] if known else []


def _decides(tensor: Tensor) -> Hashable:
    """A key of a predicate: its source, or the index and the number that it is compared with."""
    tensor = source_of(tensor, _SAME_VALUE)
    node = tensor.node
    if node.op in ops.TRUTHS:
        return node.op, _decides(node.inputs[0])
    if (
        node.op in _EQUALITIES
        and node.inputs[1].node.op in ops.CONSTANTS
        and node.inputs[1].node.attr("value").size == 1
    ):
        return node.op, _decides(node.inputs[0]), node.inputs[1].node.attr("value").item()
    return tensor

"""Unwraps the optionals in which a control flow v2 conditional passes values of a branch to its gradient.

The other branch has no such value and returns an empty optional. In TF1 control flow the gradient, in a branch of the same
predicate, reads the value directly.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import source_of

Crossed = frozenset[tuple[Hashable, int]]
"""Predicates with the branch that a node is in: 0 for false."""

_EQUALITIES = ops.computing(np.equal)
_SAME_VALUE = ops.IDENTITIES | ops.SWITCH


def unwrap(graph: Graph) -> int:
    """Replace OptionalGetValue by the wrapped value where only one is possible; returns the number of replacements."""
    known: dict[Node, Crossed] = {}
    if not graph.of_type(*ops.UNWRAPS):
        return 0
    _share_predicates(graph, known)
    count = 0
    for node in graph.of_type(*ops.UNWRAPS):
        here = _crossed(node, known)
        there = {wrap: _crossed(wrap, known) for wrap in _wraps(node.inputs[0])}
        others = {(predicate, 1 - side) for predicate, side in here}
        wrapped = [wrap for wrap, crossed in there.items() if not crossed & others]
        if len(wrapped) != 1 or not there[wrapped[0]] <= here:
            continue
        for port, value in enumerate(wrapped[0].inputs):
            graph.replace_uses(node.out(port), value)
        graph.replace_control_uses(node, wrapped)
        count += 1
    return count


def _share_predicates(graph: Graph, known: dict[Node, Crossed]) -> None:
    """Deduplicate comparisons: a Case and its gradient compare one index with the same numbers."""
    first: dict[Hashable, Node] = {}
    for node in graph.topological_order() if graph.of_type(*_EQUALITIES) else ():
        if node.op in _EQUALITIES and any(use.node.op in ops.SWITCH and use.index == 1 for use in node.uses()):
            before = first.setdefault(_decides(node.out()), node)
            if before is not node and _crossed(before, known) <= _crossed(node, known):
                graph.replace_uses(node.out(), before.out())


def _wraps(optional: Tensor) -> list[Node]:
    """The possible OptionalFromValue nodes of an optional; none where not all are known."""
    found: dict[Node, None] = {}
    stack, seen = [optional.node], {optional.node}
    while stack:
        node = stack.pop()
        if node.op in ops.WRAPS:
            found[node] = None
            continue
        if node.op in ops.EMPTY_OPTIONALS:
            continue
        if node.op not in _SAME_VALUE | ops.MERGE:
            return []
        for producer, _ in node.inputs if node.op in ops.MERGE else node.inputs[:1]:
            if producer not in seen:
                seen.add(producer)
                stack.append(producer)
    return list(found)


def _crossed(node: Node, known: dict[Node, Crossed]) -> Crossed:
    """The predicates on the way to a node since the last join."""
    if node not in known:
        crossed: set[tuple[Hashable, int]] = set()
        stack, seen = [node], {node}
        while stack:
            at = stack.pop()
            producers = at.producers()
            if at.op in ops.MERGE:  # a loop is in the branch of its initial values
                producers = [producer for producer in producers if producer.op in ops.ENTER]
            elif at.op not in ops.EXIT:
                crossed.update((_decides(t.node.inputs[1]), t.port) for t in at.inputs if t.node.op in ops.SWITCH)
            for producer in producers:
                if producer not in seen:
                    seen.add(producer)
                    stack.append(producer)
        known[node] = frozenset(crossed)
    return known[node]


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

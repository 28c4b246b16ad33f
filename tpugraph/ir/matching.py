"""Which node of one graph is which node of another: by name, and where names differ by what stands around them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir.attrs import decode
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node

UNTOLD = frozenset({"_output_shapes", "_class"})
"""Attributes that say nothing of their own: shapes that were inferred, and names of nodes to stand beside."""

_MOST_NAMES = 4
"""How many of a node's last scopes and name are looked at, where no neighbour tells which node it is."""


def attributes(node: Node) -> dict[str, Any]:
    """The attributes that say something, decoded, less those that have their op's default value."""
    definition = ops.op_def(node.op)
    defaults = {a.name: a.default_value for a in definition.attr if a.HasField("default_value")} if definition else {}
    return {
        key: decode(value)
        for key, value in node.raw_attrs.items()
        if key not in UNTOLD and not (key in defaults and value == defaults[key])
    }


def same(left: Any, right: Any) -> bool:
    """Whether two decoded attributes are the same value, however they were written."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and bool(np.array_equal(left, right, equal_nan=left.dtype.kind in "fc"))
    return type(left) is type(right) and bool(left == right)


def match(first: Graph, second: Graph) -> dict[Node, Node]:
    """Of each node of the first graph that the second one has too, the node there.

    Nodes of one name and op type are one. From them on, nodes of the same op type and attributes that read or make the same
    values are one as well: they were renamed. What has no such neighbour goes by its last scopes and name, and what is left
    then by its whole name, whatever its op type.
    """
    found = _Matching()
    for node in first:
        twin = second.get(node.name)
        if twin is not None and twin.op == node.op:
            found.add(node, twin)
    found.spread()
    for node, twin in _alone(found, first, second):
        found.add(node, twin)
        found.spread()
    for node in first:
        twin = second.get(node.name)
        if twin is not None and found.free(node, twin):
            found.add(node, twin)
    return found.there


class _Matching:
    """Pairs of nodes, and those whose neighbours are yet to be looked at."""

    def __init__(self) -> None:
        self.there: dict[Node, Node] = {}
        self.taken: set[Node] = set()
        self._open: list[tuple[Node, Node]] = []
        self._attributes: dict[Node, dict[str, Any]] = {}

    def add(self, node: Node, twin: Node) -> None:
        self.there[node] = twin
        self.taken.add(twin)
        self._open.append((node, twin))

    def free(self, node: Node, twin: Node) -> bool:
        return node not in self.there and twin not in self.taken

    def spread(self) -> None:
        """Match the nodes beside those that are matched, as far as it goes."""
        while self._open:
            node, twin = self._open.pop()
            for operand, its in zip(node.inputs, twin.inputs, strict=False):
                if operand.port == its.port and self._alike(operand.node, its.node):
                    self.add(operand.node, its.node)
            for readers, others in self._readers(node, twin):
                for reader, other in zip(readers, others, strict=True):
                    if self._alike(reader, other):
                        self.add(reader, other)

    def _readers(self, node: Node, twin: Node) -> Iterator[tuple[list[Node], list[Node]]]:
        """The readers of both, grouped by how they read; those of one last name first."""
        mine, theirs = _reading(node, self.there), _reading(twin, self.taken)
        for use, readers in mine.items():
            others = theirs.get(use, [])
            names = Counter(map(_last, readers)) + Counter(map(_last, others))
            by_name = {_last(other): other for other in others if names[_last(other)] == 2}
            paired = [(reader, by_name[_last(reader)]) for reader in readers if _last(reader) in by_name]
            yield [reader for reader, _ in paired], [other for _, other in paired]
            if len(readers) == len(others):
                yield readers, others

    def _alike(self, node: Node, twin: Node) -> bool:
        """Whether two nodes that stand in one place can be one: same op type, and same attributes or last name."""
        if not self.free(node, twin) or node.op != twin.op or len(node.inputs) != len(twin.inputs):
            return False
        return _last(node) == _last(twin) or self._same_attributes(node, twin)

    def _same_attributes(self, node: Node, twin: Node) -> bool:
        left, right = (self._attributes.setdefault(n, attributes(n)) for n in (node, twin))
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)


def _reading(node: Node, known: Container[Node]) -> dict[Hashable, list[Node]]:
    found: dict[Hashable, list[Node]] = defaultdict(list)
    for reader in node.consumers():
        if reader not in known:
            places = tuple((i, operand.port) for i, operand in enumerate(reader.inputs) if operand.node is node)
            found[reader.op, places].append(reader)
    return found


def _alone(found: _Matching, first: Graph, second: Graph) -> Iterator[tuple[Node, Node]]:
    """Nodes that are the only ones of their op type and last names in both graphs, where nothing around them is matched."""
    for count in range(1, _MOST_NAMES + 1):
        theirs = _by_last_names((node for node in second if node not in found.taken), count)
        for kind, nodes in _by_last_names((node for node in first if node not in found.there), count).items():
            others = theirs.get(kind, [])
            if len(nodes) == len(others) == 1 and found.free(nodes[0], others[0]):
                yield nodes[0], others[0]


def _by_last_names(nodes: Iterable[Node], count: int) -> dict[tuple[str, ...], list[Node]]:
    found: dict[tuple[str, ...], list[Node]] = defaultdict(list)
    for node in nodes:
        found[node.op, *node.name.split("/")[-count:]].append(node)
    return found


def _last(node: Node) -> str:
    return node.name.rpartition("/")[2]

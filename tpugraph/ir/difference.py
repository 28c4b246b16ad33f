"""Diff of two graphs: nodes added, removed, renamed, changed. Nodes are matched by name, and renamed ones by their neighbours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import function_library
from tpugraph.ir.attrs import decode
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.text import format_node, format_value


@dataclass(frozen=True)
class Change:
    """A node that differs between two graphs, by its name and op type in the second one.

    ``facts`` are the changes as (kind, text); the kind is ``op type``, ``input``, ``waits``, ``device`` or an attribute.
    """

    node: str
    op: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Difference:
    """The difference of two graphs."""

    added: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    changed: list[Change] = field(default_factory=list)
    added_ops: dict[str, int] = field(default_factory=dict)
    removed_ops: dict[str, int] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.renamed or self.changed or self.functions)

    def scopes_renamed(self) -> dict[tuple[str, str], int]:
        """The number of nodes for each renamed scope or node, by the differing parts of their names."""
        return dict(Counter(_differing_parts(old, new) for old, new in self.renamed.items()).most_common())

    def kinds_changed(self) -> dict[str, int]:
        return dict(
            Counter(kind for change in self.changed for kind in {kind for kind, _ in change.facts}).most_common()
        )


def difference(first: Graph, second: Graph) -> Difference:
    """The semantic difference of two graphs.

    Ignored are the order of nodes and control inputs, inferred shapes, explicit default attributes, and the encoding of
    constants.
    """
    there = match(first, second)
    taken = set(there.values())
    removed = [node for node in first if node not in there]
    added = [node for node in second if node not in taken]
    changes = (Change(twin.name, twin.op, list(_facts(node, twin, there))) for node, twin in there.items())
    return Difference(
        _texts(added),
        _texts(removed),
        {node.name: twin.name for node, twin in there.items() if node.name != twin.name},
        sorted((change for change in changes if change.facts), key=lambda change: second[change.node].name),
        _ops(added),
        _ops(removed),
        _functions(first, second),
    )


def _texts(nodes: Iterable[Node]) -> dict[str, str]:
    return {node.name: format_node(node, outputs=False) for node in nodes}


def _ops(nodes: Iterable[Node]) -> dict[str, int]:
    return dict(Counter(node.op for node in nodes).most_common())


def _facts(node: Node, twin: Node, there: Mapping[Node, Node]) -> Iterator[tuple[str, str]]:
    if node.op != twin.op:
        yield "op type", f"{node.op} -> {twin.op}"
    yield from _attribute_facts(attributes(node), attributes(twin))
    before = [Tensor(there.get(operand.node, operand.node), operand.port) for operand in node.inputs]
    for index in range(max(len(before), len(twin.inputs))):
        old = before[index] if index < len(before) else None
        new = twin.inputs[index] if index < len(twin.inputs) else None
        if old != new:
            yield "input", f"input {index}: {old or 'none'} -> {new or 'none'}"
    waited, waits = {there.get(c, c) for c in node.controls}, set(twin.controls)
    for control in sorted(waits - waited, key=lambda c: c.name):
        yield "waits", f"waits for {control.name}"
    for control in sorted(waited - waits, key=lambda c: c.name):
        yield "waits", f"waits no longer for {control.name}"
    if node.device != twin.device:
        yield "device", f"device: {node.device or 'none'} -> {twin.device or 'none'}"


def _attribute_facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in sorted(before.keys() | after.keys()):
        if key in before and key in after and same(before[key], after[key]):
            continue
        old = format_value(before[key]) if key in before else "none"
        new = format_value(after[key]) if key in after else "none"
        yield key, f"{key}: {old} -> {new}"


def _functions(first: Graph, second: Graph) -> dict[str, str]:
    before, after = function_library.functions_named(first), function_library.functions_named(second)
    return {
        name: "added" if name not in before else "removed" if name not in after else "changed"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def _differing_parts(old: str, new: str) -> tuple[str, str]:
    """The differing parts of two names, without their common first and last components."""
    before, after = old.split("/"), new.split("/")
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    return "/".join(before), "/".join(after)


def changed_lines(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The changes between two texts of nodes, as lines: ``-`` before, ``+`` after."""
    lines = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        lines += [f"- {old}"] if old is not None else []
        lines += [f"+ {new}"] if new is not None else []
    return lines


UNTOLD = frozenset({"_output_shapes", "_class"})
"""Attributes without meaning of their own: inferred shapes and colocation."""

_MOST_NAMES = 4
"""The number of last name components that identify a node without matched neighbours."""


def attributes(node: Node) -> dict[str, Any]:
    """The meaningful attributes, decoded, without defaults."""
    definition = ops.op_def(node.op)
    defaults = {a.name: a.default_value for a in definition.attr if a.HasField("default_value")} if definition else {}
    return {
        key: decode(value)
        for key, value in node.raw_attrs.items()
        if key not in UNTOLD and not (key in defaults and value == defaults[key])
    }


def same(left: Any, right: Any) -> bool:
    """Whether two decoded attributes have equal values, in any encoding."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and bool(np.array_equal(left, right, equal_nan=left.dtype.kind in "fc"))
    return type(left) is type(right) and bool(left == right)


def match(first: Graph, second: Graph) -> dict[Node, Node]:
    """Match the nodes of two graphs; returns the second graph's node for each matched one of the first.

    Nodes with equal name and op type match. From these, neighbours with equal op type and attributes that read or produce
    matched values match: they were renamed. Nodes without such a neighbour match by their last name components, and the rest by
    the whole name, with any op type.
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
    """Matched pairs, and a worklist of those whose neighbours are not yet visited."""

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
        """The readers of both nodes, grouped by the operand that reads; those with equal last name first."""
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
        """Whether two nodes in corresponding places can match: equal op type, and equal attributes or last name."""
        if not self.free(node, twin) or node.op != twin.op or len(node.inputs) != len(twin.inputs):
            return False
        if _last(node) == _last(twin):
            return True
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
    """Unmatched nodes that are unique by op type and last name components in both graphs."""
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

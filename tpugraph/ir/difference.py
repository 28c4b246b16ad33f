"""How two graphs differ: which nodes were added, removed, renamed, and what of the others changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpugraph.ir import function_library
from tpugraph.ir.graph import Graph
from tpugraph.ir.matching import attributes, match, same
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.text import format_node, format_value


@dataclass(frozen=True)
class Change:
    """A node of both graphs that is not the same in them.

    Attributes:
        node: its name in the second graph.
        op: its op type there.
        facts: what changed, each as (kind, text); the kind is ``op type``, ``input``, ``waits``, ``device`` or an attribute.
    """

    node: str
    op: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Difference:
    """How a second graph differs from a first one.

    Attributes:
        added: nodes of the second alone, as lines of text, by name.
        removed: nodes of the first alone, as lines of text, by name.
        renamed: names in the second graph by names in the first one.
        changed: nodes of both that are not the same.
        added_ops: how many nodes of each op type were added.
        removed_ops: how many were removed.
        functions: of each library function that is not the same: ``added``, ``removed`` or ``changed``.
    """

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
        """How many nodes each renaming of a scope, or of a single node, renamed: the parts of the names that differ."""
        return dict(Counter(_differing_parts(old, new) for old, new in self.renamed.items()).most_common())

    def kinds_changed(self) -> dict[str, int]:
        """In how many nodes each kind of fact changed."""
        return dict(
            Counter(kind for change in self.changed for kind in {kind for kind, _ in change.facts}).most_common()
        )


def difference(first: Graph, second: Graph) -> Difference:
    """How the second graph differs from the first by what it means.

    The order of nodes and of control inputs, shapes that were inferred, an attribute that is written out where it has its
    op's default, and the way in which a constant is stored mean nothing.
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
    """What changed of a node."""
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
    found = {}
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            found[name] = "added"
        elif name not in after:
            found[name] = "removed"
        elif before[name] != after[name]:
            found[name] = "changed"
    return found


def _differing_parts(old: str, new: str) -> tuple[str, str]:
    """The parts of two names that differ, without the scopes and last names that they share at their ends."""
    before, after = old.split("/"), new.split("/")
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    return "/".join(before), "/".join(after)


def changed_lines(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What changed from some nodes to others, as lines by name: ``-`` as it was, ``+`` as it is."""
    lines = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        lines += [f"- {old}"] if old is not None else []
        lines += [f"+ {new}"] if new is not None else []
    return lines

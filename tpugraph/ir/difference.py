"""The difference of two graphs, whose nodes are matched by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tpugraph.ir import attrs as attr_codec
from tpugraph.ir import function_library
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node
from tpugraph.ir.text import format_node, format_value
from tpugraph.ops import op_def

_INFERRED = frozenset({"_output_shapes", "_class"})
"""Attributes that are not compared: inferred shapes and colocation."""


@dataclass(frozen=True)
class Change:
    """A node that differs between two graphs, by its name and op type in the second one.

    ``facts`` are the changes as (kind, text); the kind is ``op type``, ``input``, ``control``, ``device`` or an attribute.
    """

    node: str
    op: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Difference:
    """The nodes that one of two graphs has alone, as name to text; changed nodes; library functions as name to what happened."""

    added: dict[str, str]
    removed: dict[str, str]
    changed: list[Change]
    functions: dict[str, str]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.functions)


def difference(first: Graph, second: Graph) -> Difference:
    """The semantic difference of two graphs.

    Ignored are the order of nodes and control inputs, inferred shapes, explicit default attributes, and the encoding of
    constants.
    """
    changes = (
        Change(node.name, node.op, list(_facts(first[node.name], node))) for node in second if node.name in first
    )
    return Difference(
        {node.name: format_node(node, outputs=False) for node in second if node.name not in first},
        {node.name: format_node(node, outputs=False) for node in first if node.name not in second},
        sorted((change for change in changes if change.facts), key=lambda change: change.node),
        _functions(first, second),
    )


def _facts(before: Node, after: Node) -> Iterator[tuple[str, str]]:
    if before.op != after.op:
        yield "op type", f"{before.op} -> {after.op}"
    old, new = _attributes(before), _attributes(after)
    for key in sorted(old.keys() | new.keys()):
        if key not in old or key not in new or old[key] != new[key]:
            left, right = (format_value(attr_codec.decode(held[key])) if key in held else "none" for held in (old, new))
            if left != right:  # else one value in two encodings
                yield key, f"{key}: {left} -> {right}"
    for index in range(max(len(before.inputs), len(after.inputs))):
        left, right = (str(n.inputs[index]) if index < len(n.inputs) else "none" for n in (before, after))
        if left != right:
            yield "input", f"input {index}: {left} -> {right}"
    waited, waits = ({control.name for control in node.controls} for node in (before, after))
    for change, names in (("added", waits - waited), ("removed", waited - waits)):
        yield from (("control", f"control input {change}: {name}") for name in sorted(names))
    if before.device != after.device:
        yield "device", f"device: {before.device or 'none'} -> {after.device or 'none'}"


def _attributes(node: Node) -> dict[str, Any]:
    """The compared attributes, encoded, with the defaults."""
    defaults = attr_codec.definition(node.op).defaults if op_def(node.op) is not None else {}
    return {key: value for key, value in (defaults | dict(node.raw_attrs)).items() if key not in _INFERRED}


def _functions(first: Graph, second: Graph) -> dict[str, str]:
    before, after = function_library.functions_named(first), function_library.functions_named(second)
    return {
        name: "added" if name not in before else "removed" if name not in after else "changed"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }

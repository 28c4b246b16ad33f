"""Patterns of nodes: they match a part of a graph, bind tensors to names, and explain why they did not match.

    counter = anything("counter")
    pattern = op("AssignVariableOp", anything("variable"), op(("Add", "AddV2"), counter, number(1), swaps=True))
    found = match(pattern, write.out())
    if found:
        found["counter"]
    else:
        found.why    # 'Mul_3' (Mul) is no Add or AddV2

A pattern matches backwards from a tensor through its operands. It is a value and can be part of other patterns. A rule replaces
what its pattern matches:

    apply(graph, [Rule(op("Mul", anything("x"), number(1), swaps=True), lambda graph, node, found: found["x"])])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from tpugraph import ops
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.walks import source_of

Bound = dict[str, Tensor]


@dataclass(frozen=True)
class Miss:
    """A mismatch: the unexpected node, and its distance from the start."""

    node: Node
    expected: str
    depth: int

    def __str__(self) -> str:
        return f"{self.node.name!r} ({self.node.op}) is no {self.expected}"


@dataclass(frozen=True)
class Pattern:
    """A condition on a tensor and its operands."""

    # binds tensors to names, or returns the mismatch; the number is the distance from the start
    at: Callable[[Tensor, Bound, int], Miss | None]
    types: frozenset[str] | None = None  # the possible op types of the last node; None for any


@dataclass(frozen=True)
class Match:
    """The result of matching a pattern; true where it matched."""

    bound: Mapping[str, Tensor]  # the bound tensors by name; empty where it did not match
    # the mismatch furthest from the start, over all ways to match; None where it matched
    missed: Miss | None = None

    def __bool__(self) -> bool:
        return self.missed is None

    def __getitem__(self, name: str) -> Tensor:
        return self.bound[name]

    @property
    def why(self) -> str:
        """The unexpected node, and what was expected; "" where the pattern matched."""
        return "" if self.missed is None else str(self.missed)


def match(pattern: Pattern, tensor: Tensor) -> Match:
    """Match a pattern that ends in a tensor."""
    bound: Bound = {}
    missed = pattern.at(tensor, bound, 0)
    return Match(bound) if missed is None else Match({}, missed)


def anything(name: str = "") -> Pattern:
    """Any tensor; where the name occurs twice, the same tensor."""

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        if name and bound.setdefault(name, tensor) != tensor:
            return Miss(tensor.node, f"'{bound[name]}', which stands there too", depth)
        return None

    return Pattern(at)


def number(value: float | None = None, name: str = "") -> Pattern:
    """A constant with one element, of a value or of any."""
    expected, named = f"constant {value}" if value is not None else "constant number", anything(name)

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        held = tensor.node.attr("value") if tensor.node.op in ops.CONSTANTS else None
        if held is None or held.size != 1 or (value is not None and held.item() != value):
            return Miss(tensor.node, expected, depth)
        return named.at(tensor, bound, depth)

    return Pattern(at, ops.CONSTANTS)


def op(
    types: str | Collection[str],
    *operands: Pattern,
    name: str = "",
    port: int | None = None,
    swaps: bool = False,
    attrs: Mapping[str, Any] | None = None,
) -> Pattern:
    """A node.

    Args:
        *operands: the patterns of its first data inputs; it may have more.
        port: the index of the output; any where None.
        swaps: whether the operands may be in any order.
    """
    wanted, named = frozenset((types,) if isinstance(types, str) else types), anything(name)
    expected = " or ".join(sorted(wanted)) if len(wanted) < 4 else f"{sorted(wanted)[0]} or the like"
    every = [_operands(order) for order in (permutations(operands) if swaps else [operands])]

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        node = tensor.node
        if node.op not in wanted:
            return Miss(node, expected, depth)
        if len(node.inputs) < len(operands):
            return Miss(node, f"{expected} with at least {len(operands)} inputs", depth)
        if port not in (None, tensor.port):
            return Miss(node, f"{expected} whose output {port} is read", depth)
        other = next((key for key, value in (attrs or {}).items() if node.attr(key) != value), None)
        if other is not None:
            return Miss(node, f"{expected} with {other}={(attrs or {})[other]!r}", depth)
        return _first_of(every, tensor, bound, depth) or named.at(tensor, bound, depth)

    return Pattern(at, wanted)


def either(*patterns: Pattern) -> Pattern:
    """The first matching one of some patterns."""
    return Pattern(lambda tensor, bound, depth: _first_of(patterns, tensor, bound, depth), _types(patterns))


def when(pattern: Pattern, holds: Callable[[Tensor], bool], expected: str) -> Pattern:
    """A pattern with a further condition; ``expected`` describes it, as in ``float32``."""

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        missed = pattern.at(tensor, bound, depth)
        return missed if missed or holds(tensor) else Miss(tensor.node, expected, depth)

    return Pattern(at, pattern.types)


def behind(types: Collection[str], pattern: Pattern) -> Pattern:
    """A pattern through nodes that forward a value, such as identities or casts; see :func:`~tpugraph.ir.walks.source_of`."""
    return Pattern(lambda tensor, bound, depth: pattern.at(source_of(tensor, types), bound, depth))


def handed_on(pattern: Pattern) -> Pattern:
    """A pattern through identities."""
    return behind(ops.IDENTITIES, pattern)


def _operands(patterns: Collection[Pattern]) -> Pattern:
    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        missed = (p.at(operand, bound, depth + 1) for p, operand in zip(patterns, tensor.node.inputs, strict=False))
        return next(filter(None, missed), None)

    return Pattern(at)


def _first_of(patterns: Iterable[Pattern], tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
    furthest: Miss | None = None
    for pattern in patterns:
        tried = dict(bound)
        missed = pattern.at(tensor, tried, depth)
        if missed is None:
            bound.update(tried)
            return None
        if furthest is None or missed.depth > furthest.depth:
            furthest = missed
    return furthest


@dataclass(frozen=True)
class Rule:
    """A pattern with its replacement.

    Attributes:
        replace: takes the graph, the node and the match, and returns the tensor that replaces the node's first output; None where
            it has edited the graph itself, for example by ``graph.retype``. The node stays unless it removes it.
    """

    pattern: Pattern  # matched at the first output of each node
    replace: Callable[[Graph, Node, Match], Tensor | None]


def apply(graph: Graph, rules: Sequence[Rule], nodes: Iterable[Node] | None = None) -> dict[Node, str]:
    """Apply to each node the first rule whose pattern matches.

    This is a single pass: new nodes are not rewritten.

    Args:
        nodes: the nodes to visit; all in the order of the graph where None.

    Returns:
        For each node of an op type that a pattern can end in, why no rule matched; "" for rewritten nodes.
    """
    types = _types([rule.pattern for rule in rules])
    found: dict[Node, str] = {}
    for node in [node for node in (graph if nodes is None else nodes) if types is None or node.op in types]:
        tried: list[Miss] = []
        for rule in rules if node in graph else ():  # else a rule has removed it
            if rule.pattern.types is not None and node.op not in rule.pattern.types:
                continue
            matched = match(rule.pattern, node.out())
            if matched.missed is not None:
                tried.append(matched.missed)
                continue
            instead = rule.replace(graph, node, matched)
            if instead is not None:
                graph.replace_uses(node.out(), instead)
            found[node] = ""
            break
        else:
            found.update((node, str(missed)) for missed in sorted(tried, key=lambda missed: missed.depth)[-1:])
    return found


def _types(patterns: Iterable[Pattern]) -> frozenset[str] | None:
    types = [pattern.types for pattern in patterns]
    return None if None in types else frozenset[str]().union(*filter(None, types))

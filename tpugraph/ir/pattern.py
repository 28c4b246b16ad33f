"""Small patterns of nodes: what a part of a graph must look like, which tensors it binds, and why it did not match.

    counter = anything("counter")
    pattern = op("AssignVariableOp", anything("variable"), op(("Add", "AddV2"), counter, number(1), swaps=True))
    found = match(pattern, write.out())
    if found:
        found["counter"]
    else:
        found.why    # 'Mul_3' (Mul) is no Add or AddV2

A pattern looks from a tensor back at what it is made of. It is a value: it can be part of several others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from tpugraph import ops
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.walks import source_of

Bound = dict[str, Tensor]


@dataclass(frozen=True)
class Miss:
    """Where a pattern did not match: the node that is another than was expected, and how far from the start it is."""

    node: Node
    expected: str
    depth: int

    def __str__(self) -> str:
        return f"{self.node.name!r} ({self.node.op}) is no {self.expected}"


Pattern = Callable[[Tensor, Bound, int], Miss | None]
"""Binds tensors to names, or says where it does not match; the number is the distance from the start."""


@dataclass(frozen=True)
class Match:
    """What came of looking for a pattern; true where it was found.

    Attributes:
        bound: the tensors by the names of the pattern; empty where it did not match.
        missed: where it did not match, of all ways to match it the one that went furthest; None where it did.
    """

    bound: Mapping[str, Tensor]
    missed: Miss | None = None

    def __bool__(self) -> bool:
        return self.missed is None

    def __getitem__(self, name: str) -> Tensor:
        return self.bound[name]

    @property
    def why(self) -> str:
        """Which node is another than was expected, and what was expected; "" where the pattern was found."""
        return "" if self.missed is None else str(self.missed)


def match(pattern: Pattern, tensor: Tensor) -> Match:
    """Look for a pattern that ends in a tensor."""
    bound: Bound = {}
    missed = pattern(tensor, bound, 0)
    return Match(bound) if missed is None else Match({}, missed)


def anything(name: str = "") -> Pattern:
    """Any tensor; one that is bound to the name already where the name stands twice."""

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        if name and bound.setdefault(name, tensor) != tensor:
            return Miss(tensor.node, f"'{bound[name]}', which stands there too", depth)
        return None

    return at


def number(value: float | None = None, name: str = "") -> Pattern:
    """A constant of one element: of that value, or of any."""
    expected = f"constant {value}" if value is not None else "constant number"

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        held = tensor.node.attr("value") if tensor.node.op in ops.CONSTANTS else None
        if held is None or held.size != 1 or (value is not None and held.item() != value):
            return Miss(tensor.node, expected, depth)
        return anything(name)(tensor, bound, depth)

    return at


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
        types: the op type, or those that it may have.
        *operands: what its first data inputs must be; it may have more.
        name: binds its output.
        port: the number of that output; any where None.
        swaps: whether the operands may stand in any order.
        attrs: attributes that it must have, as Python values.
    """
    wanted = (types,) if isinstance(types, str) else types
    expected = " or ".join(sorted(wanted)) if len(wanted) < 4 else f"{sorted(wanted)[0]} or the like"
    orders = list(permutations(operands)) if swaps else [operands]

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
        return _first_of([_all_of(order, node) for order in orders], tensor, bound, depth) or anything(name)(
            tensor, bound, depth
        )

    return at


def either(*patterns: Pattern) -> Pattern:
    """The first of some patterns that matches."""

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        return _first_of(patterns, tensor, bound, depth)

    return at


def behind(types: Collection[str], pattern: Pattern) -> Pattern:
    """What stands behind nodes that hand a value on, such as identities, or a cast; see :func:`~tpugraph.ir.walks.source_of`."""

    def at(tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
        return pattern(source_of(tensor, types), bound, depth)

    return at


def handed_on(pattern: Pattern) -> Pattern:
    """What stands behind identities."""
    return behind(ops.IDENTITIES, pattern)


def _all_of(operands: Collection[Pattern], node: Node) -> Pattern:
    def at(_: Tensor, bound: Bound, depth: int) -> Miss | None:
        for operand, tensor in zip(operands, node.inputs, strict=False):
            missed = operand(tensor, bound, depth + 1)
            if missed is not None:
                return missed
        return None

    return at


def _first_of(patterns: Collection[Pattern], tensor: Tensor, bound: Bound, depth: int) -> Miss | None:
    furthest: Miss | None = None
    for pattern in patterns:
        tried = dict(bound)
        missed = pattern(tensor, tried, depth)
        if missed is None:
            bound.update(tried)
            return None
        if furthest is None or missed.depth > furthest.depth:
            furthest = missed
    return furthest

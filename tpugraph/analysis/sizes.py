"""Sizes of a step as polynomials in the number of rows of a batch, some of them not known yet.

A size is one of three: a whole number that does not depend on the batch; a :class:`Poly`, such as ``3*b`` or ``b + 1``,
where ``b`` is the number of rows; or an :class:`Unknown`, whose value in the traced graph is known, and of which the
analysis still has to find out which of the two it is (:mod:`tpugraph.analysis.size_relations`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TypeGuard

Number = int | Fraction


@dataclass(frozen=True)
class Poly:
    """A polynomial in the number of rows: ``c[0] + c[1]*b + c[2]*b**2 ...``; at least one row-dependent term.

    Coefficients may be fractions, as of half of the rows.
    """

    c: tuple[Number, ...]

    def at(self, rows: int) -> int:
        """The size for so many rows; a fraction of a row is left out, as a division of whole numbers does."""
        found: Number = 0
        for k in reversed(self.c):
            found = found * rows + k
        return math.floor(found)

    def __str__(self) -> str:
        powers = ["", "b", *(f"b^{power}" for power in range(2, len(self.c)))]
        terms = [
            f"{k}" if not name else name if k == 1 else f"{k}*{name}"
            for k, name in zip(self.c, powers, strict=False)
            if k
        ]
        return " + ".join(terms)


class Unknown:
    """A size whose value in the traced graph is known, and not yet whether it follows the batch."""

    __slots__ = ("_up", "found", "origin", "value")

    def __init__(self, value: int, origin: object = None) -> None:
        self.value = value
        self.origin = origin
        self.found: int | Poly | None = None
        self._up: Unknown | None = None

    def root(self) -> Unknown:
        """The one that stands for all that are tied to it."""
        root = self
        while root._up is not None:
            root = root._up
        node = self
        while node._up is not None:
            node._up, node = root, node._up
        return root


Size = int | Poly | Unknown
Known = int | Poly

ROWS = Poly((0, 1))
"""The number of rows itself."""


@cache
def poly(c: tuple[Number, ...]) -> Known:
    """The size with these coefficients: a whole number where no term depends on the rows."""
    while c and not c[-1]:
        c = c[:-1]
    c = tuple(int(k) if k == int(k) else k for k in c)
    return Poly(c) if len(c) > 1 else (int(c[0]) if c else 0)


def _coefficients(size: Known) -> tuple[Number, ...]:
    return size.c if isinstance(size, Poly) else (size,)


def add(*sizes: Known) -> Known:
    """The sum."""
    if all(isinstance(s, int) for s in sizes):
        return sum(sizes)  # type: ignore[arg-type]
    longest = max(len(_coefficients(s)) for s in sizes)
    return poly(tuple(sum(_coefficients(s)[i] for s in sizes if i < len(_coefficients(s))) for i in range(longest)))


def times(*sizes: Known) -> Known:
    """The product."""
    if all(isinstance(s, int) for s in sizes):
        return math.prod(sizes)  # type: ignore[arg-type]
    found: tuple[Number, ...] = (1,)
    for size in sizes:
        other = _coefficients(size)
        made: list[Number] = [0] * (len(found) + len(other) - 1)
        for i, a in enumerate(found):
            for j, b in enumerate(other):
                made[i + j] += a * b
        found = tuple(made)
    return poly(found)


def divide(size: Known, by: Known) -> Known | None:
    """The exact quotient, or None where there is none among polynomials."""
    rest, divisor = list(_coefficients(size)), list(_coefficients(by))
    while divisor and not divisor[-1]:
        divisor.pop()
    if not divisor:
        return None
    quotient: list[Number] = [0] * max(len(rest) - len(divisor) + 1, 1)
    for place in range(len(rest) - len(divisor), -1, -1):
        factor = Fraction(rest[place + len(divisor) - 1]) / divisor[-1]
        if len(rest) == 1 and factor != int(factor):
            return None  # whole numbers only where no batch is
        quotient[place] = factor
        for i, k in enumerate(divisor):
            rest[place + i] -= factor * k
    return None if any(rest) else poly(tuple(quotient))


def negative(size: Known) -> Known:
    """The size times minus one."""
    return times(size, -1)


def term(whole: Sequence[Known | None], terms: Sequence[Known | None]) -> Known | None:
    """What each unknown term of a sum is, where all of them are one; None where there is no such size."""
    found = [size for size in whole if size is not None] + [negative(size) for size in terms if size is not None]
    return divide(add(*found), terms.count(None))


def known(size: Size) -> Known | None:
    """What is found of a size; None of an unknown one."""
    return size.root().found if isinstance(size, Unknown) else size


def follows_batch(size: Size) -> bool:
    """Whether it is found that the size depends on the number of rows."""
    return isinstance(known(size), Poly)


def is_made_of_others(size: Size) -> bool:
    """Whether a size follows the batch, or may, being computed of other sizes: one row less than there are, or half of them."""
    return follows_batch(size) or (isinstance(size, Unknown) and known(size) is None and size.root().origin is None)


def depends_on_data(size: Size | None) -> bool:
    """Whether a size is only known when a step runs."""
    return size is None or (isinstance(size, Unknown) and known(size) is None and size.value < 0)


def at(size: Known, rows: int) -> int:
    """The number of a size where a batch has so many rows."""
    return size.at(rows) if isinstance(size, Poly) else size


def is_written(size: Size) -> TypeGuard[Unknown]:
    """Whether nothing is found of a number that is written in the graph, or in a static shape."""
    return isinstance(size, Unknown) and known(size) is None and size.root().origin is not None


def are_alike(one: Unknown, other: Unknown) -> bool:
    """Whether two unknowns have one value, and both are written in constants of the graph: they may be halves of the rows."""
    return one.value == other.value and all(isinstance(size.root().origin, tuple) for size in (one, other))


def through(one: tuple[int, int], other: tuple[int, int]) -> Known:
    """A size of one value for some rows and another for others: the line through both, exact for these two."""
    (rows, here), (whole, there) = one, other
    if here == there:
        return here
    slope = Fraction(there - here, whole - rows)
    return poly((here - slope * rows, slope))

"""Numbers that are no number of rows themselves, and may be computed of one: its logarithm, its root, one over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tpugraph.analysis.constant_values import constant
from tpugraph.ir import Node

_CLOSE = 1e-6
_DIGITS = 2
_FURTHEST = 64
"""The largest number that a number of rows is divided by, as by a number of classes."""


@dataclass(frozen=True)
class Step:
    """An op that makes one number of another, or of it and a second one.

    Attributes:
        op: the type of the op.
        by: the second number, if it has one of the model.
        by_rows: whether the second one is the number of rows that all is made of.
    """

    op: str
    by: float | None = None
    by_rows: bool = False


ONE_LESS, HALVED, TIMES_ROWS = Step("Sub", 1), Step("RealDiv", 2), Step("Mul", by_rows=True)
ROOT, ONE_OVER_ROOT = Step("Sqrt"), Step("Rsqrt")
_LOGARITHM, _ONE_OVER, _NEGATED = Step("Log"), Step("Reciprocal"), Step("Neg")


@dataclass(frozen=True)
class Reading:
    """How a number may be made of a number of rows or elements.

    Attributes:
        words: what it is of that number, with ``{}`` in its place.
        of: that number, a multiple of the rows.
        steps: what makes it of that number, one behind the other.
    """

    words: str
    of: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return self.words.format(self.of)

    @property
    def counts_pairs(self) -> bool:
        """Whether it grows with the square of the rows."""
        return TIMES_ROWS in self.steps

    def negated(self) -> Reading:
        """The reading of minus the number."""
        return Reading(f"minus {self.words}", self.of, (*self.steps, _NEGATED))

    def is_one_over(self) -> bool:
        """Whether the number is one over rows or elements, or minus that."""
        return self.steps[0] == _ONE_OVER


_ROOTS: list[tuple[str, tuple[Step, ...], Callable[[float], float]]] = [
    ("the logarithm of {}", (_LOGARITHM,), np.log),
    ("the root of {}", (ROOT,), np.sqrt),
    ("one over the root of {}", (ONE_OVER_ROOT,), lambda n: 1 / np.sqrt(n)),
    ("one over the root of one less than {}", (ONE_LESS, ONE_OVER_ROOT), lambda n: 1 / np.sqrt(n - 1) if n > 2 else 0),
    ("the root of one less than {}", (ONE_LESS, ROOT), lambda n: np.sqrt(n - 1) if n > 2 else 0),
]


def root_of_rows(value: float, rows: int) -> Reading | None:
    """The reading of a number as a logarithm or a root of the rows, or of twice as many: two views of them, say."""
    for of in (rows, 2 * rows):
        for words, steps, function in _ROOTS:
            made = float(function(of))
            if made and abs(abs(value) - made) <= _CLOSE * made:
                reading = Reading(words, of, steps)
                return reading.negated() if value < 0 else reading
    return None


def share_of_rows(value: float, rows: int) -> Reading | None:
    """The reading of a number as one over rows or elements, or over one less, or as rows divided by a number of the model."""
    if value < 0:
        reading = share_of_rows(-value, rows)
        return None if reading is None else reading.negated()
    over = round(1 / value) if 0 < value < 1 else 0
    if over and abs(value * over - 1) < _CLOSE:
        if over % rows == 0:
            return Reading("one over {}", over, (_ONE_OVER,))
        if (over + 1) % rows == 0:
            return Reading("one over one less than {}", over + 1, (ONE_LESS, _ONE_OVER))
    share = Fraction(value).limit_denominator(_FURTHEST)
    for times in range(1, _FURTHEST // share.denominator + 1):
        top, bottom = share.numerator * times, share.denominator * times
        if top % rows == 0 and top > 0 and abs(value * bottom - top) < _CLOSE * top:
            return share_of(top, bottom)
    return None


def share_of(number: int, parts: int) -> Reading:
    """The reading of what as many rows or elements are divided by a number of the model."""
    return Reading(f"{{}} / {parts}", number, (Step("RealDiv", parts),))


def number_in(node: Node) -> float | None:
    """The one number that all elements of a constant are; None of another node."""
    value = constant(node)
    if not value.size or value.dtype.kind not in "iuf" or (value.size > 1 and (value != value.flat[0]).any()):
        return None
    number = float(value.flat[0])
    return number if np.isfinite(number) else None


def is_odd(node: Node) -> bool:
    """Whether the number in a constant has more digits than people write."""
    written = np.format_float_positional(np.float32(number_in(node) or 0.0), unique=True)
    return len(written.replace(".", "").strip("-0")) > _DIGITS

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
class Reading:
    """How a number may be made of a number of rows or elements.

    Attributes:
        words: what it is of that number, with ``{}`` in its place.
        of: that number, a multiple of the rows.
        steps: the ops that make it of that number, one behind the other, each with its second operand behind a colon: a number, or
            the rows again.
    """

    words: str
    of: int
    steps: str

    def __str__(self) -> str:
        return self.words.format(self.of)


ONE_OVER = "one over {}"
ONE_LESS = "Sub:1"
ROOT_OF = "the root of {}"
ONE_OVER_ROOT = "one over the root of {}"

_ROOTS: dict[str, tuple[str, Callable[[float], float]]] = {
    "the logarithm of {}": ("Log", np.log),
    ROOT_OF: ("Sqrt", np.sqrt),
    ONE_OVER_ROOT: ("Rsqrt", lambda n: 1 / np.sqrt(n)),
    "one over the root of one less than {}": (f"{ONE_LESS} Rsqrt", lambda n: 1 / np.sqrt(n - 1) if n > 2 else 0),
    "the root of one less than {}": (f"{ONE_LESS} Sqrt", lambda n: np.sqrt(n - 1) if n > 2 else 0),
}


def root_of_rows(value: float, rows: int) -> Reading | None:
    """The reading of a number as a logarithm or a root of the rows, or of twice as many: two views of them, say."""
    for of in (rows, 2 * rows):
        for words, (steps, function) in _ROOTS.items():
            made = float(function(of))
            if made and abs(abs(value) - made) <= _CLOSE * made:
                return Reading(f"minus {words}", of, f"{steps} Neg") if value < 0 else Reading(words, of, steps)
    return None


def share_of_rows(value: float, rows: int) -> Reading | None:
    """The reading of a number as one over rows or elements, or over one less, or as rows divided by a number of the model."""
    if value < 0:
        reading = share_of_rows(-value, rows)
        return None if reading is None else Reading(f"minus {reading.words}", reading.of, f"{reading.steps} Neg")
    over = round(1 / value) if 0 < value < 1 else 0
    if over and abs(value * over - 1) < _CLOSE:
        if over % rows == 0:
            return Reading(ONE_OVER, over, "Reciprocal")
        if (over + 1) % rows == 0:
            return Reading("one over one less than {}", over + 1, f"{ONE_LESS} Reciprocal")
    share = Fraction(value).limit_denominator(_FURTHEST)
    for times in range(1, _FURTHEST // share.denominator + 1):
        top, bottom = share.numerator * times, share.denominator * times
        if top % rows == 0 and top > 0 and abs(value * bottom - top) < _CLOSE * top:
            return Reading(f"{{}} / {bottom}", top, f"RealDiv:{bottom}")
    return None


def is_one_over(reading: Reading) -> bool:
    """Whether a number is one over rows or elements, or minus that."""
    return reading.words.removeprefix("minus ") == ONE_OVER


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

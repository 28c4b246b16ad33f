"""A constant that follows the batch: what it holds of another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from tpugraph.analysis.constant_values import constant
from tpugraph.ir import Node

Formula = Callable[[Fraction], Any]

_COUNTS: tuple[Formula, ...] = (
    lambda rows: rows,
    lambda rows: rows**2,
    lambda rows: rows - 1,
    lambda rows: rows * (rows - 1),
)
_FORMULAS: tuple[Formula, ...] = (*_COUNTS, *(lambda rows, count=count: 1 / count(rows) for count in _COUNTS), math.log)


def formula_of(number: float, rows: int) -> Formula | None:
    """What a program may have made a number of: the rows, their square, pairs of rows, one by these, their logarithm."""
    return next((f for f in _FORMULAS if rows > 1 and math.isclose(number, f(Fraction(rows)), rel_tol=1e-6)), None)


@dataclass
class Change:
    """A constant that follows the batch.

    Attributes:
        exponents: by element, the power of the scale that it is multiplied by; None of a value of rows.
        axes: of a value of rows, the dimensions that follow.
        why: the reading, in a sentence.
        formula: of one number, what it was made of the rows; it goes before the power.
        rows: the rows that the formula takes.
    """

    exponents: np.ndarray[Any, Any] | None
    axes: set[int] = field(default_factory=set)
    why: str = ""
    formula: Formula | None = None
    rows: int = 0

    def factors(self, scale: Fraction) -> list[Fraction]:
        """By element, how many times as large it is with a batch that is so many times as large."""
        if self.formula is not None:
            return [Fraction(self.formula(self.rows * scale)) / Fraction(self.formula(Fraction(self.rows)))]
        return [scale ** int(power) for power in ([] if self.exponents is None else self.exponents.ravel())]

    def value(self, node: Node, scale: Fraction) -> np.ndarray[Any, Any]:
        """What the constant holds of a batch that is so many times as large."""
        old = constant(node)
        if self.exponents is None:
            return _longer(old, [int(d * scale) if axis in self.axes else d for axis, d in enumerate(old.shape)])
        made = old * np.asarray([float(factor) for factor in self.factors(scale)]).reshape(old.shape)
        return (np.rint(made) if old.dtype.kind in "iu" else made).astype(old.dtype)

    def cuts(self, old: np.ndarray[Any, Any], scale: Fraction) -> bool:
        """Whether a whole number would be none with such a batch."""
        factors = self.factors(scale)
        return any((int(v) * factor).denominator != 1 for v, factor in zip(old.ravel(), factors, strict=bool(factors)))


def _longer(old: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if (old == old.flat[0]).all():
        return np.full(shape, old.flat[0], old.dtype)
    return np.arange(shape[0], dtype=old.dtype) if old.ndim == 1 else np.eye(*shape, dtype=old.dtype)


def can_be_longer(value: np.ndarray[Any, Any]) -> bool:
    """Whether it is known what a constant of more rows is: equal elements, ``np.arange(rows)``, ``np.eye(rows)``."""
    if value.dtype.kind not in "fiub" or not value.size:
        return False
    counts = value.ndim == 1 and (value == np.arange(len(value))).all()
    unit = value.ndim == 2 and value.shape[0] == value.shape[1] and (value == np.eye(len(value))).all()
    return bool((value == value.flat[0]).all() or counts or unit)

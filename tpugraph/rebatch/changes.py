"""A constant that follows the batch: what it holds of another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from tpugraph.analysis.constant_values import constant
from tpugraph.ir import Node


@dataclass
class Change:
    """A constant that follows the batch.

    Attributes:
        exponents: by element, the power of the scale that it is multiplied by; None of a value of rows.
        axes: of a value of rows, the dimensions that follow.
        why: the reading, in a sentence.
    """

    exponents: np.ndarray[Any, Any] | None
    axes: set[int] = field(default_factory=set)
    why: str = ""

    def value(self, node: Node, scale: Fraction) -> np.ndarray[Any, Any]:
        """What the constant holds of a batch that is so many times as large."""
        old = constant(node)
        if self.exponents is None:
            return _longer(old, [int(d * scale) if axis in self.axes else d for axis, d in enumerate(old.shape)])
        factor = np.asarray([float(scale ** int(e)) for e in self.exponents.ravel()]).reshape(old.shape)
        made = old * factor
        return (np.rint(made) if old.dtype.kind in "iu" else made).astype(old.dtype)


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

"""Whether what a model function made may hold the number of rows that it read from its params."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

_SIZES = 64
"""Elements of a constant that may be sizes: those of larger ones are data."""

_SIMPLE = 64
"""The largest whole number that a size is thought to be multiplied or divided by."""


def may_hold(operation: Any, rows: int) -> bool:
    """Whether an operation has a multiple of the number of rows, one more or less, a part or a root of it in an attribute.

    It errs on the side of yes; no is said where no constant, shape or number has anything to do with the rows.
    """
    attributes = [value for name, value in operation.node_def.attr.items() if not name.startswith("_")]
    return any(_numbers_hold(_numbers(v), rows, near=v.WhichOneof("value") == "tensor") for v in attributes)


def _numbers(value: Any) -> Any:
    """The numbers in an attribute, those of shapes among them."""
    kind = value.WhichOneof("value")
    if kind == "i":
        return np.asarray([value.i])
    if kind == "shape":
        return np.asarray([dim.size for dim in value.shape.dim])
    if kind == "list":
        return np.asarray([*value.list.i, *(dim.size for shape in value.list.shape for dim in shape.dim)])
    if kind != "tensor":
        return np.zeros(0)
    array = tf.make_ndarray(value.tensor)
    small = array.size <= _SIZES and array.dtype.kind in "iuf"
    return np.asarray([*array.shape, *(array.ravel() if small else ())])


def _numbers_hold(numbers: Any, rows: int, *, near: bool) -> bool:
    """Whether numbers may be made of the rows; of a constant, those beside a multiple of them as well."""
    found = np.abs(np.asarray(numbers, np.float64))
    found = found[np.isfinite(found) & (found > 0)]
    whole = found == np.round(found)
    beside = (0, 1, rows - 1) if near else (0,)
    if np.any((found[whole] >= rows - 1) & np.isin(found[whole] % rows, beside)):
        return True
    parts = found[~whole]
    tried = (parts * rows, parts / rows, parts**2 * rows, parts**2 / rows, np.exp(np.minimum(parts, 50)) / rows)
    return any(bool(np.any(_is_simple(part))) for part in tried)


def _is_simple(numbers: Any) -> Any:
    """Which numbers are small whole ones, or one of those under one, but for rounding."""
    either = np.maximum(numbers, 1 / np.maximum(numbers, 1e-300))
    return (either < _SIMPLE + 0.5) & (np.abs(either - np.round(either)) < 1e-5 * either)

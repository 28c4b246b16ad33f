"""``tf.estimator.inputs``: input functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def numpy_input_fn(x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool | None = None,
                   queue_capacity: int = 1000, num_threads: int = 1) -> Callable[[], Any]:  # fmt: skip
    """An input function of arrays.

    Args:
        x: an array, or a dict of arrays, with a row per example; ``y`` of labels the same, or None.
        num_epochs: how often the rows are read; without end when None.
        queue_capacity: from how many rows the next one is drawn.

    Raises:
        ValueError: ``shuffle`` is not given, there are no features, or arrays are of different lengths.
        TypeError: ``x`` is neither an array nor a dict.
    """
    del num_threads
    if not isinstance(shuffle, bool):
        raise ValueError(f"shuffle must be provided and explicitly set as boolean, but is {shuffle!r}")
    if not isinstance(x, (dict, np.ndarray)):
        raise TypeError(f"x must be a dict or array; got {type(x).__name__}")
    if isinstance(x, dict) and not x:
        raise ValueError("x cannot be an empty dict")
    labels = None if isinstance(y, dict) and not y else y
    parts = x if labels is None else (x, labels)
    lengths = {len(array) for array in tf.nest.flatten(parts)}
    if len(lengths) > 1:
        raise ValueError(f"Length of tensors in x and y is mismatched: {sorted(lengths)}")

    def input_fn() -> Any:
        rows = tf.data.Dataset.from_tensor_slices(parts)
        if shuffle:
            rows = rows.shuffle(max(queue_capacity, 1))
        return rows.repeat(num_epochs).batch(batch_size)

    return input_fn


def pandas_input_fn(x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool | None = None,
                    queue_capacity: int = 1000, num_threads: int = 1,
                    target_column: str = "target") -> Callable[[], Any]:  # fmt: skip
    """An input function of a pandas ``DataFrame`` and a ``Series`` (or frame) of labels with the same index.

    Raises:
        ValueError: as :func:`numpy_input_fn`, or the indices differ.
    """
    if y is not None and not np.array_equal(x.index, y.index):
        raise ValueError(f"Index for x and y are mismatched.\nIndex for x: {x.index}\nIndex for y: {y.index}")
    features = {str(name): _plain(x[name]) for name in x}
    labels = None
    if y is not None:
        labels = {str(name): _plain(y[name]) for name in y} if hasattr(y, "columns") else _plain(y)
    del target_column  # the name of the labels within the original's queue
    return numpy_input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def _plain(column: Any) -> Any:
    values = np.asarray(column)
    return values.astype(str) if values.dtype == object else values

"""``tf.estimator.inputs``, input functions of arrays, and what ``tf.contrib.data`` has and ``tf.data.experimental`` has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import nest  # takes lists, such as shapes, for leaves

tf1 = tf.compat.v1


def numpy_input_fn(x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool | None = None,
                   queue_capacity: int = 1000, num_threads: int = 1) -> Callable[[], Any]:  # fmt: skip
    """An input function of arrays.

    Args:
        x: an array, or a dict of arrays, with a row per example; ``y`` of labels the same, or None.
        num_epochs: how often the rows are read; without end when None.
        queue_capacity: the rows of the buffer that shuffles.

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


# --------------------------------------------------------------------------- tf.contrib.data

Transformation = Callable[[Any], Any]
"""What ``Dataset.apply`` takes: a function of a Dataset that returns another."""


def batch_and_drop_remainder(batch_size: int) -> Transformation:
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: int, padded_shapes: Any, padding_values: Any = None) -> Transformation:
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def sloppy_interleave(map_func: Callable[..., Any], cycle_length: int, block_length: int = 1) -> Transformation:
    """Elements of several Datasets at once, in whatever order they come."""
    return tf1.data.experimental.parallel_interleave(  # type: ignore[no-any-return]
        map_func, cycle_length, block_length, sloppy=True
    )


def sliding_window_batch(
    window_size: int, stride: int | None = None, window_shift: int | None = None, window_stride: int = 1
) -> Transformation:
    """Windows of ``window_size`` rows, each ``window_shift`` (or ``stride``) rows behind the one before.

    Raises:
        ValueError: both ``stride`` and ``window_shift`` are given.
    """
    if stride is not None and window_shift is not None:
        raise ValueError("stride and window_shift are two names of one argument: give one")
    shift = stride if window_shift is None else window_shift

    def windows(dataset: Any) -> Any:
        found = dataset.window(window_size, 1 if shift is None else shift, window_stride, drop_remainder=True)
        return found.flat_map(
            lambda *parts: tf.data.Dataset.zip(parts if len(parts) > 1 else parts[0]).batch(window_size, True)
        )

    return windows


def assert_element_shape(expected_shapes: Any) -> Transformation:
    """Checks the shapes of a Dataset's elements when they are read."""

    def check(*element: Any) -> Any:
        whole = element if len(element) > 1 else element[0]
        return nest.map_structure(tf.ensure_shape, whole, expected_shapes, check_types=False)

    return lambda dataset: dataset.map(check)


def reduce_dataset(dataset: Any, reducer: Any) -> Any:
    """What a ``Reducer`` makes of all elements."""
    state = dataset.reduce(reducer.init_func(tf.constant(0, tf.int64)), reducer.reduce_func)
    return reducer.finalize_func(state)

"""The transformations of ``tf.contrib.data`` that ``tf.data.experimental`` does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1
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
        return found.flat_map(lambda *parts: _zipped(parts).batch(window_size, drop_remainder=True))

    return windows


def _zipped(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else tf.data.Dataset.zip(parts)


def assert_element_shape(expected_shapes: Any) -> Transformation:
    """Checks the shapes of a Dataset's elements when they are read."""

    def check(*element: Any) -> Any:
        whole = element if len(element) > 1 else element[0]
        flat = [
            tf.ensure_shape(t, s) for t, s in zip(tf.nest.flatten(whole), _shapes(whole, expected_shapes), strict=True)
        ]
        return tf.nest.pack_sequence_as(whole, flat)

    return lambda dataset: dataset.map(check)


def _shapes(whole: Any, expected: Any) -> list[Any]:
    """The shapes in the order of the tensors; a shape is a ``TensorShape`` or a list of sizes."""
    if isinstance(expected, dict):
        return list(expected.values())
    return [expected] if len(tf.nest.flatten(whole)) == 1 else list(expected)


def reduce_dataset(dataset: Any, reducer: Any) -> Any:
    """What a ``Reducer`` makes of all elements."""
    state = dataset.reduce(reducer.init_func(tf.constant(0, tf.int64)), reducer.reduce_func)
    return reducer.finalize_func(state)

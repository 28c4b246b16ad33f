"""What the host makes of the input before it crosses to the device: fewer bytes, in another shape than that of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .parts import batch, closed_and_open, floats, minimise, program, variable, whole

mean = tf.reduce_mean


def _flat(x: Any) -> Any:
    return tf.reshape(x, [-1, 4])


MADE: dict[str, Callable[[Any], Any]] = {
    "columns": lambda x: _flat(x)[:, :2],
    "constant": lambda x: tf.tensordot(x, tf.constant(floats(2, seed=9)[:4]), 1),
    "bytes": lambda x: tf.cast(tf.cast(_flat(x) * 10, tf.int8), tf.float32),
    "frames": lambda x: mean(tf.reshape(x, [-1, 2, 4]), 1),
    "turned": lambda x: tf.gather(mean(x, 1), tf.range(tf.shape(x)[0])[::-1]),
    "counted": lambda x: mean(x, 1) / tf.cast(tf.shape(x)[0], tf.float32),
    "centred": lambda x: mean(x, 1) - mean(x, [0, 1]),
}
"""What becomes of the only input, in front of any variable."""


@program(variants=closed_and_open(1, 2, 3, of=MADE, doubtful={"constant_1_open"}))
def made_of_input(rows: int, of: Any, **options: Any) -> Any:
    made = of(batch(rows, floats(6, 4), **options))
    return minimise(mean(tf.square(made * variable("w", int(made.shape[-1])) - np.float32(0.1))))


@program(variants={str(rows): {"rows": rows} for rows in (2, 3)}, doubtful=True)
def turned_by_number(rows: int) -> Any:
    """Python's number says how many rows are turned round."""
    x = batch(rows, floats(6, 4))
    return minimise(mean(tf.square(tf.gather(mean(x, 1), tf.range(rows)[::-1]) * variable("w", 4))))


@program(variants=closed_and_open(1, 2, 3))
def weights_times_ones(rows: int, **options: Any) -> Any:
    """A column of weights that ones make as wide as the features: TensorFlow's optimizer would take another output of the input."""
    x, weights = batch(rows, floats(3), whole(3, 1, seed=2).astype("f"), **options)
    return minimise(mean(x * variable("w", 3) * (weights * tf.ones([1, 3]))))

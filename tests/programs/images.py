"""Programs that part space among rows: convolutions with holes, whose blocks of places lie in front of the rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import adam, batch, floats, minimise, program, tf1, variable

mean, total = tf.reduce_mean, tf.reduce_sum

SIZES: dict[str, dict[str, Any]] = {
    "": {},
    "open": {"drop_remainder": False},
    "two_rows": {"rows": 2},
    "as_many_places": {"rows": 4},
    "one_row": {"rows": 1},
}


@program(variants=SIZES, rows=3)
def dilated_steps(rows: int, **options: Any) -> Any:
    """The steps of each row are two places apart for one layer, and three for the next one."""
    x, y = batch(rows, floats(9, 3), floats(seed=1), **options)
    h = tf.tanh(tf1.nn.convolution(x, variable("near", 2, 3, 2), "VALID", dilation_rate=[2]))
    h = tf.nn.relu(tf1.nn.convolution(h, variable("far", 2, 2, 2), "SAME", dilation_rate=[3]) + variable("bias", 2))
    return minimise(mean(tf.square(mean(h, [1, 2]) - y)), adam())


@program(variants=SIZES, rows=3)
def dilated_images(rows: int, **options: Any) -> Any:
    x, y = batch(rows, floats(8, 8, 2), floats(seed=1), **options)
    h = tf.nn.atrous_conv2d(x, variable("filter", 2, 2, 2, 3), 2, "SAME")
    return minimise(mean(tf.square(total(tf.tanh(h), [1, 2, 3]) - y)), adam())


@program(variants=SIZES, rows=3)
def blocks_of_images(rows: int, **options: Any) -> Any:
    """Each place of a block of each image goes through the layers by itself, and comes back; a border is put around, and cut."""
    x, y = batch(rows, floats(4, 4, 1), floats(seed=1), **options)
    apart = tf1.space_to_batch_nd(x, [2, 2], [[1, 1], [0, 2]])
    h = tf.tanh(tf.nn.conv2d(apart, variable("filter", 2, 2, 1, 2), 1, "SAME"))
    back = tf1.batch_to_space_nd(h, [2, 2], [[1, 1], [0, 2]])
    return minimise(mean(tf.square(total(back * variable("scale", 2), [1, 2, 3]) - y)) + mean(tf.square(h)))


@program(variants=SIZES, rows=3)
def blocks_alone(rows: int, **options: Any) -> Any:
    """The op of images alone, of blocks that are square."""
    x = batch(rows, floats(4, 4, 2), **options)
    return minimise(mean(tf.square(tf1.space_to_batch(x * variable("scale", 2), [[0, 0], [0, 0]], 2))))


@program(variants={"": {}, "two_rows": {"rows": 2}, "four_rows": {"rows": 4}}, rows=3)
def rows_as_places(rows: int) -> Any:
    """Four neighbouring rows of a list make up one square: no place of a block has rows of its own, and cores exchange them."""
    x = batch(rows, floats(8), floats(seed=1))[0]
    lists = tf.reshape(x * variable("scale", 8), [-1, 1, 1, 2])
    return minimise(mean(tf.square(tf.tanh(tf.cumsum(tf1.batch_to_space_nd(lists, [2, 2], [[0, 0], [0, 0]]), 1)))))

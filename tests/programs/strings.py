"""What the host makes of strings before the device sees numbers: rows in other layouts than those of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from .parts import COUNT, batch, column, floats, minimise, program, sgd, tf1, variable

mean, total = tf.reduce_mean, tf.reduce_sum
_WORDS = np.array([b"red", b"green", b"blue", b"deep sea", b""], object)


def words(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """A column of the data: words, five in all."""
    return _WORDS[np.random.default_rng(seed).integers(0, len(_WORDS), (COUNT, *shape))]


def looked_up(text: Any) -> Any:
    """A row of three numbers for each word."""
    return tf.nn.embedding_lookup(variable("table", 9, 3), tf.strings.to_hash_bucket_fast(text, 9))


@program()
def two_columns_looked_up_as_one(rows: int) -> Any:
    a, b, y = batch(rows, words(seed=1), words(seed=2), floats(seed=3))
    one, other = tf.split(looked_up(tf.concat([a, b], 0)), 2, axis=0)
    return minimise(mean(tf.square(total(one * other, 1) - y)))


@program()
def words_in_one_list(rows: int) -> Any:
    a, y = batch(rows, words(3, seed=1), floats(seed=3))
    h = tf.reshape(looked_up(tf.reshape(a, [-1])), [-1, 9])
    return minimise(mean(tf.square(column(h, 9) - y)))


@program(variants={"": {}, "as_rows": {"rows": 3}})
def words_time_first(rows: int) -> Any:
    a, y = batch(rows, words(3, seed=1), floats(seed=3))
    h = total(looked_up(tf.transpose(a)) * variable("weight", 3, 1, 1), 0)
    return minimise(mean(tf.square(column(h, 3) - y)))


@program(variants={"": {}, "as_rows": {"rows": 2}})
def fields_time_first(rows: int) -> Any:
    """Fields of lines of text, stacked in front of the rows."""
    lines = np.array([b"%d,%d,%d" % (i % 7, i % 5, i % 3) for i in range(COUNT)], object)
    one, other, y = tf1.decode_csv(batch(rows, lines), [[0.0], [0.0], [0.0]])
    return minimise(mean(tf.square(total(tf.stack([one, other], 0) * variable("weight", 2, 1), 0) - y)), sgd(0.01))


@program()
def size_of_words(rows: int) -> Any:
    """A sum over rows divided by the number of words, which the device never sees."""
    a, y = batch(rows, words(3, seed=1), floats(seed=3), drop_remainder=False)
    return minimise(total(tf.square(y * variable("k") - 0.3)) / tf.cast(tf.size(a), tf.float32))

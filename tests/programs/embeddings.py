"""Embeddings: gathered rows, pieces, gradients of indices and values, clipped and not."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from .parts import (
    COUNT,
    adam,
    batch,
    closed_and_open,
    column,
    dense,
    floats,
    minimise,
    piece,
    program,
    sgd,
    tf1,
    variable,
    whole,
)

mean = tf.reduce_mean


def global_norm(gradients: list[Any]) -> Any:
    return tf.clip_by_global_norm(gradients, 0.3)[0]


EMBEDDINGS: dict[str, dict[str, Any]] = {
    "": {},
    "adam": {"optimizer": adam},
    "clipped": {"clip": global_norm},
    "as_wide_as_layer": {"units": 3, "clip": global_norm},
    "as_wide_as_rows": {"rows": 3, "units": 3, "clip": global_norm},
    "vocabulary_as_rows": {"vocabulary": 4},
}


@program(variants=EMBEDDINGS)
def embedding(
    rows: int, vocabulary: int = 7, width: int = 3, units: int = 4, clip: Any = None, optimizer: Any = sgd
) -> Any:
    c, y = batch(rows, whole(vocabulary), floats(seed=1))
    h = dense(tf.nn.embedding_lookup(variable("embedding", vocabulary, width), c), width, units, "layer", tf.nn.silu)
    return minimise(mean(tf.square(column(h, units) - y)), optimizer(), clip=clip)


@program(variants={"": {}, "div": {"strategy": "div"}, "clipped": {"clip": global_norm}})
def partitioned_embedding(rows: int, strategy: str = "mod", clip: Any = None) -> Any:
    c, y = batch(rows, whole(8), floats(seed=1))
    table = tf1.get_variable("table", (8, 3), partitioner=tf1.fixed_size_partitioner(2), initializer=piece)
    h = tf1.nn.embedding_lookup(table, c, partition_strategy=strategy)
    return minimise(mean(tf.square(column(tf.tanh(h), 3) - y)), clip=clip)


@program()
def partitioned_layer(rows: int) -> Any:
    """A kernel in two pieces that are put together, under a clipped norm."""
    x, y = batch(rows, floats(4), floats(seed=1))

    kernel = tf1.get_variable("kernel", (4, 3), partitioner=tf1.fixed_size_partitioner(2), initializer=piece)
    h = tf.tanh(x @ tf.convert_to_tensor(kernel))
    return minimise(mean(tf.square(column(h, 3) - y)), clip=global_norm)


@program(variants={"": {}, "length_as_rows": {"length": 4}, "clipped": {"clip": global_norm}})
def bag_of_words(rows: int, length: int = 5, clip: Any = None) -> Any:
    c, y = batch(rows, whole(9, length), floats(seed=1))
    h = mean(tf.nn.embedding_lookup(variable("embedding", 9, 3), c), 1)
    return minimise(mean(tf.square(column(tf.tanh(h), 3) - y)), clip=clip)


@program(
    variants={"": {}, "ranged": {"ranged": True}, "clipped": {"clip": global_norm}, "length_as_rows": {"length": 4}}
)
def positions(rows: int, length: int = 5, ranged: bool = False, clip: Any = None) -> Any:
    """Embeddings of words and of places; those of places are looked up with constant indices."""
    c, y = batch(rows, whole(9, length), floats(seed=1))
    indices = tf.range(length) if ranged else tf.constant(list(range(length)))
    places = tf.nn.embedding_lookup(variable("places", 6, 3), indices)
    h = tf.tanh(tf.nn.embedding_lookup(variable("words", 9, 3), c) + places[None])
    return minimise(mean(tf.square(column(tf.reduce_sum(h, 1), 3) - y)), sgd(0.05), clip=clip)


@program()
def tied_embedding(rows: int) -> Any:
    """The table is looked up and is the last layer too: a gradient of rows and a dense one are added."""
    c, d = batch(rows, whole(7), whole(7, seed=1))
    table = variable("table", 7, 3)
    h = dense(tf.nn.embedding_lookup(table, c), 3, 3, "layer", tf.tanh)
    logits = tf.matmul(h, tf.convert_to_tensor(table), transpose_b=True)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=d, logits=logits)))


@program(variants={"": {}, "clipped": {"clip": global_norm}, "adam": {"optimizer": adam}})
def two_lookups(rows: int, clip: Any = None, optimizer: Any = sgd) -> Any:
    """Two columns share a table: their gradients are two lists of rows, put behind one another."""
    c, d, y = batch(rows, whole(7), whole(7, seed=1), floats(seed=2))
    table = variable("table", 7, 3)
    a, b = tf.nn.embedding_lookup(table, c), tf.nn.embedding_lookup(table, d)
    return minimise(mean(tf.square(tf.reduce_sum(tf.tanh(a) * b, 1) - y)), optimizer(), clip=clip)


@program()
def one_hot_embedding(rows: int) -> Any:
    c, y = batch(rows, whole(7), floats(seed=1))
    h = tf.tanh(tf.one_hot(c, 7) @ variable("table", 7, 3))
    return minimise(mean(tf.square(column(h, 3) - y)), clip=global_norm)


@program(variants={"": {}, "fixed": {"drawn": True}})
def sampled_softmax(rows: int, drawn: bool = False) -> Any:
    """With fixed samples where ``drawn`` is set, with labels alone else."""
    c, d = batch(rows, whole(9, kind=np.int64), whole(9, 1, seed=1, kind=np.int64))
    samples = tf.range(3, dtype=tf.int64) if drawn else tf.constant([1, 4, 8], tf.int64)
    values = samples, tf.fill([rows, 1], 0.2), tf.linspace(0.1, 0.4, 3)
    h = tf.nn.embedding_lookup(variable("embedding", 9, 3), c)
    loss = tf1.nn.sampled_softmax_loss(variable("weights", 9, 3), variable("bias", 9), d, h, 3, 9,
                                       sampled_values=values, remove_accidental_hits=False)  # fmt: skip
    return minimise(mean(loss))


@program()
def segments(rows: int) -> Any:
    """Rows are added up by a key of theirs, over the whole batch."""
    x, c, y = batch(rows, floats(4), whole(3, seed=2), floats(seed=1))
    h = dense(x, 4, 3, "layer", tf.tanh)
    sums = tf1.unsorted_segment_sum(h, c, 3)
    return minimise(mean(tf.square(column(tf.gather(sums, c), 3) - y)), sgd(0.05))


@program(variants={"": {}, "as_many_rows": {"rows": 3}, "open": {"drop_remainder": False, "rows": 3}})
def class_centres(rows: int, **options: Any) -> Any:
    """How far rows are from the sum of their class, and those sums themselves: of a core's rows there may be as many as classes."""
    x, c = batch(rows, floats(5), whole(3, seed=2), **options)
    h = x @ variable("layer", 5, 4)
    sums = tf1.unsorted_segment_sum(h, c, 3)
    return minimise(mean(tf.square(h - tf.gather(sums, c))) + mean(tf.square(sums)))


@program()
def matrix_factors(rows: int) -> Any:
    users, items, y = batch(rows, whole(6), whole(5, seed=1), floats(seed=2))
    u, v = (
        tf.nn.embedding_lookup(variable("users", 6, 4), users),
        tf.nn.embedding_lookup(variable("items", 5, 4), items),
    )
    bias = tf.gather(variable("bias", 6), users)
    error = tf.reduce_sum(u * v, 1) + bias - y
    return minimise(mean(tf.square(error) + 0.01 * tf.reduce_sum(u * u + v * v, 1)), adam())


@program()
def rows_by_number(rows: int) -> Any:
    """A table with a row for each example: the indices are data, each at most once in a batch."""
    keys, x, y = batch(rows, np.arange(COUNT, dtype=np.int32), floats(3), floats(seed=1))
    own = tf.gather(variable("own", COUNT, 2, scale=0.1), keys)
    return minimise(mean(tf.square(column(tf.tanh(tf.concat([x, own], 1)), 5) - y)))


@program(doubtful=True, variants={"": {}, "two_rows": {"rows": 2}, "one_row": {"rows": 1}})
def nodes_of_graphs(rows: int) -> Any:
    """Each row is a graph of three nodes, and its edges name nodes of all rows: a number of Python's says how many there are."""
    x, ends, y = batch(rows, floats(3, 3), whole(3, 5, seed=2), floats(seed=1))
    nodes = tf.reshape(ends + 3 * tf.range(rows)[:, None], [-1])
    told = tf.gather(tf.reshape(x, [-1, 3]) @ variable("k", 3, 3), nodes)
    sums = tf.math.unsorted_segment_sum(told, nodes, 3 * rows)
    return minimise(tf.reduce_mean(tf.square(tf.reduce_sum(tf.reshape(sums, [rows, -1]), 1) - y)))


@program(variants=closed_and_open(2, 3))
def against_three_words(rows: int, **options: Any) -> Any:
    """Each row against its own word and against three that are listed, which are three of any batch."""
    x, word = batch(rows, floats(3), whole(4, seed=9), **options)
    words = variable("words", 4, 4)
    found = tf.tensordot(x, variable("kernel", 3, 4), 1) + variable("bias", 4)
    own = tf.reduce_sum(found * tf.gather(words, word), 1)
    others = tf.matmul(found, tf.gather(words, tf.constant([0, 2, 3])), transpose_b=True)
    return minimise(mean(tf.nn.softplus(-own) + tf.reduce_sum(tf.nn.softplus(others), 1)))

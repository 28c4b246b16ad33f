"""Mixtures of experts: rows go to the experts that a gate chooses for them, and come back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, column, floats, minimise, program, tf1, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum


def mixed(x: Any, gates: Any, experts: int) -> Any:
    """What the experts make of the rows that have a gate, in the order of the experts, added up for each row."""
    places = tf.cast(tf.where(tf.transpose(gates) > 0), tf.int32)
    expert, row = tf.unstack(places, num=2, axis=1)
    loads = total(tf.cast(gates > 0, tf.int32), [0])
    parts = tf.split(tf.gather(x, row), loads, 0, num=experts)
    made = tf.concat([tf.tanh(part @ variable(f"e{k}", 5, 3)) for k, part in enumerate(parts)], 0)
    weights = tf.gather(tf.reshape(gates, [-1]), row * experts + expert)[:, None]
    return tf1.unsorted_segment_sum(made * weights, row, tf.shape(x)[0])


@program(variants={"five_rows": {"rows": 5}, "as_many": {}})
def rows_split_by_load(rows: int) -> Any:
    """How many rows each expert gets is known to all cores together."""
    x, y = batch(rows, floats(5), floats(seed=1))
    gates = tf.nn.relu(x @ variable("gate", 5, 4) + 0.2)
    return minimise(mean(tf.square(column(mixed(x, gates, 4), 3) - y)))


def spread(values: Any) -> Any:
    average, variance = tf.nn.moments(values, [0])
    return variance / (average * average + 1e-6)


@program(variants={"two_rows": {"rows": 2}, "three_rows": {"rows": 3}, "as_many": {}, "five_rows": {"rows": 5}})
def two_experts_for_each_row(rows: int) -> Any:
    """The gates are put at numbers of the rows, and both they and the loads are to be even over the batch."""
    x, y = batch(rows, floats(5), floats(seed=1))
    logits = x @ variable("gate", 5, 4)
    best, chosen = tf.nn.top_k(logits, 2)
    numbers = tf.tile(tf.range(tf.shape(x)[0])[:, None], [1, 2])
    places = tf.stack([tf.reshape(numbers, [-1]), tf.reshape(chosen, [-1])], 1)
    gates = tf.scatter_nd(places, tf.reshape(tf.nn.softmax(best), [-1]), tf.shape(logits))
    even = spread(total(gates, 0)) + spread(total(tf.cast(gates > 0, tf.float32), 0))
    return minimise(mean(tf.square(column(mixed(x, gates, 4), 3) - y)) + 0.1 * even)


@program(
    doubtful=True, variants={"": {}, "open": {"drop_remainder": False}, "two_rows": {"rows": 2}, "more": {"more": 1}}
)
def slots_of_experts(rows: int, more: int = 0, **options: Any) -> Any:
    """Each expert has as many slots as there are rows, and a row takes the next one: their number is a constant, as any is."""
    x, chosen = batch(rows, floats(5), whole(3, seed=2), **options)
    gates = tf.one_hot(chosen, 3)
    place = tf.cast(total((tf.cumsum(gates, 0) - gates) * gates, 1), tf.int32)
    slots = gates[:, :, None] * tf.one_hot(place, rows + more * rows // 4)[:, None, :]
    made = tf.tanh(tf.einsum("nes,nd,edf->esf", slots, x, variable("experts", 3, 5, 4)))
    return minimise(mean(tf.square(tf.einsum("nes,esf->nf", slots, made) - 1.0)))


@program(doubtful=True, variants={"": {}, "three_rows": {"rows": 3}})
def sums_of_runs(rows: int) -> Any:
    """Rows that follow one another are added up until a mark begins the next run: there are as many runs as rows, at most."""
    x, marks = batch(rows, floats(5), whole(2, seed=2))
    runs = tf.cumsum(marks, exclusive=True)
    return minimise(total(tf.square(tf.math.unsorted_segment_sum(x @ variable("k", 5, 4), runs, rows))) / 7.0)


@program(doubtful=True, variants={"": {}, "twice": {"share": 2}})
def rows_up_to_a_capacity(rows: int, share: int = 1) -> Any:
    """Each expert takes the first rows that chose it, up to a number of Python's, which is the rows or a multiple of them."""
    x, chosen = batch(rows, floats(5), whole(2, seed=2))
    gates = tf.one_hot(chosen, 2)
    taken = gates * tf.cast(tf.cumsum(gates, 0, exclusive=True) < float(share * rows), tf.float32)
    made = tf.einsum("ne,nd,edf->nf", taken, x, variable("experts", 2, 5, 3))
    return minimise(mean(tf.square(tf.tanh(made) - 1.0)))


@program(
    variants={
        "": {},
        "three_rows": {"rows": 3},
        "one_row": {"rows": 1},
        "two_rows": {"rows": 2, "doubtful": True},
        "closed": {"rows": 3, "drop_remainder": True},
    }
)
def experts_that_choose_rows(rows: int, drop_remainder: bool = False) -> Any:
    """Each expert takes half of the rows, and one row at least: of three rows that is one, of twelve it is six."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=drop_remainder)
    gates, count = tf.nn.softmax(x @ variable("gate", 5, 3)), tf.shape(x)[0]
    best, places = tf.nn.top_k(tf.transpose(gates), tf.maximum(count // 2, 1))
    slots = tf.one_hot(places, count)
    sent = tf.matmul(slots, tf.tile(x[None], [3, 1, 1]))
    made = tf.tanh(tf.matmul(sent, variable("experts", 3, 5, 4)))
    back = total(tf.matmul(slots * best[:, :, None], made, transpose_a=True), 0)
    return minimise(mean(tf.square(column(back, 4) - y)))

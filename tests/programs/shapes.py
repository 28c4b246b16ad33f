"""Rows that are put beside each other, taken apart, reshaped and counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .parts import batch, closed_and_open, column, dense, floats, minimise, program, tf1, variable, whole

mean = tf.reduce_mean


@program(variants={"": {}, "width_as_rows": {"width": 4}, "one_row": {"rows": 1}})
def siamese(rows: int, width: int = 3) -> Any:
    """Two inputs behind one another through one network, taken apart again."""
    a, b, y = batch(rows, floats(5), floats(5, seed=1), floats(seed=2))
    h = dense(tf.concat([a, b], 0), 5, width, "embed", tf.tanh)
    one, other = tf.split(h, 2)
    return minimise(mean(tf.square(tf.reduce_sum(one * other, 1) - y)))


@program()
def siamese_sliced(rows: int) -> Any:
    a, b, y = batch(rows, floats(5), floats(5, seed=1), floats(seed=2))
    h = dense(tf.concat([a, b], 0), 5, 3, "embed", tf.tanh)
    return minimise(mean(tf.square(tf.reduce_sum(h[:rows] * h[rows:], 1) - y)))


@program()
def siamese_stacked(rows: int) -> Any:
    a, b, y = batch(rows, floats(5), floats(5, seed=1), floats(seed=2))
    h = dense(tf.reshape(tf.stack([a, b], 1), [2 * rows, 5]), 5, 3, "embed", tf.tanh)
    one, other = tf.unstack(tf.reshape(h, [rows, 2, 3]), axis=1)
    return minimise(mean(tf.square(tf.reduce_sum(one * other, 1) - y)))


@program()
def siamese_joint_mean(rows: int) -> Any:
    """One mean over both halves."""
    a, b, y = batch(rows, floats(5), floats(5, seed=1), floats(seed=2))
    p = column(dense(tf.concat([a, b], 0), 5, 3, "embed", tf.tanh), 3)
    return minimise(mean(tf.square(p - tf.concat([y, -y], 0))))


@program()
def halves_of_batch(rows: int) -> Any:
    """The first half of the batch is compared with the second."""
    x = batch(rows, floats(5))
    h = dense(x, 5, 3, "embed", tf.tanh)
    one, other = tf.split(h, 2)
    return minimise(mean(tf.square(one - other - 0.3)))


@program(variants={
    "": {}, "time_as_rows": {"time": 4}, "width_as_rows": {"width": 4}, "all_as_rows": {"time": 4, "width": 4, "units": 4},
    "units_as_product": {"units": 12, "time": 3}, "one_row": {"rows": 1}, "ones": {"rows": 1, "time": 1, "width": 1, "units": 1},
})  # fmt: skip
def flattened_time(rows: int, time: int = 3, width: int = 2, units: int = 5) -> Any:
    """[rows, time, width] as a matrix and back."""
    x, y = batch(rows, floats(time, width), floats(time, seed=1))
    h = dense(tf.reshape(x, [-1, width]), width, units, "hidden", tf.tanh)
    made = tf.reshape(h @ variable("out", units, 1), [-1, time])
    return minimise(mean(tf.square(made - y)))


@program()
def flattened_time_by_rows(rows: int) -> Any:
    """The same with the static size written out on the way back."""
    x, y = batch(rows, floats(3, 2), floats(3, seed=1))
    h = tf.reshape(dense(tf.reshape(x, [rows * 3, 2]), 2, 4, "hidden", tf.tanh), [rows, 3, 4])
    return minimise(mean(tf.square(tf.reduce_sum(h, 2) - y)))


def _embedded(words: Any, lengths: Any) -> Any:
    found = tf.gather(variable("words", 4, 3), tf.reshape(tf.transpose(words), [-1]))
    return tf.reduce_sum(tf.reshape(found, [5, -1, 3]), [0, 2])


def _mean_of_steps(words: Any, lengths: Any) -> Any:
    shown = tf.transpose(tf.sequence_mask(lengths, 5, dtype=tf.float32))
    steps = tf.reshape(tf.one_hot(tf.transpose(words), 4), [-1, 4])
    found = tf.reshape(dense(steps, 4, 3, "steps", tf.tanh), [5, -1, 3]) * shown[:, :, None]
    return tf.reduce_sum(tf.reduce_sum(found, 0) / tf.reduce_sum(shown, 0)[:, None], 1)


def _picked_steps(words: Any, lengths: Any) -> Any:
    logits = tf.tensordot(tf.one_hot(tf.transpose(words), 4), variable("kernel", 4, 4), 1) + variable("bias", 4)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.transpose(words), logits=logits)
    return mean(tf.boolean_mask(losses, tf.transpose(tf.sequence_mask(lengths, 5))))


STEPS_APART = {"embedded": _embedded, "mean": _mean_of_steps, "picked": _picked_steps}


@program(variants=closed_and_open(1, 2, of=STEPS_APART, doubtful=("mean_1",)))
def steps_taken_apart(rows: int, of: Any, **options: Any) -> Any:
    """Steps of time one behind the other in one list, with the time in front, and taken apart by how many there are."""
    words, lengths, y = batch(rows, whole(4, 5, seed=9), 1 + whole(5, seed=2), floats(seed=4), **options)
    return minimise(mean(tf.square(of(words, lengths) - y)))


@program()
def time_first(rows: int) -> Any:
    x, y = batch(rows, floats(3, 2), floats(3, seed=1))
    h = dense(tf.reshape(tf.transpose(x, [1, 0, 2]), [3 * rows, 2]), 2, 4, "hidden", tf.tanh)
    made = tf.transpose(tf.reshape(column(h, 4), [3, rows]))
    return minimise(mean(tf.square(made - y)))


@program()
def time_first_open(rows: int) -> Any:
    x, y = batch(rows, floats(3, 2), floats(3, seed=1), drop_remainder=False)
    h = dense(tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 2]), 2, 4, "hidden", tf.tanh)
    made = tf.transpose(tf.reshape(column(h, 4), tf.stack([3, tf.shape(x)[0]])))
    return minimise(mean(tf.square(made - y)))


@program()
def regrouped_rows(rows: int) -> Any:
    """Neighbouring rows become one row of twice the width."""
    x = batch(rows, floats(3))
    pairs = tf.reshape(dense(x, 3, 2, "hidden", tf.tanh), [rows // 2, 4])
    return minimise(mean(tf.square(column(pairs, 4) - 0.5)))


@program()
def shuffled_rows(rows: int) -> Any:
    """Rows are mixed with those of the mirrored batch (mixup with a fixed permutation)."""
    x, y = batch(rows, floats(4), floats(seed=1))
    order = tf.range(rows)[::-1]
    x, y = 0.7 * x + 0.3 * tf.gather(x, order), 0.7 * y + 0.3 * tf.gather(y, order)
    return minimise(mean(tf.square(column(dense(x, 4, 3, "hidden", tf.tanh), 3) - y)))


@program()
def rolled_rows(rows: int) -> Any:
    x, y = batch(rows, floats(4), floats(seed=1))
    h = dense(x, 4, 3, "hidden", tf.tanh)
    return minimise(mean(tf.square(tf.reduce_sum(h * tf.roll(h, 1, 0), 1) - y)))


@program(variants={"": {}, "image_as_rows": {"side": 4, "channels": 4}})
def convolution(rows: int, side: int = 3, channels: int = 2) -> Any:
    x, c = batch(rows, floats(side, side, 1), whole(3))
    h = tf.tanh(
        tf.nn.bias_add(tf.nn.conv2d(x, variable("kernel", 2, 2, 1, channels), 1, "SAME"), variable("bias", channels))
    )
    h = tf.nn.max_pool2d(h, 2, 1, "VALID")
    width = (side - 1) ** 2 * channels
    logits = dense(tf.reshape(h, [-1, width]), width, 3, "logits")
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=logits)))


@program()
def per_row_matrices(rows: int) -> Any:
    """Each row has a matrix of its own, and a graph of its own."""
    x, adjacency, y = batch(rows, floats(3, 2), floats(3, 3, seed=1), floats(seed=2))
    h = tf.matmul(adjacency, tf.einsum("bnd,de->bne", x, variable("w", 2, 4)))
    return minimise(mean(tf.square(column(tf.reduce_sum(tf.tanh(h), 1), 4) - y)))


@program()
def attention_over_batch(rows: int) -> Any:
    """Rows attend to the other rows of the batch."""
    x, y = batch(rows, floats(4), floats(seed=1))
    q, k, v = (dense(x, 4, 3, name) for name in ("query", "key", "value"))
    weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True))
    return minimise(mean(tf.square(column(tf.tanh(weights @ v), 3) - y)))


@program()
def mixture_of_experts(rows: int) -> Any:
    """Gates per row, and a loss that balances the experts over the batch."""
    x, y = batch(rows, floats(4), floats(seed=1))
    gates = tf.nn.softmax(dense(x, 4, 3, "gate"))
    made = tf.stack([column(dense(x, 4, 2, f"expert_{k}", tf.tanh), 2, f"out_{k}") for k in range(3)], 1)
    balance = tf.reduce_sum(mean(gates, 0) * mean(tf.square(gates), 0)) * 3.0
    return minimise(mean(tf.square(tf.reduce_sum(gates * made, 1) - y)) + 0.5 * balance)


@program()
def autoencoder(rows: int) -> Any:
    """Noise of the reparametrisation is a feature; the divergence is a mean over the batch."""
    x, noise = batch(rows, floats(5), floats(2, seed=1))
    h = dense(x, 5, 4, "encode", tf.tanh)
    centre, spread = dense(h, 4, 2, "centre"), dense(h, 4, 2, "spread")
    z = centre + tf.exp(0.5 * spread) * noise
    made = dense(dense(z, 2, 4, "decode", tf.tanh), 4, 5, "out")
    divergence = -0.5 * tf.reduce_sum(1.0 + spread - tf.square(centre) - tf.exp(spread), 1)
    return minimise(
        mean(tf.reduce_sum(tf.square(made - x), 1) + 0.1 * divergence), tf1.train.MomentumOptimizer(0.02, 0.9)
    )


# --------------------------------------------------------------------------- time to batch


def time_to_batch(x: Any, rate: int, width: int) -> Any:
    """Every ``rate``-th step of each row becomes a row of its own, in batches one behind the other."""
    steps = tf.transpose(tf.reshape(x, [-1, rate, width]), [1, 0, 2])
    return tf.reshape(steps, [tf.shape(x)[0] * rate, -1, width])


def batch_to_time(x: Any, rate: int, width: int) -> Any:
    steps = tf.transpose(tf.reshape(x, [rate, -1, width]), [1, 0, 2])
    return tf.reshape(steps, [tf.shape(x)[0] // rate, -1, width])


WAVES = {"": {}, "two_rows": {"rows": 2}, "three_rows": {"rows": 3}, "one_row": {"rows": 1, "doubtful": True}}


@program(variants=WAVES)
def dilated_in_batches(rows: int) -> Any:
    """Each dilation has a batch of its own size, made of the rows of the one before it."""
    x, y = batch(rows, floats(12, 3), floats(seed=1))
    first = batch_to_time(tf.tanh(time_to_batch(x * variable("scale", 3), 2, 3)), 2, 3)
    second = batch_to_time(tf.tanh(time_to_batch(first[:, :8], 4, 3)), 4, 3)
    return minimise(mean(tf.square(mean(second, [1, 2]) - y)))


@program(variants=WAVES)
def steps_before_rows(rows: int) -> Any:
    """A row for each step of the whole batch, whose number is that of the rows at three of them."""
    x = batch(rows, floats(6))
    steps = tf.reshape(tf.transpose(x * variable("scale", 6)), [tf.shape(x)[0] * 2, -1])
    return minimise(mean(tf.square(steps[:, 1:] - steps[:, :-1])))


@program(variants=WAVES)
def steps_that_python_counts(rows: int) -> Any:
    """Half of the steps are as many as two or three batches have rows; rows that stay as they lie tell the two apart."""
    x = batch(rows, floats(12, 3))
    steps = tf.transpose(tf.reshape(x * variable("scale", 3), [-1, 2, 3]), [1, 0, 2])
    return minimise(mean(tf.square(tf.tanh(tf.cumsum(tf.reshape(steps, [-1, 6, 3]), 1)))))


@program(
    variants={
        "": {},
        "as_many_rows_as_dimensions": {"rows": 3},
        "one_row": {"rows": 1},
        "open": {"drop_remainder": False, "rows": 3},
    }
)
def step_put_in_front(rows: int, **options: Any) -> Any:
    """The gradient of a pad asks how many dimensions there are, and where the steps of the rows begin then."""
    x, y = batch(rows, floats(4, 3), floats(seed=1), **options)
    h = tf.pad(x * variable("scale", 3), [[0, 0], [1, 0], [0, 0]])
    return minimise(mean(tf.square(tf.reduce_sum(tf.tanh(tf.cumsum(h, 1)), [1, 2]) - y)))


_PADDED: dict[str, Callable[[Any, Any, int], Any]] = {
    "behind": lambda h, y, rows: tf.pad(h, [[0, rows]]) - 1.0,
    "in_front": lambda h, y, rows: tf.pad(h, [[rows, 0]]) - 1.0,
    "both": lambda h, y, rows: tf.pad(h, [[rows, 0]]) - tf.pad(y, [[0, rows]]),
    "columns": lambda h, y, rows: tf.pad(h[:, None], [[0, 0], [0, rows]]) - 1.0,
}


@program(
    doubtful=True,
    variants={f"{name}_of_{rows}": {"made": made, "rows": rows} for name, made in _PADDED.items() for rows in (3, 4)},
)
def padded_by_the_rows(rows: int, made: Callable[[Any, Any, int], Any]) -> Any:
    """A constant pads by as many places as there are rows, or by a number of the model."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(mean(tf.square(made(column(x, 5), y, rows))))


@program(variants={"": {}, "two_rows": {"rows": 2}, "in_front": {"front": True}})
def padded_to_two_batches(rows: int, front: bool = False) -> Any:
    """What a padded batch meets says that it was padded by the rows."""
    x, y = batch(rows, floats(5), floats(seed=1))
    padded = tf.pad(column(x, 5), [[rows, 0] if front else [0, rows]])
    return minimise(mean(tf.square(padded - tf.concat([y, tf.square(y)], 0))))


_GROUPS: dict[str, dict[str, Any]] = {
    "two": {"shape": [-1, 2]}, "two_of_six": {"shape": [-1, 2], "rows": 6}, "four_of_eight": {"shape": [-1, 4], "rows": 8},
    "two_in_front": {"shape": [2, -1]}, "four": {"shape": [-1, 4], "doubtful": True},
}  # fmt: skip


@program(variants={f"{name}_open": {"open_": True, **group} for name, group in _GROUPS.items()} | {
    name: {**group, "doubtful": name != "two_of_six"} for name, group in _GROUPS.items()})  # fmt: skip
def groups_of_rows(rows: int, shape: list[int], open_: bool = False) -> Any:
    """The worst of some rows: of an open batch the number of groups is what is left open; of a closed one the other may be half."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=not open_)
    return minimise(mean(tf.reduce_max(tf.reshape(tf.square(column(x, 5) - y), shape), 1)))


@program(variants={"": {}, "open": {"drop_remainder": False}})
def pairs_of_columns(rows: int, **options: Any) -> Any:
    """Two of four columns, of four rows: each row is taken apart by itself."""
    x, y = batch(rows, floats(4), floats(seed=1), **options)
    pairs = tf.reshape(tf.tanh(x * variable("scale", 4)), [-1, 2])
    return minimise(mean(tf.square(tf.reduce_sum(tf.reshape(tf.reduce_max(pairs, 1), [-1, 2]), 1) - y)))


@program(
    variants={
        "first": {"of": lambda n: [1, -1]},
        "halves": {"of": lambda n: [n // 2, n - n // 2]},
        "beside": {"of": lambda n: [n, 3], "beside": 3},
        "half": {"of": lambda n: [n // 2, n - n // 2], "rows": 3, "doubtful": True},
        "two": {"of": lambda n: [2, n - 2], "rows": 5, "doubtful": True},
        "half_of_one": {"of": lambda n: [n // 2, n - n // 2], "rows": 1, "doubtful": True},
    }
)
def parts_by_number(rows: int, of: Callable[[int], list[int]], beside: int = 0, drop_remainder: bool = True) -> Any:
    """Rows are split into parts of so many, which Python counts: the numbers need not tell which part grows with the batch."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=drop_remainder)
    e = tf.concat([column(x, 5) - y, tf.fill([beside], 0.3)], 0)
    one, other = tf.split(e, tf.constant(of(rows), name="parts"))
    return minimise(tf.reduce_sum(tf.square(one)) / 50 + tf.reduce_sum(tf.square(other)) / 70)


@program(variants={"": {}, "three_rows": {"rows": 3}})
def three_views_split(rows: int) -> Any:
    """Rows and two views of others go through a layer together: Python's numbers part them again."""
    x, y, u = batch(rows, floats(5), floats(seed=1), floats(2, 5, seed=2))
    made = tf.concat([x, tf.reshape(u, [-1, 5]), tf.reshape(u * 0.9, [-1, 5])], 0) @ variable("k", 5, 1)
    first, one, other = tf.split(tf.squeeze(made, 1), [rows, 2 * rows, 2 * rows], 0)
    return minimise(mean(tf.square(first - y)) + mean(tf.square(tf.tanh(one) - 2.0 * other)))

"""Losses in which rows of the batch meet, and losses whose scale must be kept."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, column, dense, floats, minimise, program, regression, sgd, squares, tf1, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum


@program(variants={"": {}, "one_row": {"rows": 1}})
def mean_square(rows: int) -> Any:
    return minimise(mean(squares(rows)))


@program()
def mean_square_open(rows: int) -> Any:
    return minimise(mean(squares(rows, drop_remainder=False)))


@program(named=False)
def no_summary(rows: int) -> Any:
    x, c = batch(rows, floats(4), whole(2))
    loss = tf1.losses.softmax_cross_entropy(tf.one_hot(c, 2), x @ variable("w", 4, 2))
    return loss, sgd().minimize(loss, global_step=tf1.train.get_or_create_global_step())


@program(variants={"": {}, "three_rows": {"rows": 3}, "one_row": {"rows": 1}})
def sum_of_means(rows: int) -> Any:
    x, y = batch(rows, floats(4), floats(seed=1))
    return minimise(total(mean(tf.square(x @ variable("w", 4, 3) - y[:, None]), 0)))


@program(rows=1)
def sigmoid_one_row(rows: int) -> Any:
    x, c = batch(rows, floats(4), whole(2))
    return minimise(tf1.losses.sigmoid_cross_entropy(tf.one_hot(c, 2), x @ variable("w", 4, 2)))


@program(
    variants={
        "rows_width_classes": {"rows": 4, "size": 4},
        "one": {"rows": 1, "size": 1},
        "two": {"rows": 2, "size": 2},
    }
)
def all_sizes_alike(rows: int, size: int = 4) -> Any:
    """As many rows as columns, units and classes."""
    x, c = batch(rows, floats(size), whole(size))
    logits = dense(dense(x, size, size, "hidden", tf.tanh), size, size, "logits")
    per_row = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=logits)
    return minimise(mean(per_row) + mean(tf.square(logits - x)))


@program()
def root_of_mean(rows: int) -> Any:
    return minimise(tf.sqrt(mean(squares(rows))))


@program()
def log_of_mean(rows: int) -> Any:
    return minimise(tf.math.log(mean(squares(rows)) + 0.1))


@program()
def product_of_means(rows: int) -> Any:
    p, y, h = regression(rows)
    return minimise(mean(tf.square(p - y)) * (1.0 + mean(tf.square(h))))


@program()
def variance_of_batch(rows: int) -> Any:
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(p - mean(p))) + mean(tf.square(p - y)))


@program()
def log_sum_exp_of_batch(rows: int) -> Any:
    return minimise(tf.reduce_logsumexp(squares(rows)))


@program()
def softmax_over_batch(rows: int) -> Any:
    p, y, _ = regression(rows)
    return minimise(total(tf.nn.softmax(p) * tf.square(p - y)) + 0.1 * mean(tf.square(p)))


@program()
def softmax_over_batch_of_columns(rows: int) -> Any:
    """Each column is a distribution over the rows."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 3, "hidden")
    pooled = tf.nn.softmax(h, axis=0) * h
    return minimise(mean(tf.square(total(pooled, 1) - y)))


@program()
def learnt_weights(rows: int) -> Any:
    """The divisor is a sum of weights that a variable makes."""
    p, y, h = regression(rows)
    weights = tf.nn.softplus(column(h, 3, "weight"))
    return minimise(total(weights * tf.square(p - y)) / total(weights))


@program()
def learnt_weights_mean(rows: int) -> Any:
    p, y, h = regression(rows)
    weights = tf.sigmoid(column(h, 3, "weight"))
    return minimise(mean(weights / mean(weights) * tf.square(p - y)))


@program()
def given_weights(rows: int) -> Any:
    """Weights of the input, as tf.losses divides by them."""
    x, y, w = batch(rows, floats(5), floats(seed=1), whole(3, seed=2, kind="float32"))
    p = column(dense(x, 5, 3, "hidden", tf.tanh), 3)
    kind = tf1.losses.Reduction.SUM_BY_NONZERO_WEIGHTS
    return minimise(tf1.losses.mean_squared_error(y, p, weights=w, reduction=kind))


@program()
def dice(rows: int) -> Any:
    x, c = batch(rows, floats(5), whole(2, seed=1, kind="float32"))
    p = tf.sigmoid(column(dense(x, 5, 3, "hidden", tf.tanh), 3))
    return minimise(1.0 - (2.0 * total(p * c) + 1.0) / (total(p) + total(c) + 1.0))


@program()
def maximum_of_batch(rows: int) -> Any:
    error = squares(rows)
    return minimise(tf.reduce_max(error) + mean(error))


@program()
def maximum_per_row(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(4, seed=1))
    return minimise(mean(tf.reduce_max(tf.square(dense(x, 5, 4, "out") - y), 1)))


@program()
def maximum_per_column(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(4, seed=1))
    return minimise(mean(tf.reduce_max(tf.square(dense(x, 5, 4, "out") - y), 0)))


@program()
def running_sum(rows: int) -> Any:
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(tf.cumsum(p - y))))


@program()
def numbered_rows(rows: int) -> Any:
    """Each row weighs as its number in the batch says."""
    weights = 1.0 + tf.cast(tf.range(rows), tf.float32)
    return minimise(total(weights * squares(rows)) / total(weights))


@program()
def neighbours(rows: int) -> Any:
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(p[1:] - p[:-1])) + mean(tf.square(p - y)))


@program()
def mirrored(rows: int) -> Any:
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(p + tf.reverse(p, [0]) - y)))


@program(
    variants={
        "": {"kind": "shape"},
        "literal": {"kind": "literal", "doubtful": True},
        "folded": {"kind": "folded", "doubtful": True},
    }
)
def first_half(rows: int, kind: str) -> Any:
    error = squares(rows)
    many = {"shape": tf.shape(error)[0] // 2, "literal": 2, "folded": rows // 2}[kind]
    return minimise(mean(error[:many]) + 0.1 * mean(error))


@program()
def mean_of_chosen_rows(rows: int) -> Any:
    p, y, h = regression(rows)
    return minimise(mean(tf.boolean_mask(tf.square(p - y), y > -0.5)) + 0.1 * mean(tf.square(h)))


@program()
def mean_and_sum(rows: int) -> Any:
    """One head is averaged over the rows, the other is summed."""
    x, y, z = batch(rows, floats(5), floats(seed=1), floats(seed=2))
    h = dense(x, 5, 3, "hidden", tf.tanh)
    return minimise(mean(tf.square(column(h, 3, "one") - y)) + 0.02 * total(tf.square(column(h, 3, "other") - z)))


@program()
def sum_of_squares(rows: int) -> Any:
    return minimise(total(squares(rows)), sgd(0.02))


@program()
def sum_over_rows_literal(rows: int) -> Any:
    return minimise(total(squares(rows)) / rows)


@program()
def sum_over_rows_shape(rows: int) -> Any:
    error = squares(rows)
    return minimise(total(error) / tf.cast(tf.shape(error)[0], tf.float32))


@program()
def sum_over_rows_open(rows: int) -> Any:
    error = squares(rows, drop_remainder=False)
    return minimise(total(error) / tf.cast(tf.shape(error)[0], tf.float32))


@program()
def lesser_of_means(rows: int) -> Any:
    p, y, h = regression(rows)
    return minimise(tf.minimum(mean(tf.square(p - y)), 3.0 * mean(tf.abs(p - y))) + 0.1 * mean(tf.square(h)))


@program()
def gradient_penalty(rows: int) -> Any:
    """The gradient of a sum over rows, inside the loss."""
    x, y = batch(rows, floats(5), floats(seed=1))
    p = column(dense(x, 5, 3, "hidden", tf.tanh), 3)
    slope = tf.gradients(p, x)[0]
    return minimise(mean(tf.square(p - y)) + 0.1 * mean(tf.square(tf.norm(slope, axis=1) - 1.0)))


@program()
def gradient_penalty_of_mean(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    p = column(dense(x, 5, 3, "hidden", tf.tanh), 3)
    slope = tf.gradients(mean(tf.square(p - y)), x)[0]
    return minimise(mean(tf.square(p - y)) + mean(total(tf.square(slope), 1)))


@program()
def l2_beside_mean(rows: int) -> Any:
    loss = mean(squares(rows))
    with tf.control_dependencies([loss]):
        decay = tf.add_n([tf.nn.l2_loss(tf.convert_to_tensor(v)) for v in tf1.trainable_variables()])
    return minimise(loss + 0.01 * decay)


@program()
def long_sum(rows: int) -> Any:
    """A loss of many added terms."""
    error, loss = squares(rows), tf.constant(0.0)
    for k in range(40):
        loss = loss + mean(error) * (0.5 + 0.01 * k) / 40
    return minimise(loss)


@program(
    variants={f"{kind}_of_{rows}": {"rows": rows, "of": kind} for kind in ("sums", "means") for rows in (3, 4)}
    | {"means_open": {"rows": 3, "of": "means", "drop_remainder": False}}
)
def chosen_of_three_losses(rows: int, of: str, drop_remainder: bool = True) -> Any:
    """Losses are put in one vector and some of them gathered: there are three of any batch, whatever the rows are."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=drop_remainder)
    h = dense(x, 5, 4, "h", tf.tanh)
    join = tf.reduce_sum if of == "sums" else tf.reduce_mean
    parts = [join(y[1:] * h[1:, 0]) if of == "sums" else join(h[:, 1]), join(h), join(tf.square(h))]
    return minimise(0.1 * join(tf.gather(tf.stack(parts), [0, 2])))

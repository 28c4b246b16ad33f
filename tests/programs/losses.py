"""Losses in which rows of the batch meet, and losses whose scale must be kept."""

from .parts import *

OF_ERRORS: dict[str, Callable[[Any, Any, int], Any]] = {
    "mean_square": lambda p, y, rows: mean(tf.square(p - y)),
    "log_sum_exp_of_batch": lambda p, y, rows: tf.reduce_logsumexp(tf.square(p - y)),
    "maximum_of_batch": lambda p, y, rows: (lambda e: tf.reduce_max(e) + mean(e))(tf.square(p - y)),
    "sum_over_rows_literal": lambda p, y, rows: total(tf.square(p - y)) / rows,
    "running_sum": lambda p, y, rows: mean(tf.square(tf.cumsum(p - y))),
    "neighbours": lambda p, y, rows: mean(tf.square(p[1:] - p[:-1])) + mean(tf.square(p - y)),
}
"""Of predictions, targets and the number of rows that Python knows."""


@program(cases=each(of=OF_ERRORS), alone=True)
def of_errors(rows, of):
    p, y, _ = regression(rows)
    return minimise(of(p, y, rows))


@program(floats(4), whole(2), named=False)
def no_summary(x, c):
    loss = tf1.losses.softmax_cross_entropy(tf.one_hot(c, 2), x @ variable("w", 4, 2))
    return loss, sgd().minimize(loss, global_step=tf1.train.get_or_create_global_step())


@program(floats(4), floats(seed=1))
def sum_of_means(x, y):
    return minimise(total(mean(tf.square(x @ variable("w", 4, 3) - y[:, None]), 0)))


@program(floats(5), floats(seed=1))
def softmax_over_batch_of_columns(x, y):
    h = dense(x, 5, 3, "hidden")
    pooled = tf.nn.softmax(h, axis=0) * h
    return minimise(mean(tf.square(total(pooled, 1) - y)))


@program()
def learnt_weights(rows):
    p, y, h = regression(rows)
    weights = tf.nn.softplus(column(h, 3, "weight"))
    return minimise(total(weights * tf.square(p - y)) / total(weights))


@program(floats(5), floats(seed=1), whole(3, seed=2, kind="float32"))
def given_weights(x, y, w):
    """Weights of the input, as tf.losses divides by them."""
    p = column(dense(x, 5, 3, "hidden", tf.tanh), 3)
    kind = tf1.losses.Reduction.SUM_BY_NONZERO_WEIGHTS
    return minimise(tf1.losses.mean_squared_error(y, p, weights=w, reduction=kind))


@program(floats(5), whole(2, seed=1, kind="float32"))
def dice(x, c):
    p = tf.sigmoid(column(dense(x, 5, 3, "hidden", tf.tanh), 3))
    return minimise(1.0 - (2.0 * total(p * c) + 1.0) / (total(p) + total(c) + 1.0))


@program(floats(5), floats(4, seed=1))
def maximum_per_column(x, y):
    return minimise(mean(tf.reduce_max(tf.square(dense(x, 5, 4, "out") - y), 0)))


@program(floats(5), floats(seed=1), floats(seed=2))
def mean_and_sum(x, y, z):
    h = dense(x, 5, 3, "hidden", tf.tanh)
    return minimise(mean(tf.square(column(h, 3, "one") - y)) + 0.02 * total(tf.square(column(h, 3, "other") - z)))


@program(floats(5), floats(seed=1))
def gradient_penalty(x, y):
    """The gradient of a sum over rows, inside the loss."""
    p = column(dense(x, 5, 3, "hidden", tf.tanh), 3)
    slope = tf.gradients(p, x)[0]
    return minimise(mean(tf.square(p - y)) + 0.1 * mean(tf.square(tf.norm(slope, axis=1) - 1.0)))


@program(floats(4), whole(4, seed=1))
def margin_at_the_label(x, y):
    """The logit of each label is made smaller before the softmax."""
    logits = tf.clip_by_value(tf.nn.l2_normalize(dense(x, 4, 4, "h"), 1), -0.95, 0.95)
    places = tf.stack([tf.range(tf.shape(logits)[0]), y], 1)
    harder = tf.cos(tf.acos(tf.gather_nd(logits, places)) + 0.3)
    logits = 5.0 * tf.tensor_scatter_nd_update(logits, places, harder)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)))


@program(floats(5), floats(seed=1))
def weighed_by_rank(x, y):
    ranks = tf.searchsorted(tf.sort(x[:, 0]), x[:, 0]) + 1
    return minimise(mean(tf.square(column(x, 5) - y) * tf.cast(ranks, tf.float32)))


@program(floats(5), floats(seed=1))
def sum_rounded_to_fewer_bits(x, y):
    """What is rounded is the sum over all rows, not each core's part."""
    squared = tf.square(column(x, 5) - y)
    return minimise(0.1 * tf.cast(tf.cast(tf.reduce_sum(squared), tf.bfloat16), tf.float32) + mean(squared))

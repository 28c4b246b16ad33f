"""Losses in which rows of the batch meet, and losses whose scale must be kept."""

from .parts import *


def chosen(p, y):
    return tf.boolean_mask(tf.square(p - y), y > 0)


def masked(p, y):
    mask = real(y > 0)
    return total(tf.square(p - y) * mask) / tf.maximum(total(mask), 1.0)


def real(value):
    return tf.cast(value, tf.float32)


def by_constant_weights(h, y, rows):
    """As ``sequence_loss`` with weights that are known when the model is traced."""
    weights = tf.constant(np.tile(np.float32([1, 0.5, 0.25]), (rows, 1)))
    return total(total(tf.square(h - y[:, None]) * weights, 0) / total(weights, 0))


OF_ERRORS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    # sums, means, and what the batch decides
    "mean_square": lambda p, y, h, rows: mean(tf.square(p - y)),
    "sum_over_rows_literal": lambda p, y, h, rows: total(tf.square(p - y)) / rows,
    "sum_over_rows": lambda p, y, h, rows: total(tf.square(p - y)) / real(tf.shape(y)[0]),
    "halved_means": lambda p, y, h, rows: 0.125 * mean(tf.square(p - y)) + mean(tf.square(p - y)) / 8.0,
    "sum": lambda p, y, h, rows: 0.1 * total(tf.square(p - y)) + 0.5 * tf.nn.l2_loss(h),
    "masked_and_mean": lambda p, y, h, rows: masked(p, y) + masked(p, y - 0.5) + mean(tf.square(p - y)),
    "constant_weights": lambda p, y, h, rows: by_constant_weights(h, y, rows),
    "sum_of_chosen_rows": lambda p, y, h, rows: 0.1 * total(chosen(p, y)) + mean(tf.square(p - y)),
    "mean_of_chosen_rows": lambda p, y, h, rows: total(chosen(p, y)) / real(tf.size(chosen(p, y)) + 1),
    "rows_by_a_mean": lambda p, y, h, rows: mean(tf.square(p - y) / tf.stop_gradient(mean(tf.square(p - y)) + 0.1)),
    "rows_by_a_mean_of_the_input": lambda p, y, h, rows: mean(tf.square(p - y) / (mean(tf.abs(y)) + 0.1)),
    "a_mean_beside_each_row": lambda p, y, h, rows: mean(tf.square(p - y) + 0.3 * mean(tf.abs(h))),
    "weights": lambda p, y, h, rows: total(tf.exp(y) * tf.square(p - y)) / total(tf.exp(y)),
    "decayed_sum": lambda p, y, h, rows: 0.02 * total(tf.square(p - y)) + 0.06 * tf.nn.l2_loss(tf.tanh(tf1.trainable_variables()[0])),
    # rows that meet
    "log_sum_exp_of_batch": lambda p, y, h, rows: tf.reduce_logsumexp(tf.square(p - y)),
    "maximum_of_batch": lambda p, y, h, rows: (lambda e: tf.reduce_max(e) + mean(e))(tf.square(p - y)),
    "running_sum": lambda p, y, h, rows: mean(tf.square(tf.cumsum(p - y))),
    "neighbours": lambda p, y, h, rows: mean(tf.square(p[1:] - p[:-1])) + mean(tf.square(p - y)),
    "kernel": lambda p, y, h, rows: mean(total(tf.square(h[:, None, :] - h[None, :, :]), 2)) + mean(tf.square(p - y)),
    "first_rows": lambda p, y, h, rows: mean(tf.square(p - y)[: tf.shape(p)[0] // 2]),
    "mirrored": lambda p, y, h, rows: mean(p * tf.reverse(p, [0])) + mean(p * p[::-1]),
    "picked": lambda p, y, h, rows: mean(p * tf.gather(p, tf.range(rows)[::-1])),
    "root": lambda p, y, h, rows: tf.sqrt(mean(tf.square(p - y))),
    "logarithm": lambda p, y, h, rows: tf.math.log(mean(tf.square(p - y))),
    "variance": lambda p, y, h, rows: mean(tf.square(p - mean(p))) + mean(tf.square(p - y)),
    "product_of_means": lambda p, y, h, rows: mean(tf.square(p - y)) * mean(tf.abs(p)),
    "lesser_of_means": lambda p, y, h, rows: tf.minimum(mean(tf.square(p - y)), mean(tf.abs(p))),
    "square_of_mean_hidden_values": lambda p, y, h, rows: mean(tf.square(p - y)) + mean(tf.square(mean(h, 0))),
    "balance": lambda p, y, h, rows: total(mean(tf.nn.softmax(h), 0) * mean(tf.sigmoid(h), 0)) + mean(tf.square(p - y)),
    "outer": lambda p, y, h, rows: 0.1 * tf.squeeze(tf.matmul((p - y)[:, None], (p - y)[:, None], transpose_a=True)),
    "penalty_of_a_mean": lambda p, y, h, rows: mean(tf.square(p - y)) + mean(
        tf.square(total(tf.square(tf.gradients(mean(tf.square(p - y)), h)[0]), 1) - 1.0)),
    "rows_by_their_number": lambda p, y, h, rows: mean(real(tf.range(tf.shape(p)[0])) * tf.square(p - y)),
    "picked_by_row": lambda p, y, h, rows: mean(
        tf.square(tf.gather_nd(h, tf.stack([tf.range(rows), tf.cast(y > 0, tf.int32)], 1)) - y) + tf.square(p)),
}  # fmt: skip
"""Of predictions, targets, hidden values and the number of rows that Python knows."""


@program(cases=each(of=OF_ERRORS), alone=True)
def of_errors(rows, of):
    return minimise(of(*regression(rows), rows))


@program(floats(4), whole(2), named=False)
def no_summary(x, c):
    loss = tf1.losses.softmax_cross_entropy(tf.one_hot(c, 2), x @ variable("w", 4, 2))
    return loss, sgd().minimize(loss, global_step=tf1.train.get_or_create_global_step())


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

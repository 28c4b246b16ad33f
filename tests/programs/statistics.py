"""Statistics of the batch inside the network: batch norm in its manners, whitening, banks of earlier rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import (
    adam,
    batch,
    closed_and_open,
    column,
    dense,
    floats,
    minimise,
    program,
    sgd,
    state,
    tf1,
    variable,
    whole,
)

mean, total = tf.reduce_mean, tf.reduce_sum


def moved(variable: Any, value: Any, momentum: float = 0.9) -> Any:
    """Moves an average towards a value, as layers do."""
    return tf1.assign_sub(variable, (tf.convert_to_tensor(variable) - value) * (1.0 - momentum))


def finish(loss: Any, updates: list[Any], optimizer: Any = None) -> Any:
    """The train op behind the updates of averages, as ``UPDATE_OPS`` are used."""
    with tf.control_dependencies(updates):
        return minimise(loss, optimizer)


def fused(x: Any, channels: int, name: str, updates: list[Any]) -> Any:
    with tf1.variable_scope(name):
        gamma, beta = variable("gamma", channels), variable("beta", channels, scale=0.1)
        averages = state("moving_mean", channels), state("moving_variance", channels, value=1.0)
        made, *statistics = tf1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-2, is_training=True)
    updates += [moved(v, value) for v, value in zip(averages, statistics, strict=True)]
    return made


def unfused(x: Any, channels: int, name: str, updates: list[Any], axes: tuple[int, ...] = (0,)) -> Any:
    with tf1.variable_scope(name):
        gamma, beta = variable("gamma", channels), variable("beta", channels, scale=0.1)
        averages = state("moving_mean", channels), state("moving_variance", channels, value=1.0)
        statistics = tf.nn.moments(x, axes)
    updates += [moved(v, value) for v, value in zip(averages, statistics, strict=True)]
    return tf.nn.batch_normalization(x, *statistics, beta, gamma, 1e-2)


@program(variants={"": {}, "adam": {"optimizer": adam}, "channels_as_rows": {"channels": 4}, "one_pixel": {"side": 1}})
def batch_norm_fused(rows: int, channels: int = 3, side: int = 2, optimizer: Any = sgd) -> Any:
    """Two convolutions with the fused op; moving variances with the whole batch's N/(N-1)."""
    x, y = batch(rows, floats(side, side, 2), floats(seed=1))
    updates: list[Any] = []
    h = tf.tanh(fused(tf.nn.conv2d(x, variable("a", 1, 1, 2, channels), 1, "SAME"), channels, "first", updates))
    h = tf.tanh(fused(tf.nn.conv2d(h, variable("b", 2, 2, channels, channels), 1, "SAME"), channels, "second", updates))
    return finish(mean(tf.square(column(mean(h, [1, 2]), channels) - y)), updates, optimizer())


@program(variants={"": {}, "adam": {"optimizer": adam}, "units_as_rows": {"units": 4}, "two_rows": {"rows": 2}})
def batch_norm_by_hand(rows: int, units: int = 3, optimizer: Any = sgd) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    updates: list[Any] = []
    h = tf.tanh(unfused(dense(x, 5, units, "one"), units, "first", updates))
    h = tf.tanh(unfused(dense(h, units, units, "two"), units, "second", updates))
    return finish(mean(tf.square(column(h, units) - y)), updates, optimizer())


@program()
def batch_norm_by_hand_images(rows: int) -> Any:
    x, y = batch(rows, floats(3, 2, 2), floats(seed=1))
    updates: list[Any] = []
    h = tf.nn.conv2d(x, variable("a", 2, 2, 2, 3), 1, "SAME")
    h = tf.tanh(unfused(h, 3, "norm", updates, (0, 1, 2)))
    return finish(mean(tf.square(column(mean(h, [1, 2]), 3) - y)), updates)


@program()
def batch_norm_open(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=False)
    updates: list[Any] = []
    h = tf.tanh(unfused(dense(x, 5, 3, "one"), 3, "first", updates))
    return finish(mean(tf.square(column(h, 3) - y)), updates)


@program()
def batch_norm_of_squares(rows: int) -> Any:
    """The variance as the mean of squares less the square of the mean."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 3, "one")
    centre, squares = mean(h, 0), mean(tf.square(h), 0)
    h = tf.tanh((h - centre) * tf1.rsqrt(squares - tf.square(centre) + 1e-2))
    return minimise(mean(tf.square(column(h, 3) - y)))


@program()
def batch_renorm(rows: int) -> Any:
    """The moving averages correct the batch's own, without a gradient through the correction."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 3, "one")
    centre, variance = tf.nn.moments(h, [0])
    averages = state("moving_mean", 3), state("moving_deviation", 3, value=1.0)
    deviation = tf.sqrt(variance + 1e-2)
    r = tf.stop_gradient(tf.clip_by_value(deviation / averages[1], 0.3, 3.0))
    d = tf.stop_gradient(tf.clip_by_value((centre - averages[0]) / averages[1], -2.0, 2.0))
    h = tf.tanh((h - centre) / deviation * r + d)
    with tf.control_dependencies([h]):
        updates = [moved(averages[0], centre), moved(averages[1], deviation)]
    return finish(mean(tf.square(column(h, 3) - y)), updates)


@program()
def layer_norm(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 4, "one")
    centre, variance = tf.nn.moments(h, [1], keepdims=True)
    h = tf.nn.batch_normalization(h, centre, variance, variable("beta", 4), variable("gamma", 4), 1e-2)
    return minimise(mean(tf.square(column(h, 4) - y)))


@program()
def group_norm(rows: int) -> Any:
    x, y = batch(rows, floats(2, 2, 2), floats(seed=1))
    h = tf.nn.conv2d(x, variable("a", 1, 1, 2, 4), 1, "SAME")
    grouped = tf.reshape(h, [rows, 2, 2, 2, 2])
    centre, variance = tf.nn.moments(grouped, [1, 2, 4], keepdims=True)
    h = tf.tanh(tf.reshape((grouped - centre) * tf1.rsqrt(variance + 1e-2), [rows, 2, 2, 4]) * variable("gamma", 4))
    return minimise(mean(tf.square(column(mean(h, [1, 2]), 4) - y)))


@program(variants={"": {}, "units_as_rows": {"units": 4, "doubtful": True}})
def covariance_of_batch(rows: int, units: int = 3) -> Any:
    """Columns are to be uncorrelated over the batch."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, units, "one", tf.tanh)
    centred = h - mean(h, 0, keepdims=True)
    covariance = tf.matmul(centred, centred, transpose_a=True) / rows
    return minimise(mean(tf.square(column(h, units) - y)) + mean(tf.square(covariance - tf.eye(units))))


@program()
def covariance_of_batch_open(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=False)
    h = dense(x, 5, 3, "one", tf.tanh)
    centred = h - mean(h, 0, keepdims=True)
    covariance = tf.matmul(centred, centred, transpose_a=True) / tf.cast(tf.shape(h)[0], tf.float32)
    return minimise(mean(tf.square(column(h, 3) - y)) + mean(tf.square(covariance - tf.eye(3))))


@program()
def whitening(rows: int) -> Any:
    """Rows are whitened by the Cholesky factor of their covariance."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 2, "one")
    centred = h - mean(h, 0, keepdims=True)
    covariance = tf.matmul(centred, centred, transpose_a=True) / rows + 0.5 * tf.eye(2)
    factor = tf.linalg.cholesky(covariance)
    white = tf.transpose(tf.linalg.triangular_solve(factor, tf.transpose(centred)))
    return minimise(mean(tf.square(column(tf.tanh(white), 2) - y)))


@program()
def minibatch_deviation(rows: int) -> Any:
    """The deviation over the batch stands beside each row as one more column, as in progressive GANs."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 3, "one", tf.tanh)
    deviation = mean(tf.sqrt(mean(tf.square(h - mean(h, 0)), 0) + 1e-2))
    beside = tf.tile(tf.reshape(deviation, [1, 1]), [rows, 1])
    return minimise(mean(tf.square(column(tf.concat([h, beside], 1), 4) - y)))


@program()
def centred_targets(rows: int) -> Any:
    """Statistics of the input alone."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(mean(tf.square(column(dense(x, 5, 3, "one", tf.tanh), 3) - (y - mean(y)))))


@program(variants={"": {}, "as_many_as_rows": {"length": 4}})
def memory_bank(rows: int, length: int = 12) -> Any:
    """The last batches' rows are kept in a queue and compared with the new ones."""
    x = batch(rows, floats(5))
    bank = variable("bank", length, 3, trainable=False)
    z = tf.nn.l2_normalize(dense(x, 5, 3, "embed"), 1)
    kept = tf.identity(tf.convert_to_tensor(bank) + 0.0)
    loss = mean(tf.reduce_logsumexp(tf.matmul(z, kept, transpose_b=True), 1)) + 0.1 * mean(tf.square(z[:, 0]))
    loss, train = minimise(loss)
    with tf.control_dependencies([train, loss]):
        newest = tf.concat([tf.stop_gradient(z), kept], 0)[:length]
        return loss, tf1.assign(bank, newest).op


@program()
def centre_loss(rows: int) -> Any:
    """Class centres are moved by the rows of their class, by hand."""
    x, y = batch(rows, floats(5), floats(seed=1))
    c = tf.cast(y > 0, tf.int32)
    z = dense(x, 5, 3, "embed", tf.tanh)
    centres = variable("centres", 2, 3, trainable=False)
    apart = tf.gather(centres, c) - z
    loss, train = minimise(mean(tf.square(column(z, 3) - y)) + 0.1 * mean(tf.square(apart)))
    with tf.control_dependencies([train, loss, apart]):
        return loss, tf1.scatter_sub(centres, c, 0.1 * tf.stop_gradient(apart)).op


def normalised(x: Any, units: int) -> Any:
    """A layer norm by the fused batch norm, as Keras makes it: each row, and each place of it, is a channel."""
    shape = tf.shape(x)
    channels = tf.reduce_prod(shape[:-1])
    made = tf.reshape(x, [1, channels, units, 1])
    ones, zeros = tf.ones([channels]), tf.zeros([channels])
    made = tf1.nn.fused_batch_norm(made, ones, zeros, epsilon=1e-3, data_format="NCHW")[0]
    return tf.reshape(made, shape) * (1.0 + variable("gamma", units)) + variable("beta", units)


@program(variants={"": {}, "open": {"drop": False}, "of_two_rows": {"rows": 2}, "units_as_rows": {"units": 4},
                   "open_of_one_row": {"drop": False, "rows": 1}})  # fmt: skip
def layer_norm_fused(rows: int, units: int = 3, drop: bool = True) -> Any:
    """Rows lie along the channels of a batch norm, beside the steps of each."""
    x, y = batch(rows, floats(5, units), floats(seed=9), drop_remainder=drop)
    h = tf.tensordot(normalised(x, units), variable("out", units, 2), 1)
    return minimise(mean(tf.square(tf.reduce_sum(h * [1.0, -0.5], [1, 2]) - y)), adam())


@program(variants={"": {}, "open": {"drop": False}, "of_two_rows": {"rows": 2}})
def layer_norm_fused_of_columns(rows: int, drop: bool = True) -> Any:
    """Each row is a channel of a batch norm."""
    x, y = batch(rows, floats(7), floats(seed=9), drop_remainder=drop)
    return minimise(mean(tf.square(column(normalised(x @ variable("k", 7, 6), 6), 6) - y)), adam())


WINDOWS = {
    "": {},
    "valid": {"padding": "VALID"},
    "two_steps": {"stride": 2},
    "dilated": {"dilations": 2},
    "of_one_row": {"rows": 1},
    "open": {"padding": "VALID", "drop_remainder": False},
    "pooled": {"pool": tf.nn.avg_pool2d},
    "largest": {"pool": tf.nn.max_pool2d},
}


@program(variants={name: {"rows": 4, **kwargs} for name, kwargs in WINDOWS.items()})
def batch_as_a_series(
    rows: int,
    padding: str = "SAME",
    stride: int = 1,
    dilations: int = 1,
    pool: Any = None,
    drop_remainder: bool = True,
) -> Any:
    """The rows of a batch are the steps of one series: each window spans several of them."""
    x, y = batch(rows, floats(3), floats(seed=1), drop_remainder=drop_remainder)
    kernel = variable("c", 3, 3, 2)
    if dilations > 1:  # of which not all processors have a kernel for the gradient
        kernel = tf.constant(floats(3, 2)[:3])
    h = tf.nn.conv1d(x[None], kernel, stride, padding, dilations=dilations)
    if pool is not None:
        h = tf.squeeze(pool(h[:, None], [1, 2], [1, 1], "VALID"), 1)
    return minimise(mean(tf.square(h - 0.5)) + mean(tf.square(column(x, 3) - y)))


POOLS = {"mean": tf.nn.avg_pool1d, "largest": tf.nn.max_pool1d}
SPANS: dict[str, dict[str, Any]] = {
    "": {},
    "two_steps": {"step": 2},
    "open": {"drop_remainder": False},
    "two_rows": {"rows": 2},
}


@program(
    variants={f"{of}{span and '_'}{span}": {"of": of, **options} for of in POOLS for span, options in SPANS.items()},
    rows=3,
)
def pooled_rows(rows: int, of: str, step: int = 1, drop_remainder: bool = True) -> Any:
    """The means, or the largest, of neighbouring rows that a layer made: the gradient of each window goes to rows of other cores."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=drop_remainder)
    return minimise(mean(tf.square(POOLS[of](column(x, 5)[None, :, None] - y[None, :, None], 3, step, "SAME"))))


@program(rows=3, doubtful=True)
def as_many_columns_as_rows_less_one(rows: int) -> Any:
    """The covariance of an open batch is divided by one row less than there are, which is below as many columns as rows."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=False)
    h = x @ variable("k", 5, 3)
    h -= tf.reduce_mean(h, 0)
    covariance = tf.matmul(h, h, transpose_a=True) / (tf.cast(tf.shape(x)[0], tf.float32) - 1.0)
    return minimise(tf.reduce_sum(tf.square(covariance)) / 3 + tf.reduce_mean(tf.square(tf.reduce_sum(h, 1) - y)))


@program(variants={"": {}, "two_rows": {"rows": 2}, "as_many_features": {"features": 3}}, rows=3, doubtful=True)
def largest_eigenvalue_over_rows(rows: int, features: int = 2) -> Any:
    """Of what all rows make together, divided by Python's number of rows, which may be that of the features."""
    h = tf.tanh(batch(rows, floats(5)) @ variable("w", 5, features))
    products, v = tf.matmul(h, h, transpose_a=True), tf.ones([features, 1])
    for _ in range(2):
        v = tf.nn.l2_normalize(products @ v, 0)
    return minimise(tf.reduce_sum(v * (products @ v)) / rows)


@program(variants=closed_and_open(2, 3))
def counts_in_each_row(rows: int, **options: Any) -> Any:
    """How often each word is in a row weighs the layer."""
    x, words = batch(rows, floats(5), whole(4, 6, seed=2), **options)
    counts = tf.math.bincount(words, minlength=4, maxlength=4, axis=-1, dtype=tf.float32)
    return minimise(mean(tf.square(column(dense(x, 5, 3, "h"), 3) - column(counts, 4, "weights"))))


@program(variants=closed_and_open(3, 4))
def sums_of_three_classes(rows: int, **options: Any) -> Any:
    """There are as many classes as rows, and a gradient has as many rows with one column as the sums of the classes."""
    x, classes = batch(rows, floats(5), whole(3, seed=2), **options)
    sums = tf.math.unsorted_segment_sum(dense(x, 5, 3, "h"), classes, 3)
    return minimise(mean(tf.square(total(sums, 1))), sgd(0.001))

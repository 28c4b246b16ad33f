"""Statistics of the batch inside the network: batch norm in its manners, whitening, windows over rows, decompositions."""

from .parts import *


def finish(loss, updates: list[Any], optimizer=None):
    """The train op behind the updates of averages, as ``UPDATE_OPS`` are used."""
    with tf.control_dependencies(updates):
        return minimise(loss, optimizer)


def moved(variable, value, momentum=0.9):
    """Moves an average towards a value, as layers do."""
    return tf1.assign_sub(variable, (tf.convert_to_tensor(variable) - value) * (1.0 - momentum))


def fused(x, channels, name, updates: list[Any]):
    with tf1.variable_scope(name):
        gamma, beta = variable("gamma", channels), variable("beta", channels, scale=0.1)
        averages = state("moving_mean", channels), state("moving_variance", channels, value=1.0)
        made, *statistics = tf1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-2, is_training=True)
    updates += [moved(v, value) for v, value in zip(averages, statistics, strict=True)]
    return made


@program(cases={"": {}, "adam": {"optimizer": adam}, "one_pixel": {"side": 1}})
def batch_norm_fused(rows, channels=3, side=2, optimizer=sgd):
    """Two convolutions with the fused op; moving variances with the whole batch's N/(N-1)."""
    x, y = batch(rows, floats(side, side, 2), floats(seed=1))
    updates: list[Any] = []
    h = tf.tanh(fused(tf.nn.conv2d(x, variable("a", 1, 1, 2, channels), 1, "SAME"), channels, "first", updates))
    h = tf.tanh(fused(tf.nn.conv2d(h, variable("b", 2, 2, channels, channels), 1, "SAME"), channels, "second", updates))
    return finish(mean(tf.square(column(mean(h, [1, 2]), channels) - y)), updates, optimizer())


def unfused(x, channels, name, updates: list[Any], axes: tuple[int, ...] = (0,)):
    with tf1.variable_scope(name):
        gamma, beta = variable("gamma", channels), variable("beta", channels, scale=0.1)
        averages = state("moving_mean", channels), state("moving_variance", channels, value=1.0)
        statistics = tf.nn.moments(x, axes)
    updates += [moved(v, value) for v, value in zip(averages, statistics, strict=True)]
    return tf.nn.batch_normalization(x, *statistics, beta, gamma, 1e-2)


@program(floats(5), floats(seed=1), cases={"": {}, "adam": {"optimizer": adam}})
def batch_norm_by_hand(x, y, units=3, optimizer=sgd):
    updates: list[Any] = []
    h = tf.tanh(unfused(dense(x, 5, units, "one"), units, "first", updates))
    h = tf.tanh(unfused(dense(h, units, units, "two"), units, "second", updates))
    return finish(mean(tf.square(column(h, units) - y)), updates, optimizer())


@program(floats(5), floats(seed=1))
def batch_renorm(x, y):
    """The moving averages correct the batch's own, without a gradient through the correction."""
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


@program(floats(5), floats(seed=1))
def layer_norm(x, y):
    h = dense(x, 5, 4, "one")
    centre, variance = tf.nn.moments(h, [1], keepdims=True)
    h = tf.nn.batch_normalization(h, centre, variance, variable("beta", 4), variable("gamma", 4), 1e-2)
    return minimise(mean(tf.square(column(h, 4) - y)))


@program(floats(5), floats(seed=1))
def whitening(x, y, rows):
    """Rows are whitened by the Cholesky factor of their covariance."""
    h = dense(x, 5, 2, "one")
    centred = h - mean(h, 0, keepdims=True)
    covariance = tf.matmul(centred, centred, transpose_a=True) / rows + 0.5 * tf.eye(2)
    factor = tf.linalg.cholesky(covariance)
    white = tf.transpose(tf.linalg.triangular_solve(factor, tf.transpose(centred)))
    return minimise(mean(tf.square(column(tf.tanh(white), 2) - y)))


@program(floats(5), floats(seed=1))
def minibatch_deviation(x, y, rows):
    """The deviation over the batch stands beside each row as one more column, as in progressive GANs."""
    h = dense(x, 5, 3, "one", tf.tanh)
    deviation = mean(tf.sqrt(mean(tf.square(h - mean(h, 0)), 0) + 1e-2))
    beside = tf.tile(tf.reshape(deviation, [1, 1]), [rows, 1])
    return minimise(mean(tf.square(column(tf.concat([h, beside], 1), 4) - y)))


@program(floats(5), floats(seed=3), resource=True)
def singular_values(x, y):
    """The nuclear norm of a batch: it has as many singular values as rows or columns, whichever are fewer.

    Kernels of these programs have two singular values beside zero: the activation makes more, and without them no gradient is
    defined.
    """
    values = tf.linalg.svd(dense(x, 5, 4, "h", lambda h: tf.sin(3.0 * h)), compute_uv=False)
    return minimise(mean(tf.square(y - column(x, 5))) - mean(values))

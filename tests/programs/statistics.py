"""Statistics of the batch inside the network: batch norm in its manners, whitening, windows over rows, decompositions."""

from .parts import *


def finish(loss: Any, updates: list[Any], optimizer: Any = None) -> Any:
    """The train op behind the updates of averages, as ``UPDATE_OPS`` are used."""
    with tf.control_dependencies(updates):
        return minimise(loss, optimizer)


def moved(variable: Any, value: Any, momentum: float = 0.9) -> Any:
    """Moves an average towards a value, as layers do."""
    return tf1.assign_sub(variable, (tf.convert_to_tensor(variable) - value) * (1.0 - momentum))


def fused(x: Any, channels: int, name: str, updates: list[Any]) -> Any:
    with tf1.variable_scope(name):
        gamma, beta = variable("gamma", channels), variable("beta", channels, scale=0.1)
        averages = state("moving_mean", channels), state("moving_variance", channels, value=1.0)
        made, *statistics = tf1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-2, is_training=True)
    updates += [moved(v, value) for v, value in zip(averages, statistics, strict=True)]
    return made


@program({"": {}, "adam": {"optimizer": adam}, "one_pixel": {"side": 1}})
def batch_norm_fused(rows: int, channels: int = 3, side: int = 2, optimizer: Any = sgd) -> Any:
    """Two convolutions with the fused op; moving variances with the whole batch's N/(N-1)."""
    x, y = batch(rows, floats(side, side, 2), floats(seed=1))
    updates: list[Any] = []
    h = tf.tanh(fused(tf.nn.conv2d(x, variable("a", 1, 1, 2, channels), 1, "SAME"), channels, "first", updates))
    h = tf.tanh(fused(tf.nn.conv2d(h, variable("b", 2, 2, channels, channels), 1, "SAME"), channels, "second", updates))
    return finish(mean(tf.square(column(mean(h, [1, 2]), channels) - y)), updates, optimizer())


def unfused(x: Any, channels: int, name: str, updates: list[Any], axes: tuple[int, ...] = (0,)) -> Any:
    with tf1.variable_scope(name):
        gamma, beta = variable("gamma", channels), variable("beta", channels, scale=0.1)
        averages = state("moving_mean", channels), state("moving_variance", channels, value=1.0)
        statistics = tf.nn.moments(x, axes)
    updates += [moved(v, value) for v, value in zip(averages, statistics, strict=True)]
    return tf.nn.batch_normalization(x, *statistics, beta, gamma, 1e-2)


@program({"": {}, "adam": {"optimizer": adam}})
def batch_norm_by_hand(rows: int, units: int = 3, optimizer: Any = sgd) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    updates: list[Any] = []
    h = tf.tanh(unfused(dense(x, 5, units, "one"), units, "first", updates))
    h = tf.tanh(unfused(dense(h, units, units, "two"), units, "second", updates))
    return finish(mean(tf.square(column(h, units) - y)), updates, optimizer())


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
def covariance_of_batch(rows: int, units: int = 3) -> Any:
    """Columns are to be uncorrelated over the batch."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, units, "one", tf.tanh)
    centred = h - mean(h, 0, keepdims=True)
    covariance = tf.matmul(centred, centred, transpose_a=True) / rows
    return minimise(mean(tf.square(column(h, units) - y)) + mean(tf.square(covariance - tf.eye(units))))


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


@program({"": {}, "valid": {"padding": "VALID"}, "two_steps": {"stride": 2}, "largest": {"pool": tf.nn.max_pool2d}})
def batch_as_a_series(rows: int, padding: str = "SAME", stride: int = 1, pool: Any = None) -> Any:
    """The rows of a batch are the steps of one series: each window spans several of them."""
    x, y = batch(rows, floats(3), floats(seed=1))
    kernel = variable("c", 3, 3, 2)
    h = tf.nn.conv1d(x[None], kernel, stride, padding)
    if pool is not None:
        h = tf.squeeze(pool(h[:, None], [1, 2], [1, 1], "VALID"), 1)
    return minimise(mean(tf.square(h - 0.5)) + mean(tf.square(column(x, 3) - y)))


@program(resource=True)
def singular_values(rows: int) -> Any:
    """The nuclear norm of a batch: it has as many singular values as rows or columns, whichever are fewer.

    Kernels of these programs have two singular values beside zero: the activation makes more, and without them no gradient is
    defined.
    """
    x, y = batch(rows, floats(5), floats(seed=3))
    values = tf.linalg.svd(dense(x, 5, 4, "h", lambda h: tf.sin(3.0 * h)), compute_uv=False)
    return minimise(mean(tf.square(y - column(x, 5))) - mean(values))


@program(batches="2 8")
def orthonormal_columns(rows: int) -> Any:
    """The gradient of a QR decomposition of the rows."""
    x, y = batch(rows, floats(4), floats(seed=3))
    columns, factors = tf.linalg.qr(dense(x, 4, 4, "h", tf.tanh))
    return minimise(10 * mean(tf.square(columns[:, 0]) * y) + mean(tf.square(factors)))

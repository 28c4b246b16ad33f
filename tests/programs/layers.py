"""Layers that random programs are made of: each takes a matrix with a row per example and gives one of its own shape."""

from .parts import *
from .statistics import fused, unfused


@dataclass(frozen=True)
class Context:
    """Columns of the matrix, steps of what has time, rows of the batch, targets, updates to be done."""

    units: int
    time: int
    rows: int
    targets: Any
    updates: list[Any]


def count(x):
    return tf.shape(x)[0]


def tiled_pairs(p, y):
    """The difference of each number to each target, in a list."""
    rows = length(p)
    return tf.reshape(tf.tile(p[:, None], [1, rows]), [-1]) - tf.tile(y, [rows])


def repeated_pairs(p, y):
    rows = length(p)
    return tf.repeat(p, rows) - tf.tile(y, [rows])


def pairs_of_two(p, y):
    """A boolean mask off the diagonal of [rows, rows]."""
    return tf.boolean_mask(tf.tanh(p[:, None] - y[None]), tf.eye(length(p)) < 0.5)


def correlation(h, units):
    centred = h - mean(h, 0, keepdims=True)
    covariance = tf.matmul(centred, centred, transpose_a=True) / tf.cast(count(h), tf.float32)
    return mean(tf.square(covariance - 0.3 * tf.eye(units)))


def triplets(h, classes):
    apart = total(tf.square(h[:, None, :] - h[None, :, :]), 2)
    same = tf.cast(tf.equal(classes[:, None], classes[None, :]), tf.float32)
    mask = same[:, :, None] * (1.0 - same)[:, None, :]
    each = tf.nn.softplus(apart[:, :, None] - apart[:, None, :] + 0.5)
    return total(each * mask) / (total(mask) + 1e-3) + 0.1 * mean(tf.square(h))


def timed(h, c: Context):
    """[rows, time, units] of [rows, units]."""
    return h[:, None, :] * (1.0 + variable("times", c.time, c.units))


def loop_max(h, c: Context):
    return tf.while_loop(
        lambda k, v: tf.logical_and(k < 4, tf.reduce_max(tf.abs(v)) > 0.3),
        lambda k, v: (k + 1, 0.7 * v),
        [tf.constant(0), h],
    )[1]


def loop_mean(h, c: Context):
    w = variable("w", c.units, c.units)
    again = tf.while_loop(
        lambda k, v: tf.logical_and(k < 3, mean(tf.square(v)) > 0.05),
        lambda k, v: (k + 1, 0.8 * tf.tanh(v @ w)), [tf.constant(0), h],
    )[1]  # fmt: skip
    return h + again


def loop_fixed(h, c: Context):
    w = variable("w", c.units, c.units)
    return tf.while_loop(lambda k, v: k < 3, lambda k, v: (k + 1, tf.tanh(v @ w)), [tf.constant(0), h])[1]


def scan(h, c: Context):
    w = variable("w", c.units, c.units)
    steps = tf.transpose(timed(h, c), [1, 0, 2])
    return tf1.scan(lambda a, v: tf.tanh(v + a @ w), steps, initializer=tf.zeros_like(h))[-1]


def map_rows(h, c: Context):
    w = variable("w", c.units, c.units)
    made = tf1.map_fn(lambda row: tf.squeeze(tf.tanh(row[None] @ w), 0), h)
    made.set_shape(h.shape)
    return made


def branch_of_batch(h, c: Context):
    w = variable("w", c.units, c.units)
    return tf1.cond(mean(c.targets) > 0.0, lambda: h + tf.tanh(h @ w), lambda: h - 0.5 * tf.tanh(h @ w))


def attention(h, c: Context):
    x = tf.reshape(timed(h, c), [-1, c.units])
    q, k, v = (tf.reshape(dense(x, c.units, c.units, name), [-1, c.time, c.units]) for name in ("q", "k", "v"))
    return mean(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ v, 1)


def attention_of_rows(h, c: Context):
    q, k, v = (dense(h, c.units, c.units, name) for name in ("q", "k", "v"))
    return h + tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ v


def images(h, c: Context):
    x = tf.reshape(dense(h, c.units, 4 * c.units, "spread"), [-1, 2, 2, c.units])
    x = tf.nn.conv2d(x, variable("filter", 2, 2, c.units, c.units), 1, "SAME")
    return mean(tf.tanh(x), [1, 2])


def fused_norm(h, c: Context):
    x = tf.reshape(h, [-1, 1, 1, c.units]) * (1.0 + variable("pixels", 1, 2, 1, 1))
    return tf.tanh(mean(fused(x, c.units, "norm", c.updates), [1, 2]) + h)


def row_norm(h, c: Context):
    centre, variance = tf.nn.moments(h, [1], keepdims=True)
    return h + tf.nn.batch_normalization(h, centre, variance, None, variable("gamma", c.units), 0.1)


def shared(h, c: Context):
    """Rows and their negatives behind one another through one layer."""
    one, other = tf.split(dense(tf.concat([h, -h], 0), c.units, c.units, "shared", tf.nn.softplus), 2)
    return one * other


def regrouped(h, c: Context):
    """Neighbouring rows share a layer; where the rows are odd, nothing is done."""
    if c.rows % 2:
        return h
    wide = dense(tf.reshape(h, [-1, 2 * c.units]), 2 * c.units, 2 * c.units, "wide", tf.tanh)
    return tf.reshape(wide, [-1, c.units])


def best_rows(h, c: Context):
    """The best row of the batch is added to each."""
    _, best = tf.nn.top_k(tf.stop_gradient(total(tf.square(h), 1)), k=1)
    return h + tf.gather(h, best) * variable("scale", c.units)


def clustered(h, c: Context):
    keys = tf.cast(c.targets > 0, tf.int32)
    sums = tf1.unsorted_segment_sum(h, keys, 2)
    return h + 0.2 * tf.gather(sums, keys)


def dilated(h, c: Context):
    """A dilated convolution, which TensorFlow computes by SpaceToBatchND."""
    steps = tf.concat([timed(h, c), h[:, None] * variable("dilated", c.time, c.units)], 1)
    return mean(
        tf.tanh(tf1.nn.convolution(steps, variable("holes", 2, c.units, c.units), "SAME", dilation_rate=[2])), 1
    )


LAYERS: dict[str, Callable[[Any, Context], Any]] = {
    "none": lambda h, c: h,
    "dense": lambda h, c: dense(h, c.units, c.units, "dense", tf.tanh),
    "residual": lambda h, c: h + dense(h, c.units, c.units, "dense", tf.nn.softplus),
    "attention": attention,
    "attention_of_rows": attention_of_rows,
    "images": images,
    "fused_norm": fused_norm,
    "unfused_norm": lambda h, c: unfused(h, c.units, "norm", c.updates),
    "row_norm": row_norm,
    "softmax_of_rows": lambda h, c: h + tf.nn.softmax(h, 0) * h,
    "running_sum": lambda h, c: tf.tanh(tf.cumsum(h, 0)),
    "loop_max": loop_max,
    "loop_mean": loop_mean,
    "loop_fixed": loop_fixed,
    "scan": scan,
    "map_rows": map_rows,
    "branch_of_batch": branch_of_batch,
    "shared": shared,
    "mirrored": lambda h, c: h + 0.5 * tf.reverse(h, [0]),
    "regrouped": regrouped,
    "gate_of_mean": lambda h, c: h * tf.sigmoid(mean(h, 0, keepdims=True) @ variable("w", c.units, c.units)),
    "best_rows": best_rows,
    "clustered": clustered,
    "dilated": dilated,
}

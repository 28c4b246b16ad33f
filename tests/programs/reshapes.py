"""Rows that are put beside each other, taken apart, reshaped, padded and counted; frames and spectra of signals."""

from .parts import *


@program()
def siamese(rows: int, width: int = 3) -> Any:
    """Two inputs behind one another through one network, taken apart again."""
    a, b, y = batch(rows, floats(5), floats(5, seed=1), floats(seed=2))
    h = dense(tf.concat([a, b], 0), 5, width, "embed", tf.tanh)
    one, other = tf.split(h, 2)
    return minimise(mean(tf.square(tf.reduce_sum(one * other, 1) - y)))


@program()
def halves_of_batch(rows: int) -> Any:
    """The first half of the batch is compared with the second."""
    x = batch(rows, floats(5))
    h = dense(x, 5, 3, "embed", tf.tanh)
    one, other = tf.split(h, 2)
    return minimise(mean(tf.square(one - other - 0.3)))


@program({"": {}, "ones": {"time": 1, "width": 1, "units": 1}})
def flattened_time(rows: int, time: int = 3, width: int = 2, units: int = 5) -> Any:
    """[rows, time, width] as a matrix and back."""
    x, y = batch(rows, floats(time, width), floats(time, seed=1))
    h = dense(tf.reshape(x, [-1, width]), width, units, "hidden", tf.tanh)
    made = tf.reshape(h @ variable("out", units, 1), [-1, time])
    return minimise(mean(tf.square(made - y)))


@program()
def time_first(rows: int) -> Any:
    x, y = batch(rows, floats(3, 2), floats(3, seed=1))
    h = dense(tf.reshape(tf.transpose(x, [1, 0, 2]), [3 * rows, 2]), 2, 4, "hidden", tf.tanh)
    made = tf.transpose(tf.reshape(column(h, 4), [3, rows]))
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
def per_row_matrices(rows: int) -> Any:
    """Each row has a matrix of its own, and a graph of its own."""
    x, adjacency, y = batch(rows, floats(3, 2), floats(3, 3, seed=1), floats(seed=2))
    h = tf.matmul(adjacency, tf.einsum("bnd,de->bne", x, variable("w", 2, 4)))
    return minimise(mean(tf.square(column(tf.reduce_sum(tf.tanh(h), 1), 4) - y)))


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


@program(
    {
        "first": {"of": lambda n: [1, -1]},
        "halves": {"of": lambda n: [n // 2, n - n // 2]},
        "beside": {"of": lambda n: [n, 3], "beside": 3},
        "two": {"of": lambda n: [2, n - 2]},
    }
)
def parts_by_number(rows: int, of: Callable[[int], list[int]], beside: int = 0) -> Any:
    """tf.split by a constant vector of sizes that Python computed from the rows."""
    x, y = batch(rows, floats(5), floats(seed=1))
    e = tf.concat([column(x, 5) - y, tf.fill([beside], 0.3)], 0)
    one, other = tf.split(e, tf.constant(of(rows), name="parts"))
    return minimise(tf.reduce_sum(tf.square(one)) / 50 + tf.reduce_sum(tf.square(other)) / 70)


def views(rows: int, count: int) -> Any:
    """So many views of each row, one behind the other in one list."""
    parts = batch(rows, *[floats(5, seed=seed) for seed in range(count)])
    return tf.concat(parts, 0) * variable("scale", 5)


@program()
def views_interleaved(rows: int) -> Any:
    """Rows of both views take turns for a layer, and are put back."""
    turned = tf.transpose(tf.reshape(views(rows, 2), [-1, 2, 5]), [1, 0, 2])
    h = dense(tf.reshape(turned, [-1, 5]), 5, 3, "h")
    back = tf.reshape(tf.transpose(tf.reshape(h, [2, -1, 3]), [1, 0, 2]), [-1, 3])
    return minimise(mean(tf.square(back)))


@program()
def filters_of_rows(rows: int) -> Any:
    """Each row's image is filtered by what the row says: rows are the channels of one image."""
    x, k, y = batch(rows, floats(5, 5), floats(3, 3, seed=3), floats(5, 5, seed=1))
    filters = tf.transpose(k * variable("kernel", 3, 3), [1, 2, 0])[..., None]
    made = tf.nn.depthwise_conv2d(tf.transpose(x, [1, 2, 0])[None], filters, [1, 1, 1, 1], "SAME")
    return minimise(mean(tf.square(tf.transpose(made[0], [2, 0, 1]) - y)))


@program()
def signs_of_rows(rows: int) -> Any:
    """Codes of zeros and ones: the gradient of a sign is zero."""
    x = batch(rows, floats(5))
    h = dense(x, 5, 4, "h")
    return minimise(mean(tf.square(h - tf.sign(h))) + mean(tf.square(column(x, 5, "other"))))


@program()
def cosines(rows: int) -> Any:
    """The cosine transform multiplies the rows by a complex constant."""
    x, y = batch(rows, floats(8), floats(seed=3))
    return minimise(mean(tf.square(tf.signal.dct(x * variable("scale", 8)) - y[:, None])))


@program()
def frames_behind_a_variable(rows: int) -> Any:
    """tf.signal.frame of a trained signal: its gradient is an overlap-add."""
    x = batch(rows, floats(32))
    return minimise(mean(tf.square(tf.signal.frame(x * variable("scale", 32), 8, 4) * variable("window", 8) - 0.1)))


@program()
def frames_put_together(rows: int) -> Any:
    """Frames that overlap are added up to a signal."""
    x, y = batch(rows, floats(6, 8), floats(seed=3))
    made = tf.signal.overlap_and_add(x * variable("scale", 8), 4)
    return minimise(mean(tf.square(made - y[:, None])))


@program()
def spectra_and_back(rows: int) -> Any:
    """A signal is made of its spectra again."""
    x, y = batch(rows, floats(32), floats(seed=3))
    spectrum = tf.signal.stft(x * variable("scale", 32), 8, 4)
    made = tf.signal.inverse_stft(spectrum, 8, 4)[..., :24]
    return minimise(mean(tf.square(made - y[:, None])))

"""Rows that are put beside each other, taken apart, reshaped, padded and counted; frames and spectra of signals."""

from .parts import *


@program(floats(5), floats(5, seed=1), floats(seed=2))
def siamese(a, b, y, width=3):
    """Two inputs behind one another through one network, taken apart again."""
    h = dense(tf.concat([a, b], 0), 5, width, "embed", tf.tanh)
    one, other = tf.split(h, 2)
    return minimise(mean(tf.square(tf.reduce_sum(one * other, 1) - y)))


@program(floats(5))
def halves_of_batch(x):
    """The first half of the batch is compared with the second."""
    h = dense(x, 5, 3, "embed", tf.tanh)
    one, other = tf.split(h, 2)
    return minimise(mean(tf.square(one - other - 0.3)))


@program(cases={"": {}, "ones": {"time": 1, "width": 1, "units": 1}})
def flattened_time(rows, time=3, width=2, units=5):
    """[rows, time, width] as a matrix and back."""
    x, y = batch(rows, floats(time, width), floats(time, seed=1))
    h = dense(tf.reshape(x, [-1, width]), width, units, "hidden", tf.tanh)
    made = tf.reshape(h @ variable("out", units, 1), [-1, time])
    return minimise(mean(tf.square(made - y)))


@program(floats(3, 2), floats(3, seed=1))
def time_first(x, y, rows):
    h = dense(tf.reshape(tf.transpose(x, [1, 0, 2]), [3 * rows, 2]), 2, 4, "hidden", tf.tanh)
    made = tf.transpose(tf.reshape(column(h, 4), [3, rows]))
    return minimise(mean(tf.square(made - y)))


@program(floats(3))
def regrouped_rows(x, rows):
    """Neighbouring rows become one row of twice the width."""
    pairs = tf.reshape(dense(x, 3, 2, "hidden", tf.tanh), [rows // 2, 4])
    return minimise(mean(tf.square(column(pairs, 4) - 0.5)))


@program(floats(4), floats(seed=1))
def shuffled_rows(x, y, rows):
    """Rows are mixed with those of the mirrored batch (mixup with a fixed permutation)."""
    order = tf.range(rows)[::-1]
    x, y = 0.7 * x + 0.3 * tf.gather(x, order), 0.7 * y + 0.3 * tf.gather(y, order)
    return minimise(mean(tf.square(column(dense(x, 4, 3, "hidden", tf.tanh), 3) - y)))


@program(floats(3, 2), floats(3, 3, seed=1), floats(seed=2))
def per_row_matrices(x, adjacency, y):
    """Each row has a matrix of its own, and a graph of its own."""
    h = tf.matmul(adjacency, tf.einsum("bnd,de->bne", x, variable("w", 2, 4)))
    return minimise(mean(tf.square(column(tf.reduce_sum(tf.tanh(h), 1), 4) - y)))


@program(floats(5), floats(2, seed=1))
def autoencoder(x, noise):
    """Noise of the reparametrisation is a feature; the divergence is a mean over the batch."""
    h = dense(x, 5, 4, "encode", tf.tanh)
    centre, spread = dense(h, 4, 2, "centre"), dense(h, 4, 2, "spread")
    z = centre + tf.exp(0.5 * spread) * noise
    made = dense(dense(z, 2, 4, "decode", tf.tanh), 4, 5, "out")
    divergence = -0.5 * tf.reduce_sum(1.0 + spread - tf.square(centre) - tf.exp(spread), 1)
    return minimise(
        mean(tf.reduce_sum(tf.square(made - x), 1) + 0.1 * divergence), tf1.train.MomentumOptimizer(0.02, 0.9)
    )


@program(floats(8), floats(seed=3))
def cosines(x, y):
    """The cosine transform multiplies the rows by a complex constant."""
    return minimise(mean(tf.square(tf.signal.dct(x * variable("scale", 8)) - y[:, None])))


@program(floats(6, 8), floats(seed=3))
def frames_put_together(x, y):
    """Frames that overlap are added up to a signal."""
    made = tf.signal.overlap_and_add(x * variable("scale", 8), 4)
    return minimise(mean(tf.square(made - y[:, None])))


@program(floats(32), floats(seed=3))
def spectra_and_back(x, y):
    """A signal is made of its spectra again."""
    spectrum = tf.signal.stft(x * variable("scale", 32), 8, 4)
    made = tf.signal.inverse_stft(spectrum, 8, 4)[..., :24]
    return minimise(mean(tf.square(made - y[:, None])))

"""Rows that are put beside each other, taken apart, reshaped, padded and counted; frames and spectra of signals."""

from .parts import *


@program(floats(5))
def halves_of_batch(x):
    """The first half of the batch is compared with the second."""
    h = dense(x, 5, 3, "embed", tf.tanh)
    one, other = tf.split(h, 2)
    return minimise(mean(tf.square(one - other - 0.3)))


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


@program(floats(8), floats(seed=3))
def cosines(x, y):
    """The cosine transform multiplies the rows by a complex constant."""
    return minimise(mean(tf.square(tf.signal.dct(x * variable("scale", 8)) - y[:, None])))


@program(floats(32), floats(seed=3))
def spectra_and_back(x, y):
    """A signal is made of its spectra again."""
    spectrum = tf.signal.stft(x * variable("scale", 32), 8, 4)
    made = tf.signal.inverse_stft(spectrum, 8, 4)[..., :24]
    return minimise(mean(tf.square(made - y[:, None])))

"""Programs of signals: frames, spectra, cosine transforms, whose shapes are taken apart and put together in the graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, dense, floats, minimise, program, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum

ROWS: dict[str, dict[str, Any]] = {
    "": {},
    "open": {"drop_remainder": False},
    "two_rows": {"rows": 2},
    "two_open": {"rows": 2, "drop_remainder": False},
    "one_row": {"rows": 1, "doubtful": True},
    "one_open": {"rows": 1, "drop_remainder": False},
}
UNMET = {name: {**sizes, "doubtful": "drop_remainder" not in sizes} for name, sizes in ROWS.items()}
"""Of a closed batch the rows that frames are taken of are a number, which meets no other rows."""


@program(variants=ROWS, rows=3)
def cosines(rows: int, **options: Any) -> Any:
    """The cosine transform multiplies the rows by a complex constant."""
    x, y = batch(rows, floats(8), floats(seed=3), **options)
    return minimise(mean(tf.square(tf.signal.dct(x * variable("scale", 8)) - y[:, None])))


@program(variants=ROWS, rows=3)
def cepstra(rows: int, **options: Any) -> Any:
    """The first coefficients of a logarithmic spectrum, over time."""
    x, y = batch(rows, floats(4, 8), floats(seed=3), **options)
    found = tf.signal.mfccs_from_log_mel_spectrograms(x * variable("scale", 8))[..., :5]
    return minimise(mean(tf.square(mean(found, [1, 2]) - y)))


@program(variants=UNMET, rows=3)
def frames(rows: int, **options: Any) -> Any:
    """Frames of a signal that overlap, of which the loss is a mean: nothing else has rows."""
    x = batch(rows, floats(32), **options)
    return minimise(mean(tf.square(tf.signal.frame(x, 8, 4) * variable("window", 8) - 0.1)))


@program(variants=UNMET, rows=3)
def frames_behind_a_variable(rows: int, **options: Any) -> Any:
    """The gradient adds up what frames that overlap have in common, and puts it where the frames were cut out."""
    x = batch(rows, floats(32), **options)
    return minimise(mean(tf.square(tf.signal.frame(x * variable("scale", 32), 8, 4) * variable("window", 8) - 0.1)))


@program(variants=ROWS, rows=3)
def frames_with_labels(rows: int, **options: Any) -> Any:
    x, y = batch(rows, floats(32), floats(seed=3), **options)
    cut = tf.signal.frame(x * variable("scale", 32), 8, 4)
    return minimise(mean(tf.square(total(cut * variable("window", 8), [1, 2]) - y)))


@program(variants=UNMET, rows=3)
def spectra(rows: int, **options: Any) -> Any:
    x = batch(rows, floats(32), **options)
    return minimise(mean(tf.abs(tf.signal.stft(x * variable("scale", 32), 16, 8)) + 0.01))


@program(variants=ROWS, rows=3)
def spectra_with_labels(rows: int, **options: Any) -> Any:
    """A class for each signal, by its mean spectrum."""
    x, labels = batch(rows, floats(32), whole(3, seed=3), **options)
    spectrum = mean(tf.abs(tf.signal.stft(x * variable("scale", 32), 16, 8)), 1)
    logits = dense(spectrum, 9, 3, "classes")
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)))


@program(variants=UNMET, rows=3)
def frames_of_channels(rows: int, **options: Any) -> Any:
    """The frames are cut along a dimension in the middle: sizes stand in front of its size and behind it."""
    x = batch(rows, floats(16, 3), **options)
    return minimise(mean(tf.square(tf.signal.frame(x * variable("scale", 3), 4, 2, axis=1) - 0.1)))


@program(variants=ROWS, rows=3)
def frames_put_together(rows: int, **options: Any) -> Any:
    """Frames that overlap are added up to a signal: each row is parted into as many parts as a core has rows."""
    x, y = batch(rows, floats(6, 8), floats(seed=3), **options)
    made = tf.signal.overlap_and_add(x * variable("scale", 8), 4)
    return minimise(mean(tf.square(made - y[:, None])))


@program(variants=ROWS, rows=3)
def spectra_and_back(rows: int, **options: Any) -> Any:
    """A signal is made of its spectra again."""
    x, y = batch(rows, floats(32), floats(seed=3), **options)
    spectrum = tf.signal.stft(x * variable("scale", 32), 8, 4)
    made = tf.signal.inverse_stft(spectrum, 8, 4)[..., :24]
    return minimise(mean(tf.square(made - y[:, None])))


@program(variants=ROWS, rows=3)
def places_in_a_grid(rows: int, **options: Any) -> Any:
    """The place of the largest number of each row, as a row and a column of a grid."""
    x, y = batch(rows, floats(6), floats(seed=3), **options)
    places = tf.unravel_index(tf.argmax(x, 1), tf.constant([2, 3], tf.int64))
    moved = tf.transpose(tf.cast(places, tf.float32)) * variable("scale", 2)
    return minimise(mean(tf.square(moved - 0.1)) + mean(tf.square(y * variable("other"))))


@program(variants={name: sizes for name, sizes in ROWS.items() if name != "one_row"}, rows=3)
def spaced_rows(rows: int, **options: Any) -> Any:
    """Numbers at even distances, one for each row."""
    x = batch(rows, floats(), **options)
    count = tf.shape(x)[0] if "drop_remainder" in options else rows
    return minimise(mean(tf.square(tf.raw_ops.LinSpace(start=0.0, stop=1.0, num=count) * variable("scale") - x)))

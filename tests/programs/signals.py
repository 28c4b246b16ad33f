"""Programs of signals: frames, spectra, cosine transforms, whose shapes are taken apart and put together in the graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, floats, minimise, program, variable

mean, total = tf.reduce_mean, tf.reduce_sum

ROWS: dict[str, dict[str, Any]] = {
    "": {},
    "open": {"drop_remainder": False},
    "two_rows": {"rows": 2},
    "two_open": {"rows": 2, "drop_remainder": False},
    "one_row": {"rows": 1},
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

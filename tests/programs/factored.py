"""Programs that take the matrix of the rows apart: it is wider than high of a core's rows, and higher than wide of all."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, column, dense, floats, minimise, program, variable

mean = tf.reduce_mean

ROWS: dict[str, dict[str, Any]] = {
    "": {},
    "open": {"drop_remainder": False},
    "two_rows": {"rows": 2},
    "two_open": {"rows": 2, "drop_remainder": False},
    "one_row": {"rows": 1},
    "one_open": {"rows": 1, "drop_remainder": False},
}


@program(variants=ROWS, rows=3, resource=True)
def singular_values(rows: int, **options: Any) -> Any:
    """The nuclear norm of a batch: it has as many singular values as rows or columns, whichever are fewer.

    Kernels of these programs have two singular values beside zero: the activation makes more, and without them no gradient is
    defined.
    """
    x, y = batch(rows, floats(5), floats(seed=3), **options)
    values = tf.linalg.svd(dense(x, 5, 4, "h", lambda h: tf.sin(3.0 * h)), compute_uv=False)
    return minimise(mean(tf.square(y - column(x, 5))) - mean(values))


@program(variants=ROWS, rows=3, resource=True)
def singular_values_of_each(rows: int, **options: Any) -> Any:
    """Each row is a matrix."""
    x, y = batch(rows, floats(4, 3), floats(seed=3), **options)
    values = tf.linalg.svd(x * variable("scale", 3), compute_uv=False)
    return minimise(mean(tf.square(mean(values, 1) - y)))


@program(rows=5)
def singular_vectors(rows: int) -> Any:
    """The gradient is that of a matrix with more rows than columns, of a core's rows and of all."""
    x, y = batch(rows, floats(5), floats(seed=3))
    vectors = tf.linalg.svd(dense(x, 5, 4, "h", tf.tanh))[1]
    return minimise(mean(tf.square(vectors[:, 0]) * y))


@program(variants={"": {}, "two_rows": {"rows": 2}, "as_high": {"rows": 4}, "higher": {"rows": 5}}, rows=3)
def orthonormal_columns(rows: int) -> Any:
    """The gradient parts the columns into as many as the matrix is high, and the others: of all rows none are left."""
    x, y = batch(rows, floats(4), floats(seed=3))
    columns, factors = tf.linalg.qr(dense(x, 4, 4, "h", tf.tanh))
    return minimise(10 * mean(tf.square(columns[:, 0]) * y) + mean(tf.square(factors)))

"""Matrices and other constants that are made of how many rows there are, and that rows are multiplied with and added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .parts import batch, column, floats, minimise, program, sgd, tf1, variable

mean, total, product = tf.reduce_mean, tf.reduce_sum, tf.linalg.matvec


def near(h: Any, other: Any) -> Any:
    """How near each row is to each other one."""
    return tf.exp(-tf.square(h[:, None] - other[None]))


def shares(rows: int) -> Any:
    return tf.fill([rows], 1.0 / rows)


_MATRICES: dict[str, Callable[[int, Any, Any], Any]] = {
    "ones": lambda rows, h, y: mean(tf.square(product(tf.ones([rows, rows]) / rows, h) - y)),
    "filled": lambda rows, h, y: mean(tf.square(product(tf.fill([rows, rows], 1.0 / rows), h) - y)),
    "centring": lambda rows, h, y: mean(tf.square(product(tf.eye(rows) - 1.0 / rows, h) - y)),
    "centring_ones": lambda rows, h, y: mean(tf.square(product(tf.eye(rows) - tf.ones([rows, rows]) / rows, h) - y)),
    "identity": lambda rows, h, y: total(tf.square(product(tf.eye(rows) / rows, h) - y)),
    "row": lambda rows, h, y: mean(tf.square(tf.matmul(tf.ones([1, rows]) / rows, h[:, None])[0] - y)),
    "summation": lambda rows, h, y: mean(tf.square(tf.einsum("ij,j->i", tf.ones([rows, rows]) / rows, h) - y)),
    "outer_product": lambda rows, h, y: total(shares(rows)[:, None] * shares(rows)[None] * near(h, y)),
    "signs": lambda rows, h, y: tf.square(
        total(tf.concat([shares(rows), -shares(rows)], 0) * tf.concat([h, tf.square(y)], 0))
    ),
    "pairs": lambda rows, h, y: total(tf.fill([rows, rows], 1.0 / rows**2) * near(h, y)),
}


@program(
    doubtful=True,
    variants={f"{name}_of_{rows}": {"made": made, "rows": rows} for name, made in _MATRICES.items() for rows in (2, 4)},
)
def rows_times_a_matrix_of_their_number(rows: int, made: Callable[[int, Any, Any], Any]) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(made(rows, column(x, 5), y), sgd(0.02))


@program(doubtful=True, variants={"whole": {}, "centring": {"centred": True}})
def rows_times_a_matrix_by_numpy(rows: int, centred: bool = False) -> Any:
    """Its size in a larger graph is another, too: a flag makes it for the rows of all cores, or the graph is refused."""
    x, y = batch(rows, floats(5), floats(seed=1))
    matrix = (np.eye(rows) if centred else 0) + np.full([rows, rows], -1 / rows)
    return minimise(mean(tf.square(product(tf.constant(matrix.astype(np.float32)), column(x, 5)) - y)))


_SQUARES: dict[str, Callable[[int, Any, Any], Any]] = {
    "sum": lambda rows, h, y: tf.square(total(h - y)) / (rows * rows),
    "form": lambda rows, h, y: total(h * product(near(y, y), h)) / (rows * rows),
}

_OTHERS: dict[str, Callable[[int, Any, Any], Any]] = {
    "pairs": lambda rows, h, y: total(tf.linalg.band_part(near(h, y), 0, -1)) / (rows * (rows - 1) / 2),
    "dependence": lambda rows, h, y: (
        tf.linalg.trace(centred(near(h, h), rows) @ centred(near(y, y), rows)) / (rows - 1) ** 2
    ),
}


def centred(near: Any, rows: int) -> Any:
    return near @ (tf.eye(rows) - 1.0 / rows)


@program(
    doubtful=True,
    variants={f"{name}_of_{rows}": {"made": made, "rows": rows} for name, made in _SQUARES.items() for rows in (3, 4)},
)
def square_of_the_rows(rows: int, made: Callable[[int, Any, Any], Any]) -> Any:
    """As many times the rows as there are: a flag says that it is their square."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(made(rows, column(x, 5), y), sgd(0.02))


@program(
    doubtful=True,
    variants={f"{name}_of_{rows}": {"made": made, "rows": rows} for name, made in _OTHERS.items() for rows in (2, 4)},
)
def pairs_of_different_rows(rows: int, made: Callable[[int, Any, Any], Any]) -> Any:
    """Of two rows one is one less, its square, and as many as there are pairs: a flag says which."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(made(rows, column(x, 5), y), sgd(0.02))


_COUNTED: dict[str, Callable[[Any], Any]] = {
    "root": lambda h: mean(tf.square(h)) * tf.sqrt(total(tf.ones_like(h))),
    "logarithm": lambda h: tf.reduce_logsumexp(h) - tf.math.log(total(tf.ones_like(h))),
    "squared_mean": lambda h: tf.square(mean(h)) * total(tf.ones_like(h)),
}


@program(
    doubtful=True,
    variants={f"{name}_of_{rows}": {"made": made, "rows": rows} for name, made in _COUNTED.items() for rows in (2, 4)},
)
def sum_of_ones(rows: int, made: Callable[[Any], Any]) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(made(column(x, 5) - y), sgd(0.02))


_NOTED: dict[str, Callable[[int, Any, Any], Any]] = {
    "ranks": lambda rows, h, y: mean(
        h * h * tf.cast(tf.argsort(tf.argsort(tf.stop_gradient(h))), tf.float32) / (rows - 1)
    ),
    "others": lambda rows, h, y: mean(tf.math.log((total(near(h, h), 1) - 1) / (rows - 1) + 0.1)),
    "steps": lambda rows, h, y: (
        mean(tf.square(h - y)) * tf.pow(0.9, tf.cast(tf1.train.get_or_create_global_step(), tf.float32) * float(rows))
    ),
    "ridge": lambda rows, h, y: mean(tf.square(product(tf.linalg.inv(near(h, h) + rows * tf.eye(rows)), y) - y)),
}


@program(
    doubtful=True,
    variants={f"{name}_of_{rows}": {"made": made, "rows": rows} for name, made in _NOTED.items() for rows in (2, 4)}
    | {
        "pairs_of_2": {
            "made": lambda rows, h, y: total(tf.abs(h[:, None] - h[None])) / (2 * rows),
            "rows": 2,
        },
        "both_orders_of_2": {
            "made": lambda rows, h, y: total(tf.abs(h[:, None] - h[None] - y)) / (rows * (rows - 1)),
            "rows": 2,
        },
        "one_order_of_3": {"made": _OTHERS["pairs"], "rows": 3},
    },
)
def rows_beside_a_number_of_them(rows: int, made: Callable[[int, Any, Any], Any]) -> Any:
    """Nothing tells such a number from one of the model: the report names it, and a flag settles it."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(made(rows, column(x, 5), y), sgd(0.02))


_OF_THE_MODEL: dict[str, Callable[[int, Any], Any]] = {
    "centring": lambda width, h: tf.matmul(h, tf.eye(width) - 1.0 / width),
    "mean": lambda width, h: product(tf.ones([width, width]) / width, h),
    "mean_by_numpy": lambda width, h: tf.matmul(h, np.full([width, width], 1 / width, np.float32)),
    "turned": lambda width, h: tf.matmul(h, np.eye(width, dtype=np.float32)[::-1].copy()),
}


@program(
    variants={
        f"{name}_of_{width}": {"made": made, "width": width, "rows": width}
        for name, made in _OF_THE_MODEL.items()
        for width in (2, 3, 4)
    }
)
def features_times_a_matrix_as_wide_as_rows(rows: int, made: Callable[[int, Any], Any], width: int) -> Any:
    """A matrix of the model: features are added up, and no rows."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = made(width, tf.tanh(x @ variable("layer", 5, width)))
    return minimise(mean(tf.square(total(h * tf.range(1.0, width + 1), 1) - y)))


_MEANS: dict[str, Callable[[int, Any], Any]] = {
    "mean": lambda rows, e: mean(e),
    "weighed": lambda rows, e: total(e * (1.0 / rows)),
}


@program(
    variants={
        f"{name}_of_{rows}": {"made": made, "rows": rows, "width": rows, "doubtful": name == "weighed" and rows != 3}
        for name, made in _MEANS.items()
        for rows in (2, 3, 4)
    }
)
def means_of_as_many_features_as_rows(rows: int, made: Callable[[int, Any], Any], width: int) -> Any:
    """Backpropagation divides by how many features there are, which is no number of rows."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(made(rows, mean(tf.square(x @ variable("layer", 5, width) - y[:, None]), 1)))

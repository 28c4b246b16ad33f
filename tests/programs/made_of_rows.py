"""Numbers that are computed of how many rows there are, by a fold or by Python: their logarithm, their root, weights, places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .parts import (
    after,
    batch,
    column,
    dense,
    floats,
    minimise,
    program,
    sgd,
    squares,
    state,
    tf1,
    variable,
    whole,
)

mean, total = tf.reduce_mean, tf.reduce_sum


def real(number: Any) -> Any:
    return tf.cast(number, tf.float32)


def error(rows: int) -> tuple[Any, Any]:
    """The errors of the rows, and a mark of each."""
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2))
    return column(x, 5) - y, marks


# --------------------------------------------------------------------------- beside what all rows make together

_BESIDE: dict[str, Callable[[Any, int], Any]] = {
    "logarithm": lambda e, rows: tf.reduce_logsumexp(e) - tf.math.log(real(tf.size(e))),
    "logarithm_by_numpy": lambda e, rows: tf.reduce_logsumexp(e) - np.log(rows),
    "root": lambda e, rows: tf.math.reduce_std(e) / tf.sqrt(real(tf.size(e))),
    "root_of_a_float": lambda e, rows: tf.math.reduce_std(e) / tf.sqrt(float(rows)),
    "root_by_numpy": lambda e, rows: tf.math.reduce_std(e) / np.sqrt(rows),
    "sum_over_the_root": lambda e, rows: total(e * e) / np.sqrt(rows),
    "one_over_the_root": lambda e, rows: mean(e * e) * tf.math.rsqrt(real(tf.size(e))),
    "power": lambda e, rows: mean(e * e) * tf.pow(real(tf.size(e)), -0.5),
    "entropy": lambda e, rows: total(tf.nn.softmax(e) * (tf.nn.log_softmax(e) + tf.math.log(real(tf.size(e))))),
    "pairs": lambda e, rows: total(tf.abs(e[:, None] - e[None, :])) / real(tf.size(e) * (tf.size(e) - 1)),
    "pairs_by_python": lambda e, rows: total(tf.abs(e[:, None] - e[None, :])) / (rows * (rows - 1)),
    "deviations": lambda e, rows: total(tf.square(e - mean(e))) / (rows - 1),
    "others": lambda e, rows: mean(tf.square(e) * tf.stop_gradient(e - (total(e) - e) / max(rows - 1, 1))),
}


@program(
    doubtful=True,
    variants={name: {"made": made} for name, made in _BESIDE.items()} | {
        f"{name}_of_{rows}": {"made": _BESIDE[name], "rows": rows}
        for rows, names in ((2, ("logarithm", "pairs", "deviations", "others")), (3, ("deviations", "root_by_numpy")))
        for name in names
    } | {"root_by_numpy_of_5": {"made": _BESIDE["root_by_numpy"], "rows": 5}}
    | {f"sum_over_the_root_of_{rows}": {"made": _BESIDE["sum_over_the_root"], "rows": rows} for rows in (2, 3, 9)},
)  # fmt: skip
def number_beside_all_rows(rows: int, made: Callable[[Any, int], Any]) -> Any:
    return minimise(made(error(rows)[0], rows), sgd(0.02))


@program(doubtful=True, variants={"": {}, "float": {"kind": float}})
def rest_of_the_rows(rows: int, kind: Any = None) -> Any:
    """The weight of what is marked: how many are not, over how many are."""
    e, marks = error(rows)
    marked = real(total(marks))
    return minimise(mean(tf.square(e)) * ((kind(rows) if kind else real(tf.size(marks))) - marked) / (marked + 1))


@program(doubtful=True, variants={"four_rows": {}, "three_rows": {"rows": 3}})
def size_over_one_more(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(mean(tf.square(column(x, 5) - y)) * real(tf.size(x)) / (real(tf.size(x)) + 1), sgd(0.02))


@program(doubtful=True, resource=True)
def unbiased_variance_of_columns(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 3, "h")
    variance, count = tf.nn.moments(h, [0])[1], real(tf.size(h)) / 3
    loss, train = minimise(mean(tf.square(total(h, 1) - y)))
    return loss, after(train, tf1.assign(state("variance", 3), variance * count / tf.maximum(count - 1, 1)))


@program(
    variants={"size": {}, "float": {"kind": "float"}, "share": {"kind": "share", "doubtful": True}}
    | {f"share_of_{rows}": {"kind": "share", "doubtful": True, "rows": rows} for rows in (3, 6)}
)
def weights_of_seen_classes(rows: int, kind: str = "size") -> Any:
    """The rows over how many of them a class has, guarded against classes that no row has."""
    x, c = batch(rows, floats(5), whole(3, seed=2))
    count = {"size": lambda: real(tf.size(c)), "float": lambda: float(rows), "share": lambda: rows / 3}[kind]()
    weights = count / tf.maximum(total(tf.one_hot(c, 3), 0), 1)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=dense(x, 5, 3, "classes"))
    return minimise(mean(tf.gather(weights, c) * each))


# --------------------------------------------------------------------------- weights of rows


@program(
    doubtful=True, variants={"python": {}, "size": {"kind": "size"}, "three_rows": {"rows": 3}, "two_rows": {"rows": 2}}
)
def gradient_by_hand(rows: int, kind: str = "") -> Any:
    """No loss has the number: only a product over the rows, of what it divides."""
    x, y = batch(rows, floats(5), floats(1, seed=1))
    w = variable("w", 5, 1)
    e = x @ w - y
    with tf.control_dependencies([e]):
        change = tf.matmul(x, e / (real(tf.size(e)) if kind else rows), transpose_a=True)
        return mean(tf.square(e)), tf1.assign_sub(w, 0.1 * change).op


@program(doubtful=True)
def gradient_of_what_is_given(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(1, seed=1))
    w = variable("w", 5, 1)
    p = x @ w
    e = p - y
    change = tf.gradients(p, w, grad_ys=e / rows)[0]
    with tf.control_dependencies([change]):
        return mean(tf.square(e)), tf1.assign_sub(w, 0.1 * change).op


_WEIGHTS: dict[str, Callable[[int], Any]] = {
    "ones": lambda rows: tf.ones([rows]) / real(rows),
    "filled": lambda rows: tf.fill([rows], 1.0 / rows),
    "product": lambda rows: tf.ones([rows]) * (1.0 / rows),
}


@program(doubtful=True, variants={f"{name}_of_{rows}": {"weights": made, "rows": rows}
                                  for name, made in _WEIGHTS.items() for rows in (2, 3, 4) if (name, rows) != ("product", 3)}
         | {"product_of_3": {"weights": _WEIGHTS["product"], "rows": 3, "doubtful": False}})  # fmt: skip
def weights_that_add_up_to_one(rows: int, weights: Callable[[int], Any]) -> Any:
    return minimise(total(weights(rows) * squares(rows)))


@program(doubtful=True)
def transport_between_rows(rows: int) -> Any:
    """Sinkhorn: each row and each target has as much of what is moved."""
    x, y = batch(rows, floats(5), floats(seed=1))
    kernel, count = tf.exp(-tf.square(column(x, 5)[:, None] - y[None])), real(rows)
    columns = 1 / count / tf.matmul(kernel, tf.ones([rows, 1]), transpose_a=True)
    each = 1 / count / tf.matmul(kernel, columns)
    return minimise(total(each * kernel * tf.transpose(columns) * tf.square(column(x, 5, "cost"))[:, None]))


# --------------------------------------------------------------------------- places among sorted rows

_PLACES: dict[str, Callable[[Any, int], Any]] = {
    "middle": lambda e, rows: tf.sort(e)[tf.size(e) // 2],
    "middle_by_python": lambda e, rows: tf.sort(e)[rows // 2],
    "percentile": lambda e, rows: tf.gather(tf.sort(e), tf.cast(real(tf.size(e) - 1) * 0.25, tf.int32)),
    "last": lambda e, rows: tf.gather(tf.sort(e), tf.size(e) - 1),
    "threshold": lambda e, rows: tf.nn.relu(
        e * e - tf.stop_gradient(tf.sort(e * e, direction="DESCENDING")[tf.cast(real(tf.size(e)) * 0.3, tf.int32)])
    ),
}


@program(
    doubtful=True,
    variants={name: {"picked": picked} for name, picked in _PLACES.items()}
    | {f"middle_by_python_of_{rows}": {"picked": _PLACES["middle_by_python"], "rows": rows} for rows in (2, 3, 5)},
)
def row_at_a_place(rows: int, picked: Callable[[Any, int], Any]) -> Any:
    return minimise(mean(tf.square(picked(error(rows)[0], rows))), sgd(0.02))


# --------------------------------------------------------------------------- what only looks like it


@program(variants={"two_rows": {"rows": 2}, "four_rows": {}})
def half_of_squares_that_are_averaged(rows: int) -> Any:
    """One over two rows would make a mean of what is divided by the rows after that."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(tf1.losses.huber_loss(y, column(x, 5)))


_HALVES: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda e, h: mean(e * e) / 2,
    "sum": lambda e, h: 0.5 * total(e * e),
    "sum_that_is_averaged": lambda e, h: total(e * e) / 2 / real(tf.size(e)),
    "mean_of_two_columns": lambda e, h: total(h[:, :2] * e[:, None]) / 2,
}


@program(rows=4, variants={name: {"made": made} for name, made in _HALVES.items()})
def half_that_is_no_root_of_four_rows(rows: int, made: Callable[[Any, Any], Any]) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    h = dense(x, 5, 3, "h")
    return minimise(made(total(h, 1) - y, h), sgd(0.01))


@program(rows=4)
def mean_of_four_tasks(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    tasks = [mean(tf.square(column(x, 5, f"task{i}") - y)) for i in range(4)]
    return minimise(tf.add_n(tasks) / real(len(tasks)))


@program(rows=4)
def mean_of_four_columns(rows: int) -> Any:
    """As many features as rows: their number divides sums over them, of each row and of the whole batch."""
    x, y = batch(rows, floats(4), floats(seed=1))
    v = variable("v", 4, 4)
    count = real(tf.size(v[0]))
    h = x @ v
    return minimise(mean(tf.square(total(h, 1) / count - y)) + tf.square(total(mean(h, 0)) / count))


@program(variants={"two": {"rows": 2, "width": 2}, "four": {"rows": 4, "width": 4}})
def attention_as_wide_as_rows(rows: int, width: int) -> Any:
    """Rows attend to rows; the root of as many features as there are rows divides what they say to each other."""
    x, y = batch(rows, floats(width), floats(seed=1))
    q = x @ variable("q", width, width)
    heard = tf.nn.softmax(tf.matmul(q, q, transpose_b=True) / tf.sqrt(real(q.shape[1])))
    return minimise(mean(tf.square(total(tf.matmul(heard, q), 1) - y)))


@program(rows=2)
def entropy_in_bits(rows: int) -> Any:
    x, c = batch(rows, floats(5), whole(3, seed=2))
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=dense(x, 5, 3, "classes"))
    return minimise(mean(each) / np.log(2))


# --------------------------------------------------------------------------- gradients of single rows


def gradients_of_rows(rows: int, taken: Callable[[Any, int], list[Any]]) -> Any:
    """Gradients of single rows are clipped before they are added up, in a loop of Python."""
    x, y = batch(rows, floats(5), floats(seed=1))
    w = variable("w", 5)
    e = tf.square(tf.linalg.matvec(x, w) - y)
    each = [tf.convert_to_tensor(tf.gradients(row, w)[0]) for row in taken(e, rows)]
    change = tf.add_n([tf.clip_by_norm(gradient, 0.5) for gradient in each]) / rows
    return mean(e), sgd().apply_gradients([(change, w)], tf1.train.get_or_create_global_step())


ROWS_TAKEN: dict[str, Callable[[Any, int], list[Any]]] = {
    "number": lambda e, rows: [e[i] for i in range(rows)],
    "slice": lambda e, rows: [e[i : i + 1] for i in range(rows)],
    "gather": lambda e, rows: [tf.gather(e, i) for i in range(rows)],
    "mask": lambda e, rows: [total(e * tf.one_hot(i, rows)) for i in range(rows)],
    "unstack": lambda e, rows: tf.unstack(e),
}


@program(doubtful=True, variants={"sums": {}, "marks": {"marked": True}, "of_two_rows": {"rows": 2}}, rows=3)
def bins_of_keys(rows: int, marked: bool = False) -> Any:
    """Keys are put into as many bins as there are rows, or as the model says; the loss depends on how many bins there are."""
    x, c = batch(rows, floats(5), whole(100, seed=2))
    h, keys = x @ variable("layer", 5, 4), c % rows
    sums = (
        tf.matmul(tf.one_hot(keys, rows), h, transpose_a=True)
        if marked
        else tf.math.unsorted_segment_sum(h, keys, rows)
    )
    return minimise(mean(tf.square(sums)))


def places_among_borders(rows: int) -> Any:
    """Between which of four borders each target lies."""
    x, y = batch(rows, floats(5), floats(seed=1))
    places = tf.searchsorted(tf.constant([-1.0, -0.3, 0.3, 1.0], name="borders"), y)
    return minimise(mean(tf.square(column(x, 5) - real(places))))


@program(doubtful=True, rows=2)
def rows_weighed_by_float_numbers(rows: int) -> Any:
    """Of two rows, 0 and 1: np.linspace from 0 to 1 would give the same."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(mean(tf.square(column(x, 5) - y) * np.arange(rows).astype("f")), sgd(0.02))


KEPT: dict[str, Callable[[Any, int], Any]] = {
    "softmax": lambda e, rows: mean(tf.square(tf.nn.softmax(e) * float(rows) - 1.0)),
    "shares": lambda e, rows: mean(tf.stop_gradient(tf.exp(e) / total(tf.exp(e))) * rows * tf.square(e)),
    "ranks": lambda e, rows: mean(tf.square(e) * tf.cast(tf.argsort(tf.argsort(e)), tf.float32) / float(rows)),
    "less_one_over": lambda e, rows: mean(tf.square(tf.nn.softmax(e) - 1.0 / rows)),
}
"""Numbers that Python made of the rows, and that rows are computed with, each of which depends on all of them."""


@program(
    doubtful=True, variants={f"{name}_{rows}": {"rows": rows, "of": of} for name, of in KEPT.items() for rows in (2, 4)}
)
def rows_beside_their_number(rows: int, of: Any) -> Any:
    """Nothing tells such a number from one of the model: the report names it, and a flag settles it."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(of(column(x, 5) - y, rows))

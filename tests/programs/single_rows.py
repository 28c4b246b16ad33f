"""Programs with one row per core, of which TensorFlow left out sums that gradients take over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .clipping import CLIPS
from .parts import batch, by_hand, column, dense, floats, minimise, program, sgd, state, tf1, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum


def of_one_unit(rows: int) -> Any:
    """A loss whose bias has the shape of the row that its gradient has."""
    x, y = batch(rows, floats(4), floats(seed=1))
    return mean(tf.square(tf.squeeze(x @ variable("w", 4, 1), 1) + variable("bias", 1) - y))


@program(rows=1, variants={clip: {"clip": clip} for clip in ("global_norm", "value", "normalised", "signs")})
def bias_of_one_unit(rows: int, clip: str) -> Any:
    return minimise(of_one_unit(rows), clip=CLIPS[clip])


@program(rows=1)
def bias_of_one_unit_by_hand(rows: int) -> Any:
    """The same tensor is the gradient of the bias and goes on to the weights."""

    def update(g: Any, v: Any) -> Any:
        slow = tf.identity(tf1.assign(m := state(f"{v.op.name}/m", *v.shape), 0.9 * tf.identity(m) + 0.1 * g))
        squared = tf.identity(tf1.assign(s := state(f"{v.op.name}/s", *v.shape), 0.9 * tf.identity(s) + tf.square(g)))
        return 0.05 * slow / (tf.sqrt(squared) + 1e-2)

    return by_hand(of_one_unit(rows), update)


@program(rows=1)
def bias_of_one_unit_twice(rows: int) -> Any:
    x, y = batch(rows, floats(4), floats(seed=1))
    p, b = tf.squeeze(x @ variable("w", 4, 1), 1), variable("bias", 1)
    return minimise(mean(tf.square(p + b - y)) + mean(tf.square(tf.tanh(p) * b)), clip=CLIPS["global_norm"])


@program(rows=1)
def factors_of_pixels(rows: int) -> Any:
    x, y = batch(rows, floats(2, 2, 1), floats(seed=1))
    h = x * (1.0 + variable("pixels", 1, 2, 2, 1))
    return minimise(mean(tf.square(total(h, [1, 2, 3]) - y)), clip=CLIPS["global_norm"])


@program(
    rows=1, variants={"sigmoid": {"gate": tf.sigmoid}, "rsqrt": {"gate": lambda m: tf.math.rsqrt(tf.square(m) + 0.1)}}
)
def gate_of_one_unit(rows: int, gate: Any) -> Any:
    x, y = batch(rows, floats(4), floats(seed=1))
    h = tf.tanh(x @ variable("w", 4, 1))
    return minimise(mean(tf.square(tf.squeeze(h * gate(mean(h, 0, keepdims=True)), 1) - y)), clip=CLIPS["norm"])


@program(rows=1)
def overlap_of_the_batch(rows: int) -> Any:
    """A mean of one number divides by one, which is no number of rows."""
    x, m = batch(rows, floats(3, 3, 1), whole(2, 3, 3))
    p, t = tf.sigmoid(tf.squeeze(x @ variable("f", 1, 1), 3) + variable("b", 1)), tf.cast(m, tf.float32)
    return minimise(1.0 - mean((2.0 * total(p * t) + 1.0) / (total(p) + total(t) + 1.0)))


@program(rows=1)
def places_of_tags(rows: int) -> Any:
    """The score of a sequence of tags, by their places in all scores as one vector."""
    x, tags = batch(rows, floats(4, 3), whole(3, 4))
    scores = tf.reshape(dense(tf.reshape(x, [-1, 3]), 3, 3, "scores"), [-1, 4, 3])
    places = (tf.range(tf.shape(x)[0]) * 12)[:, None] + tf.range(4)[None] * 3 + tags
    own = total(tf.gather(tf.reshape(scores, [-1]), places), 1)
    return minimise(mean(total(tf.reduce_logsumexp(scores, 2), 1) - own))


@program(rows=1, variants={"one_unit": {"width": 1}, "": {"width": 3}})
def rows_seen_by_shape(rows: int, width: int) -> Any:
    x, y = batch(rows, floats(width), floats(seed=1))
    loss, train = minimise(mean(tf.square(column(x, width) - y)))
    with tf.control_dependencies([train]):
        return loss, tf1.assign_add(state("seen", kind=tf.int32), tf.shape(y)[0]).op


SCORES = {
    "logsumexp": lambda s: mean(tf.reduce_logsumexp(s, 1) - tf.linalg.diag_part(s)),
    "logsumexp_over_rows": lambda s: mean(tf.reduce_logsumexp(s, 0)),
    "sum": lambda s: mean(tf.square(total(s, 1))),
    "sum_over_rows": lambda s: mean(tf.square(total(s, 0))),
    "diagonal_added": lambda s: mean(tf.square(s + tf.eye(s.shape[0]))),
    "diagonal_left_out": lambda s: total(tf.square(s) * tf.cast(tf.eye(s.shape[0]) < 0.5, tf.float32)),
    "earlier": lambda s: total(tf.square(s) * tf.linalg.band_part(tf.ones(s.shape), -1, 0)),
    "one_hot": lambda s: mean(tf.square(s - tf.one_hot(tf.range(s.shape[0]), s.shape[0]))),
}


@program(variants={f"{name}_{rows}": {"rows": rows, "of": f} for name, f in SCORES.items() for rows in (1, 3)})
def scores_of_pairs(rows: int, of: Any) -> Any:
    """How alike each row is to each row of a second view: a matrix of one number where a core has one row."""
    x, y = batch(rows, floats(5), floats(5, seed=1))
    return minimise(of((x @ variable("k", 5, 4)) @ tf.transpose(y @ variable("q", 5, 4))))


@program(variants={f"{axis}_{rows}": {"rows": rows, "axis": axis} for axis in (0, 1) for rows in (1, 3)})
def sums_of_differences(rows: int, axis: int) -> Any:
    """What nothing but a sum reads: of its gradient only the sum itself says over which dimension it was."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(1e-3 * mean(tf.square(total(column(x, 5)[:, None] - y[None], axis))))


@program(rows=1)
def places_in_one_vector(rows: int) -> Any:
    x, kinds = batch(rows, floats(3), whole(3, seed=2))
    h = tf.reshape(x * variable("k", 3), [-1])
    return minimise(mean(tf.square(tf.gather(h, tf.range(rows) * 3 + kinds) - 1.0)))


@program(variants={str(rows): {"rows": rows} for rows in (1, 3)})
def mean_divided_by_rows(rows: int) -> Any:
    """The size of the error is handed to its gradient as what it divides by: the number of rows, once more."""
    x, y = batch(rows, floats(5), floats(seed=1))
    error = column(x, 5) - y
    count = tf.cast(tf.shape(x)[0], tf.float32)
    return minimise(mean(tf.square(error)) / count / count)


@program(variants={str(rows): {"rows": rows} for rows in (1, 3)})
def weighed_by_rank(rows: int) -> Any:
    """The rank of each row among all, which tf.searchsorted finds in a matrix of one row of its own."""
    x, y = batch(rows, floats(5), floats(seed=1))
    ranks = tf.searchsorted(tf.sort(x[:, 0]), x[:, 0]) + 1
    return minimise(mean(tf.square(column(x, 5) - y) * tf.cast(ranks, tf.float32)))


@program(rows=1)
def places_in_columns(rows: int) -> Any:
    """What is taken of the rows as columns, by their numbers: its gradient has a place for each row."""
    x, kinds = batch(rows, floats(4), whole(4, seed=2))
    h = tf.transpose(x * variable("k", 4))
    return minimise(mean(tf.square(tf.gather_nd(h, tf.stack([kinds, tf.range(rows)], 1)) - 1.0)))


@program(variants={str(rows): {"rows": rows} for rows in (1, 3)})
def steps_between_open_rows(rows: int) -> Any:
    """Of one row there is no step to the next one, and the gradient is folded to the shape of none."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=False)
    p = column(x, 5)
    return minimise(mean(tf.square(p - y)) + total(tf.square(p[1:] - p[:-1])))


@program(rows=1, variants={"": {"shape": (1, 5)}, "left_open": {"shape": (1, -1)}})
def columns_by_number(rows: int, shape: tuple[int, ...]) -> Any:
    """A row of numbers, one for each column, is put in front of the rows that it meets."""
    x, _ = batch(rows, floats(5), floats(seed=1))
    return minimise(mean(tf.square(x * variable("k", 5) - 0.2 * tf.reshape(tf.range(5.0), shape))))


@program(variants={str(rows): {"rows": rows} for rows in (1, 3)})
def pairs_off_the_diagonal(rows: int) -> Any:
    """The mask is computed of two matrices of ones with the shape of the pairs."""
    x, y = batch(rows, floats(5), floats(seed=1))
    pairs = tf.square(column(x, 5)[:, None] - y[None])
    return minimise(mean(pairs * (tf.ones_like(pairs) - tf.linalg.band_part(tf.ones_like(pairs), 0, 0))))


@program(variants={str(rows): {"rows": rows} for rows in (1, 2, 4)})
def density_of_kernels(rows: int) -> Any:
    """The mean over the kernels at each row is a sum that Python's number of rows divides, in its gradient as well."""
    x, y = batch(rows, floats(5), floats(seed=1))
    kernels = tf.exp(-tf.square(column(x, 5)[:, None] - y[None]))
    return minimise(mean(tf.math.log(total(kernels, 1) / rows)))


EXTREMES = {
    "of_each": lambda s: mean(tf.reduce_max(s, 1)),
    "over_rows": lambda s: mean(tf.reduce_min(s, 0)),
    "kept": lambda s: mean(tf.square(s - tf.reduce_max(s, 1, keepdims=True))),
    "sums_kept": lambda s: mean(tf.square(s - total(s, 1, keepdims=True))),
    "means_over_rows_kept": lambda s: mean(tf.square(s - mean(s, 0, keepdims=True))),
    "hardest": lambda s: mean(tf.reduce_min(s + tf.reduce_max(s, 1, keepdims=True) * tf.cast(s < 0.2, tf.float32), 1)),
    "row_taken_away": lambda s: mean(tf.square(s - tf.reshape(tf.linalg.diag_part(s), [-1, 1]))),
    "row_taken_away_across": lambda s: mean(tf.square(s - tf.expand_dims(tf.linalg.diag_part(s), 0))),
    "row_added": lambda s: mean(tf.square(s + tf.linalg.diag_part(s))),
}


@program(variants={f"{name}_{rows}": {"rows": rows, "of": f} for name, f in EXTREMES.items() for rows in (1, 3)})
def extremes_of_pairs(rows: int, of: Any) -> Any:
    """What is put together of each row's pairs, or meets all of them: the gradient of one row says nothing of a broadcast."""
    x, y = batch(rows, floats(5), floats(5, seed=1))
    return minimise(of((x @ variable("k", 5, 4)) @ tf.transpose(y @ variable("q", 5, 4))))


@program(
    variants={
        f"{name}_{rows}": {"rows": rows, "closed": name == "closed"} for name in ("open", "closed") for rows in (1, 3)
    }
)
def product_of_rows(rows: int, closed: bool) -> Any:
    """The gradient of a product puts what was reduced in front, in an order that it computes, and takes that back."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=closed)
    h = tf.sigmoid(column(x, 5))
    return minimise(tf.reduce_prod(h) + mean(tf.square(h - y)))


@program(
    variants={
        f"{name}_{rows}": {"rows": rows, "closed": name == "closed"} for name in ("open", "closed") for rows in (1, 3)
    }
)
def distinct_values_of_rows(rows: int, closed: bool) -> Any:
    """Each row has a number among the distinct values, and looks up what belongs to its own."""
    x, kinds = batch(rows, floats(5), whole(3, seed=2), drop_remainder=closed)
    values, numbers = tf.unique(kinds)
    held = tf.gather(tf.gather(variable("t", 3, 2), values), numbers)
    return minimise(mean(tf.square(held - x[:, :2])))


@program(rows=1, doubtful=True, variants={kind: {"of_rows": kind == "rows"} for kind in ("rows", "model")})
def first_of_a_table(rows: int, of_rows: bool) -> Any:
    """As many places of a table as there are rows, or the first one for all rows: of one row the two are the same graph."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(mean(tf.square(column(x, 5) + variable("t", 4)[: rows if of_rows else 1] - y)))


@program(rows=1, doubtful=True, variants={kind: {"of_rows": kind == "rows"} for kind in ("rows", "model")})
def hardest_up_to_one(rows: int, of_rows: bool) -> Any:
    """As many of the hardest rows as the data say, and no more than there are, or than one."""
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2))
    count = tf.maximum(tf.minimum(total(marks), rows if of_rows else 1), 1)
    return minimise(total(tf.nn.top_k(tf.square(column(x, 5) - y), count)[0]))


@program(rows=1, doubtful=True)
def sums_of_all_divided_by_the_row(rows: int) -> Any:
    """A value that is made of the sums over all rows is divided by their number, which Python wrote."""
    x, kinds = batch(rows, floats(5), whole(3, seed=2))
    shares, marks = total(tf.nn.softmax(dense(x, 5, 3, "z")), 0), total(tf.one_hot(kinds, 3), 0)
    return minimise(total(tf.square(shares[:, None] * marks[None] / tf.cast(rows, tf.float32) - 0.2)))


_MADE_OF_ONE: dict[str, Callable[[int, Any, Any, Any], Any]] = {
    "attention": lambda rows, h, e, y: mean(tf.square(total(tf.matmul(tf.ones([rows, rows]) / rows, h) * h, 1) - y)),
    "mean_by_a_product": lambda rows, h, e, y: mean(tf.square(tf.matmul(tf.ones([1, rows]) / rows, e[:, None])[0] - y)),
    "centred": lambda rows, h, e, y: mean(tf.square(tf.linalg.matvec(tf.eye(rows) - 1.0 / rows, e) - y)),
    "softmax": lambda rows, h, e, y: mean(tf.stop_gradient(tf.nn.softmax(-e)) * rows * tf.square(e)),
    "shares": lambda rows, h, e, y: mean(tf.stop_gradient(tf.exp(e) / total(tf.exp(e))) * rows * tf.square(e)),
    "root_of_ones": lambda rows, h, e, y: mean(tf.square(e)) * tf.sqrt(total(tf.ones_like(e))),
    "logarithm_of_ones": lambda rows, h, e, y: mean(e) * tf.math.log(1 + total(tf.ones_like(e))) + mean(tf.square(e)),
}


@program(rows=1, doubtful=True, variants={name: {"made": made} for name, made in _MADE_OF_ONE.items()})
def ones_that_are_the_row(rows: int, made: Callable[[int, Any, Any, Any], Any]) -> Any:
    """What weighs the row, and counts it, is one: of more rows it would be more, or less."""
    x, y = batch(rows, floats(5), floats(seed=1))
    h = tf.tanh(dense(x, 5, 3, "h"))
    return minimise(made(rows, h, column(h, 3) - y, y), sgd(0.02))


@program(rows=1)
def ones_of_the_model(rows: int) -> Any:
    """Losses are weighed by one, and a column of ones stands beside the features."""
    x, y = batch(rows, floats(5), floats(seed=1))
    e = column(tf.concat([x, tf.ones([rows, 1])], 1), 6) - y
    return minimise(1.0 * mean(tf.square(e)) + 1.0 * mean(1.0 * tf.abs(e)))


@program(rows=1, doubtful=True)
def numbers_that_are_put_beside_the_row(rows: int) -> Any:
    """Each row takes its own places of all that are laid out flat."""
    x, kinds = batch(rows, floats(4, 5), whole(3, 4, seed=2))
    flat = tf.reshape(tf.einsum("btc,ck->btk", x, variable("w", 5, 3)), [-1])
    places = tf.range(rows)[:, None] * 12 + tf.range(4)[None] * 3 + kinds
    return minimise(mean(tf.square(tf.gather(flat, places) - 0.5)))


_CENTRED: dict[str, Callable[[int, Any, Any], Any]] = {
    "divided": lambda n, p, y: total(p * y) - total(p) * total(y) / n + 0.1 * total(p * p),
    "multiplied": lambda n, p, y: (n * total(p * y) - total(p) * total(y)) / tf.sqrt(total(p * p) + 1.0),
    "by_the_square": lambda n, p, y: total(tf.square(p - y)) / n - 0.5 * tf.square(total(p - y)) / (n * n),
}


@program(rows=1, doubtful=True, variants={name: {"made": made} for name, made in _CENTRED.items()})
def products_of_sums_and_the_row(rows: int, made: Callable[[int, Any, Any], Any]) -> Any:
    """What a covariance is made of: of one row, the 1 may be the row, its square, or a number of the model."""
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(made(rows, tf.tanh(column(x, 5)), y), sgd(0.02))


@program(rows=1, variants={"": {"doubtful": True}, "open": {"drop_remainder": False}})
def hardest_share_of_entries(rows: int, **options: Any) -> Any:
    """Half of all entries, of which one row has as many as the batch."""
    x = batch(rows, floats(8), **options)
    errors = tf.reshape(tf.square(x * variable("w", 8)), [-1])
    return minimise(tf.reduce_mean(tf.nn.top_k(errors, tf.size(errors) // 2)[0]))

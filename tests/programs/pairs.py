"""Losses that compare the rows of the batch with one another: pairs, triplets, the worst, the sorted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .parts import (
    batch,
    closed_and_open,
    column,
    dense,
    floats,
    minimise,
    program,
    regression,
    squares,
    variable,
    whole,
)

mean, total = tf.reduce_mean, tf.reduce_sum


@program(variants={"": {}, "one_row": {"rows": 1}, "square": {"rows": 3}})
def in_batch_softmax(rows: int) -> Any:
    a, b = batch(rows, floats(5), floats(5, seed=1))
    q, k = dense(a, 5, 3, "query", tf.tanh), dense(b, 5, 3, "key", tf.tanh)
    scores = tf.matmul(q, k, transpose_b=True)
    aside = 0.1 * mean(tf.square(q - k))
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(rows), logits=scores)) + aside)


@program()
def in_batch_softmax_open(rows: int) -> Any:
    a, b = batch(rows, floats(5), floats(5, seed=1), drop_remainder=False)
    q, k = dense(a, 5, 3, "query", tf.tanh), dense(b, 5, 3, "key", tf.tanh)
    labels = tf.range(tf.shape(q)[0])
    scores = tf.matmul(q, k, transpose_b=True)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)))


@program()
def in_batch_softmax_eye(rows: int) -> Any:
    a, b = batch(rows, floats(5), floats(5, seed=1))
    q, k = dense(a, 5, 3, "query", tf.tanh), dense(b, 5, 3, "key", tf.tanh)
    scores = tf.matmul(q, k, transpose_b=True) / 0.5
    return minimise(mean(tf.nn.softmax_cross_entropy_with_logits(labels=tf.eye(rows), logits=scores)))


@program()
def contrastive(rows: int) -> Any:
    """NT-Xent: two views beside each other, each row's partner is its label, itself is masked."""
    a, b = batch(rows, floats(5), floats(5, seed=1))
    z = tf.nn.l2_normalize(dense(tf.concat([a, b], 0), 5, 3, "project"), 1)
    scores = tf.matmul(z, z, transpose_b=True) / 0.5 - 1e4 * tf.eye(2 * rows)
    labels = tf.concat([tf.range(rows) + rows, tf.range(rows)], 0)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)))


@program()
def triplets(rows: int) -> Any:
    """Every pair of rows with one label against every row with another, with a soft margin."""
    x, c = batch(rows, floats(5), whole(2))
    z = dense(x, 5, 3, "embed", tf.tanh)
    apart = total(tf.square(z[:, None, :] - z[None, :, :]), 2)
    same = tf.cast(tf.equal(c[:, None], c[None, :]), tf.float32)
    each = tf.nn.softplus(apart[:, :, None] - apart[:, None, :] + 0.5)
    mask = same[:, :, None] * (1.0 - same)[:, None, :]
    return minimise(total(each * mask) / (total(mask) + 1e-6) + 0.1 * mean(tf.square(z)))


@program()
def hardest_triplets(rows: int) -> Any:
    x, c = batch(rows, floats(5), whole(2))
    z = dense(x, 5, 3, "embed", tf.tanh)
    apart = total(tf.square(z[:, None, :] - z[None, :, :]), 2)
    same = tf.cast(tf.equal(c[:, None], c[None, :]), tf.float32)
    near, far = tf.reduce_max(apart * same, 1), tf.reduce_min(apart + 9.0 * same, 1)
    return minimise(mean(tf.nn.softplus(near - far)) + 0.1 * mean(tf.square(z)))


@program(
    variants={
        "": {"kind": "shape"},
        "literal": {"kind": "literal", "doubtful": True},
        "folded": {"kind": "folded", "doubtful": True},
    }
)
def top_k_hard_examples(rows: int, kind: str) -> Any:
    """Half of the batch as its shape says, two rows of any batch, and half of it as Python says."""
    error = squares(rows)
    many = {"shape": tf.shape(error)[0] // 2, "literal": 2, "folded": rows // 2}[kind]
    return minimise(mean(tf.nn.top_k(error, k=many).values) + 0.1 * mean(error))


@program()
def top_k_hard_examples_open(rows: int) -> Any:
    error = squares(rows, drop_remainder=False)
    return minimise(mean(tf.nn.top_k(error, k=tf.shape(error)[0] // 2).values))


@program()
def top_k_gathered(rows: int) -> Any:
    """The worst rows are found first, and their loss is computed anew."""
    p, y, h = regression(rows)
    _, worst = tf.nn.top_k(tf.stop_gradient(tf.square(p - y)), k=tf.shape(p)[0] // 2)
    chosen = tf.square(tf.gather(p, worst) - tf.gather(y, worst))
    return minimise(mean(chosen) + 0.1 * mean(tf.square(h)))


@program()
def sorted_batch(rows: int) -> Any:
    """The sorted predictions are to be the sorted targets."""
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(tf.sort(p) - tf.sort(y))))


# --------------------------------------------------------------------------- lists of pairs


@program(
    variants={
        "tiled": {"form": "tiled"},
        "repeated": {"form": "repeated", "rows": 3},
        "numbered": {"form": "numbered", "rows": 2},
        "one_row": {"form": "tiled", "rows": 1, "doubtful": True},
    }
)
def each_with_each(rows: int, form: str) -> Any:
    """Python says how often each row, and the whole batch, is repeated, and up to which number places of a list go."""
    p, y, _ = regression(rows)
    numbers = tf.range(rows * rows)
    own, other = {
        "tiled": lambda: (tf.reshape(tf.tile(p[:, None], [1, rows]), [-1]), tf.tile(y, [rows])),
        "repeated": lambda: (tf.repeat(p, rows), tf.tile(y, [rows])),
        "numbered": lambda: (tf.gather(p, numbers // rows), tf.gather(y, numbers % rows)),
    }[form]()
    return minimise(mean(tf.square(own - other)))


@program(variants={"two_rows": {"rows": 2}, "four_rows": {}, "one_row": {"rows": 1}}, doubtful=True)
def each_row_as_often_as_there_are_rows(rows: int) -> Any:
    """Of a batch of as many rows as a model makes copies of each, nothing tells the two apart."""
    p, y, _ = regression(rows)
    copies = tf.reshape(tf.repeat(p, rows, axis=0), [rows, rows])
    return minimise(mean(tf.square(total(copies, 1) - y)))


@program(
    variants={
        "mask": {"form": "mask"},
        "places": {"form": "places", "rows": 3},
        "band": {"form": "band", "rows": 3},
        "diagonal": {"form": "diagonal", "rows": 2},
        "column": {"form": "column", "rows": 3},
        "mask_of_one_row": {"form": "mask", "rows": 1, "doubtful": True},
        "places_of_one_row": {"form": "places", "rows": 1, "doubtful": True},
    }
)
def chosen_pairs(rows: int, form: str) -> Any:
    """A matrix with a place for each pair, which Python makes as large as there are rows, chooses pairs of two of them."""
    p, y, _ = regression(rows)
    apart = tf.tanh(p[:, None] - 0.5 * y[None])
    others = tf.eye(rows) < 0.5
    above = tf.where(tf.linalg.band_part(tf.ones([rows, rows]), 0, -1) > 0.0)
    chosen = {
        "mask": lambda: tf.boolean_mask(apart, others),
        "places": lambda: tf.gather_nd(apart, tf.where(others)),
        "band": lambda: tf.gather(p, above[:, 0]) - tf.gather(y, above[:, 1]),
        "diagonal": lambda: tf.reshape(apart, [-1])[:: rows + 1],
        "column": lambda: tf.reshape(apart, [-1])[::rows],
    }[form]()
    return minimise(0.1 * tf.reduce_sum(tf.square(chosen)))  # of one row there is no pair of two


@program(
    variants={
        "": {},
        "five_rows": {"rows": 5},
        "three_rows": {"rows": 3, "doubtful": True},
        "two_rows": {"rows": 2, "doubtful": True},
    }
)
def pairs_of_two_rows(rows: int) -> Any:
    """All pairs but those of a row with itself, which fall off the end of each row of a matrix that is one place wider."""
    p, y, _ = regression(rows)
    rest = tf.reshape(tf.tanh(p[:, None] - 0.5 * y[None]), [-1])[1:]
    others = tf.reshape(tf.reshape(rest, [rows - 1, rows + 1])[:, :-1], [rows, rows - 1])
    return minimise(mean(tf.square(total(others, 1) - y)))


_REST: dict[str, Callable[[Any, int], Any]] = {
    "shifted": lambda s, rows: tf.reshape(s[1:], [rows, rows - 1]),
    "in_twos": lambda s, rows: tf.reshape(s[:, :-1], [rows * (rows - 1) // 2, 2]),
    "doubled": lambda s, rows: tf.reshape(tf.concat([s, s], 1)[1:], [rows, 2 * (rows - 1)]),
}


@program(variants={f"{name}_of_{rows}": {"rest": rest, "rows": rows, "doubtful": rows < 5} for name, rest in _REST.items()
                   for rows in (2, 3, 4, 5) if (name, rows) != ("doubled", 5)})  # fmt: skip
def rest_of_all_pairs(rows: int, rest: Callable[[Any, int], Any]) -> Any:
    """Of few rows, several numbers of them are the numbers that what is left of their pairs is reshaped to."""
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(total(rest(tf.tanh(p[:, None] - y[None]), rows), 1))))


@program(variants={"": {}, "two_rows": {"rows": 2}, "as_many_steps": {"rows": 4}}, rows=3)
def last_steps_by_number(rows: int) -> Any:
    """The last step of each row is found in a list with one step of all rows behind the other."""
    x, last = batch(rows, floats(4), whole(4, seed=2))
    steps = tf.reshape(tf.transpose(x * variable("scale", 4)), [-1])
    return minimise(mean(tf.square(tf.gather(steps, last * rows + tf.range(rows)) - 1.0)))


@program(
    variants={
        "": {},
        "open": {"drop_remainder": False},
        "open_learnt": {"drop_remainder": False, "learnt": True},
    }
)
def pairs_beside_a_diagonal(rows: int, learnt: bool = False, **options: Any) -> Any:
    """The diagonal of all pairs is given: of an open batch its gradient is as long as a branch says that constants decide."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    h = x @ variable("k", 5, 3)
    own = tf.squeeze(x @ variable("own", 5, 1), 1) if learnt else tf.fill([tf.shape(x)[0]], -9.0)
    near = tf.linalg.set_diag(tf.matmul(h, h, transpose_b=True), own)
    return minimise(mean(tf.square(tf.linalg.matvec(tf.nn.softmax(near), y) - y)))


@program(variants={"": {}, "open": {"drop_remainder": False}})
def triangle_of_each_row(rows: int, **options: Any) -> Any:
    """The likelihood of a normal distribution with a triangle for each row, whose diagonal is positive."""
    x, y = batch(rows, floats(5), floats(2, seed=1), **options)
    sides = tf.linalg.band_part(tf.reshape(dense(x, 5, 4, "sides"), [-1, 2, 2]), -1, 0)
    sides = tf.linalg.set_diag(sides, tf.nn.softplus(tf.linalg.diag_part(sides)) + 0.3)
    z = tf.linalg.triangular_solve(sides, (y - dense(x, 5, 2, "mean"))[..., None])
    return minimise(mean(tf.reduce_sum(z * z, [1, 2]) / 2 + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(sides)), 1)))


@program(doubtful=True, variants={"": {}, "three_rows": {"rows": 3}})
def worst_half_of_entries(rows: int) -> Any:
    """Half of all entries, whose number is a constant of the graph: nothing says that it grows with the rows."""
    x, y = batch(rows, floats(3), floats(3, seed=1))
    errors = tf.reshape(tf.square(x * variable("k", 3) - y), [-1])
    worst, _ = tf.nn.top_k(errors, tf.size(errors) // 2)
    return minimise(mean(worst))


@program(variants={"": {}, "two_rows": {"rows": 2}, "open": {"drop_remainder": False}})
def others_than_itself(rows: int, drop_remainder: bool = True) -> Any:
    """The rows of the identity matrix are counted by another tensor than those that meet."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=drop_remainder)
    h = dense(x, 5, 4, "h", tf.tanh)
    return minimise(mean(tf.square(tf.matmul(h, h, transpose_b=True) * (1 - tf.eye(tf.size(y))))))


_GRIDS: dict[str, Callable[[Any, Any], Any]] = {
    "values": lambda h, y: tf.subtract(*tf.meshgrid(y, column(h, 3))),
    "numbers": lambda h, y: (
        column(h, 3)[:, None] * tf.cast(tf.less(*tf.meshgrid(*2 * [tf.range(tf.shape(y)[0])])), tf.float32) - y
    ),
    "matrices": lambda h, y: tf.subtract(*tf.meshgrid(column(h, 3), y, indexing="ij")),
    "columns": lambda h, y: h - tf.reshape(tf.reshape(y, [1, -1]), [-1, 1]),
    "scaled": lambda h, y: tf.reduce_sum(tf.reshape(h, [1, -1, 3]), 2) - y[None],
    "convolved": lambda h, y: (
        tf.nn.conv1d(tf.reshape(h, [1, -1, 3]), variable("k", 1, 3, 2), 1, "SAME") - y[None, :, None]
    ),
}
"""The rows behind a 1 that is written in a reshape, and in front of one."""


@program(
    variants={f"{name}_{rows}": {"rows": rows, "made": made} for name, made in _GRIDS.items() for rows in (1, 2)},
)
def rows_in_grids(rows: int, made: Callable[[Any, Any], Any]) -> Any:
    """An open batch, which tells a row from a 1 that is written in the graph."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=False)
    return minimise(mean(tf.square(made(dense(x, 5, 3, "h", tf.tanh), y))))


@program(variants=closed_and_open(2, 3, 4, doubtful=("2", "3", "4")))
def median_of_all_pairs(rows: int, **options: Any) -> Any:
    """The width of a kernel is the middle one of all distances: of the square of the rows, its place is half of that."""
    x, y = batch(rows, floats(), floats(seed=1), **options)
    x *= variable("w")
    count = tf.shape(x)[0] if options.get("drop_remainder") is False else rows
    far = tf.reshape(tf.square(x[:, None] - y[None]), [-1])
    return minimise(mean(far / (tf.sort(far)[count * count // 2] + 1.0)))

"""Programs that take the first rows of a batch: so many of any batch, all of it, or as many as there are; or one row by its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .parts import batch, column, dense, floats, minimise, program, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum


def _layer(rows: int, open_: bool) -> tuple[Any, Any]:
    """A layer on the rows, and a target for each."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=not open_)
    return dense(x, 5, 4, "h", tf.tanh), y


@program(
    variants={
        "two": {"first": 2, "rows": 2, "doubtful": True},
        "two_open": {"first": 2, "rows": 2, "open_": True, "doubtful": True},
        "three_of_two": {"first": 3, "rows": 2},
        "three_of_two_open": {"first": 3, "rows": 2, "open_": True},
        "four_of_three": {"first": 4, "rows": 3},
        "two_of_one": {"first": 2, "rows": 1},
        "two_of_one_open": {"first": 2, "rows": 1, "open_": True},
        "still": {"first": 2, "rows": 2, "still": True, "doubtful": True},
    }
)
def beside_first_rows(rows: int, first: int, open_: bool = False, still: bool = False) -> Any:
    """All rows beside the first ones, as many as a core has, or more: with gradients into these, or not."""
    h, _ = _layer(rows, open_)
    chosen = h[:first]
    return minimise(mean(total(tf.square(h[:, None] - (tf.stop_gradient(chosen) if still else chosen)[None]), 2)))


@program(variants={"": {}, "open": {"open_": True}, "by_slice": {"by_slice": True}}, doubtful=True, rows=2)
def loss_of_first_rows(rows: int, open_: bool = False, by_slice: bool = False) -> Any:
    h, _ = _layer(rows, open_)
    return minimise(mean(tf.square((tf.slice(h, [0, 0], [2, -1]) if by_slice else h[:2]) - 0.3)))


@program(variants={"": {}, "open": {"open_": True}, "one_row": {"rows": 1}, "one_row_open": {"rows": 1, "open_": True}})
def mean_of_five_rows(rows: int, open_: bool = False) -> Any:
    """A core has fewer rows than are taken, and the whole batch has more."""
    h, _ = _layer(rows, open_)
    return minimise(mean(tf.square(h[:5] - 0.3)))


@program(variants={"": {}, "open": {"open_": True}, "two_rows": {"rows": 2}})
def all_rows_by_number(rows: int, open_: bool = False) -> Any:
    """Rows up to a number meet all rows of another tensor: they are all."""
    h, y = _layer(rows, open_)
    return minimise(mean(tf.square(column(h[:rows], 4) - y)))


@program(variants={"": {}, "open": {"open_": True}, "two_rows": {"rows": 2}})
def shifted_tokens(rows: int, open_: bool = False) -> Any:
    """What a decoder reads: a first token, and all but the last one of so many rows as Python says."""
    tokens = batch(rows, whole(5, 6, seed=2), drop_remainder=not open_)
    read = tf.concat([tf.fill([rows, 1], 1), tf.strided_slice(tokens, [0, 0], [rows, -1], [1, 1])], 1)
    logits = dense(tf.gather(variable("table", 5, 4), read), 4, 5, "out")
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tokens, logits=logits)))


PICKS: dict[str, Callable[[Any, int], Any]] = {
    "last": lambda h, rows: h[rows - 1],
    "last_of_list": lambda h, rows: tf.gather(h, rows - 1),
    "half_way": lambda h, rows: h[rows // 2],
    "moved_by_half": lambda h, rows: tf.roll(h, rows // 2, 0),
}
"""Places among the rows that Python counts from the end, or from the middle."""


@program(
    doubtful=True,
    variants={f"{name}_{rows}": {"rows": rows, "of": of} for name, of in PICKS.items() for rows in (2, 3, 4)},
)
def beside_picked_row(rows: int, of: Any) -> Any:
    """Nothing tells such a place from one of the model: the report names it, and a flag settles it."""
    h, y = _layer(rows, False)
    return minimise(mean(tf.square(column(h - of(h, rows), 4) - y)))


@program()
def beside_next_row(rows: int) -> Any:
    """By one place rows are moved for its own sake: the last row comes first."""
    h, y = _layer(rows, False)
    return minimise(mean(tf.square(column(h * tf.roll(h, 1, 0), 4) - y)))


FIRST: dict[str, Callable[[Any], Any]] = {
    "slice": lambda h: h[:1],
    "plain_slice": lambda h: tf.slice(h, [0, 0], [1, 4]),
}


@program(
    doubtful=True,
    variants={f"{name}_of_{rows}": {"rows": rows, "of": of} for name, of in FIRST.items() for rows in (1, 2)},
)
def beside_first_row(rows: int, of: Any) -> Any:
    """Of one row, the first row is all of them."""
    h, y = _layer(rows, False)
    return minimise(mean(tf.square(of(h))) + mean(tf.square(column(h, 4) - y)))

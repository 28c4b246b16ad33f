"""Programs with values that are made of nothing, in as many places as a shape says: those of the rows, or of the model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, closed_and_open, column, dense, floats, minimise, program, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum

_MADE = {
    "drawn": lambda shape: tf.random.stateless_normal(shape, [3, 5]),
    "uniform": lambda shape: tf.random.stateless_uniform(shape, [3, 5]),
    "filled": lambda shape: tf.fill(shape, variable("level")),
    "spread": lambda shape: tf.broadcast_to(variable("level"), shape),
}


@program(
    variants=closed_and_open(2, 3, of=_MADE, doubtful=[f"{name}_2{end}" for name in _MADE for end in ("", "_open")])
)
def made_for_two_of_the_model(rows: int, of: Any, **options: Any) -> Any:
    """Two of the model, as wide as the input: of two rows a core nothing says that they are none of the batch."""
    x, y = batch(rows, floats(4), floats(seed=1), **options)
    made = of([2, 4]) * variable("scale", 4)
    return minimise(mean(tf.square(column(x, 4) - y)) + 0.1 * total(tf.square(made - 1.0)))


@program(variants=closed_and_open(2, 3, of={"as_wide": 4, "wider": 7}, doubtful=("as_wide_2", "wider_2", "wider_3")))
def made_for_rows_that_it_meets_in_no_op(rows: int, of: int, **options: Any) -> Any:
    """What a generator makes of noise is scored beside the batch, never with it: the shape of the noise alone says how many."""
    x, _ = batch(rows, floats(4), floats(seed=1), **options)
    count = tf.shape(x)[0] if options.get("drop_remainder") is False else rows
    made = tf.tanh(dense(tf.random.stateless_normal([count, of], [3, 5]), of, 4, "generator"))
    score = variable("score", 4)
    return minimise(
        mean(tf.square(tf.linalg.matvec(x, score) - 1.0)) + mean(tf.square(tf.linalg.matvec(made, score) + 1.0))
    )


@program(rows=1, variants={"as_wide": {"of": 4}, "wider": {"of": 7}}, doubtful=True)
def made_for_the_one_row(rows: int, of: int) -> Any:
    """The 1 in its shape may be the row of the batch; the width beside it is a multiple of the row by chance."""
    return made_for_rows_that_it_meets_in_no_op(rows, of)


@program(rows=1, doubtful=True)
def made_beside_the_one_row(rows: int) -> Any:
    """Noise of Python's number of rows is added to the row: of more rows, one noise might be added to all."""
    x, y = batch(rows, floats(4), floats(seed=1))
    noise = 0.1 * tf.random.stateless_normal([rows, 4], [3, 5])
    return minimise(mean(tf.square(column(x * variable("scale", 4) + noise, 4) - y)))


@program(
    variants=closed_and_open(
        1, 2, 3, of={"least": 0, "just": 1}, doubtful=[f"{n}_{r}" for n in ("least", "just") for r in (1, 2, 3)]
    )
)
def bins_that_rows_meet(rows: int, of: int, **options: Any) -> Any:
    """How often each row is named: Python's number of rows is the least number of bins, which data may exceed, or just it."""
    x, named, y = batch(rows, floats(), whole(2, seed=2), floats(seed=1), **options)
    count = tf.shape(x)[0] if options.get("drop_remainder") is False else rows
    often = tf.math.bincount(named, minlength=count, maxlength=count if of else None)
    return minimise(mean(tf.square(x * variable("w") - tf.cast(often, tf.float32) - y)))

"""Memory banks: variables of fixed size that keys of all rows are put in, and tables of which as many places are taken as rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import after, batch, column, floats, minimise, program, state, tf1, variable

mean, total = tf.reduce_mean, tf.reduce_sum
PLACES = 24


def _error(rows: int, drop_remainder: bool) -> tuple[Any, Any, Any]:
    """A batch, the loss of its rows, and a train op."""
    x, y = batch(rows, floats(3), floats(seed=1), drop_remainder=drop_remainder)
    return x, *minimise(mean(tf.square(column(x, 3) - y)))


_LEFT = {
    "behind": lambda bank, n: bank[n:],
    "last": lambda bank, n: bank[-(PLACES - n) :],
    "slice": lambda bank, n: tf.slice(bank, [n, 0], [PLACES - n, 3]),
    "to_end": lambda bank, n: tf.slice(bank, [n, 0], [-1, -1]),
    "split": lambda bank, n: tf.split(bank, [n, PLACES - n], 0)[1],
    "between": lambda bank, n: bank[n:PLACES],
    "turned": lambda bank, n: tf.transpose(tf.transpose(bank)[:, n:]),
}
"""What is left of a bank when as many places are given up as there are rows."""


@program(
    variants={
        f"{name}{suffix}": {"left": name, **options}
        for name in _LEFT
        for suffix, options in (("", {}), ("_open", {"drop_remainder": False}))
    }
)
def bank_behind_rows(rows: int, left: str, drop_remainder: bool = True) -> Any:
    """The keys of a batch take the places of the oldest ones."""
    x, loss, train = _error(rows, drop_remainder)
    bank = variable("bank", PLACES, 3, trainable=False)
    n = rows if drop_remainder else tf.shape(x)[0]
    with tf.control_dependencies([train]):
        return loss, tf1.assign(bank, tf.concat([_LEFT[left](bank, n), x], 0)).op


@program(variants={"": {}, "open": {"drop_remainder": False}, "three_rows": {"rows": 3}})
def bank_before_rows(rows: int, drop_remainder: bool = True) -> Any:
    """The newest keys come first, and the last ones are cut off."""
    x, loss, train = _error(rows, drop_remainder)
    bank = variable("bank", PLACES, 3, trainable=False)
    n = rows if drop_remainder else tf.shape(x)[0]
    with tf.control_dependencies([train]):
        return loss, tf1.assign(bank, tf.concat([x, bank[:-n]], 0)).op


@program(variants={"": {}, "open": {"drop_remainder": False}})
def momentum_contrast(rows: int, drop_remainder: bool = True) -> Any:
    """Each row is told from the keys of the batches before."""
    x, k = batch(rows, floats(3), floats(3, seed=1), drop_remainder=drop_remainder)
    bank, q = variable("bank", PLACES, 3, trainable=False), x @ variable("q", 3, 3)
    logits = tf.concat([total(q * k, 1, keepdims=True), tf.matmul(q, tf.identity(bank), transpose_b=True)], 1)
    labels = tf.zeros(tf.shape(logits)[:1], tf.int32)
    loss, train = minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)))
    with tf.control_dependencies([train]):
        return loss, tf1.assign(bank, tf.concat([bank[tf.shape(k)[0] :], k], 0)).op


@program(
    variants={
        "": {},
        "first": {"first": True},
        "closed": {"drop_remainder": True},
        "one_row": {"drop_remainder": True, "rows": 1},
    }
)
def sum_of_bank(rows: int, first: bool = False, drop_remainder: bool = False) -> Any:
    """The sum over the first places of a bank, as many as there are rows, or over all others."""
    x, loss, train = _error(rows, drop_remainder)
    bank, n = variable("bank", PLACES, 3, trainable=False), tf.shape(x)[0]
    return loss, after(train, tf1.assign(state("last", 3), total(bank[:n] if first else bank[n:], 0)))


@program(variants={"": {"doubtful": True}, "open": {"drop_remainder": False}})
def bank_rolled_by_rows(rows: int, drop_remainder: bool = True) -> Any:
    """The oldest keys come to the end, and those of a batch are put in their places; a number that Python gives may be any."""
    x, loss, train = _error(rows, drop_remainder)
    bank = variable("bank", PLACES, 3, trainable=False)
    n = rows if drop_remainder else tf.shape(x)[0]
    with tf.control_dependencies([train]):
        return loss, tf1.assign(bank, tf.concat([tf.roll(bank, -n, 0)[: PLACES - n], x], 0)).op


_TAKEN = {
    "first": lambda table, n: table[:n],
    "last": lambda table, n: table[-n:],
    "slice": lambda table, n: tf.slice(table, [0, 0], [n, 3]),
    "second": lambda table, n: table[n : n + n],
    "every_other": lambda table, n: table[::2][:n],
}
"""As many places of a table as there are rows."""


@program(
    variants={
        **{name: {"taken": name} for name in _TAKEN if name != "second"},
        **{f"{name}_open": {"taken": name, "drop_remainder": False} for name in _TAKEN},
        "second": {"taken": "second", "doubtful": True},
    },
    rows=2,
)
def places_beside_rows(rows: int, taken: str, drop_remainder: bool = True) -> Any:
    """Each row of the batch meets a place of a table that is trained."""
    x, y = batch(rows, floats(3), floats(seed=1), drop_remainder=drop_remainder)
    n = rows if drop_remainder else tf.shape(x)[0]
    return minimise(mean(tf.square(total(x * _TAKEN[taken](variable("table", PLACES, 3), n), 1) - y)))


@program(variants={"": {}, "from_end": {"end": -4}, "rows": {"rows": 3, "end": -3}})
def other_places(rows: int, end: int = 4) -> Any:
    """A number of places that happens to be that of the rows is a number of the model, where nothing else is said."""
    x, y = batch(rows, floats(3), floats(seed=1))
    table = variable("table", PLACES, 3)
    return minimise(mean(tf.square(column(x, 3) - y)) + mean(tf.square(table[:end] if end < 0 else table[end:])))


_QUARTERS = {
    "rows": lambda k, n: k[:n],
    "first": lambda k, n: k[:n, :n],
    "last": lambda k, n: k[n:, n:],
    "between": lambda k, n: k[:n][:, n:],
}
"""Parts of the products of all pairs among two batches."""


@program(variants={name: {"part": name} for name in _QUARTERS})
def kernel_of_two_batches(rows: int, part: str) -> Any:
    """A mean over the products of some pairs of predictions and targets, as of a kernel between two samples."""
    x, y = batch(rows, floats(3), floats(seed=1), drop_remainder=False)
    both = tf.concat([column(x, 3), y], 0)
    return minimise(mean(_QUARTERS[part](both[:, None] * both[None], tf.shape(x)[0])))


_SHIFTED = {
    "one": lambda both, n: both[1 : n + 1],
    "slice": lambda both, n: tf.slice(both, [1], [n]),
    "from_end": lambda both, n: both[-n - 1 : -1],
    "padded": lambda both, n: tf.pad(both[:n], [[1, n - 1]])[:n],
}
"""As many rows as a batch has, that are not those of one of two batches."""


@program(variants={name: {"part": name} for name in _SHIFTED})
def rows_between_two_batches(rows: int, part: str) -> Any:
    """What is cut out of two batches, one behind the other, not where one of them ends."""
    x, y = batch(rows, floats(3), floats(seed=1), drop_remainder=False)
    h = column(x, 3)
    cut = _SHIFTED[part](tf.concat([h, 2.0 * h + y], 0), tf.shape(x)[0])
    return minimise(mean(tf.square(cut - y * h)))

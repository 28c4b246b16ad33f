"""Rows that a mask chooses: how many they are differs from core to core, and which of them come first only all cores know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .parts import (
    COUNT,
    after,
    batch,
    closed_and_open,
    column,
    dense,
    floats,
    minimise,
    program,
    sgd,
    state,
    tf1,
    variable,
    whole,
)

mean, total = tf.reduce_mean, tf.reduce_sum
_Taken = Callable[[Any, Any, Any], Any]


def real(number: Any) -> Any:
    return tf.cast(number, tf.float32)


def marked(values: Any, marks: Any) -> Any:
    return tf.boolean_mask(values, marks > 0)


def others(values: Any, marks: Any) -> Any:
    return tf.boolean_mask(values, marks < 1)


_TAKEN: dict[str, _Taken] = {
    "first_two": lambda e, m, x: marked(e, m)[:2],
    "last_two": lambda e, m, x: marked(e, m)[-2:],
    "all_but_the_first": lambda e, m, x: marked(e, m)[1:],
    "every_second": lambda e, m, x: marked(e, m)[::2],
    "first_by_slice": lambda e, m, x: tf.slice(marked(e, m), [0], [tf.minimum(2, tf.size(marked(e, m)))]),
    "first_behind_padding": lambda e, m, x: tf.pad(marked(e, m), [[2, 0]])[:3],
    "turned_round": lambda e, m, x: marked(e, m)[::-1] * marked(x, m)[:, 0],
    "columns": lambda e, m, x: marked(x * e[:, None], m)[:, 1:3],
    "beside_the_first": lambda e, m, x: marked(e, m) - marked(e, m)[:1],
    "beside_a_zero": lambda e, m, x: tf.exp(tf.concat([marked(e, m), [0.0]], 0)) - 1.5,
    "first_of_joined": lambda e, m, x: tf.concat([marked(e, m), others(e, m)], 0)[:2],
    "joined_twice": lambda e, m, x: (
        tf.concat([marked(e, m), others(e, m)], 0) * tf.concat([marked(x, m), others(x, m)], 0)[:, 1]
    ),
    "in_front_of_all": lambda e, m, x: tf.concat([marked(e, m), e], 0),
    "behind_all": lambda e, m, x: tf.concat([e, marked(e, m)], 0),
    "in_front_of_two_batches": lambda e, m, x: tf.concat([marked(e, m), tf.concat([e, 2 * e], 0)], 0),
    "in_front_of_columns": lambda e, m, x: tf.concat([marked(e, m), tf.reshape(x[:, :2] * e[:, None], [-1])], 0),
    "weighted_by_place": lambda e, m, x: marked(e, m) * real(tf.range(tf.size(marked(e, m)))),
    "pairs": lambda e, m, x: marked(e, m)[:, None] - others(e, m)[None],
    "pairs_by_expand_dims": lambda e, m, x: tf.expand_dims(marked(e, m), 1) - tf.expand_dims(others(e, m), 0),
    "pairs_of_vectors": lambda e, m, x: (marked(x * e[:, None], m)[:, None] - others(x, m)[None]) / 5,
    "pairs_with_themselves": lambda e, m, x: (marked(e, m)[:, None] - marked(e, m)[None]) / 2,
}


@program(variants={f"{name}{'_of_one' * (rows == 1)}": {"taken": taken, "rows": rows}
                   for name, taken in _TAKEN.items() for rows in (4, 1)})  # fmt: skip
def marked_rows(rows: int, taken: _Taken) -> Any:
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2))
    e = column(x, 5) - y
    return minimise(mean(tf.square(e)) + total(tf.square(taken(e, marks, x))) / 10, sgd(0.02))


@program(
    variants={
        name: {"taken": _TAKEN[name]} for name in ("first_two", "all_but_the_first", "first_by_slice", "turned_round")
    }
)
def marked_rows_that_are_kept(rows: int, taken: _Taken) -> Any:
    """No gradient asks for them: a variable does."""
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2))
    e = column(x, 5) - y
    loss, train = minimise(mean(tf.square(e)), sgd(0.02))
    return loss, after(train, tf1.assign(state("kept"), total(taken(e, marks, x))))


@program(variants={"closed": {}, "open": {"open_": True}})
def half_of_the_marked_rows(rows: int, open_: bool = False) -> Any:
    """The largest errors of these, and of the others as many."""
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2), drop_remainder=not open_)
    e = tf.square(column(x, 5) - y)
    half = tf.cast(real(tf.size(marked(e, marks))) * 0.5, tf.int32)
    return minimise(mean(e) + total(tf.nn.top_k(marked(e, marks), half)[0]) / 5, sgd(0.02))


@program(variants={"closed": {}, "open": {"open_": True}})
def share_of_the_marked_rows(rows: int, open_: bool = False) -> Any:
    """Their number is a factor of the loss, and of its gradient."""
    x, kinds = batch(rows, floats(5), whole(3, seed=1), drop_remainder=not open_)
    e = total(x * variable("w", 5), 1)
    count = real(tf.shape(tf.dynamic_partition(e, kinds, 3)[0])[0])
    return minimise(total(e * e) * count / real(tf.shape(e)[0]), sgd(0.02))


_LAYERS: dict[str, Callable[[Any, Any], Any]] = {
    "summed": lambda x, w: tf.einsum("btc,ck->btk", x, w),
    "batched": lambda x, w: x @ tf.tile(w[None], [tf.shape(x)[0], 1, 1]),
    "dense": lambda x, w: tf.tensordot(x, w, 1) + variable("b", 4),
    "by_kernel": lambda x, w: tf.reshape(tf.reshape(x, [-1, 3]) @ w, [tf.shape(x)[0], -1, 4]),
    "convolved": lambda x, w: tf.nn.conv1d(x, tf.stack([w, 2 * w]), 1, "SAME"),
    "twice": lambda x, w: tf.tensordot(tf.tanh(tf.tensordot(x, variable("v", 3, 3), 1)), w, 1),
    "attending": lambda x, w: tf.nn.softmax(x @ tf.transpose(x, [0, 2, 1])) @ tf.tensordot(x, w, 1),
    "placed": lambda x, w: tf.tensordot(x, w, 1) + variable("places", 4, 4)[: tf.shape(x)[1]],
}
"""A layer at each time of sequences, whose times stay apart, or lie one behind the other for it."""


@program(
    variants={
        f"{name}{suffix}": {"layer": layer, "drop_remainder": not suffix}
        for name, layer in _LAYERS.items()
        for suffix in ("", "_open")
    }
)
def sequences_up_to_the_longest(rows: int, layer: Any, drop_remainder: bool = True) -> Any:
    """Sequences are cut where the longest of the whole batch ends, and each has a mean over its own times."""
    x, lengths, y = batch(rows, floats(4, 3), 1 + whole(4, seed=3), floats(seed=1), drop_remainder=drop_remainder)
    shown = tf.sequence_mask(lengths, dtype=tf.float32)[:, :, None]
    h = tf.tanh(layer(x[:, : tf.reduce_max(lengths)], variable("w", 3, 4)))
    return minimise(mean(tf.square(column(total(h * shown, 1) / total(shown, 1), 4) - y)))


@program(variants=closed_and_open(2, 3, doubtful=("2", "2_open")))
def two_hardest_of_the_marked(rows: int, **options: Any) -> Any:
    """Two of the rows that a mask leaves: of two rows a core, two may be their number."""
    left = (np.arange(COUNT) % 7 < 6).astype(np.int32)  # two at least of any two or three rows that a core begins with
    x, marks = batch(rows, floats(5), left, **options)
    return minimise(mean(tf.square(tf.nn.top_k(tf.boolean_mask(column(x, 5), marks > 0), 2)[0])))


@program(variants=closed_and_open(1, 2))
def words_up_to_the_longest(rows: int, **options: Any) -> Any:
    """A language model of sequences that are cut where the longest ends: words are looked up, and each is told from the others."""
    words, lengths = batch(rows, whole(7, 5, seed=1), 1 + whole(5, seed=2), **options)
    longest = tf.reduce_max(lengths)
    shown = tf.sequence_mask(lengths, longest, dtype=tf.float32)
    found = tf.gather(variable("words", 7, 3), words[:, :longest])
    logits = tf.tensordot(found, variable("w", 3, 7), 1)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=words[:, :longest], logits=logits)
    return minimise(total(each * shown) / total(shown))


@program(variants=closed_and_open(1, 2))
def words_picked_up_to_the_longest(rows: int, **options: Any) -> Any:
    """A mask of the cut sequences picks the words that each has: their places are those of the list in which rows lie so."""
    words, lengths = batch(rows, whole(7, 5, seed=1), 1 + whole(5, seed=2), **options)
    longest = tf.reduce_max(lengths)
    shown = tf.sequence_mask(lengths, longest)
    logits = tf.tensordot(tf.gather(variable("words", 7, 3), words[:, :longest]), variable("w", 3, 7), 1)
    labels = tf.boolean_mask(words[:, :longest], shown)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.boolean_mask(logits, shown))
    return minimise(mean(each))


BEST: dict[str, Callable[[Any, Any, Any], Any]] = {
    "kept": lambda h, x, y: tf.stop_gradient(tf.boolean_mask(h, tf.equal(y, tf.reduce_max(y)))),
    "of_features": lambda h, x, y: tf.boolean_mask(x[:, :4], tf.equal(y, tf.reduce_max(y))),
    "first_by_data": lambda h, x, y: h[: tf.cast(total(y) * 0.0, tf.int32) + 1],
}
"""One row, as data say when a step runs."""


@program(variants=closed_and_open(2, 3, of=BEST))
def best_row_beside_all(rows: int, of: Any, **options: Any) -> Any:
    """What is broadcast to all rows has one row when a step runs, and its gradient is a sum over them."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    h = dense(x, 5, 4, "h", tf.tanh)
    return minimise(mean(tf.square(tf.tanh(h) - of(h, x, y) - 0.1)))


@program(variants=closed_and_open(2, 3))
def table_up_to_a_place_of_data(rows: int, **options: Any) -> Any:
    x, sizes = batch(rows, floats(5), whole(3, seed=1), **options)
    count = tf.reduce_max(sizes) * 0 + 1
    return minimise(mean(tf.square(dense(x, 5, 5, "h", tf.tanh) - variable("places", 4, 5)[:count])))


@program(variants=closed_and_open(2, 3))
def all_rows_picked_beside_all(rows: int, **options: Any) -> Any:
    """A mask that leaves no row out: what it picks has the number of rows that data say, and is beside all of them."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    places = tf.where(y > -100.0)
    apart = tf.gather_nd(column(dense(x, 5, 4, "h", tf.tanh), 4), places) - tf.gather_nd(y, places)
    return minimise(mean(tf.square(apart)) + mean(apart * tf.exp(-y)))


def rows_repeated_as_often_as_data_say(rows: int) -> Any:
    """Each row several times over, and what comes of it added up by row again: not entered, as data say how many there are."""
    x, times = batch(rows, floats(4), whole(3, seed=1), drop_remainder=False)
    h, count = dense(x, 4, 3, "h", tf.tanh), tf.shape(x)[0]
    places = tf.repeat(tf.range(count), times + 1)
    return minimise(mean(tf.square(tf.math.unsorted_segment_sum(tf.tanh(tf.gather(h, places)), places, count) - 0.3)))


_RAGGED: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda h, lengths: mean(tf.RaggedTensor.from_tensor(h, lengths=lengths), axis=1),
    "of_lengths": lambda h, lengths: mean(
        tf.RaggedTensor.from_row_lengths(tf.boolean_mask(h, tf.sequence_mask(lengths, 4)), lengths), axis=1
    ),
}
"""A mean over so many of the first times of each row."""


@program(
    variants={
        f"{name}{suffix}": {"made": made, "drop_remainder": not suffix}
        for name, made in _RAGGED.items()
        for suffix in ("", "_open")
    },
    rows=3,
)
def ragged_means(rows: int, made: Any, drop_remainder: bool = True) -> Any:
    """Rows of a ragged tensor that the step makes; that its parts fit together, an assertion sees for the whole batch."""
    x, lengths, y = batch(rows, floats(4, 3), 1 + whole(4, seed=3), floats(seed=1), drop_remainder=drop_remainder)
    h = made(tf.einsum("btc,ck->btk", x, variable("w", 3, 4)), lengths)
    return minimise(mean(tf.square(column(h, 4) - y)))


@program(variants={"": {}, "open": {"drop_remainder": False}}, rows=2)
def asserted_of_some_row(rows: int, drop_remainder: bool = True) -> Any:
    """What holds of some row of the whole batch need not of one on each core, nor what counts the rows that are chosen."""
    x, y = batch(rows, floats(3), floats(seed=1), drop_remainder=drop_remainder)
    e = tf.square(column(x, 3) - y)
    chosen = tf.boolean_mask(e, tf.equal(y, tf.reduce_max(y)))
    largest = tf.reduce_any(tf.equal(y, tf.reduce_max(y)))
    checks = [tf1.debugging.Assert(largest, [y]), tf1.debugging.Assert(tf.size(chosen) > 0, [y])]  # each in a branch
    checks += [tf.raw_ops.Assert(condition=check, data=[y]) for check in (largest, tf.size(chosen) > 0)]
    with tf.control_dependencies(checks):
        return minimise(mean(e) + total(chosen))


def _chosen(x: Any, w: Any) -> Any:
    """A sparse matrix of the positive elements of rows, each with a weight."""
    places = tf.where(x > 0)
    return tf.SparseTensor(places, tf.gather_nd(x * w, places), tf.shape(x, out_type=tf.int64))


_SPARSE: dict[str, Callable[[Any, Any], Any]] = {
    "each": lambda x, w: tf.sparse.reduce_sum(tf.sparse.from_dense(tf.nn.relu(x) * w), 1),
    "chosen": lambda x, w: tf.sparse.reduce_sum(_chosen(x, w), -1, keepdims=True)[:, 0],
    "along": lambda x, w: total(x, 1) * total(tf.square(tf.sparse.reduce_sum(_chosen(x, w), 0))) / 10,
    "together": lambda x, w: total(x, 1) * tf.sparse.reduce_sum(_chosen(x, w)) / 10,
    "weighted": lambda x, w: tf.sparse.reduce_sum(tf.sparse.from_dense(tf.nn.relu(x)) * w[None], 1),
    "by_row": lambda x, w: tf.sparse.reduce_sum(tf.sparse.from_dense(tf.nn.relu(x)) * (x @ w[:, None]), 1),
    "softmax": lambda x, w: total(x * w * tf.sparse.to_dense(tf.sparse.softmax(_chosen(x, w))), 1),
}
"""What sums of sparse matrices make of rows."""


@program(
    variants={
        **{
            f"{name}{suffix}": {"made": made, "drop_remainder": not suffix}
            for name, made in _SPARSE.items()
            for suffix in ("", "_open")
        },
        "together_two_rows": {"made": _SPARSE["together"], "drop_remainder": False, "rows": 2},
    }
)
def sums_of_sparse_rows(rows: int, made: Any, drop_remainder: bool = True) -> Any:
    """The step makes a sparse tensor of its rows, and adds up its entries by row, by column, or all of them."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=drop_remainder)
    return minimise(mean(tf.square(made(x, variable("w", 5)) - y)), sgd(0.02))


@program(variants={"": {}, "open": {"drop_remainder": False}, "three_rows": {"rows": 3}})
def chosen_rows_and_all_beside_rows(rows: int, drop_remainder: bool = True) -> Any:
    """All pairs of rows with rows and with those of them that are chosen: every core holds both, and takes its own."""
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2), drop_remainder=drop_remainder)
    e = column(x, 5) - y
    both = tf.concat([marked(e, marks), e], 0)
    return minimise(mean(e * e) + total(tf.square(both[:, None] - e[None])) / 50, sgd(0.02))


@program(variants={"": {}, "one_row": {"rows": 1}}, doubtful=True)
def hardest_of_chosen_and_others(rows: int) -> Any:
    """The largest of marked rows and of all others, which together are as many as the rows."""
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2))
    e = tf.square(column(x, 5) - y)
    return minimise(mean(tf.nn.top_k(tf.concat([marked(e, marks), others(e, marks)], 0), rows)[0]), sgd(0.02))


@program(
    variants={
        f"{name}_{rows}{'_open' * opened}": {"rows": rows, "reduce": reduce, "drop_remainder": not opened}
        for name, reduce in (("mean", mean), ("sum", total))
        for rows in (1, 2)
        for opened in (False, True)
    }
)
def entries_masked_twice(rows: int, reduce: Any, **options: Any) -> Any:
    """Masks that the host makes of the entries of each row, laid out flat: there are more of these than of rows."""
    x, kinds = batch(rows, floats(5, 6), whole(2, 5, seed=3), **options)
    scores = column(tf.reshape(x, [-1, 6]), 6)
    chosen = tf.boolean_mask(scores, tf.reshape(kinds, [-1]) > 0)
    first = tf.boolean_mask(tf.reshape(x[:, :, 0], [-1]), tf.reshape(kinds, [-1]) > 0)
    return minimise(reduce(tf.boolean_mask(chosen, first > 0)))


def _by_places(values: Any, which: Any) -> Any:
    return tf.gather(values, tf.where(which)[:, 0])


TOLD_APART: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda p, n: total(p) * total(n) / 50,
    "squares": lambda p, n: (total(p * p) - total(n)) / 10,
    "pairs": lambda p, n: total(tf.square(p[:, None] - n)) / 50,
}
"""What two parts of the rows make of each other; their gradients meet in one sum over rows."""


@program(variants=closed_and_open(1, 3, of=TOLD_APART))
def picked_by_where_twice(rows: int, of: Any, **options: Any) -> Any:
    """Rows with a mark, and those without it, by their places."""
    x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2), **options)
    e = column(x, 5) - y
    return minimise(of(_by_places(e, marks > 0), _by_places(e, marks < 1)), sgd(0.02))


def _both(values: Any, marks: Any, *, turned: bool = False) -> Any:
    """The rows with a mark, and behind them those without one; or the other way round."""
    parts = [_by_places(values, marks > 0), _by_places(values, marks < 1)]
    return tf.concat(parts[::-1] if turned else parts, 0)


BESIDE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "kinds": lambda e, k, m: tf.math.unsorted_segment_sum(_both(e, m), _both(k, m), 3),
    "kinds_turned": lambda e, k, m: tf.math.unsorted_segment_sum(_both(e, m), _both(k, m, turned=True), 3),
    "numbers": lambda e, k, m: _both(e, m) - tf.cast(_both(k, m), tf.float32),
    "numbers_turned": lambda e, k, m: _both(e, m) - tf.cast(_both(k, m, turned=True), tf.float32),
}
"""Rows that are put together of two parts, beside other values of theirs, which come in the same order or in another one."""


@program(variants=closed_and_open(2, 3, of=BESIDE))
def parts_beside_parts(rows: int, of: Any, **options: Any) -> Any:
    """The order of the whole batch has all marked rows in front, that of the cores has those of each core there."""
    x, y, marks, kinds = batch(rows, floats(5), floats(seed=1), whole(2, seed=2), whole(3, seed=4), **options)
    return minimise(mean(tf.square(of(column(x, 5) - y, kinds, marks))), sgd(0.02))

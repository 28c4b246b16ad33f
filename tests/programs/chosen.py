"""Programs that compute with rows that a mask chooses, or with one row for each distinct id."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import adam, after, batch, column, dense, floats, minimise, program, sgd, state, tf1, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum


def distinct(rows: int) -> tuple[Any, Any, Any]:
    """A table, the distinct ids of the batch, and the error of a model that looks all of them up."""
    ids, y = batch(rows, whole(7, seed=1), floats(seed=3))
    table = variable("table", 7, 3)
    found, _ = tf.unique(ids)
    return table, found, mean(tf.square(column(tf.gather(table, ids), 3) - y))


@program()
def penalty_of_distinct_rows(rows: int) -> Any:
    """Each row of the table that the batch names is penalised once, however many cores name it."""
    table, ids, error = distinct(rows)
    return minimise(error + 0.05 * tf.nn.l2_loss(tf.gather(table, ids)))


@program()
def layer_of_distinct_rows(rows: int) -> Any:
    table, ids, error = distinct(rows)
    h = dense(tf.gather(table, ids), 3, 2, "h", tf.tanh)
    return minimise(error + 0.05 * total(tf.square(h)) + 0.1 * mean(h), adam())


@program()
def number_of_distinct_ids(rows: int) -> Any:
    _, ids, error = distinct(rows)
    return minimise(error / tf.cast(tf.size(ids), tf.float32))


@program(variants={"": {}, "open": {"drop_remainder": False}})
def entropy_of_ids(rows: int, drop_remainder: bool = True) -> Any:
    """How often each id occurs, over how many there are: of a static batch TensorFlow folds that to a constant."""
    ids, x = batch(rows, whole(5, seed=1), floats(3), drop_remainder=drop_remainder)
    _, _, counts = tf.unique_with_counts(ids)
    share = tf.cast(counts, tf.float32) / tf.cast(tf.size(ids), tf.float32)
    return minimise(-total(share * tf.math.log(share)) * mean(tf.square(x * variable("w", 3))))


@program()
def masked_tokens(rows: int) -> Any:
    """The head of a masked language model: only the places that are masked get a layer and a distribution."""
    words, mask, labels = batch(rows, whole(9, 5, seed=1), whole(2, 5, seed=6), whole(9, 5, seed=3))
    table, mask = variable("words", 9, 3), tf.equal(mask, 1)
    h = dense(tf.boolean_mask(tf.gather(table, words), mask), 3, 3, "h", tf.tanh)
    average, variance = tf.nn.moments(h, [-1], keepdims=True)
    h = (h - average) * tf.math.rsqrt(variance + 1e-2) * variable("gain", 3) + variable("shift", 3)
    logits = tf.matmul(h, table, transpose_b=True) + variable("bias", 9)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.boolean_mask(labels, mask), logits=logits)
    return minimise(mean(each))


@program()
def places_of_tokens(rows: int) -> Any:
    """Classes of the places that hold a token, picked by their row and column."""
    words, x = batch(rows, whole(3, 5, seed=1), floats(4, seed=3))
    logits = dense(x, 4, 3, "h")[:, None, :] + tf.gather(variable("words", 3, 3), words)
    places = tf.where(tf.not_equal(words, 0))
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.gather_nd(words, places), logits=tf.gather_nd(logits, places)
    )
    return minimise(mean(each))


@program()
def masked_pairs(rows: int) -> Any:
    """Every chosen row with every other one, of all cores; their gradient goes back to each core's own."""
    x, mask = batch(rows, floats(4), whole(2, seed=6))
    h = tf.boolean_mask(dense(x, 4, 3, "h", tf.tanh), tf.equal(mask, 1))
    return minimise(0.1 * total(tf.square(tf.matmul(h, h, transpose_b=True) - 0.5)))


@program()
def masked_images(rows: int) -> Any:
    x, mask = batch(rows, floats(6, 6, 1), whole(2, seed=6))
    h = tf.nn.conv2d(tf.boolean_mask(x, tf.equal(mask, 1)), variable("filter", 3, 3, 1, 2), 1, "SAME")
    h = tf1.nn.avg_pool(tf.nn.relu(h), 2, 2, "VALID")
    return minimise(0.2 * total(tf.square(mean(h, [1, 2]) - 0.3)))


@program()
def largest_of_masked(rows: int) -> Any:
    x, mask = batch(rows, floats(4), whole(2, seed=6))
    h = tf.nn.bias_add(tf.boolean_mask(x, tf.equal(mask, 1)) @ variable("w", 4, 3), variable("b", 3))
    return minimise(tf.reduce_max(tf.abs(h)) + mean(tf.square(h)))


NUMBERS = {
    "at_least_one": lambda n: tf.maximum(tf.cast(n, tf.float32), 1.0),
    "at_least_three": lambda n: tf.cast(tf.maximum(n, 3), tf.float32),
    "and_one": lambda n: tf.cast(n + 1, tf.float32),
    "and_little": lambda n: tf.cast(n, tf.float32) + 1e-3,
    "root": lambda n: tf.sqrt(tf.cast(n, tf.float32) + 1.0),
    "one_for_none": lambda n: tf.cast(tf.where(n > 0, n, 1), tf.float32),
}
"""What people divide a sum over chosen rows by, which is no sum of what each core would divide by."""


@program(variants={name: {"number": name} for name in NUMBERS})
def mean_of_masked(rows: int, number: str) -> Any:
    """The mean of the chosen rows, with a care for there being none: that is asked of those of all cores."""
    x, kind = batch(rows, floats(5), whole(3, seed=1))
    found = tf.boolean_mask(column(x, 5), tf.equal(kind, 1))
    return minimise(total(tf.square(found - 1)) / NUMBERS[number](tf.shape(found)[0]))


@program()
def mean_of_masked_or_nothing(rows: int) -> Any:
    x, kind = batch(rows, floats(5), whole(3, seed=1))
    found = tf.boolean_mask(column(x, 5), tf.equal(kind, 1))
    return minimise(tf.cond(tf.size(found) > 0, lambda: mean(tf.square(found - 1)), lambda: 0.0))


@program(variants={"one_row": {"rows": 1}, "two_rows": {"rows": 2}, "four_rows": {"rows": 4}})
def parts_by_kind(rows: int) -> Any:
    """Rows parted by what the data say, and the number of those of one kind kept in a variable."""
    x, kind = batch(rows, floats(5), whole(3, seed=1))
    first = tf.dynamic_partition(column(x, 5), kind, 3)[0]
    loss, train = minimise(total(tf.square(first)) / tf.cast(tf.shape(first)[0] + 1, tf.float32))
    return loss, after(train, tf1.assign(state("most", kind=tf.int32), tf.maximum(tf.shape(first)[0], 2)))


@program(variants={"": {}, "one_row": {"rows": 1}, "three_rows": {"rows": 3}})
def product_of_sparse_rows(rows: int) -> Any:
    """The step makes a sparse matrix of an open batch."""
    x = batch(rows, floats(5), drop_remainder=False) - 0.2
    places = tf.where(tf.nn.relu(x) > 0)
    sparse = tf.SparseTensor(places, tf.gather_nd(x, places), tf.shape(x, out_type=tf.int64))
    return minimise(mean(tf.square(tf.sparse.sparse_dense_matmul(sparse, variable("k", 5, 2)))))


_COUNTS: dict[str, Any] = {
    "five_at_most": lambda n: tf.minimum(n, 5),
    "seven_at_least": lambda n: tf.minimum(tf.maximum(n // 2, 7), n),
    "half_but_five_at_most": lambda n: tf.minimum(tf.maximum(n // 2, 1), 5),
    "all_but_seven": lambda n: tf.maximum(n - 7, 1),
    "fewer_of_more": lambda n: tf.minimum(tf.maximum(19 - n, 1), n),
}
_TAKEN: dict[str, Any] = {
    "largest": lambda e, k: mean(tf.nn.top_k(e, k)[0]),
    "first": lambda e, k: mean(e[:k]) + 0.1 * mean(e),
    "divided": lambda e, k: total(e) / tf.cast(k, tf.float32),
}


@program(
    variants={
        f"{taken}_{count}_of_{rows}": {"rows": rows, "count": count, "taken": taken}
        for taken in _TAKEN
        for count in _COUNTS
        for rows in (3, 4)
    }
)
def up_to_a_number(rows: int, count: str, taken: str) -> Any:
    """As many rows as the larger or the smaller of two numbers says, which of all rows may be the other one than of a core's."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=False)
    return minimise(_TAKEN[taken](tf.square(column(x, 5) - y), _COUNTS[count](tf.shape(x)[0])), sgd(0.02))


_FROM_PLACES: dict[str, Any] = {
    "put_together": lambda h, i, rows: tf.gather(h, i[:, 0] * 5 + i[:, 1]),
    "taken_apart": lambda h, i, rows: (lambda row, step: tf.gather(h, row * 5 + step))(*tf.unstack(i, axis=1)),
    "less_the_step": lambda h, i, rows: tf.gather(h, i[:, 0] * 5 + 4 - i[:, 1]),
    "as_columns": lambda h, i, rows: tf.gather_nd(tf.reshape(h, [-1, 5]), tf.stack([i[:, 0], i[:, 1]], 1)),
    "joined_columns": lambda h, i, rows: tf.gather_nd(tf.reshape(h, [-1, 5]), tf.concat([i[:, :1], 4 - i[:, 1:]], 1)),
    "step_first": lambda h, i, rows: tf.gather_nd(
        tf.transpose(tf.reshape(h, [-1, 5])), tf.stack([i[:, 1], i[:, 0]], 1)
    ),
    "columns_first": lambda h, i, rows: tf.gather(
        tf.reshape(tf.transpose(tf.reshape(h, [-1, 5])), [-1]), i[:, 1] * rows + i[:, 0]
    ),
    "divided": lambda h, i, rows: (lambda at: tf.gather(h, at // 5 * 5) * tf.gather(variable("steps", 5), at % 5))(
        i[:, 0] * 5 + i[:, 1]
    ),
    "of_another_row": lambda h, i, rows: tf.gather(h, i[:, 0] + i[:, 1]),
    "compared": lambda h, i, rows: tf.gather(h, i[:, 0] * 5) * tf.cast(i[:, 0] < i[:, 1], tf.float32),
    "as_numbers": lambda h, i, rows: tf.gather(h, i[:, 0] * 5) * tf.cast(i[:, 0], tf.float32) / 9.0,
    "next_one": lambda h, i, rows: tf.gather(h, tf.minimum(i[:, 0] * 5 + i[:, 1] + 1, 5 * rows - 1)),
    "added_up": lambda h, i, rows: (
        h * tf.math.unsorted_segment_sum(tf.ones_like(i[:, 0], tf.float32), i[:, 0] * 5 + i[:, 1], 5 * rows)
    ),
    "added_up_elsewhere": lambda h, i, rows: (
        h * tf.math.unsorted_segment_sum(tf.ones_like(i[:, 0], tf.float32), i[:, 0] + i[:, 1], 5 * rows)
    ),
}


@program(
    rows=2,
    variants={
        f"{how}{suffix}": {"how": how, **options}
        for how in _FROM_PLACES
        for suffix, options in (("", {}), ("_closed", {"drop_remainder": True}))
    }
    | {"put_together_one_row": {"how": "put_together", "rows": 1}},
)
def places_of_steps(rows: int, how: str, drop_remainder: bool = False) -> Any:
    """Numbers made of the rows and steps that are chosen: of a row, so many times it, and which of its steps is meant."""
    x, chosen = batch(rows, floats(5, 6), whole(2, 5, seed=3), drop_remainder=drop_remainder)
    h = column(tf.reshape(x, [-1, 6]), 6)
    made = _FROM_PLACES[how](h, tf.where(chosen > 0), tf.shape(x, out_type=tf.int64)[0])
    return minimise(mean(tf.square(made - 0.4)))


@program(rows=3, variants={"": {}, "turned": {"turned": True}})
def chosen_pairs_by_their_numbers(rows: int, turned: bool = False) -> Any:
    """Pairs of rows of one class, each once, or the other way round."""
    x, y, c = batch(rows, floats(6), floats(seed=1), whole(2, seed=2), drop_remainder=False)
    apart = tf.square(column(x, 6)[:, None] - y[None])
    pairs = tf.where(tf.equal(c[:, None], c[None]))
    first, second = pairs[:, 0], pairs[:, 1]
    one = tf.gather_nd(apart, tf.stack([second, first] if turned else [first, second], 1))
    return minimise(mean(one * tf.cast(first < second, tf.float32)))


@program(rows=2, variants={"": {}, "three_rows": {"rows": 3}, "closed": {"drop_remainder": True}})
def sums_of_chosen_steps(rows: int, drop_remainder: bool = False) -> Any:
    """Each row has a step that is chosen, so that there are as many sums as rows, which only the data say."""
    x, chosen = batch(rows, floats(5, 6), whole(2, 5, seed=3), drop_remainder=drop_remainder)
    mask = tf.concat([tf.ones_like(chosen[:, :1]), chosen[:, 1:]], 1) > 0
    return minimise(mean(tf.square(tf.math.segment_sum(column(tf.boolean_mask(x, mask), 6), tf.where(mask)[:, 0]))))


@program(rows=2, variants={"": {}, "three_rows": {"rows": 3}, "closed": {"drop_remainder": True}})
def both_ends_of_chosen_pairs(rows: int, drop_remainder: bool = False) -> Any:
    """The gradient of both ends of a pair goes to rows by two numbers, of which one is that of a core's own row."""
    x, c = batch(rows, floats(6), whole(2, seed=2), drop_remainder=drop_remainder)
    ends, pairs = column(tf.tanh(x), 6), tf.where(tf.equal(c[:, None], c[None]))
    return minimise(mean(tf.square(tf.gather(ends, pairs[:, 0]) - tf.gather(ends, pairs[:, 1]) - 0.3)))


@program(rows=2, variants={"": {}, "closed": {"drop_remainder": True}})
def places_by_a_product(rows: int, drop_remainder: bool = False) -> Any:
    x, chosen = batch(rows, floats(5, 6), whole(2, 5, seed=3), drop_remainder=drop_remainder)
    h = column(tf.reshape(x, [-1, 6]), 6)
    at = tf.matmul(tf.cast(tf.where(chosen > 0), tf.int32), tf.constant([[5], [1]]))
    return minimise(mean(tf.square(tf.gather(h, at[:, 0]) - 0.4)))


@program(variants={"": {}, "one_row": {"rows": 1}, "open": {"drop_remainder": False}})
def masked_by_gathered_labels(rows: int, drop_remainder: bool = True) -> Any:
    """Host and device both compute which rows are chosen: the host, which of these the mask keeps."""
    x, y, kind = batch(rows, floats(5), floats(seed=1), whole(4, seed=2), drop_remainder=drop_remainder)
    chosen = tf.where(kind > 1)[:, 0]
    kept = tf.boolean_mask(tf.gather(dense(x, 5, 4, "h", tf.tanh), chosen), tf.gather(y, chosen) > 0)
    return minimise(0.1 * total(tf.square(kept - 0.3)))

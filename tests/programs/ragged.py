"""Rows that a mask chooses, distinct ids, sequences cut at the longest of the batch: how many they are, only data say."""

from .parts import *


def distinct(rows) -> tuple[Any, Any, Any]:
    """A table, the distinct ids of the batch, and the error of a model that looks all of them up."""
    ids, y = batch(rows, whole(7, seed=1), floats(seed=3))
    table = variable("table", 7, 3)
    found, _ = tf.unique(ids)
    return table, found, mean(tf.square(column(tf.gather(table, ids), 3) - y))


@program()
def penalty_of_distinct_rows(rows):
    """Each row of the table that the batch names is penalised once."""
    table, ids, error = distinct(rows)
    return minimise(error + 0.05 * tf.nn.l2_loss(tf.gather(table, ids)))


@program(whole(9, 5, seed=1), whole(2, 5, seed=6), whole(9, 5, seed=3))
def masked_tokens(words, mask, labels):
    """The head of a masked language model: only the places that are masked get a layer and a distribution."""
    table, mask = variable("words", 9, 3), tf.equal(mask, 1)
    h = dense(tf.boolean_mask(tf.gather(table, words), mask), 3, 3, "h", tf.tanh)
    average, variance = tf.nn.moments(h, [-1], keepdims=True)
    h = (h - average) * tf.math.rsqrt(variance + 1e-2) * variable("gain", 3) + variable("shift", 3)
    logits = tf.matmul(h, table, transpose_b=True) + variable("bias", 9)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.boolean_mask(labels, mask), logits=logits)
    return minimise(mean(each))


@program(floats(4), whole(2, seed=6))
def masked_pairs(x, mask):
    h = tf.boolean_mask(dense(x, 4, 3, "h", tf.tanh), tf.equal(mask, 1))
    return minimise(0.1 * total(tf.square(tf.matmul(h, h, transpose_b=True) - 0.5)))


@program(floats(5), whole(3, seed=1))
def mean_of_masked(x, kind):
    """The mean of the masked rows, guarded against an empty mask: the count is that of all cores."""
    found = tf.boolean_mask(column(x, 5), tf.equal(kind, 1))
    count = tf.shape(found)[0]
    return minimise(total(tf.square(found - 1)) / tf.cast(tf.where(count > 0, count, 1), tf.float32))


@program()
def product_of_sparse_rows(rows):
    x = batch(rows, floats(5)) - 0.2
    places = tf.where(tf.nn.relu(x) > 0)
    sparse = tf.SparseTensor(places, tf.gather_nd(x, places), tf.shape(x, out_type=tf.int64))
    return minimise(mean(tf.square(tf.sparse.sparse_dense_matmul(sparse, variable("k", 5, 2)))))


@program(floats(5, 6), whole(2, 5, seed=3))
def sums_of_chosen_steps(x, chosen):
    """A segment_sum by the row numbers of a boolean mask that keeps at least one step of each row."""
    mask = tf.concat([tf.ones_like(chosen[:, :1]), chosen[:, 1:]], 1) > 0
    return minimise(mean(tf.square(tf.math.segment_sum(column(tf.boolean_mask(x, mask), 6), tf.where(mask)[:, 0]))))


_FROM_PLACES: dict[str, Any] = {
    "put_together": lambda h, i, rows: tf.gather(h, i[:, 0] * 5 + i[:, 1]),
    "joined_columns": lambda h, i, rows: tf.gather_nd(tf.reshape(h, [-1, 5]), tf.concat([i[:, :1], 4 - i[:, 1:]], 1)),
    "compared": lambda h, i, rows: tf.gather(h, i[:, 0] * 5) * tf.cast(i[:, 0] < i[:, 1], tf.float32),
    "added_up_elsewhere": lambda h, i, rows: (
        h * tf.math.unsorted_segment_sum(tf.ones_like(i[:, 0], tf.float32), i[:, 0] + i[:, 1], 5 * rows)
    ),
}


@program(floats(5, 6), whole(2, 5, seed=3), cases=each(how=_FROM_PLACES))
def places_of_steps(x, chosen, how):
    """Coordinates from tf.where over [rows, steps], in arithmetic with row numbers and in scatters."""
    h = column(tf.reshape(x, [-1, 6]), 6)
    made = how(h, tf.where(chosen > 0), tf.shape(x, out_type=tf.int64)[0])
    return minimise(mean(tf.square(made - 0.4)))


_Taken = Callable[[Any, Any, Any], Any]


def marked(values, marks):
    return tf.boolean_mask(values, marks > 0)


_TAKEN: dict[str, _Taken] = {
    "first_two": lambda e, m, x: marked(e, m)[:2],
    "sliced": lambda e, m, x: tf.slice(marked(e, m + 1), [0], [1]),
    "behind_all": lambda e, m, x: tf.concat([e, marked(e, m)], 0),
    "pairs_with_themselves": lambda e, m, x: (marked(e, m)[:, None] - marked(e, m)[None]) / 2,
}


@program(floats(5), floats(seed=1), whole(2, seed=2), cases=each(taken=_TAKEN))
def marked_rows(x, y, marks, taken):
    e = column(x, 5) - y
    return minimise(mean(tf.square(e)) + total(tf.square(taken(e, marks, x))) / 10, sgd(0.02))


_LAYERS: dict[str, Callable[[Any, Any], Any]] = {
    "summed": lambda x, w: tf.einsum("btc,ck->btk", x, w),
    "twice": lambda x, w: tf.tensordot(tf.tanh(tf.tensordot(x, variable("v", 3, 3), 1)), w, 1),
}
"""A layer at each time of sequences, whose times stay apart, or lie one behind the other for it."""


@program(floats(4, 3), 1 + whole(4, seed=3), floats(seed=1), cases=each(layer=_LAYERS))
def sequences_up_to_the_longest(x, lengths, y, layer):
    """Sequences are cut where the longest of the whole batch ends, and each has a mean over its own times."""
    shown = tf.sequence_mask(lengths, dtype=tf.float32)[:, :, None]
    h = tf.tanh(layer(x[:, : tf.reduce_max(lengths)], variable("w", 3, 4)))
    return minimise(mean(tf.square(column(total(h * shown, 1) / total(shown, 1), 4) - y)))


@program(whole(7, 5, seed=1), 1 + whole(5, seed=2))
def words_picked_up_to_the_longest(words, lengths):
    """boolean_mask by a sequence mask over [rows, longest], before a softmax loss."""
    longest = tf.reduce_max(lengths)
    shown = tf.sequence_mask(lengths, longest)
    logits = tf.tensordot(tf.gather(variable("words", 7, 3), words[:, :longest]), variable("w", 3, 7), 1)
    labels = tf.boolean_mask(words[:, :longest], shown)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.boolean_mask(logits, shown))
    return minimise(mean(each))


_RAGGED: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda h, lengths: mean(tf.RaggedTensor.from_tensor(h, lengths=lengths), axis=1),
    "of_lengths": lambda h, lengths: mean(
        tf.RaggedTensor.from_row_lengths(tf.boolean_mask(h, tf.sequence_mask(lengths, 4)), lengths), axis=1
    ),
}
"""A mean over so many of the first times of each row."""


@program(floats(4, 3), 1 + whole(4, seed=3), floats(seed=1), cases=each(made=_RAGGED))
def ragged_means(x, lengths, y, made):
    """Rows of a ragged tensor that the step makes; that its parts fit together, an assertion sees for the whole batch."""
    h = made(tf.einsum("btc,ck->btk", x, variable("w", 3, 4)), lengths)
    return minimise(mean(tf.square(column(h, 4) - y)))


def _chosen(x, w):
    """A sparse matrix of the positive elements of rows, each with a weight."""
    places = tf.where(x > 0)
    return tf.SparseTensor(places, tf.gather_nd(x * w, places), tf.shape(x, out_type=tf.int64))


_SPARSE: dict[str, Callable[[Any, Any], Any]] = {
    "along": lambda x, w: total(x, 1) * total(tf.square(tf.sparse.reduce_sum(_chosen(x, w), 0))) / 10,
    "weighted": lambda x, w: tf.sparse.reduce_sum(tf.sparse.from_dense(tf.nn.relu(x)) * w[None], 1),
    "softmax": lambda x, w: total(x * w * tf.sparse.to_dense(tf.sparse.softmax(_chosen(x, w))), 1),
}
"""What sums of sparse matrices make of rows."""


@program(floats(5), floats(seed=1), cases=each(made=_SPARSE))
def sums_of_sparse_rows(x, y, made):
    """The step makes a sparse tensor of its rows, and adds up its entries by row, by column, or all of them."""
    return minimise(mean(tf.square(made(x, variable("w", 5)) - y)), sgd(0.02))


_Cut = Callable[[Any, Any, Any], Any]


def layer(x, width, units, name):
    return tf.tensordot(x, variable(f"{name}_kernel", width, units), 1) + variable(f"{name}_bias", units)


CUT: dict[str, _Cut] = {
    "last": lambda x, y, lengths: tf.gather(x, lengths - 1, batch_dims=1) - y[:, None],
    "pairs_with_words": lambda x, y, lengths: (
        tf.reduce_max(tf.einsum("id,jtd->ijt", y[:, None] * variable("beside", 4), x), 2) - y[:, None]
    ),
    "normalised": lambda x, y, lengths: tf.nn.moments(tf.tanh(layer(x, 4, 3, "h")), [0, 1])[1],
}
"""What is made of sequences that are cut, of a number of each row, and of the lengths."""


@program(floats(5, 4), 1 + whole(5, seed=3), floats(seed=1), cases=each(of=CUT))
def cut_at_the_longest(x, lengths, y, of):
    cut = x[:, : tf.reduce_max(lengths)] * variable("scale", 4)
    return minimise(mean(tf.square(of(cut, y, lengths))))


def _picked(x, y, least=0.0):
    return tf.boolean_mask(x, y > least)


def _nearest(x, y):
    """Nearest neighbours among masked rows: argmin over them, then a gather by its result."""
    left = _picked(x, y, -2.0)
    return x - tf.gather(left, tf.argmin(tf.square(x[:, None] - left[None] + 0.3), 1)) - 0.1


JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "less_labels": lambda x, y: tf.concat([x, _picked(x, y)], 0) - tf.concat([y, _picked(y, y)], 0),
    "pairs_of_one_mask": lambda x, y: x[:, None] - tf.concat([_picked(x, y), _picked(x * x, y)], 0)[None] - 0.1,
    "nearest": _nearest,
}
"""What is made of rows, and of those of them that a mask leaves, put together or picked by place."""


@program(floats(), floats(seed=1), cases=each(of=JOINED))
def rows_and_picked_rows(x, y, of):
    return minimise(mean(tf.square(of(x * variable("w"), y))))


@program(floats(4), whole(4, seed=5), floats(seed=1))
def picked_in_picked_rows(x, number, y):
    """Of each of the rows that a mask leaves one number is picked, by a number of its own."""
    h = dense(_picked(x, y, -1.5), 4, 4, "h", tf.tanh)
    return minimise(mean(tf.square(tf.gather(h, _picked(number, y, -1.5), batch_dims=1) - 0.1)))


@program(floats(4, 3), whole(2, 4, 4, seed=7), floats(seed=1))
def messages_along_edges(nodes, adjacent, y):
    """Message passing along edges found by tf.where, gathered and scattered by (row, node)."""
    edges = tf.cast(tf.where(adjacent > 0), tf.int32)
    h = tf.tanh(nodes * variable("scale", 3))
    message = dense(
        tf.concat([tf.gather_nd(h, edges[:, :2]), tf.gather_nd(h, tf.gather(edges, [0, 2], axis=1))], 1),
        6,
        4,
        "message",
    )
    together = tf.scatter_nd(edges[:, :2], message, [tf.shape(nodes)[0], 4, 4])
    return minimise(mean(tf.square(column(tf.reduce_max(together, 1), 4) - y)))


@program(floats(4), floats(seed=1))
def picked_rows_three_times(x, y):
    """A tile of masked rows, whose gradient reshapes to [multiples, ragged rows, ...]."""
    return minimise(mean(tf.square(tf.tile(_picked(x * variable("scale", 4), y, -1.5)[:, None], [1, 5, 1]) - 0.2)))

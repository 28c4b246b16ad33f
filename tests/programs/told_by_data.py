"""Programs with sizes that only data tell: sequences cut at the longest of the batch, and rows beside those that a mask leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .parts import batch, closed_and_open, column, dense, floats, minimise, program, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum
_Cut = Callable[[Any, Any, Any], Any]


def layer(x: Any, width: int, units: int, name: str) -> Any:
    return tf.tensordot(x, variable(f"{name}_kernel", width, units), 1) + variable(f"{name}_bias", units)


def beside(x: Any, y: Any) -> Any:
    """A vector of each row, made of one number."""
    return (y[:, None] * variable("beside", 4))[:, None]


CUT: dict[str, _Cut] = {
    "last": lambda x, y, lengths: tf.gather(x, lengths - 1, batch_dims=1) - y[:, None],
    "sorted": lambda x, y, lengths: tf.gather(x, tf.argsort(total(x, 2), 1), batch_dims=1)[:, 0] - y[:, None],
    "best": lambda x, y, lengths: tf.gather(x, tf.argmax(total(x, 2), 1), batch_dims=1) - y[:, None],
    "largest": lambda x, y, lengths: tf.reduce_max(x, 1) - y[:, None],
    "repeated_beside": lambda x, y, lengths: tf.concat([x, tf.tile(beside(x, y), [1, tf.shape(x)[1], 1])], 2) - 0.1,
    "one_before": lambda x, y, lengths: tf.tanh(tf.concat([beside(x, y), x], 1)) - 0.1,
    "padded_again": lambda x, y, lengths: tf.pad(x, [[0, 0], [0, 5 - tf.shape(x)[1]], [0, 0]]) - y[:, None, None],
    "pairs_with_words": lambda x, y, lengths: (
        tf.reduce_max(tf.einsum("id,jtd->ijt", y[:, None] * variable("beside", 4), x), 2) - y[:, None]
    ),
    "pairs_summed": lambda x, y, lengths: (
        tf.reduce_logsumexp(tf.einsum("id,jtd->ijt", y[:, None] * variable("beside", 4), x), [1, 2]) - y
    ),
    "time_first": lambda x, y, lengths: (
        tf.reduce_max(tf.reshape(layer(tf.transpose(x, [1, 0, 2]), 4, 3, "h"), [tf.shape(x)[1], -1, 3]), 0) - y[:, None]
    ),
    "summed": lambda x, y, lengths: tf.cumsum(tf.reverse(x, [1]), 1) - y[:, None, None],
    "normalised": lambda x, y, lengths: tf.nn.moments(tf.tanh(layer(x, 4, 3, "h")), [0, 1])[1],
}
"""What is made of sequences that are cut, of a number of each row, and of the lengths."""


ONE_ROW = {name: of for name, of in CUT.items() if name not in ("time_first", "normalised")}


@program(variants=closed_and_open(2, 3, of=CUT) | closed_and_open(1, of=ONE_ROW))
def cut_at_the_longest(rows: int, of: _Cut, **options: Any) -> Any:
    x, lengths, y = batch(rows, floats(5, 4), 1 + whole(5, seed=3), floats(seed=1), **options)
    cut = x[:, : tf.reduce_max(lengths)] * variable("scale", 4)
    return minimise(mean(tf.square(of(cut, y, lengths))))


@program(variants=closed_and_open(2, 3))
def logits_flat_and_back(rows: int, **options: Any) -> Any:
    """What the labels' shape is compared with is a list of words that is parted again by how long the longest row is."""
    words, lengths = batch(rows, whole(7, 5, seed=1), 1 + whole(5, seed=2), **options)
    longest = tf.reduce_max(lengths)
    cut, shown = words[:, :longest], tf.sequence_mask(lengths, longest, dtype=tf.float32)
    found = tf.reshape(tf.gather(variable("words", 7, 4), cut), [-1, 4])
    logits = tf.reshape(found @ variable("w", 4, 7), [-1, longest, 7])
    return minimise(
        total(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=cut, logits=logits) * shown) / total(shown)
    )


@program(variants=closed_and_open(2, 3))
def two_sequences_aligned(rows: int, **options: Any) -> Any:
    """Each word of one sequence attends to the other sequence, and both are cut."""
    a, b, lengths_a, lengths_b, y = batch(
        rows, whole(7, 5, seed=1), whole(7, 4, seed=3), 1 + whole(5, seed=2), 1 + whole(4, seed=5), floats(seed=4), **options
    )  # fmt: skip
    x = tf.gather(variable("words", 7, 4), a[:, : tf.reduce_max(lengths_a)])
    z = tf.gather(variable("others", 7, 4), b[:, : tf.reduce_max(lengths_b)])
    scores = x @ tf.transpose(z, [0, 2, 1])
    first = tf.reduce_max(tf.concat([x, tf.nn.softmax(scores) @ z], 2), 1)
    second = tf.reduce_max(tf.concat([z, tf.matmul(tf.nn.softmax(scores, 1), x, transpose_a=True)], 2), 1)
    return minimise(mean(tf.square(column(tf.concat([first, second], 1), 16) - y)))


def _picked(x: Any, y: Any, least: float = 0.0) -> Any:
    return tf.boolean_mask(x, y > least)


def _nearest(x: Any, y: Any) -> Any:
    """Of each row the nearest of those that a mask leaves, by its place among all of these."""
    left = _picked(x, y, -2.0)
    return x - tf.gather(left, tf.argmin(tf.square(x[:, None] - left[None] + 0.3), 1)) - 0.1


JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "less_labels": lambda x, y: tf.concat([x, _picked(x, y)], 0) - tf.concat([y, _picked(y, y)], 0),
    "pairs": lambda x, y: x[:, None] - tf.concat([x, _picked(x, y)], 0)[None] - 0.1,
    "pairs_of_one_mask": lambda x, y: x[:, None] - tf.concat([_picked(x, y), _picked(x * x, y)], 0)[None] - 0.1,
    "nearest": _nearest,
}
"""What is made of rows, and of those of them that a mask leaves, put together or picked by place."""


@program(variants=closed_and_open(2, 3, of=JOINED))
def rows_and_picked_rows(rows: int, of: Any, **options: Any) -> Any:
    x, y = batch(rows, floats(), floats(seed=1), **options)
    return minimise(mean(tf.square(of(x * variable("w"), y))))


SCORES: dict[str, Callable[[Any], Any]] = {
    "squared": lambda scores: tf.square(scores - 0.1),
    "summed": lambda scores: tf.reduce_logsumexp(scores, 1),
}


@program(variants=closed_and_open(2, 3, of=SCORES))
def scores_of_picked_rows_beside(rows: int, of: Any, **options: Any) -> Any:
    """Scores of rows with all rows and with those that a mask leaves: the former end where all rows do."""
    x, y = batch(rows, floats(3), floats(seed=1), **options)
    h = dense(x, 3, 4, "h", tf.tanh)
    scores = tf.concat([h @ tf.transpose(h), h @ tf.transpose(_picked(h, y))], 1)
    return minimise(mean(of(scores)))


@program(variants=closed_and_open(1, 2))
def words_picked_time_first(rows: int, **options: Any) -> Any:
    """Words that a mask picks of sequences with the time in front: those of a core do not lie one behind the other in the list."""
    words, lengths, labels = batch(rows, whole(7, 5, seed=1), 1 + whole(5, seed=2), whole(4, 5, seed=9), **options)
    shown = tf.transpose(tf.sequence_mask(lengths, 5))
    found = tf.boolean_mask(tf.gather(variable("words", 7, 4), tf.transpose(words)), shown)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.boolean_mask(tf.transpose(labels), shown), logits=dense(found, 4, 4, "out")
    )
    return minimise(mean(losses))


PARTED: dict[str, Callable[[Any], Any]] = {
    "rows": lambda of_words: mean(of_words, 1),
    "words": lambda of_words: tf.reshape(of_words, [-1]),
    "words_time_first": lambda of_words: tf.reshape(tf.transpose(of_words), [-1]),
}
"""What the lists are of that are parted in two."""


@program(variants=closed_and_open(1, 2, of=PARTED))
def parted_and_summed_up(rows: int, of: Any, **options: Any) -> Any:
    """Losses parted by what data say, one part of which is summed up in its order."""
    x, marks, labels = batch(rows, floats(5, 3), whole(2, 5, seed=2), whole(4, 5, seed=9), **options)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=layer(x, 3, 4, "out"))
    which = tf.cast(of(tf.cast(marks, tf.float32)) > 0.5, tf.int32)
    some, others = tf.dynamic_partition(of(losses), which, 2)
    return minimise(mean(tf.cumsum(others)) + 0.1 * total(some))


@program(variants=closed_and_open(1, 2))
def next_word_of_each(rows: int, **options: Any) -> Any:
    """Each word of sequences that are cut tells the next one: all but the first, beside all but the last."""
    words, lengths = batch(rows, whole(7, 5, seed=1), 1 + whole(5, seed=2), **options)
    longest = tf.reduce_max(lengths)
    cut, shown = words[:, :longest], tf.sequence_mask(lengths, longest, dtype=tf.float32)[:, 1:]
    logits = layer(tf.gather(variable("words", 7, 4), cut), 4, 7, "out")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=cut[:, 1:], logits=logits[:, :-1])
    return minimise(total(losses * shown) / (total(shown) + 1.0))


@program(variants=closed_and_open(1, 2, 3, 4))
def masked_rows_padded_up_to_all(rows: int, **options: Any) -> Any:
    """Zeros take the places of the rows that a mask leaves out: there are as many places as rows."""
    x, y = batch(rows, floats(), floats(seed=1), **options)
    x *= variable("w")
    left = tf.boolean_mask(x, y > 0)
    return minimise(mean(tf.square(tf.pad(left, [[0, tf.size(x) - tf.size(left)]]) - y)))


@program(variants=closed_and_open(1, 2, 3))
def rows_less_the_mean_of_picked_rows(rows: int, **options: Any) -> Any:
    """The mean keeps its dimension, which is 1 as the one row is: its gradient is the sum over the rows that it was taken from."""
    x, y = batch(rows, floats(3), floats(seed=1), **options)
    h = dense(x, 3, 4, "h", tf.tanh)
    return minimise(mean(tf.square(h - mean(_picked(h, y, -1.5), 0, keepdims=True))))


@program(variants=closed_and_open(1, 2, 3))
def words_less_a_layer_of_their_mean(rows: int, **options: Any) -> Any:
    x, lengths, y = batch(rows, floats(5, 4), 1 + whole(5, seed=3), floats(seed=1), **options)
    cut = x[:, : tf.reduce_max(lengths)] * variable("scale", 4)
    centre = tf.tensordot(mean(cut, 1, keepdims=True), variable("centre", 4, 4), 1)
    return minimise(mean(tf.square(tf.tanh(cut - centre) - y[:, None, None])))


@program(variants=closed_and_open(1, 2, 3))
def columns_folded_beside_the_longest(rows: int, **options: Any) -> Any:
    """The rows are left open beside a number that data tell: what meets them says that these are the rows."""
    x, lengths, y = batch(rows, floats(5, 2, 2), 1 + whole(5, seed=3), floats(seed=1), **options)
    longest = tf.reduce_max(lengths)
    folded = tf.reshape(x[:, :longest] * variable("scale", 2), [-1, longest, 4])
    return minimise(mean(tf.square(total(folded, [1, 2]) - y)))


@program(variants=closed_and_open(1, 2, 3))
def words_under_two_layers(rows: int, **options: Any) -> Any:
    """What layers make flat is put back in gradients that are added: of the one row these hold a 1, beside what data tell."""
    words, lengths, y = batch(rows, whole(7, 5, seed=1), 1 + whole(5, seed=2), floats(seed=1), **options)
    found = tf.gather(variable("words", 7, 4), words[:, : tf.reduce_max(lengths)])
    gate = tf.sigmoid(layer(found, 4, 1, "gate"))
    made = gate * tf.nn.softmax(layer(found, 4, 3, "made")) + (1 - gate) * found[:, :, :3]
    return minimise(mean(tf.square(made - y[:, None, None])))


EACH_ITS_OWN: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda h, number: tf.gather(h, number, batch_dims=1),
    "two": lambda h, number: tf.gather(h, tf.stack([number, 3 - number], 1), batch_dims=1),
    "smallest": lambda h, number: tf.gather(h, tf.argmin(h * h, 1), batch_dims=1),
    "log_probability": lambda h, number: tf.gather(tf.nn.log_softmax(h), number, batch_dims=1),
}
"""What is picked out of each of the rows that a mask leaves, by a number of its own."""


@program(variants=closed_and_open(1, 2, of=EACH_ITS_OWN))
def picked_in_picked_rows(rows: int, of: Any, **options: Any) -> Any:
    x, number, y = batch(rows, floats(4), whole(4, seed=5), floats(seed=1), **options)
    h = dense(_picked(x, y, -1.5), 4, 4, "h", tf.tanh)
    return minimise(mean(tf.square(of(h, _picked(number, y, -1.5)) - 0.1)))


@program(variants=closed_and_open(1, 2, 3))
def label_of_each_word(rows: int, **options: Any) -> Any:
    """The log probability of each word's label, looked up in each word's own: sequences are cut at the longest."""
    x, lengths, labels = batch(rows, floats(5, 4), 1 + whole(5, seed=3), whole(4, 5, seed=8), **options)
    longest = tf.reduce_max(lengths)
    shown = tf.sequence_mask(lengths, longest, dtype=tf.float32)
    logits = tf.nn.log_softmax(layer(x[:, :longest], 4, 4, "out"))
    return minimise(-total(tf.gather(logits, labels[:, :longest], batch_dims=2) * shown) / total(shown))


FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "parted": lambda x, longest: tf.reduce_max(tf.reshape(x, [-1, 2, longest, 2]), [1, 2, 3]),
    "joined": lambda x, longest: tf.reduce_max(tf.reshape(x, [-1, longest * 4]), 1),
    "first_two": lambda x, longest: tf.reduce_max(tf.reshape(x, [longest, 4, -1]), [0, 1]),
}


@program(variants=closed_and_open(1, 2, of=FOLDED, doubtful=("first_two_1",)))
def folded_as_long_as_data_say(rows: int, of: Any, **options: Any) -> Any:
    """A reshape of what is cut asks for its length again, so that what is left open is what the other dimensions leave."""
    x, lengths, y = batch(rows, floats(5, 4), 1 + whole(5, seed=3), floats(seed=1), **options)
    longest = tf.reduce_max(lengths)
    return minimise(mean(tf.square(of(x[:, :longest] * variable("scale", 4), longest) - y)))


LOOPED: dict[str, Callable[[Any], Any]] = {
    "flat_time_first": lambda x: layer(tf.transpose(x, [1, 0, 2]), 4, 3, "in"),
    "turned_behind": lambda x: tf.transpose(layer(x, 4, 3, "in"), [1, 0, 2]),
}
"""What a recurrence reads that was made of all words before the loop, time first."""


@program(variants=closed_and_open(1, 2, of=LOOPED))
def recurrence_of_words_made_before(rows: int, of: Any, **options: Any) -> Any:
    """In the gradient of the loop each step's is put at its place among zeros, whose shape was kept on a stack."""
    x, lengths, y = batch(rows, floats(5, 4), 1 + whole(5, seed=3), floats(seed=1), **options)
    longest, again = tf.reduce_max(lengths), variable("again", 3, 3)
    words = of(x[:, :longest])
    last = tf.while_loop(
        lambda step, state: step < longest,
        lambda step, state: (step + 1, tf.tanh(words[step] + state @ again)),
        [0, tf.zeros([tf.shape(x)[0], 3])],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 3])],
    )[1]
    return minimise(mean(tf.square(column(last, 3) - y)))


@program(variants=closed_and_open(1, 2))
def number_of_rows_in_an_array(rows: int, **options: Any) -> Any:
    """What is written into an array is the number of all rows."""
    x, y = batch(rows, floats(), floats(seed=1), **options)
    array = tf.TensorArray(tf.int32, 2, element_shape=[]).write(0, tf.shape(x)[0]).write(1, 3)
    numbers = tf.cast(array.stack(), tf.float32)
    return minimise(mean(tf.square(x * variable("w") - y)) * numbers[0] / numbers[1])


def _before(count: Any) -> Any:
    """The pairs of rows of which the second comes behind the first, as numbers of both."""
    return tf.where(tf.range(count)[:, None] < tf.range(count)[None])


PAIRED: dict[str, Callable[[Any, Any], Any]] = {
    "less": lambda h, pairs: tf.gather(h, pairs[:, 1]) * 0.5 - tf.gather(h, pairs[:, 0]),
    "side_by_side": lambda h, pairs: dense(
        tf.concat([tf.gather(h, pairs[:, 0]), tf.gather(h, pairs[:, 1])], 1), 8, 4, "both", tf.tanh
    ),
    "both_at_once": lambda h, pairs: tf.gather(h, pairs)[:, 0] - tf.gather(h, pairs)[:, 1],
}


@program(variants=closed_and_open(1, 2, of=PAIRED))
def pairs_listed_by_numbers(rows: int, of: Any, **options: Any) -> Any:
    """TensorFlow knows how many pairs so many rows have, and writes it into shapes."""
    x = batch(rows, floats(3), **options)
    h = dense(x, 3, 4, "h", tf.tanh)
    return minimise(mean(tf.square(column(of(h, _before(tf.shape(h)[0])), 4) - 0.1)))


EDGES: dict[str, Callable[[Any], Any]] = {
    "picked": lambda edges: tf.gather(edges, [0, 2], axis=1),
    "turned_twice": lambda edges: edges[:, ::-1][:, ::-2][:, :2],
    "reversed_twice": lambda edges: tf.gather(tf.reverse(tf.reverse(edges, [1]), [1]), [0, 1], axis=1),
}


@program(variants=closed_and_open(1, 2, of=EDGES))
def messages_along_edges(rows: int, of: Any, **options: Any) -> Any:
    """Edges between the nodes of each row are found by data, and two of their three columns say where they end."""
    nodes, adjacent, y = batch(rows, floats(4, 3), whole(2, 4, 4, seed=7), floats(seed=1), **options)
    edges = tf.cast(tf.where(adjacent > 0), tf.int32)
    h = tf.tanh(nodes * variable("scale", 3))
    message = dense(tf.concat([tf.gather_nd(h, edges[:, :2]), tf.gather_nd(h, of(edges))], 1), 6, 4, "message")
    together = tf.scatter_nd(edges[:, :2], message, [tf.shape(nodes)[0], 4, 4])
    return minimise(mean(tf.square(column(tf.reduce_max(together, 1), 4) - y)))


FOUND_PLACES: dict[str, Callable[[Any], Any]] = {
    "first_two": lambda places: places[:2],
    "last": lambda places: places[-1],
    "turned": lambda places: places[::-1],
}


@program(variants=closed_and_open(1, 2, of=FOUND_PLACES))
def some_of_the_places_found(rows: int, of: Any, **options: Any) -> Any:
    """The first places that a mask finds in the whole batch are none of each core's."""
    x, y = batch(rows, floats(4), floats(seed=1), **options)
    found = tf.gather(x * variable("scale", 4), of(tf.where(y > -1.5)[:, 0]))
    weights = tf.cast(tf.range(tf.size(found)), tf.float32)
    return minimise(mean(tf.square(tf.reshape(found, [-1]) * weights - 0.2)))


TILED: dict[str, Callable[[Any, Any], Any]] = {
    "all_pairs": lambda x, count: tf.concat([tf.tile(x[:, None], [1, count, 1]), tf.tile(x[None], [count, 1, 1])], 2),
    "flat_pairs": lambda x, count: tf.reshape(
        tf.concat([tf.tile(x[:, None], [1, count, 1]), tf.tile(x[None], [count, 1, 1])], 2), [-1, 8]
    ),
    "broadcast": lambda x, count: tf.broadcast_to(x[:, None], [count, count, 4]) * 2 - x[None],
}


@program(variants=closed_and_open(1, 2, of=TILED))
def picked_rows_repeated(rows: int, of: Any, **options: Any) -> Any:
    """Each row that a mask leaves is repeated beside all of these, as many as data say."""
    x, y = batch(rows, floats(4), floats(seed=1), **options)
    left = _picked(x * variable("scale", 4), y, -1.5)
    return minimise(mean(tf.square(of(left, tf.shape(left)[0]) - 0.2)))


@program(variants={"3": {"rows": 3}, "3_open": {"rows": 3, "drop_remainder": False}})
def picked_rows_three_times(rows: int, **options: Any) -> Any:
    """The gradient of a tile puts a dimension in front of what data pick."""
    x, y = batch(rows, floats(4), floats(seed=1), **options)
    return minimise(mean(tf.square(tf.tile(_picked(x * variable("scale", 4), y, -1.5)[:, None], [1, 5, 1]) - 0.2)))

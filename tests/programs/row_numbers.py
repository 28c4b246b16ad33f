"""Programs that carry numbers of rows through loops, branches and containers: on a core they count its own rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from .parts import COUNT, batch, column, dense, floats, minimise, program, sgd, tf1, variable, whole

mean = tf.reduce_mean


def sequences(rows: int) -> tuple[Any, Any, Any]:
    """Values of a sequence, the places to visit in it, and numbers of this batch's rows."""
    order = np.argsort(np.random.default_rng(3).normal(size=(COUNT, 5)), 1).astype(np.int32)
    x, visits = batch(rows, floats(5, 3), order)
    h = tf.reshape(tf.reshape(x, [-1, 3]) @ variable("w", 3, 2), [-1, 5, 2])
    return h, visits, tf.range(tf.shape(x)[0])


@program(variants={"places": {}, "one_list": {"flat": True}}, rows=3)
def visits_of_a_pointer(rows: int, flat: bool = False) -> Any:
    """Backpropagation takes the numbers of the rows out of a stack."""
    h, visits, numbers = sequences(rows)
    count = tf.size(numbers)

    def body(time: Any, error: Any) -> Any:
        own = tf.range(count)
        if flat:
            seen = tf.gather(tf.reshape(h, [-1, 2]), own * 5 + visits[:, time])
        else:
            seen = tf.gather_nd(h, tf.stack([own, visits[:, time]], 1))
        return time + 1, 0.7 * error + tf.square(tf.reduce_sum(seen, 1) - 0.5)

    _, error = tf.while_loop(lambda time, _: time < 5, body, [0, tf.zeros([count])])
    return minimise(mean(error), sgd(0.02))


@program(rows=3)
def visits_in_an_array(rows: int) -> Any:
    h, visits, numbers = sequences(rows)
    _, places = tf.while_loop(
        lambda time, _: time < 5,
        lambda time, places: (time + 1, places.write(time, tf.stack([numbers, visits[:, time]], 1))),
        [0, tf.TensorArray(tf.int32, 5)],
    )
    return minimise(mean(tf.square(mean(tf.gather_nd(h, places.stack()), 0) - 0.3)))


@program(rows=3)
def visits_taken_apart(rows: int) -> Any:
    h, visits, numbers = sequences(rows)
    places = tf.stack([tf.tile(numbers[:, None], [1, 5]), visits], 2)
    array = tf.TensorArray(tf.int32, 5).unstack(tf.transpose(places, [1, 0, 2]))
    _, seen = tf.while_loop(
        lambda time, _: time < 5,
        lambda time, seen: (time + 1, 0.5 * seen + tf.gather_nd(h, array.read(time))),
        [0, tf.zeros_like(h[:, 0])],
    )
    return minimise(mean(tf.square(seen - 0.3)))


@program(rows=3)
def own_rows_beside_sorted_rows(rows: int) -> Any:
    """One array holds numbers of this core's rows and numbers of the whole batch."""
    x, y = batch(rows, floats(4), floats(seed=1))
    h = dense(x, 4, 3, "h")
    array = tf.TensorArray(tf.int32, 2, clear_after_read=False)
    array = array.write(0, tf.range(tf.shape(x)[0])).write(1, tf.argsort(y))
    pairs = tf.gather(h, array.read(0)) + 2.0 * tf.gather(h, array.read(1))
    return minimise(mean(tf.square(column(pairs, 3) - y)), sgd(0.02))


@program(variants={"sorted": {}, "first": {"first": True}}, rows=3, steps=4)
def order_by_step(rows: int, first: bool = False) -> Any:
    """A branch that gives this core's rows meets one that gives rows of the whole batch."""
    x, y = batch(rows, floats(4), floats(seed=1))
    count = tf.shape(x)[0]
    order = tf.cond(
        tf.equal(tf1.train.get_or_create_global_step() % 2, 0),
        lambda: tf.range(count),
        lambda: tf.zeros([count], tf.int32) if first else tf.argsort(y),
    )
    return minimise(mean(tf.square(column(tf.gather(dense(x, 4, 3, "h", tf.tanh), order), 3) - y)))


@program(rows=3)
def rows_that_name_rows(rows: int) -> Any:
    """Numbers of rows that begin as this core's own and become those of any."""
    x, y, c = batch(rows, floats(4), floats(seed=1), whole(2**20, seed=2))
    count = tf.shape(x)[0]
    after = c % count
    _, found = tf.while_loop(
        lambda time, _: time < 3, lambda time, at: (time + 1, tf.gather(after, at)), [0, tf.range(count)]
    )
    return minimise(mean(tf.square(column(tf.gather(dense(x, 4, 3, "h", tf.tanh), found), 3) - y)))


# --------------------------------------------------------------------------- rows that a mask chooses


def padded_sets(rows: int) -> tuple[Any, Any]:
    """Sets of 0 to 3 members for each row, padded to 4 places, and which places are members."""
    x, sizes = batch(rows, floats(4, 3), whole(4, seed=2))
    return x * variable("w", 3), tf.sequence_mask(sizes, 4)


@program()
def groups_that_cores_share(rows: int) -> Any:
    """What is added up for each distinct id is a sum over the rows of all cores before it is squared."""
    members, mask = padded_sets(rows)
    groups = tf.cast(tf.reduce_sum(members[:, :, :1], 2) > 0.0, tf.int32) + tf.range(4)
    found, place = tf.unique(tf.boolean_mask(tf.stop_gradient(groups), mask))
    sums = tf.math.unsorted_segment_sum(tf.boolean_mask(members, mask), place, tf.size(found))
    return minimise(mean(tf.square(sums - 0.3)), sgd(0.02))


def means_of_members(rows: int) -> Any:
    """Of rows without members behind the last that has some, there is no mean: how many there are, only data say."""
    members, mask = padded_sets(rows)
    places = tf.where(mask)
    means = tf.math.segment_mean(tf.gather_nd(members, places), places[:, 0])
    return minimise(mean(tf.square(means - 0.3)))


@program()
def chosen_of_the_sorted(rows: int) -> Any:
    """Numbers of chosen rows pick from what is sorted over the whole batch."""
    x, y, kept = batch(rows, floats(4), floats(seed=1), whole(2, seed=2))
    numbers = tf.boolean_mask(tf.range(tf.shape(x)[0]), kept > 0)
    return minimise(mean(tf.square(column(x, 4))) * tf.reduce_max(tf.gather(tf.sort(y), numbers)))


# --------------------------------------------------------------------------- places among the rows


@program(variants={"": {}, "three_rows": {"rows": 3}, "one_row": {"rows": 1}})
def weights_by_rank(rows: int) -> Any:
    """A table with a weight for each place among the sorted rows."""
    x, y = batch(rows, floats(5), floats(seed=1))
    error = tf.square(column(x, 5) - y)
    ranks = tf.math.invert_permutation(tf.argsort(error))
    return minimise(mean(error * tf.gather(tf.range(rows, dtype=tf.float32) / 10.0, ranks)), sgd(0.02))


@program(variants={f"of_{rows}": {"rows": rows} for rows in (2, 3, 4, 5)} | {"open": {"drop_remainder": False}})
def weights_on_a_line(rows: int, **options: Any) -> Any:
    """As many points of a line as there are rows: TensorFlow computes them with two rows fewer."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    return minimise(mean(tf.square(column(x, 5) - y) * tf.linspace(0.0, 1.0, tf.shape(x)[0])), sgd(0.02))


@program(variants={"": {}, "three_rows": {"rows": 3}})
def mark_of_the_largest_row(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    return minimise(mean(tf.square(column(x, 5) - y) * (1.0 + tf.one_hot(tf.argmax(y), rows))))


@program(variants={"": {}, "two_rows": {"rows": 2}})
def sorted_rows_put_back(rows: int) -> Any:
    x, y = batch(rows, floats(5), floats(seed=1))
    back = tf.math.unsorted_segment_sum(column(x, 5), tf.argsort(y), rows)
    return minimise(mean(tf.square(back - tf.sort(y))))


# --------------------------------------------------------------------------- segments


def flat(rows: int, repeat: bool = False, **options: Any) -> tuple[Any, Any, Any]:
    """Three values of each row, one after the other, the number of the row of each, and a target for each row."""
    x, y = batch(rows, floats(3), floats(seed=2), **options)
    numbers = tf.range(tf.shape(x)[0])
    owners = tf.repeat(numbers, 3) if repeat else tf.reshape(tf.tile(numbers[:, None], [1, 3]), [-1])
    return tf.reshape(x * variable("w", 3), [-1]), owners, y


@program(variants={"": {}, "open": {"drop_remainder": False}, "three_rows": {"rows": 3}, "repeated": {"repeat": True}})
def segments_of_rows(rows: int, **options: Any) -> Any:
    """Each row has a segment, as every number of a range is in the list: there are as many as rows."""
    values, owners, y = flat(rows, **options)
    spread = tf.math.segment_max(values, owners) - tf.math.segment_mean(values, owners)
    return minimise(mean(tf.square(spread - y)))


@program(variants={"": {}, "open": {"drop_remainder": False}, "three_rows": {"rows": 3}})
def means_of_entries_of_rows(rows: int, **options: Any) -> Any:
    """The mean of the entries of each row, however many it has: TensorFlow puts its number of rows in a new dimension."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    found = tf.where(x > -1.0)
    means = tf.math.unsorted_segment_mean(tf.gather_nd(x * variable("k", 5), found), found[:, 0], tf.shape(x)[0])
    return minimise(mean(tf.square(means - y)))


@program()
def softmax_over_edges(rows: int) -> Any:
    """Attention of a graph whose nodes are the rows: the weights of the edges to a node add up to 1."""
    x, near, y = batch(rows, floats(3), whole(1000, 3, seed=1), floats(seed=2))
    count, h = tf.shape(x)[0], dense(x, 3, 3, "h")
    source = tf.reshape(near % count, [-1])
    target = tf.reshape(tf.tile(tf.range(count)[:, None], [1, 3]), [-1])
    scores = tf.nn.leaky_relu(tf.gather(column(h, 3, "from"), source) + tf.gather(column(h, 3, "to"), target))
    weights = tf.exp(scores - tf.gather(tf.math.segment_max(scores, target), target))
    weights /= tf.gather(tf.math.segment_sum(weights, target), target)
    found = tf.math.segment_sum(weights[:, None] * tf.gather(h, source), target)
    return minimise(mean(tf.square(column(tf.nn.elu(found), 3) - y)))


def sums_of_groups(rows: int, each: bool, flatten: bool = False, fixed: bool = False) -> Any:
    """Sums of groups that data make, of each row or of all rows, beside the rows; their number is fixed, or for data to say."""
    x, y, group = batch(rows, floats(3), floats(seed=2), whole(1, seed=3))
    numbers = tf.cumsum(group + 1) - 1 if each else group
    count, h = tf.shape(x)[0], dense(x, 3, 1, "h")
    sums = tf.math.unsorted_segment_sum(h, numbers, count) if fixed else tf.math.segment_sum(h, numbers)
    sums = tf.reshape(sums, [-1]) if flatten else sums[:, 0]
    return minimise(mean(tf.square(sums - y)))

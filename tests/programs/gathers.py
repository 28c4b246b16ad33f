"""Gathers and scatters of rows and columns, segments, and slices of tables as long as the batch."""

from .parts import *

PLACES = 160


def _error(rows) -> tuple[Any, Any, Any]:
    x, y = batch(rows, floats(3), floats(seed=1))
    return x, *minimise(mean(tf.square(column(x, 3) - y)))


@program()
def bank_behind_rows(rows):
    """The queue of MoCo: the keys of a batch replace the oldest ones, as many places as there are rows."""
    x, loss, train = _error(rows)
    bank = variable("bank", PLACES, 3, trainable=False)
    n = length(x)
    with tf.control_dependencies([train]):
        return loss, tf1.assign(bank, tf.concat([tf.split(bank, [n, PLACES - n], 0)[1], x], 0)).op


@program(floats(3), floats(seed=1))
def places_beside_rows(x, y):
    """The last places of a trained table, one for each row of the batch."""
    return minimise(mean(tf.square(total(x * variable("table", PLACES, 3)[-length(x) :], 1) - y)))


def sequences(rows) -> tuple[Any, Any, Any]:
    """Encoder states, a permutation of the steps for each row, and ``range(rows)``."""
    order = np.argsort(np.random.default_rng(3).normal(size=(COUNT, 5)), 1).astype(np.int32)
    x, visits = batch(rows, floats(5, 3), order)
    h = tf.reshape(tf.reshape(x, [-1, 3]) @ variable("w", 3, 2), [-1, 5, 2])
    return h, visits, tf.range(tf.shape(x)[0])


@program(cases={"": {}, "one_list": {"flat": True}})
def visits_of_a_pointer(rows, flat=False):
    """A pointer network's loop: ``range(rows)`` is part of the gather indices, which its gradient pops off a stack."""
    h, visits, numbers = sequences(rows)
    count = tf.size(numbers)

    def body(time, error):
        own = tf.range(count)
        if flat:
            seen = tf.gather(tf.reshape(h, [-1, 2]), own * 5 + visits[:, time])
        else:
            seen = tf.gather_nd(h, tf.stack([own, visits[:, time]], 1))
        return time + 1, 0.7 * error + tf.square(tf.reduce_sum(seen, 1) - 0.5)

    _, error = tf.while_loop(lambda time, _: time < 5, body, [0, tf.zeros([count])])
    return minimise(mean(error), sgd(0.02))


@program(floats(5), floats(seed=1))
def mark_of_the_largest_row(x, y, rows):
    return minimise(mean(tf.square(column(x, 5) - y) * (1.0 + tf.one_hot(tf.argmax(y), rows))))


@program(floats(5), floats(seed=1))
def sorted_rows_put_back(x, y, rows):
    back = tf.math.unsorted_segment_sum(column(x, 5), tf.argsort(y), rows)
    return minimise(mean(tf.square(back - tf.sort(y))))


@program(floats(3), whole(1000, 3, seed=1), floats(seed=2))
def softmax_over_edges(x, near, y):
    """Attention of a graph whose nodes are the rows: the weights of the edges to a node add up to 1."""
    count, h = tf.shape(x)[0], dense(x, 3, 3, "h")
    source = tf.reshape(near % count, [-1])
    target = tf.reshape(tf.tile(tf.range(count)[:, None], [1, 3]), [-1])
    scores = tf.nn.leaky_relu(tf.gather(column(h, 3, "from"), source) + tf.gather(column(h, 3, "to"), target))
    weights = tf.exp(scores - tf.gather(tf.math.segment_max(scores, target), target))
    weights /= tf.gather(tf.math.segment_sum(weights, target), target)
    found = tf.math.segment_sum(weights[:, None] * tf.gather(h, source), target)
    return minimise(mean(tf.square(column(tf.nn.elu(found), 3) - y)))


@program(floats(4), whole(4, seed=2))
def last_steps_by_number(x, last, rows):
    steps = tf.reshape(tf.transpose(x * variable("scale", 4)), [-1])
    return minimise(mean(tf.square(tf.gather(steps, last * rows + tf.range(rows)) - 1.0)))


@program(floats(4), whole(2, seed=1))
def bins_for_rows(x, by):
    count = tf.shape(x)[0]
    named = tf.math.floormod(tf.range(count) + by, count)
    often = tf.cast(tf.math.bincount(named, minlength=count, maxlength=count), tf.float32)
    return minimise(mean(tf.square(dense(x, 4, 3, "h")) * often[:, None]))


def mixed(x, gates, experts):
    """A sparse mixture of experts: dispatch by tf.split with sizes from data, combine by unsorted_segment_sum."""
    places = tf.cast(tf.where(tf.transpose(gates) > 0), tf.int32)
    expert, row = tf.unstack(places, num=2, axis=1)
    loads = total(tf.cast(gates > 0, tf.int32), [0])
    parts = tf.split(tf.gather(x, row), loads, 0, num=experts)
    made = tf.concat([tf.tanh(part @ variable(f"e{k}", 5, 3)) for k, part in enumerate(parts)], 0)
    weights = tf.gather(tf.reshape(gates, [-1]), row * experts + expert)[:, None]
    return tf1.unsorted_segment_sum(made * weights, row, tf.shape(x)[0])


@program(floats(5), floats(seed=1))
def rows_split_by_load(x, y):
    """A mixture of experts whose loads are column sums over the whole batch."""
    gates = tf.nn.relu(x @ variable("gate", 5, 4) + 0.2)
    return minimise(mean(tf.square(column(mixed(x, gates, 4), 3) - y)))

"""Recurrent networks: scans over time, loops with TensorArrays, ``dynamic_rnn``."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from .parts import (
    batch,
    by_hand,
    closed_and_open,
    column,
    floats,
    minimise,
    piece,
    program,
    sgd,
    tf1,
    variable,
    whole,
)

mean = tf.reduce_mean


@program()
def scan_over_time(rows: int) -> Any:
    x, y = batch(rows, floats(4), floats(seed=1))
    u, b = variable("u", 4, 4), variable("b", 4)
    start = tf.zeros([rows, 4])
    h = tf1.scan(lambda a, v: tf.tanh(v + a @ u + b), tf.stack([x, x * 0.5, -x]), initializer=start)[-1]
    return minimise(mean(tf.square(column(h, 4) - y)))


@program(variants={"": {}, "three_rows": {"rows": 3}, "five_rows": {"rows": 5}})
def scan_tanh(rows: int) -> Any:
    """The tangent of 50 times the gradient, by hand, for a recurrent network."""
    x, y = batch(rows, floats(4), floats(seed=1))
    u, b = variable("u", 4, 4), variable("b", 4)
    h = tf1.scan(lambda a, v: tf.tanh(v + a @ u + b), tf.stack([x, x * 0.5]), initializer=tf.zeros_like(x))[-1]
    return by_hand(mean(tf.square(column(h, 4) - y)), lambda g, v: 0.03 * tf.tanh(g * 50))


def recurrent(x: Any, width: int, units: int, lengths: Any = None) -> Any:
    """Outputs and last state of a cell over time, as ``dynamic_rnn`` loops: TensorArrays, time first."""
    rows, time = tf.shape(x)[0], x.shape[1]
    w, u, b = variable("w", width, units), variable("u", units, units), variable("b", units, scale=0.1)
    steps = tf.TensorArray(tf.float32, time).unstack(tf.transpose(x, [1, 0, 2]))
    outputs = tf.TensorArray(tf.float32, time)

    def body(k: Any, h: Any, outputs: Any) -> Any:
        new = tf.tanh(steps.read(k) @ w + h @ u + b)
        if lengths is not None:
            alive = tf.tile((k < lengths)[:, None], [1, units])
            new, shown = tf.where(alive, new, h), tf.where(alive, new, tf.zeros_like(new))
        else:
            shown = new
        return k + 1, new, outputs.write(k, shown)

    start = tf.zeros(tf.stack([rows, units]))
    start.set_shape([x.shape[0], units])
    last = tf.while_loop(lambda k, h, o: k < time, body, [tf.constant(0), start, outputs])
    return tf.transpose(last[2].stack(), [1, 0, 2]), last[1]


@program(variants={"": {}, "sizes_alike": {"rows": 4, "time": 4, "width": 4, "units": 4}, "one_row": {"rows": 1}})
def recurrent_network(rows: int, time: int = 3, width: int = 2, units: int = 5) -> Any:
    x, y = batch(rows, floats(time, width), floats(seed=1))
    _, h = recurrent(x, width, units)
    return minimise(mean(tf.square(column(h, units) - y)))


@program()
def recurrent_lengths(rows: int) -> Any:
    x, y, lengths = batch(rows, floats(5, 2), floats(seed=1), whole(5, seed=2) + 1)
    outputs, h = recurrent(x, 2, 3, lengths)
    return minimise(mean(tf.square(column(h, 3) + tf.reduce_sum(outputs, [1, 2]) - y)), sgd(0.02))


@program()
def recurrent_open(rows: int) -> Any:
    x, y = batch(rows, floats(3, 2), floats(seed=1), drop_remainder=False)
    _, h = recurrent(x, 2, 5)
    return minimise(mean(tf.square(column(h, 5) - y)))


@program()
def recurrent_masked_mean(rows: int) -> Any:
    """A loss per step, averaged over the steps that there are."""
    x, y, lengths = batch(rows, floats(5, 2), floats(5, seed=1), whole(5, seed=2) + 1)
    outputs, _ = recurrent(x, 2, 3, lengths)
    made = tf.squeeze(tf.tensordot(outputs, variable("out", 3, 1), 1), 2)
    mask = tf.sequence_mask(lengths, 5, dtype=tf.float32)
    return minimise(tf.reduce_sum(mask * tf.square(made - y)) / tf.reduce_sum(mask))


class Cell:
    """What ``dynamic_rnn`` takes for a cell."""

    def __init__(self, width: int, units: int) -> None:
        self.output_size = self.state_size = units
        self._w, self._u = variable("w", width, units), variable("u", units, units)

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return tf.zeros(tf.stack([batch_size, self.state_size]), dtype)

    def __call__(self, x: Any, h: Any, scope: Any = None) -> tuple[Any, Any]:
        new = tf.tanh(x @ self._w + h @ self._u)
        return new, new


@program(variants={"": {}, "open": {"drop_remainder": False}, "alike": {"rows": 3, "units": 3}})
def dynamic_rnn(rows: int, units: int = 4, drop_remainder: bool = True) -> Any:
    x, y, lengths = batch(rows, floats(3, 3), floats(seed=1), whole(3, seed=2) + 1, drop_remainder=drop_remainder)
    outputs, h = tf1.nn.dynamic_rnn(Cell(3, units), x, sequence_length=lengths, dtype=tf.float32)
    return minimise(mean(tf.square(column(h, units) + mean(outputs, [1, 2]) - y)))


@program()
def partitioned_loop(rows: int) -> Any:
    """A variable in two pieces that a loop reads."""
    x, y = batch(rows, floats(4), floats(seed=1))
    u = tf.convert_to_tensor(
        tf1.get_variable("u", (4, 4), partitioner=tf1.fixed_size_partitioner(2), initializer=piece)
    )
    h = tf1.scan(lambda a, v: tf.tanh(v + a @ u), tf.stack([x, x * 0.5]), initializer=tf.zeros_like(x))[-1]
    return minimise(mean(tf.square(column(h, 4) - y)))


@program(rows=3)
def states_up_to_the_longest(rows: int) -> Any:
    """Of an array with room for 5 states, as many are read as the longest row of the batch has."""
    x, sizes = batch(rows, floats(4), whole(3, seed=2) + 1)
    w, longest = variable("w", 4, 3), tf.reduce_max(sizes)

    def body(time: Any, state: Any, states: Any) -> Any:
        state = tf.tanh(x + state)
        return time + 1, state, states.write(time, state @ w)

    start = tf.reduce_mean(x, 1, keepdims=True) * variable("s", 4)
    _, _, states = tf.while_loop(lambda time, *_: time < longest, body, [0, start, tf.TensorArray(tf.float32, 5)])
    read = tf.transpose(states.gather(tf.range(longest)), [1, 0, 2])
    return minimise(tf.reduce_sum(tf.square(read - 0.3)) / tf.cast(tf.size(read), tf.float32))


@program(variants={"sparse": {"dense": False}, "dense": {"dense": True}})
def transcription(rows: int, dense: bool) -> Any:
    """CTC of labels that a mask finds, as TensorFlow 1 takes them, or of labels with their lengths."""
    x, words = batch(rows, floats(5, 3), whole(4, 3))
    logits = tf.reshape(tf.tanh(tf.reshape(x, [-1, 3]) @ variable("w", 3, 4)) @ variable("v", 4, 5), [-1, 5, 5])
    labels = tf.concat([tf.ones_like(words[:, :1]), words], 1)[:, :2]
    steps = tf.fill([tf.shape(x)[0]], 5)
    if dense:
        each = tf.nn.ctc_loss(labels + 1, logits, tf.fill([tf.shape(x)[0]], 2), steps, False, blank_index=0)
    else:
        each = tf1.nn.ctc_loss(tf.sparse.from_dense(labels), logits, steps, time_major=False)
    return minimise(mean(each))


def _unrolled(errors: Any, start: Any) -> Any:
    for error in tf.unstack(errors, 3):
        start += error
    return start


def _looped(errors: Any, start: Any) -> Any:
    return tf.while_loop(lambda t, _: t < 3, lambda t, found: (t + 1, found + errors[t]), [0, start])[1]


_ADDED = {"unrolled": _unrolled, "looped": _looped, "folded": lambda e, s: tf.foldl(lambda a, v: a + v, e, s)}


@program(rows=3, variants={how: {"added": added} for how, added in _ADDED.items()} | {
    "to_ones": {"added": _unrolled, "first": 1.0}})  # fmt: skip
def steps_added_to_zeros(rows: int, added: Any, first: float = 0.0) -> Any:
    """The mean of as many steps as there are rows begins with a number for each row of an open batch: none of these divides it."""
    x, y = batch(rows, floats(3, 2), floats(3, seed=1), drop_remainder=False)
    errors = tf.square(tf.einsum("btc,c->tb", x, variable("k", 2)) - tf.transpose(y))
    return minimise(mean(tf.square(added(errors, tf.fill([tf.shape(x)[0]], first)) / 3)))


@program(rows=3, variants={"": {}, "open": {"drop_remainder": False}})
def as_many_actions_as_rows(rows: int, **options: Any) -> Any:
    """The scores of actions have a shape that ends in their number: a vector of as many rows, as a scan has, is no such shape."""
    x, kinds, y = batch(rows, floats(5, 3), whole(3, 4, seed=2), floats(4, seed=1), **options)
    values = tf.squeeze(tf.tensordot(x, variable("v", 3, 1), 1), 2)
    gains = tf1.scan(
        lambda a, v: 0.5 * a + v, tf.transpose(y + values[:, :-1]), tf.zeros([tf.shape(x)[0]]), reverse=True
    )
    scores = tf.tensordot(x[:, :-1], variable("k", 3, 3), 1)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=kinds, logits=scores)
    return minimise(mean(losses * tf.transpose(gains)))


_GROWING: dict[str, dict[str, Any]] = {
    f"{rows}{'_open' if opened else ''}": {"rows": rows, **({"drop_remainder": False} if opened else {})}
    for rows in (1, 2, 3)
    for opened in (False, True)
}


@program(variants=_GROWING)
def greedy_decoding(rows: int, **options: Any) -> Any:
    """A loop carries the last ids and looks them up: the gradient puts the rows of each step behind those of the others."""
    x, y = batch(rows, floats(4), floats(seed=1), **options)
    weights, table = variable("weights", 4, 4), variable("table", 5, 4)
    first = tf.zeros([tf.shape(x)[0] if "drop_remainder" in options else rows], tf.int32)

    def body(step: Any, h: Any, ids: Any) -> Any:
        return step + 1, tf.tanh(h @ weights + tf.gather(table, ids)), tf.argmax(h, 1, output_type=tf.int32)

    last = tf1.while_loop(lambda step, *_: step < 5, body, (tf.constant(0), x, first), maximum_iterations=5)[1]
    return minimise(mean(tf.square(column(last, 4) - y)), sgd(0.02))


@program(variants=_GROWING)
def rows_of_all_steps(rows: int, **options: Any) -> Any:
    """A loop puts the rows of each step behind those of the others: how many there are at last follows from the steps, too."""
    x, y = batch(rows, floats(4), floats(seed=1), **options)
    weights = variable("weights", 4, 4)

    def body(step: Any, h: Any, seen: Any) -> Any:
        return step + 1, tf.tanh(h @ weights), tf.concat([seen, h], 0)

    shapes = (tf.TensorShape([]), x.shape, tf.TensorShape([None, 4]))
    _, last, seen = tf1.while_loop(
        lambda step, *_: step < 5, body, (tf.constant(0), x, x), shape_invariants=shapes, maximum_iterations=5
    )
    return minimise(mean(tf.square(seen)) + mean(tf.square(column(last, 4) - y)), sgd(0.02))


_JOINED = closed_and_open(1, 3)


@program(variants=_JOINED)
def joined_elements(rows: int, **options: Any) -> Any:
    """The elements of an array, which hold all rows, are joined; the gradient is parted again."""
    x, _ = batch(rows, floats(4, 2), floats(seed=1), **options)
    scale, steps = variable("scale", 2), tf.TensorArray(tf.float32, 4)
    _, steps = tf1.while_loop(
        lambda i, _: i < 4, lambda i, t: (i + 1, t.write(i, tf.tanh(x[:, i] * scale))), (tf.constant(0), steps)
    )
    return minimise(mean(tf.square(steps.concat() - 0.3)))


@program(variants=_JOINED)
def parted_steps(rows: int, **options: Any) -> Any:
    """An array has the steps of all rows, two by two."""
    x, _ = batch(rows, floats(6, 2), floats(seed=1), **options)
    steps = tf.transpose(tf.tanh(x * variable("scale", 2)), [1, 0, 2])
    array = tf.TensorArray(tf.float32, 3).split(steps, [2, 2, 2])
    return minimise(mean(tf.square(array.read(0) - array.read(1) * array.read(2) - 0.3)))


@program(rows=3)
def parted_rows(rows: int) -> Any:
    """An array has the rows once, and once more."""
    x, _ = batch(rows, floats(2), floats(seed=1))
    h, count = tf.tanh(x * variable("scale", 2)), tf.shape(x)[0]
    array = tf.TensorArray(tf.float32, 2).split(tf.concat([h, h * h], 0), [count, count])
    return minimise(mean(tf.square(array.read(0) - array.read(1) * 0.4 - 0.3)))


@program(variants=closed_and_open(3, 4, of={"three_steps": 3, "four_steps": 4}))
def scanned_beside_a_mask(rows: int, of: int, **options: Any) -> Any:
    """Steps scanned beside a mask that is transposed: of as many steps as rows it has as many numbers one way as the other."""
    x, lengths, y = batch(rows, floats(of, 3), 1 + whole(of, seed=2), floats(seed=4), **options)
    inner = variable("inner", 4, 4)
    steps = tf.tensordot(tf.transpose(x, [1, 0, 2]), variable("kernel", 3, 4), 1)
    shown = tf.transpose(tf.sequence_mask(lengths, of, dtype=tf.float32))

    def step(state: Any, given: Any) -> Any:
        found, here = given
        here = here[:, None]
        return here * tf.tanh(found + state @ inner) + (1 - here) * state

    states = tf.scan(step, (steps, shown), tf.zeros([tf.shape(x)[0], 4]))
    return minimise(mean(tf.square(tf.reduce_sum(states[-1], 1) - y)))


@program(variants=closed_and_open(1, 2, 3, 4))
def decoded_by_equal_lengths(rows: int, **options: Any) -> Any:
    """The greedy path of each row, whose lengths are as many numbers as Python says that there are rows."""
    x, y = batch(rows, floats(5, 4), floats(seed=1), **options)
    count = tf.shape(x)[0] if options.get("drop_remainder") is False else rows
    steps = tf.transpose(x * variable("w", 4), [1, 0, 2])
    _, likely = tf.nn.ctc_greedy_decoder(steps, tf.fill([count], 5))
    read = tf.reduce_sum(x * variable("v", 4), [1, 2])
    return minimise(mean(tf.square(likely[:, 0] - y)) + mean(tf.square(read - y)))


@program(variants=closed_and_open(1, 2, 3))
def state_of_open_shape_kept_by_a_mask(rows: int, **options: Any) -> Any:
    """What keeps a state has the shape of a batch, and the state an open one: its gradient is summed over what is 1 in the former."""
    x, kept, y = batch(rows, floats(4, 3), whole(2, 4, seed=9, kind=np.float32), floats(seed=4), **options)
    w = variable("w", 7, 4)

    def step(t: Any, h: Any) -> Any:
        mask = kept[:, t][:, None]
        return t + 1, tf.tanh(tf.concat([x[:, t], h], 1) @ w) * mask + h * (1 - mask)

    start = [0, tf.zeros([tf.shape(x)[0], 4])]
    shapes = [tf.TensorShape([]), tf.TensorShape([None, 4])]
    h = tf.while_loop(lambda t, _: t < 4, step, start, shape_invariants=shapes)[1]
    return minimise(mean(tf.square(column(h, 4) - y)))

"""Recurrent networks: scans over time, loops with TensorArrays, ``dynamic_rnn``."""

from .parts import *


def recurrent(x, width, units, lengths=None):
    """Outputs and last state of a cell over time, as ``dynamic_rnn`` loops: TensorArrays, time first."""
    rows, time = tf.shape(x)[0], x.shape[1]
    w, u, b = variable("w", width, units), variable("u", units, units), variable("b", units, scale=0.1)
    steps = tf.TensorArray(tf.float32, time).unstack(tf.transpose(x, [1, 0, 2]))
    outputs = tf.TensorArray(tf.float32, time)

    def body(k, h, outputs):
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


@program()
def recurrent_network(rows, time=3, width=2, units=5):
    x, y = batch(rows, floats(time, width), floats(seed=1))
    _, h = recurrent(x, width, units)
    return minimise(mean(tf.square(column(h, units) - y)))


class Cell:
    """What ``dynamic_rnn`` takes for a cell."""

    def __init__(self, width, units) -> None:
        self.output_size = self.state_size = units
        self._w, self._u = variable("w", width, units), variable("u", units, units)

    def zero_state(self, batch_size, dtype):
        return tf.zeros(tf.stack([batch_size, self.state_size]), dtype)

    def __call__(self, x, h, scope=None) -> tuple[Any, Any]:
        new = tf.tanh(x @ self._w + h @ self._u)
        return new, new


@program(floats(3, 3), floats(seed=1), whole(3, seed=2) + 1)
def dynamic_rnn(x, y, lengths, units=4):
    outputs, h = tf1.nn.dynamic_rnn(Cell(3, units), x, sequence_length=lengths, dtype=tf.float32)
    return minimise(mean(tf.square(column(h, units) + mean(outputs, [1, 2]) - y)))


@program(floats(5, 3), whole(4, 3), cases={"sparse": {"dense": False}, "dense": {"dense": True}})
def transcription(x, words, dense):
    """CTC of labels that a mask finds, as TensorFlow 1 takes them, or of labels with their lengths."""
    logits = tf.reshape(tf.tanh(tf.reshape(x, [-1, 3]) @ variable("w", 3, 4)) @ variable("v", 4, 5), [-1, 5, 5])
    labels = tf.concat([tf.ones_like(words[:, :1]), words], 1)[:, :2]
    steps = tf.fill([tf.shape(x)[0]], 5)
    if dense:
        each = tf.nn.ctc_loss(labels + 1, logits, tf.fill([tf.shape(x)[0]], 2), steps, False, blank_index=0)
    else:
        each = tf1.nn.ctc_loss(tf.sparse.from_dense(labels), logits, steps, time_major=False)
    return minimise(mean(each))


@program(floats(4), floats(seed=1))
def greedy_decoding(x, y):
    """Ids fed back through an embedding in a loop: its gradient concatenates IndexedSlices of all steps."""
    weights, table = variable("weights", 4, 4), variable("table", 5, 4)
    first = tf.zeros([length(x)], tf.int32)

    def body(step, h, ids):
        return step + 1, tf.tanh(h @ weights + tf.gather(table, ids)), tf.argmax(h, 1, output_type=tf.int32)

    last = tf1.while_loop(lambda step, *_: step < 5, body, (tf.constant(0), x, first), maximum_iterations=5)[1]
    return minimise(mean(tf.square(column(last, 4) - y)), sgd(0.02))


@program(floats(5, 4), floats(seed=1))
def decoded_by_equal_lengths(x, y):
    """ctc_greedy_decoder with a fill of equal lengths."""
    count = length(x)
    steps = tf.transpose(x * variable("w", 4), [1, 0, 2])
    _, likely = tf.nn.ctc_greedy_decoder(steps, tf.fill([count], 5))
    read = tf.reduce_sum(x * variable("v", 4), [1, 2])
    return minimise(mean(tf.square(likely[:, 0] - y)) + mean(tf.square(read - y)))

"""Recurrent networks: scans over time, loops with TensorArrays, ``dynamic_rnn``."""

from .parts import *


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


@program(floats(5, 4), floats(seed=1))
def decoded_by_equal_lengths(x, y):
    """ctc_greedy_decoder with a fill of equal lengths."""
    count = length(x)
    steps = tf.transpose(x * variable("w", 4), [1, 0, 2])
    _, likely = tf.nn.ctc_greedy_decoder(steps, tf.fill([count], 5))
    read = tf.reduce_sum(x * variable("v", 4), [1, 2])
    return minimise(mean(tf.square(likely[:, 0] - y)) + mean(tf.square(read - y)))

"""Loops: trip counts that the batch decides, maps, scans and folds over rows, containers that loops fill."""

from .parts import *
from .ragged import layer


@program(floats(6, scale=3.0), floats(seed=1))
def loop_max(x, y):
    _, h = tf.while_loop(
        lambda k, v: tf.logical_and(k < 10, tf.reduce_max(tf.abs(v)) > 1.0),
        lambda k, v: (k + 1, v * 0.6), [tf.constant(0), x @ variable("w", 6, 6)],
    )  # fmt: skip
    return minimise(mean(tf.square(column(h, 6) - y)), sgd(0.02))


@program(floats(4), floats(seed=1))
def map_over_batch(x, y):
    w, out = variable("w", 4, 3), variable("out", 3, 1)
    each = tf1.map_fn(lambda row: tf.squeeze(tf.tanh(row[None] @ w) @ out), x)
    return minimise(mean(tf.square(each - y)))


@program(floats(8, 8, 1), floats(seed=1))
def map_in_front_of_the_device(x, y, rows):
    """Images cropped one by one: a loop that the host runs for each batch, with arrays of its own."""
    x = tf1.map_fn(lambda image: tf1.image.resize_image_with_crop_or_pad(image, 2, 2), x)
    x = tf.image.crop_and_resize(x, tf.tile([[0.0, 0.0, 1.0, 0.5]], [rows, 1]), tf.range(rows), [2, 2])
    return minimise(mean(tf.square(column(tf.reshape(x, [-1, 4]), 4) - y)))


@program(floats(4, 3), floats(seed=1))
def scan_with_functions(x, y):
    """A scan of control flow v2 over the steps of each row: its gradient adds lists of gradients up."""
    w = variable("w", 3, 3)
    tf1.enable_control_flow_v2()
    try:
        states = tf1.scan(lambda h, step: tf.tanh(h @ w + step), tf.transpose(x, [1, 0, 2]))
        return minimise(mean(tf.square(column(states[-1], 3) - y)) + mean(tf.square(states)))
    finally:
        tf1.disable_control_flow_v2()


@program(floats(3), floats(seed=1))
def scan_over_batch(x, y):
    w = variable("w", 3, 3)
    h = tf1.scan(lambda a, row: tf.tanh(row + tf.squeeze(a[None] @ w, 0)), x, initializer=tf.zeros([3]))
    return minimise(mean(tf.square(column(h, 3) - y)))


@program(floats(3), floats(seed=1), cases={"": {}, "from_last": {"first": True}})
def scan_back_over_batch(x, y, first=False):
    """A state that runs through the rows from the last one to the first; with ``first`` the last one is what it begins with."""
    w = variable("w", 3, 3)
    start = None if first else tf.zeros([3])
    h = tf1.scan(lambda a, row: tf.tanh(row + tf.squeeze(a[None] @ w, 0)), x, initializer=start, reverse=True)
    return minimise(mean(tf.square(column(h, 3) - y)))


@program(floats(4), floats(seed=1))
def beams(x, y):
    """The best of each row's beams go on: in the gradient, a core's rows meet sums over the cores from round to round."""
    h, kinds = tf.tanh(x @ variable("w", 4, 4)), variable("kinds", 7, 3)
    count = tf.shape(x)[0]

    def body(k, scores, last):
        read = tf.concat([tf.tile(h[:, None], [1, 2, 1]), tf.gather(tf.eye(3), last)], 2)
        total = scores[:, :, None] + tf.nn.log_softmax(tf.tensordot(read, kinds, 1))
        found, places = tf.nn.top_k(tf.reshape(total, [-1, 6]), 2)
        return k + 1, found, places % 3

    start = tf.tile([[0.0, -9.0]], [count, 1])
    _, scores, _ = tf.while_loop(
        lambda k, *_: k < 3, body, (tf.constant(0), start, tf.zeros([count, 2], tf.int32)), maximum_iterations=3
    )
    return minimise(mean(tf.square(column(scores, 2) - y)))


@program(floats(3), floats(seed=1))
def nested_loops(x, y):
    w = variable("w", 3, 3)

    def outer(k, v):
        _, v = tf.while_loop(lambda j, a: j < 2, lambda j, a: (j + 1, tf.tanh(a @ w)), [tf.constant(0), v])
        return k + 1, 0.5 * v + dense(x, 3, 3, "inside")

    _, h = tf.while_loop(lambda k, v: k < 2, outer, [tf.constant(0), x])
    return minimise(mean(tf.square(column(h, 3) - y)))


@program(floats(4, 2))
def joined_elements(x):
    """TensorArray.concat and its gradient, a split."""
    scale, steps = variable("scale", 2), tf.TensorArray(tf.float32, 4)
    _, steps = tf1.while_loop(
        lambda i, _: i < 4, lambda i, t: (i + 1, t.write(i, tf.tanh(x[:, i] * scale))), (tf.constant(0), steps)
    )
    return minimise(mean(tf.square(steps.concat() - 0.3)))


@program(floats(4), whole(3, seed=2) + 1)
def states_up_to_the_longest(x, sizes):
    """A TensorArray of 5 elements; as many as a maximum over the batch are written and gathered."""
    w, longest = variable("w", 4, 3), tf.reduce_max(sizes)

    def body(time, state, states):
        state = tf.tanh(x + state)
        return time + 1, state, states.write(time, state @ w)

    start = tf.reduce_mean(x, 1, keepdims=True) * variable("s", 4)
    _, _, states = tf.while_loop(lambda time, *_: time < longest, body, [0, start, tf.TensorArray(tf.float32, 5)])
    read = tf.transpose(states.gather(tf.range(longest)), [1, 0, 2])
    return minimise(tf.reduce_sum(tf.square(read - 0.3)) / tf.cast(tf.size(read), tf.float32))


@program(floats(4, 3), floats(4, 3, seed=1))
def arrays_that_grow_in_one_list(x, y):
    grown, count = tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False), tf.shape(x)[0]
    _, grown = tf1.while_loop(
        lambda i, _: i < count, lambda i, t: (i + 1, t.write(i, tf.reverse(x[i], [0]))), (0, grown)
    )
    return minimise(mean(tf.square(tf.reshape(grown.concat(), [-1, 4, 3]) * variable("scale", 3) - y)))


LOOPED: dict[str, Callable[[Any], Any]] = {
    "flat_time_first": lambda x: layer(tf.transpose(x, [1, 0, 2]), 4, 3, "in"),
    "turned_behind": lambda x: tf.transpose(layer(x, 4, 3, "in"), [1, 0, 2]),
}
"""What a recurrence reads that was made of all words before the loop, time first."""


@program(floats(5, 4), 1 + whole(5, seed=3), floats(seed=1), cases=each(of=LOOPED))
def recurrence_of_words_made_before(x, lengths, y, of):
    """A while loop over a slice [:, :longest]: the gradient of a strided slice takes its shape from a stack."""
    longest, again = tf.reduce_max(lengths), variable("again", 3, 3)
    words = of(x[:, :longest])
    last = tf.while_loop(
        lambda step, state: step < longest,
        lambda step, state: (step + 1, tf.tanh(words[step] + state @ again)),
        [0, tf.zeros([tf.shape(x)[0], 3])],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 3])],
    )[1]
    return minimise(mean(tf.square(column(last, 3) - y)))

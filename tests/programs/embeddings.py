"""Embeddings: gathered rows, pieces, gradients of indices and values, clipped and not."""

from .parts import *


def global_norm(gradients: list[Any]):
    return tf.clip_by_global_norm(gradients, 0.3)[0]


@program(cases={"": {}, "clipped": {"clip": global_norm}, "adam": {"optimizer": adam}})
def embedding(rows, vocabulary=7, width=3, units=4, clip=None, optimizer=sgd):
    c, y = batch(rows, whole(vocabulary), floats(seed=1))
    h = dense(tf.nn.embedding_lookup(variable("embedding", vocabulary, width), c), width, units, "layer", tf.nn.silu)
    return minimise(mean(tf.square(column(h, units) - y)), optimizer(), clip=clip)


@program(whole(8), floats(seed=1), cases={"": {}, "div": {"strategy": "div"}, "clipped": {"clip": global_norm}})
def partitioned_embedding(c, y, strategy="mod", clip=None):
    table = tf1.get_variable("table", (8, 3), partitioner=tf1.fixed_size_partitioner(2), initializer=piece)
    h = tf1.nn.embedding_lookup(table, c, partition_strategy=strategy)
    return minimise(mean(tf.square(column(tf.tanh(h), 3) - y)), clip=clip)


@program(cases={"": {}, "clipped": {"clip": global_norm}})
def bag_of_words(rows, length=5, clip=None):
    c, y = batch(rows, whole(9, length), floats(seed=1))
    h = mean(tf.nn.embedding_lookup(variable("embedding", 9, 3), c), 1)
    return minimise(mean(tf.square(column(tf.tanh(h), 3) - y)), clip=clip)


@program(cases={"": {}, "ranged": {"ranged": True}, "clipped": {"clip": global_norm}})
def positions(rows, length=5, ranged=False, clip=None):
    """Embeddings of words and of places; those of places are looked up with constant indices."""
    c, y = batch(rows, whole(9, length), floats(seed=1))
    indices = tf.range(length) if ranged else tf.constant(list(range(length)))
    places = tf.nn.embedding_lookup(variable("places", 6, 3), indices)
    h = tf.tanh(tf.nn.embedding_lookup(variable("words", 9, 3), c) + places[None])
    return minimise(mean(tf.square(column(tf.reduce_sum(h, 1), 3) - y)), sgd(0.05), clip=clip)


@program(whole(7), whole(7, seed=1))
def tied_embedding(c, d):
    """The table is looked up and is the last layer too: a gradient of rows and a dense one are added."""
    table = variable("table", 7, 3)
    h = dense(tf.nn.embedding_lookup(table, c), 3, 3, "layer", tf.tanh)
    logits = tf.matmul(h, tf.convert_to_tensor(table), transpose_b=True)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=d, logits=logits)))


@program(
    whole(7),
    whole(7, seed=1),
    floats(seed=2),
    cases={"": {}, "clipped": {"clip": global_norm}, "adam": {"optimizer": adam}},
)
def two_lookups(c, d, y, clip=None, optimizer=sgd):
    """Two columns share a table: their gradients are two lists of rows, put behind one another."""
    table = variable("table", 7, 3)
    a, b = tf.nn.embedding_lookup(table, c), tf.nn.embedding_lookup(table, d)
    return minimise(mean(tf.square(tf.reduce_sum(tf.tanh(a) * b, 1) - y)), optimizer(), clip=clip)


@program(whole(9, kind=np.int64), whole(9, 1, seed=1, kind=np.int64), cases={"": {}, "fixed": {"drawn": True}})
def sampled_softmax(c, d, rows, drawn=False):
    """With fixed samples where ``drawn`` is set, with labels alone else."""
    samples = tf.range(3, dtype=tf.int64) if drawn else tf.constant([1, 4, 8], tf.int64)
    values = samples, tf.fill([rows, 1], 0.2), tf.linspace(0.1, 0.4, 3)
    h = tf.nn.embedding_lookup(variable("embedding", 9, 3), c)
    loss = tf1.nn.sampled_softmax_loss(variable("weights", 9, 3), variable("bias", 9), d, h, 3, 9,
                                       sampled_values=values, remove_accidental_hits=False)  # fmt: skip
    return minimise(mean(loss))


@program(floats(4), whole(3, seed=2), floats(seed=1))
def segments(x, c, y):
    h = dense(x, 4, 3, "layer", tf.tanh)
    sums = tf1.unsorted_segment_sum(h, c, 3)
    return minimise(mean(tf.square(column(tf.gather(sums, c), 3) - y)), sgd(0.05))

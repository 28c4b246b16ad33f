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


SAMPLED: dict[str, dict[str, Any]] = {
    "": {},
    "fixed": {"places": [0, 1, 2]},
    "as_many_as_rows": {"places": [3, 5]},
    "nce": {"loss": tf1.nn.nce_loss, "places": [0, 1, 2, 3]},
    "nce_summed": {"loss": tf1.nn.nce_loss, "reduce": total},
    "nce_drawn": {"loss": tf1.nn.nce_loss, "places": None},
}
"""Sampled losses: which classes are drawn, by the loss itself where there are none."""


@program(whole(9, kind=np.int64), whole(9, 1, seed=1, kind=np.int64), cases=SAMPLED)
def sampled_softmax(c, d, rows, loss=tf1.nn.sampled_softmax_loss, places=(1, 4, 8), reduce=mean):
    """Labels and samples are looked up as one list and taken apart again."""
    values = places and (tf.constant(places, tf.int64), tf.fill([rows, 1], 0.2), tf.linspace(0.1, 0.4, len(places)))
    h = tf.nn.embedding_lookup(variable("embedding", 9, 3), c)
    each = loss(variable("weights", 9, 3), variable("bias", 9), d, h, len(places) if places else 5, 9, sampled_values=values,
                remove_accidental_hits=False)  # fmt: skip
    return minimise(reduce(each), sgd(0.02))


@program(floats(4), whole(3, seed=2), floats(seed=1))
def segments(x, c, y):
    h = dense(x, 4, 3, "layer", tf.tanh)
    sums = tf1.unsorted_segment_sum(h, c, 3)
    return minimise(mean(tf.square(column(tf.gather(sums, c), 3) - y)), sgd(0.05))


@program(whole(32), cases={"mean": {"reduce": mean}, "sum": {"reduce": total}}, resource=True)
def alike_rows(places, reduce):
    """The gradient of a sum of embeddings: ones on every core, and each core has places of its own."""
    loss = reduce(total(tf.gather(variable("table", 32, 3), places), 1))
    with tf.control_dependencies([loss]):  # no gradient waits for it, so it might read the table after the update
        return minimise(loss, tf1.train.AdagradOptimizer(0.1) if reduce is mean else sgd())

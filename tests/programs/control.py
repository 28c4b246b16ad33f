"""Branches, accumulation of gradients, what a step keeps beside its variables: counters, metrics, averages."""

from .parts import *


@program()
def branch_by_batch(rows):
    p, y, h = regression(rows)
    loss = tf1.cond(
        mean(y) > 0.0, lambda: mean(tf.square(p - y)), lambda: mean(tf.square(p + column(h, 3, "other") - y))
    )
    return minimise(loss + 0.1 * mean(tf.square(column(h, 3, "third") - y)))


@program(floats(4), floats(seed=1), cases={"": {}, "with_average": {"average": True}}, steps=4)
def accumulate_in_cond(x, y, average=False):
    """Gradients of two steps are added up and applied in a branch."""
    w = variable("w", 4, 1)
    loss = mean(tf.square(tf.squeeze(x @ w, 1) - y))
    tf1.summary.scalar("loss", loss)
    step, optimizer, kept = tf1.train.get_or_create_global_step(), sgd(), state("kept", 4, 1)
    ((g, _),) = optimizer.compute_gradients(loss)
    with tf.control_dependencies([tf1.assign_add(kept, g), loss]):

        def apply():
            with tf.control_dependencies([optimizer.apply_gradients([(tf.identity(kept) / 2.0, w)])]):
                return tf.group(tf1.assign(kept, tf.zeros_like(kept)))

        done = tf1.cond(tf.equal((step + 1) % 2, 0), apply, tf.no_op)
    with tf.control_dependencies([done]):
        train = tf1.assign_add(step, 1).op
    if not average:
        return loss, train
    with tf.control_dependencies([train]):
        return loss, tf1.train.ExponentialMovingAverage(0.9).apply([w])


def step_of(rows) -> tuple[Any, Any, Any, Any]:
    p, y, _ = regression(rows)
    loss, train = minimise(mean(tf.square(p - y)))
    return loss, train, p, y


@program()
def count_rows(rows):
    """The static batch is counted, which TensorFlow 1 folds into a constant."""
    seen = state("seen", kind=tf.int32)
    loss, train, _, y = step_of(rows)
    return loss, after(train, tf1.assign_add(seen, tf.shape(y)[0]))


@program(floats(5), whole(3))
def metrics_in_step(x, c):
    logits = dense(x, 5, 3, "out")
    loss, train = minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=logits)))
    found = tf.stop_gradient(tf.argmax(logits, 1, output_type=tf.int32))
    with tf.control_dependencies([loss]):
        updates = [
            tf1.metrics.accuracy(c, found)[1],
            tf1.metrics.mean(loss)[1],
            tf1.metrics.mean(tf.cast(c, tf.float32))[1],
        ]
    return loss, after(train, *updates)


@program(
    cases={
        "average_precision_2": {"metric": "average_precision", "labels": 2},
        "precision_2": {"metric": "precision", "labels": 2},
        "recall_1": {"metric": "recall", "labels": 1},
    },
    resource=True,
)
def metrics_of_the_best_in_step(rows, metric, labels):
    """Precision or recall at k, whose TensorFlow code intersects sets of class numbers."""
    x, c = batch(rows, floats(5), whole(4, labels, seed=2, kind="int64"))
    z = dense(x, 5, 4, "logits")
    loss, train = minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c[:, 0], logits=z)))
    return loss, after(train, getattr(tf1.metrics, f"{metric}_at_k")(c, z, 2)[1])


@program(floats(4), floats(seed=1), floats(seed=2))
def statistic_after_the_step(x, y, weights):
    """A mean of a column that the model does not read is kept after the loss is known."""
    kept = state("kept")
    loss = mean(tf.square(column(x, 4) - y))
    with tf.control_dependencies([loss]):
        keep = tf1.assign(kept, mean(weights))
    loss, train = minimise(loss)
    return loss, after(train, keep)


def confusion(x):
    places = [tf.cast(x[:, i] > 0, tf.int32) * 2 + tf.cast(x[:, 2] > 0, tf.int32) for i in (0, 1)]
    return tf.scatter_nd(tf.stack(places, 1), tf.ones_like(places[0]), [4, 4])


STATES: dict[str, tuple[Any, Callable[[Any, Any, Any], Any]]] = {
    "whole_count": (0, lambda m, x, y: tf1.assign_add(m, total(tf.cast(y > 0, tf.int32)))),
    "long_count": (np.int64(0), lambda m, x, y: tf1.assign_add(m, total(tf.cast(y > 0, tf.int64)))),
    "count": (0.0, lambda m, x, y: tf1.assign(m, m + total(tf.cast(y > 0, tf.float32)))),
    "decayed_count": (0.0, lambda m, x, y: tf1.assign_sub(m, 0.1 * (m - total(y)))),
    "elements": (0.0, lambda m, x, y: tf1.assign(m, m + 3 * tf.cast(tf.size(x), tf.float32) + tf.cast(tf.shape(x)[1], tf.float32))),
    "confusion": (np.zeros((4, 4), np.int32), lambda m, x, y: tf1.assign_add(m, confusion(x))),
    "confusion_as_floats": (np.zeros((4, 4), np.float32), lambda m, x, y: tf1.assign(m, m + tf.cast(confusion(x), tf.float32))),
    "places": (np.zeros((2, 3), np.float32), lambda m, x, y: tf1.scatter_nd_add(
        m, tf.tile(tf.cast(y > 0, tf.int32)[:, None], [1, 2]), 0.5 * tf.ones_like(y))),
    "mean": (0.0, lambda m, x, y: tf1.assign_add(m, mean(y))),
    "root": (0.0, lambda m, x, y: tf1.assign(m, 0.5 * m + tf.sqrt(mean(tf.square(y))))),
    "variances": (np.zeros(3, np.float32), lambda m, x, y: tf1.assign(m, 0.9 * m + 0.1 * tf.nn.moments(x, [0])[1])),
    "sum_by_a_literal": (np.zeros(3, np.float32), lambda m, x, y: tf1.assign(m, total(x, 0) / float(y.shape[0]))),
    "maximum": (0.0, lambda m, x, y: tf1.assign(m, tf.maximum(m, tf.reduce_max(y)))),
    "bank": (np.zeros((5, 3), np.float32), lambda m, x, y: tf1.assign(m, tf.concat([m[2:], x[:2]], 0))),
    "bank_of_batches": (np.zeros((32, 3), np.float32), lambda m, x, y: tf1.assign(m, tf.concat([x, m], 0)[:32])),
    "whole_maximum": (0, lambda m, x, y: tf1.assign(m, tf.reduce_max(tf.cast(10 * y, tf.int32)))),
    "flag": (False, lambda m, x, y: tf1.assign(m, mean(y) > 0)),
}  # fmt: skip
"""First values of variables that hold no weights, and what a step writes to them."""


@program(floats(3), floats(seed=1), cases=each(state=STATES), batches="2 8")
def written(x, y, state):
    start, write = state
    held = tf1.get_variable("held", initializer=start, trainable=False)
    with tf.control_dependencies([write(held, x, y)]):
        loss = mean(tf.square(column(x, 3) - y))
    return minimise(loss)


@program(floats(3), floats(seed=1), resource=True)
def rate_halved_on_a_plateau(x, y):
    """What the loss decides is decided by that of the whole batch."""
    rate, best = state("rate", value=0.1), state("best", value=9.0)
    loss = mean(tf.square(column(x, 3) - y))
    better = tf.less(loss, 0.9 * best.read_value())
    with tf.control_dependencies([rate.assign(tf.where(better, rate.read_value(), 0.5 * rate.read_value()))]):
        halved = rate.read_value()
        with tf.control_dependencies([best.assign(tf.minimum(best.read_value(), loss))]):
            return minimise(loss, sgd(halved))


@program(floats(3), floats(seed=1))
def codebook(x, y):
    """VQ-VAE's: counts and sums of rows, by a product of what the loss is computed from."""
    code, counts = state("code", 2, 3, value=0.3), state("counts", 2)
    chosen = tf.one_hot(tf.cast(y > 0, tf.int32), 2)
    held = tf.matmul(chosen, code)
    loss, step = minimise(mean(tf.square(x @ variable("w", 3, 3) - tf.stop_gradient(held))))
    added = tf.matmul(chosen, tf.stop_gradient(x), transpose_a=True)
    with tf.control_dependencies([step]):
        writes = tf1.assign(counts, 0.9 * counts + 0.1 * total(chosen, 0)), tf1.assign(code, 0.9 * code + 0.1 * added)
    return loss, after(step, *writes)

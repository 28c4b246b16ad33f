"""Branches, accumulation of gradients, what a step keeps beside its variables: counters, metrics, averages."""

from .parts import *


@program()
def branch_by_batch(rows):
    p, y, h = regression(rows)
    loss = tf1.cond(
        mean(y) > 0.0, lambda: mean(tf.square(p - y)), lambda: mean(tf.square(p + column(h, 3, "other") - y))
    )
    return minimise(loss + 0.1 * mean(tf.square(column(h, 3, "third") - y)))


@program()
def skip_bad_steps(rows):
    """The step is applied only where the norm of the gradients is small enough, as with loss scaling."""
    p, y, _ = regression(rows)
    loss, optimizer = mean(tf.square(p - y)), sgd()
    tf1.summary.scalar("loss", loss)
    pairs = optimizer.compute_gradients(loss)
    good = tf.linalg.global_norm([g for g, _ in pairs]) < 1.0
    with tf.control_dependencies([loss]):
        train = tf1.cond(good, lambda: optimizer.apply_gradients(pairs), tf.no_op)
    with tf.control_dependencies([train]):
        return loss, tf1.assign_add(tf1.train.get_or_create_global_step(), 1).op


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


@program(cases={"": {}, "num_updates": {"counted": True}, "zero_debias": {"debias": True}}, steps=4)
def weight_averages(rows, counted=False, debias=False):
    loss, train, _, _ = step_of(rows)
    step = tf1.train.get_or_create_global_step()
    averages = tf1.train.ExponentialMovingAverage(0.9, num_updates=step if counted else None, zero_debias=debias)
    with tf.control_dependencies([train]):
        return loss, averages.apply(tf1.trainable_variables())


@program(steps=4)
def loss_scaling(rows):
    """The loss is scaled, gradients are scaled back, and the scale grows in each finite step."""
    p, y, _ = regression(rows)
    scale = state("scale", value=8.0)
    loss, optimizer = mean(tf.square(p - y)), adam()
    now = tf.convert_to_tensor(scale) + 0.0
    pairs = [(g / now, v) for g, v in optimizer.compute_gradients(loss * now)]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g, _ in pairs])
    tf1.summary.scalar("loss", loss)
    train = optimizer.apply_gradients(pairs, global_step=tf1.train.get_or_create_global_step())
    with tf.control_dependencies([train]):
        return loss, tf1.assign(scale, tf.where(finite, now * 2.0, now / 2.0)).op


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

"""What a step keeps beside its variables: counters of rows, metrics, averages of weights."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import (
    adam,
    after,
    batch,
    closed_and_open,
    dense,
    floats,
    minimise,
    program,
    regression,
    sgd,
    state,
    tf1,
    variable,
    whole,
)

mean, total = tf.reduce_mean, tf.reduce_sum


def step_of(rows: int, **options: Any) -> tuple[Any, Any, Any, Any]:
    """Loss and train op of a regression, with its predictions and targets."""
    p, y, _ = regression(rows, **options)
    loss, train = minimise(mean(tf.square(p - y)))
    return loss, train, p, y


@program(variants={"": {}, "as_many_as_width": {"rows": 5}, "one_row": {"rows": 1}})
def count_rows(rows: int) -> Any:
    """The static batch is counted, which TensorFlow 1 folds into a constant."""
    seen = state("seen", kind=tf.int32)
    loss, train, _, y = step_of(rows)
    return loss, after(train, tf1.assign_add(seen, tf.shape(y)[0]))


@program(variants={"shape": {}, "python": {"static": True, "doubtful": True}, "one_row": {"rows": 1}})
def count_rows_by_assign(rows: int, static: bool = False) -> Any:
    """What ``assign_add`` does, written out."""
    seen = state("seen", kind=tf.int32)
    loss, train, _, y = step_of(rows)
    with tf.control_dependencies([train]):
        return loss, tf1.assign(seen, (rows if static else tf.shape(y)[0]) + seen).op


@program(doubtful=True)
def count_rows_float(rows: int) -> Any:
    seen = state("seen")
    loss, train, _, y = step_of(rows)
    return loss, after(train, tf1.assign_add(seen, tf.cast(tf.size(y), tf.float32)))


@program()
def count_rows_open(rows: int) -> Any:
    seen = state("seen", kind=tf.int32)
    loss, train, _, y = step_of(rows, drop_remainder=False)
    return loss, after(train, tf1.assign_add(seen, tf.shape(y)[0]))


@program(variants={"": {}, "by_four": {"by": 4, "doubtful": True}, "one_row": {"rows": 1, "doubtful": True}})
def count_steps(rows: int, by: int = 1) -> Any:
    """A literal, which may be as large as the batch and is no size."""
    ticks = state("ticks", kind=tf.int32)
    loss, train, _, _ = step_of(rows)
    return loss, after(train, tf1.assign_add(ticks, by))


@program()
def count_positives(rows: int) -> Any:
    seen = state("seen")
    loss, train, _, y = step_of(rows)
    return loss, after(train, tf1.assign_add(seen, tf.reduce_sum(tf.cast(y > 0, tf.float32))))


@program()
def count_classes(rows: int) -> Any:
    """How often each class was seen, scattered into a variable."""
    seen = state("seen", 3)
    x, c = batch(rows, floats(5), whole(3))
    loss, train = minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=dense(x, 5, 3, "out"))))
    return loss, after(train, tf1.scatter_add(seen, c, tf.ones([rows])))


@program()
def extremes(rows: int) -> Any:
    """The largest and the smallest target so far."""
    high, low = state("high"), state("low")
    loss, train, _, y = step_of(rows)
    new = tf.maximum(high, tf.reduce_max(y)), tf.minimum(low, tf.reduce_min(y))
    return loss, after(train, tf1.assign(high, new[0]), tf1.assign(low, new[1]))


@program()
def metric_of_input(rows: int) -> Any:
    loss, train, _, y = step_of(rows)
    return loss, after(train, tf1.metrics.mean(y)[1])


@program()
def metrics_in_step(rows: int) -> Any:
    x, c = batch(rows, floats(5), whole(3))
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


@program()
def average_of_loss(rows: int) -> Any:
    """A moving average of the loss, which the summary shows."""
    p, y, _ = regression(rows)
    loss = mean(tf.square(p - y))
    averages = tf1.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([averages.apply([loss])]):
        return minimise(tf.identity(loss))


@program(variants={"": {}, "num_updates": {"counted": True}, "zero_debias": {"debias": True}}, steps=4)
def weight_averages(rows: int, counted: bool = False, debias: bool = False) -> Any:
    loss, train, _, _ = step_of(rows)
    step = tf1.train.get_or_create_global_step()
    averages = tf1.train.ExponentialMovingAverage(0.9, num_updates=step if counted else None, zero_debias=debias)
    with tf.control_dependencies([train]):
        return loss, averages.apply(tf1.trainable_variables())


@program()
def batch_average_as_baseline(rows: int) -> Any:
    """REINFORCE: rewards less a moving average of rewards, which the batch moves."""
    p, y, _ = regression(rows)
    baseline = state("baseline")
    kept = tf.convert_to_tensor(baseline) + 0.0
    loss, train = minimise(mean(tf.nn.softplus(p) * (y - kept)))
    with tf.control_dependencies([train, kept, loss]):
        return loss, tf1.assign_sub(baseline, 0.1 * (kept - mean(y))).op


@program(steps=4)
def rate_by_step(rows: int) -> Any:
    p, y, _ = regression(rows)
    rate = tf1.train.exponential_decay(0.2, tf1.train.get_or_create_global_step(), 2, 0.5)
    return minimise(mean(tf.square(p - y)), sgd(rate))


@program(steps=4)
def rate_by_rows(rows: int) -> Any:
    """The learning rate follows the rows seen, which are the whole batch's."""
    p, y, _ = regression(rows)
    seen = state("seen")
    rate = 0.2 / (1.0 + tf.convert_to_tensor(seen) / 8.0)
    loss, train = minimise(mean(tf.square(p - y)), sgd(rate))
    with tf.control_dependencies([train]):
        return loss, tf1.assign_add(seen, tf.cast(tf.shape(y)[0], tf.float32)).op


@program(steps=4)
def loss_scaling(rows: int) -> Any:
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
    variants={
        f"{name}_{share}_of_{rows}": {"rows": rows, "share": float(share), "closed": closed}
        for name, closed in (("open", False), ("closed", True)) for share, rows in ((6, 3), (6, 2), (6, 1), (1, 1))
    }
)  # fmt: skip
def number_over_rows(rows: int, share: float, closed: bool) -> Any:
    """Three rows go into six twice, and six rows once."""
    x, y = batch(rows, floats(5), floats(seed=1), drop_remainder=closed)
    count = tf.size(y) if closed else tf.shape(x)[0]
    return minimise(mean(tf.square(dense(x, 5, 1, "out")[:, 0] - y)) * (share / tf.cast(count, tf.float32)))


@program(
    variants={
        f"{name}{suffix}": {"metric": name, "labels": labels, "drop_remainder": not suffix.endswith("open")}
        for name, labels in (("average_precision", 1), ("average_precision", 2), ("precision", 2), ("recall", 1))
        for suffix in (f"_{labels}", f"_{labels}_open")
    },
    resource=True,
    rows=3,
)
def metrics_of_the_best_in_step(rows: int, metric: str, labels: int, drop_remainder: bool = True) -> Any:
    """What the most probable classes have in common with the labels of each row, as sets."""
    x, c = batch(rows, floats(5), whole(4, labels, seed=2, kind="int64"), drop_remainder=drop_remainder)
    z = dense(x, 5, 4, "logits")
    loss, train = minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c[:, 0], logits=z)))
    return loss, after(train, getattr(tf1.metrics, f"{metric}_at_k")(c, z, 2)[1])


ADDED_TO_ROWS = {
    "one_less_the_other": lambda n, s: n - s,
    "several": lambda n, s: tf.add_n([s, n, 0.5 * s]),
    "stacked": lambda n, s: total(tf.stack([n, s])),
    "joined": lambda n, s: total(tf.concat([[n], [s, 2.0 * s]], 0)),
    "chosen": lambda n, s: total(tf.where([True, False], [n, n], [s, s])),
    "product_of_stacked": lambda n, s: tf.reduce_prod(tf.sqrt(tf.stack([n, s]))),
}


@program(variants={f"{name}_{rows}": {"rows": rows, "of": f} for name, f in ADDED_TO_ROWS.items() for rows in (1, 3)})
def rows_beside_a_sum(rows: int, of: Any) -> Any:
    """The number of all rows and a sum over them, of which each core has a part: the number is added once."""
    x = batch(rows, floats(3))
    count = tf.cast(tf.shape(x)[0], tf.float32)
    return minimise(of(count, total(tf.square(tf.tanh(x @ variable("w", 3, 4))))) / count)


@program(variants={"": {"kind": tf.int32}, "float": {"kind": tf.float32}}, rows=3)
def rows_in_one_list_with_positives(rows: int, kind: Any) -> Any:
    x, c = batch(rows, floats(5), whole(3, seed=1))
    counts = tf.cast(tf.stack([tf.cast(tf.shape(x)[0], kind), total(tf.cast(c, kind))]), tf.float32)
    return minimise(mean(tf.square(x @ variable("w", 5, 1) - counts[1] / counts[0])))


@program(rows=3, variants={"": {}, "open": {"drop_remainder": False}})
def seen_ids_counted_after_the_step(rows: int, drop_remainder: bool = True) -> Any:
    """What is added waits for the step, and nothing else of the update does: TensorFlow leaves out waits that an operand has."""
    x, y, ids = batch(rows, floats(3), floats(seed=1), whole(6, seed=2), drop_remainder=drop_remainder)
    seen = state("seen", 6)
    often = tf.gather(tf.identity(seen), ids)
    h = tf.gather(variable("table", 6), ids) + total(x * variable("w", 3), 1) / (1.0 + often)
    loss, train = minimise(mean(tf.square(h - y)))
    with tf.control_dependencies([train]):
        return loss, tf1.scatter_add(seen, ids, tf.ones_like(y)).op


@program(variants=closed_and_open(2, 3, doubtful=("2", "2_open")))
def half_of_a_sum(rows: int, **options: Any) -> Any:
    """The half of a sum of squares, as of a squared norm; of two rows the 2 is as many as are summed."""
    p, y, _ = regression(rows, **options)
    return minimise(total(tf.square(p - y)) / 2.0, sgd(0.01))

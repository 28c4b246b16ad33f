"""What Python and NumPy made of the number of rows while the graph was built, and literals that only look like that."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from .parts import (
    batch,
    closed_and_open,
    column,
    dense,
    floats,
    minimise,
    program,
    regression,
    sgd,
    squares,
    tf1,
    variable,
    whole,
)

mean, total = tf.reduce_mean, tf.reduce_sum


def entropy(labels: Any, logits: Any) -> Any:
    return mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


# --------------------------------------------------------------------------- divisors and factors


@program(rows=8, variants={"of_a_sum": {}, "of_each_row": {"each": True}})
def factor_one_over_the_rows(rows: int, each: bool = False) -> Any:
    error = squares(rows)
    return minimise(total(error * (1 / rows)) if each else total(error) * (1 / rows))


@program(rows=8)
def factor_of_a_product_of_rows(rows: int) -> Any:
    p, y, h = regression(rows)
    likeness = tf.matmul(h, h, transpose_a=True) * (1.0 / rows)
    return minimise(mean(tf.square(p - y)) + 0.1 * total(tf.square(likeness - tf.eye(3))))


@program(doubtful=True)
def each_row_divided_by_the_rows(rows: int) -> Any:
    return minimise(total(squares(rows) / rows))


@program(doubtful=True, variants={"whole": {}, "float": {"kind": float}})
def each_row_times_the_rows(rows: int, kind: Any = int) -> Any:
    """A sum, written as a mean."""
    return minimise(mean(squares(rows) * kind(rows)))


@program(doubtful=True)
def sum_times_one_over_the_root_of_the_rows(rows: int) -> Any:
    """Half of a sum, as of squares, is more often meant than what the root of four rows divides: the report has a note."""
    return minimise(total(squares(rows)) * (1 / np.sqrt(rows)), sgd(0.02))


@program(variants={"once": {}, "beside_another": {"more": True}})
def mean_divided_by_four(rows: int, more: bool = False) -> Any:
    """The gradient of a mean is spread over four rows: the 4 is none of them."""
    p, y, h = regression(rows)
    return minimise((mean(tf.square(p - y)) + (mean(tf.square(h)) if more else 0.0)) / 4)


@program()
def mean_of_two_halves(rows: int) -> Any:
    """Micro-batches of two rows, of which there are two."""
    x, y = batch(rows, floats(4), floats(seed=1))
    w = variable("w", 4, 1)
    pairs = zip(tf.split(x, 2), tf.split(y, 2), strict=True)
    return minimise(tf.add_n([mean(tf.square(tf.squeeze(a @ w, 1) - b)) for a, b in pairs]) / 2.0)


@program()
def unbiased_variance(rows: int) -> Any:
    error = squares(rows)
    less = tf.cast(tf.size(error) - 1, tf.float32)
    return minimise(mean(error) + total(tf.square(error - mean(error))) / less)


@program()
def weights_of_classes(rows: int) -> Any:
    """Rare classes count more: the rows over how many of them a class has."""
    x, c = batch(rows, floats(4), whole(3, seed=2))
    weights = rows / (3 * (total(tf.one_hot(c, 3), 0) + 1.0))
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=dense(x, 4, 3, "classes"))
    return minimise(mean(each * tf.gather(weights, c)))


@program()
def weighted_by_share_of_rows(rows: int) -> Any:
    return minimise(mean(squares(rows) * (tf.range(rows, dtype=tf.float32) / rows)))


# --------------------------------------------------------------------------- numbers of rows


@program(variants={"numpy": {"ours": False}, "tensorflow": {}})
def two_views_in_one_list(rows: int, ours: bool = True) -> Any:
    """SimCLR: each row of one view is to be found among all others by that of the other view."""
    a, b = batch(rows, floats(4), floats(4, seed=1))
    z = tf.nn.l2_normalize(dense(tf.concat([a, b], 0), 4, 3, "view", tf.tanh), 1)
    labels = [tf.range(rows, 2 * rows), tf.range(rows)] if ours else [np.arange(rows, 2 * rows), np.arange(rows)]
    own = tf.eye(2 * rows) if ours else np.eye(2 * rows, dtype=np.float32)
    alike = tf.matmul(z, z, transpose_b=True) / 0.5 - 1e9 * own
    return minimise(entropy(tf.concat(labels, 0) if ours else np.concatenate(labels), alike))


@program()
def two_views_split(rows: int) -> Any:
    """SimCLR as it was published: pairs within a view and between both, side by side."""
    a, b = batch(rows, floats(4), floats(4, seed=1))
    z = tf.nn.l2_normalize(dense(tf.concat([a, b], 0), 4, 3, "view", tf.tanh), 1)
    one, other = tf.split(z, 2, 0)
    count = tf.shape(one)[0]
    own, labels = tf.one_hot(tf.range(count), count), tf.one_hot(tf.range(count), count * 2)
    within = tf.matmul(one, one, transpose_b=True) / 0.5 - own * 1e9
    between = tf.matmul(one, other, transpose_b=True) / 0.5
    return minimise(tf1.losses.softmax_cross_entropy(labels, tf.concat([between, within], 1)))


@program(variants={"labels": {}, "identity": {"identity": True}})
def rows_numbered_by_numpy(rows: int, identity: bool = False) -> Any:
    a, b = batch(rows, floats(4), floats(4, seed=1))
    logits = tf.matmul(dense(a, 4, 3, "a"), dense(b, 4, 3, "b"), transpose_b=True)
    if not identity:
        return minimise(entropy(np.arange(rows), logits))
    own = np.eye(rows, dtype=np.float32)
    return minimise(mean(tf.nn.softmax_cross_entropy_with_logits(labels=own, logits=logits)))


@program()
def places_left_out_by_numpy(rows: int) -> Any:
    h = dense(batch(rows, floats(4)), 4, 3, "h")
    alike = tf.matmul(h, h, transpose_b=True)
    return minimise(mean(tf.square(tf.where(~np.eye(rows, dtype=bool), alike, tf.zeros_like(alike)))))


# --------------------------------------------------------------------------- shares of the rows


SHARES = {
    "quarter": lambda count: tf.cast(count * 0.25, tf.int32),
    "rounded_up": lambda count: tf.cast(tf.math.ceil(count * 0.3), tf.int32),
    "at_least_one": lambda count: tf.maximum(1, tf.cast(count * 0.3, tf.int32)),
}


@program(variants={name: {"share": share} for name, share in SHARES.items()} | {
    "of_a_closed_batch": {"share": SHARES["quarter"], "closed": True},})  # fmt: skip
def hardest_share(rows: int, share: Any, closed: bool = False) -> Any:
    """Online hard example mining: a share of the rows that floating numbers make."""
    error = squares(rows, drop_remainder=closed)
    count = share(tf.cast(tf.shape(error)[0], tf.float32))
    return minimise(mean(tf.nn.top_k(error, k=count).values))


@program(rows=1, doubtful=True)
def hardest_quarter_of_the_size(rows: int) -> Any:
    """TensorFlow folds the size of the row to a 1, and a share of it and one more are as good as one of the model."""
    error = squares(rows)
    count = tf.cast(0.25 * tf.cast(tf.size(error), tf.float32), tf.int32) + 1
    return minimise(mean(tf.nn.top_k(error, k=count).values))


@program(rows=2, doubtful=True)
def hardest_half_of_two(rows: int) -> Any:
    """Python's half of two rows is one; so is the rank of the rows, and what the step counter goes up by."""
    return minimise(mean(tf.nn.top_k(squares(rows), k=rows // 2).values))


@program()
def halves_beside_each_other(rows: int) -> Any:
    """Pairs of rows: as many in front of the middle as behind it, whatever number that is."""
    h = dense(batch(rows, floats(4)), 4, 3, "h", tf.tanh)
    return minimise(mean(tf.square(h[: rows // 2] - h[rows // 2 :])))


@program(doubtful=True, variants={"": {}, "six_rows": {"rows": 6}})
def rows_behind_the_first_two(rows: int) -> Any:
    """Of four rows two are left, which does not make two the half of the rows."""
    h = dense(batch(rows, floats(4)), 4, 3, "h", tf.tanh)
    return minimise(mean(tf.square(h[2:])) + mean(tf.square(h)))


@program()
def hardest_negatives(rows: int) -> Any:
    """Three negatives for each positive, as many as the data say."""
    x, y, c = batch(rows, floats(4), floats(seed=2), whole(2, seed=3), drop_remainder=False)
    error, positive = tf.square(column(dense(x, 4, 3, "h", tf.tanh), 3) - y), tf.cast(c, tf.float32)
    count = total(positive)
    most = tf.minimum(tf.cast(3 * count, tf.int32), tf.shape(error)[0] - tf.cast(count, tf.int32))
    negatives = tf.nn.top_k(error * (1 - positive), k=most).values
    return minimise((total(error * positive) + total(negatives)) / (count + 1.0))


# --------------------------------------------------------------------------- sizes that are as large as the batch


@program()
def four_largest_pixels(rows: int) -> Any:
    """As many pixels of each image as there are rows."""
    x, y = batch(rows, floats(4, 4, 2), whole(3, 4, 4, seed=3))
    scores = tf.nn.conv2d(x, variable("filter", 3, 3, 2, 3), 1, "SAME")
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)
    each = tf.reshape(each, [tf.shape(each)[0], -1])
    return minimise(mean(tf.nn.top_k(each, k=4, sorted=False).values))


@program()
def labels_of_a_path(rows: int) -> Any:
    """A sum over paths through time, picked with a batch dimension."""
    x, c = batch(rows, floats(5, 3), whole(3, seed=3))
    logits = tf.nn.log_softmax(tf.einsum("rti,ij->rtj", x, variable("w", 3, 3)))
    reached = tf.zeros([tf.shape(x)[0]])
    for t in range(5):
        taken = tf.gather(logits[:, t], c, batch_dims=1)
        reached = tf.reduce_logsumexp(tf.stack([reached, taken + reached], 1), 1)
    return minimise(-mean(reached), sgd(0.05))


@program(variants=closed_and_open(1, 2, 3))
def scaled_samples_of_rows(rows: int, **options: Any) -> Any:
    """Samples of each row are made one list, which a number scales, and taken apart again, as a bound of many samples does."""
    samples = tf.reshape(batch(rows, floats(3, 6), **options), [-1, 6])
    return minimise(tf.reduce_mean(tf.reduce_logsumexp(tf.reshape(0.5 * column(samples, 6), [-1, 3]), 1)))

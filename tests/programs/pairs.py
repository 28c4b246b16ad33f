"""Losses that compare the rows of the batch with one another: pairs, triplets, the worst, the sorted."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, dense, floats, minimise, program, regression, squares, whole

mean, total = tf.reduce_mean, tf.reduce_sum


@program(variants={"": {}, "one_row": {"rows": 1}, "square": {"rows": 3}})
def in_batch_softmax(rows: int) -> Any:
    a, b = batch(rows, floats(5), floats(5, seed=1))
    q, k = dense(a, 5, 3, "query", tf.tanh), dense(b, 5, 3, "key", tf.tanh)
    scores = tf.matmul(q, k, transpose_b=True)
    aside = 0.1 * mean(tf.square(q - k))
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(rows), logits=scores)) + aside)


@program()
def in_batch_softmax_open(rows: int) -> Any:
    a, b = batch(rows, floats(5), floats(5, seed=1), drop_remainder=False)
    q, k = dense(a, 5, 3, "query", tf.tanh), dense(b, 5, 3, "key", tf.tanh)
    labels = tf.range(tf.shape(q)[0])
    scores = tf.matmul(q, k, transpose_b=True)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)))


@program()
def in_batch_softmax_eye(rows: int) -> Any:
    a, b = batch(rows, floats(5), floats(5, seed=1))
    q, k = dense(a, 5, 3, "query", tf.tanh), dense(b, 5, 3, "key", tf.tanh)
    scores = tf.matmul(q, k, transpose_b=True) / 0.5
    return minimise(mean(tf.nn.softmax_cross_entropy_with_logits(labels=tf.eye(rows), logits=scores)))


@program()
def contrastive(rows: int) -> Any:
    """NT-Xent: two views beside each other, each row's partner is its label, itself is masked."""
    a, b = batch(rows, floats(5), floats(5, seed=1))
    z = tf.nn.l2_normalize(dense(tf.concat([a, b], 0), 5, 3, "project"), 1)
    scores = tf.matmul(z, z, transpose_b=True) / 0.5 - 1e4 * tf.eye(2 * rows)
    labels = tf.concat([tf.range(rows) + rows, tf.range(rows)], 0)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)))


@program()
def triplets(rows: int) -> Any:
    """Every pair of rows with one label against every row with another, with a soft margin."""
    x, c = batch(rows, floats(5), whole(2))
    z = dense(x, 5, 3, "embed", tf.tanh)
    apart = total(tf.square(z[:, None, :] - z[None, :, :]), 2)
    same = tf.cast(tf.equal(c[:, None], c[None, :]), tf.float32)
    each = tf.nn.softplus(apart[:, :, None] - apart[:, None, :] + 0.5)
    mask = same[:, :, None] * (1.0 - same)[:, None, :]
    return minimise(total(each * mask) / (total(mask) + 1e-6) + 0.1 * mean(tf.square(z)))


@program()
def hardest_triplets(rows: int) -> Any:
    x, c = batch(rows, floats(5), whole(2))
    z = dense(x, 5, 3, "embed", tf.tanh)
    apart = total(tf.square(z[:, None, :] - z[None, :, :]), 2)
    same = tf.cast(tf.equal(c[:, None], c[None, :]), tf.float32)
    near, far = tf.reduce_max(apart * same, 1), tf.reduce_min(apart + 9.0 * same, 1)
    return minimise(mean(tf.nn.softplus(near - far)) + 0.1 * mean(tf.square(z)))


@program(
    variants={
        "": {"kind": "shape"},
        "literal": {"kind": "literal", "doubtful": True},
        "folded": {"kind": "folded", "doubtful": True},
    }
)
def top_k_hard_examples(rows: int, kind: str) -> Any:
    """Half of the batch as its shape says, two rows of any batch, and half of it as Python says."""
    error = squares(rows)
    many = {"shape": tf.shape(error)[0] // 2, "literal": 2, "folded": rows // 2}[kind]
    return minimise(mean(tf.nn.top_k(error, k=many).values) + 0.1 * mean(error))


@program()
def top_k_hard_examples_open(rows: int) -> Any:
    error = squares(rows, drop_remainder=False)
    return minimise(mean(tf.nn.top_k(error, k=tf.shape(error)[0] // 2).values))


@program()
def top_k_gathered(rows: int) -> Any:
    """The worst rows are found first, and their loss is computed anew."""
    p, y, h = regression(rows)
    _, worst = tf.nn.top_k(tf.stop_gradient(tf.square(p - y)), k=tf.shape(p)[0] // 2)
    chosen = tf.square(tf.gather(p, worst) - tf.gather(y, worst))
    return minimise(mean(chosen) + 0.1 * mean(tf.square(h)))


@program()
def sorted_batch(rows: int) -> Any:
    """The sorted predictions are to be the sorted targets."""
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(tf.sort(p) - tf.sort(y))))

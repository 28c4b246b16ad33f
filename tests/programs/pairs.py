"""Losses that compare the rows of the batch with one another: pairs, triplets, the worst, the sorted."""

from .parts import *


@program(floats(5), floats(5, seed=1))
def in_batch_softmax(a, b, rows):
    q, k = dense(a, 5, 3, "query", tf.tanh), dense(b, 5, 3, "key", tf.tanh)
    scores = tf.matmul(q, k, transpose_b=True)
    aside = 0.1 * mean(tf.square(q - k))
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(rows), logits=scores)) + aside)


@program(floats(5), floats(5, seed=1))
def contrastive(a, b, rows):
    """NT-Xent: two views beside each other, each row's partner is its label, itself is masked."""
    z = tf.nn.l2_normalize(dense(tf.concat([a, b], 0), 5, 3, "project"), 1)
    scores = tf.matmul(z, z, transpose_b=True) / 0.5 - 1e4 * tf.eye(2 * rows)
    labels = tf.concat([tf.range(rows) + rows, tf.range(rows)], 0)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)))


@program(floats(5), whole(2))
def triplets(x, c):
    """Every pair of rows with one label against every row with another, with a soft margin."""
    z = dense(x, 5, 3, "embed", tf.tanh)
    apart = total(tf.square(z[:, None, :] - z[None, :, :]), 2)
    same = tf.cast(tf.equal(c[:, None], c[None, :]), tf.float32)
    each = tf.nn.softplus(apart[:, :, None] - apart[:, None, :] + 0.5)
    mask = same[:, :, None] * (1.0 - same)[:, None, :]
    return minimise(total(each * mask) / (total(mask) + 1e-6) + 0.1 * mean(tf.square(z)))


@program()
def sorted_batch(rows):
    p, y, _ = regression(rows)
    return minimise(mean(tf.square(tf.sort(p) - tf.sort(y))))


@program(floats(5), floats(seed=1), cases={"": {}, "learnt": {"learnt": True}})
def pairs_beside_a_diagonal(x, y, learnt=False):
    """set_diag on the similarities of all pairs of rows, with a constant or a trained diagonal."""
    h = x @ variable("k", 5, 3)
    own = tf.squeeze(x @ variable("own", 5, 1), 1) if learnt else tf.fill([tf.shape(x)[0]], -9.0)
    near = tf.linalg.set_diag(tf.matmul(h, h, transpose_b=True), own)
    return minimise(mean(tf.square(tf.linalg.matvec(tf.nn.softmax(near), y) - y)))


@program(floats(), floats(seed=1))
def median_of_all_pairs(x, y):
    """The width of a kernel is the middle one of all distances: of the square of the rows, its place is half of that."""
    x *= variable("w")
    count = length(x)
    far = tf.reshape(tf.square(x[:, None] - y[None]), [-1])
    return minimise(mean(far / (tf.sort(far)[count * count // 2] + 1.0)))


@program(floats(4), floats(4, seed=1))
def two_views_split(a, b):
    """SimCLR as it was published: pairs within a view and between both, side by side."""
    z = tf.nn.l2_normalize(dense(tf.concat([a, b], 0), 4, 3, "view", tf.tanh), 1)
    one, other = tf.split(z, 2, 0)
    count = tf.shape(one)[0]
    own, labels = tf.one_hot(tf.range(count), count), tf.one_hot(tf.range(count), count * 2)
    within = tf.matmul(one, one, transpose_b=True) / 0.5 - own * 1e9
    between = tf.matmul(one, other, transpose_b=True) / 0.5
    return minimise(tf1.losses.softmax_cross_entropy(labels, tf.concat([between, within], 1)))


SCORES = {
    "logsumexp": lambda s: mean(tf.reduce_logsumexp(s, 1) - tf.linalg.diag_part(s)),
    "hardest": lambda s: mean(tf.reduce_min(s + tf.reduce_max(s, 1, keepdims=True) * tf.cast(s < 0.2, tf.float32), 1)),
    "row_added": lambda s: mean(tf.square(s + tf.linalg.diag_part(s))),
}


@program(floats(5), floats(5, seed=1), cases=each(of=SCORES))
def scores_of_pairs(x, y, of):
    return minimise(of((x @ variable("k", 5, 4)) @ tf.transpose(y @ variable("q", 5, 4))))

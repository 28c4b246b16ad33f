"""Transformers in the manner of BERT and XLNet, with a parameter for each size, and attention over rows and words."""

import itertools

from .parts import *


def normalise(x, width, name):
    with tf1.variable_scope(name, reuse=tf1.AUTO_REUSE):
        gamma, beta = variable("gamma", width), variable("beta", width, scale=0.1)
    centre, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, centre, variance, beta, gamma, 1e-2)


def steep():
    return sgd(0.5)


def gelu(x):
    return x * 0.5 * (1.0 + tf.tanh(0.8 * (x + 0.044 * tf.pow(x, 3))))


def attend(x, rows, seq, hidden, heads, mask):
    """Self-attention on [rows * seq, hidden], as BERT's code reshapes it."""
    depth = hidden // heads

    def split(name):
        made = dense(x, hidden, hidden, name, reuse=tf1.AUTO_REUSE, scale=1.0)
        return tf.transpose(tf.reshape(made, [rows, seq, heads, depth]), [0, 2, 1, 3])

    q, k, v = split("query"), split("key"), split("value")
    scores = tf.matmul(q, k, transpose_b=True) * (1.0 / depth**0.5) + mask
    context = tf.matmul(tf.nn.softmax(scores), v)
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [rows * seq, hidden])


def layer(x, rows, seq, hidden, intermediate, heads, mask):
    with tf1.variable_scope("attention", reuse=tf1.AUTO_REUSE):
        made = dense(attend(x, rows, seq, hidden, heads, mask), hidden, hidden, "output", reuse=tf1.AUTO_REUSE)
        x = normalise(x + made, hidden, "norm")
    made = dense(x, hidden, intermediate, "intermediate", gelu, reuse=tf1.AUTO_REUSE)
    return normalise(x + dense(made, intermediate, hidden, "output", reuse=tf1.AUTO_REUSE), hidden, "norm")


def clipped(gradients: list[Any]):
    return tf.clip_by_global_norm(gradients, 1.0)[0]


def classified(hidden, width, labels, table, weights):
    """The masked loss over words, with the embedding table as the last layer."""
    logits = tf.matmul(hidden, tf.convert_to_tensor(table), transpose_b=True)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_sum(each * weights) / (tf.reduce_sum(weights) + 1e-5)


@program(batches="2 1_open")
def bert(rows, seq=5, hidden=6, intermediate=7, heads=3, vocabulary=11, positions=9, depth=2, optimizer=steep):
    """Embeddings of words, places and segments, two layers with a mask, the masked words and the next sentence."""
    ids, segments, mask, targets, follows = batch(
        rows, whole(vocabulary, seq), whole(2, seq, seed=1), whole(4, seq, seed=2), whole(vocabulary, seq, seed=3), whole(2, seed=4)
    )  # fmt: skip
    words = variable("words", vocabulary, hidden)
    x = tf.gather(words, tf.reshape(ids, [-1]))
    x += tf.one_hot(tf.reshape(segments, [-1]), 2) @ variable("segments", 2, hidden)
    places = tf.slice(tf.convert_to_tensor(variable("places", positions, hidden)), [0, 0], [seq, -1])
    x = tf.reshape(tf.reshape(x, [rows, seq, hidden]) + tf.reshape(places, [1, seq, hidden]), [-1, hidden])
    x = normalise(x, hidden, "norm")
    seen = tf.cast(mask > 0, tf.float32)
    spread = tf.ones([rows, seq, 1]) * tf.reshape(seen, [rows, 1, seq])
    hide = (1.0 - spread[:, None]) * -100.0
    for k in range(depth):
        with tf1.variable_scope(f"layer_{k}"):
            x = layer(x, rows, seq, hidden, intermediate, heads, hide)
    masked = classified(x, hidden, tf.reshape(targets, [-1]), words, tf.reshape(seen, [-1]))
    first = tf.squeeze(tf.reshape(x, [rows, seq, hidden])[:, 0:1, :], 1)
    logits = dense(dense(first, hidden, hidden, "pooler", tf.tanh), hidden, 2, "follows")
    follow = mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=follows, logits=logits))
    return minimise(masked + follow, optimizer(), clip=clipped)


@program(cases={"": {"depth": 1}}, batches="2")
def xlnet(rows, seq=5, hidden=6, intermediate=7, heads=3, vocabulary=11, positions=9, depth=2, optimizer=steep):
    """Time first, two streams with relative places, einsums, and no dropout; ``positions`` bounds the distance."""
    size = hidden // heads
    ids, chosen, order = batch(rows, whole(vocabulary, seq), whole(2, seq, seed=1), whole(100, seq, seed=2))
    ids, chosen, order = (tf.transpose(t) for t in (ids, chosen, order))
    query_seen = tf.cast(order[:, None] <= order[None], tf.float32)
    content_seen = tf.cast(query_seen + tf.eye(seq)[:, :, None] > 0, tf.float32)
    words = variable("words", vocabulary, hidden)
    distances = tf.range(seq - 1, -seq, -1.0)
    angles = tf.einsum("i,d->id", distances, 1.0 / (float(positions) ** (tf.range(0.0, hidden, 2.0) / hidden)))
    relative = tf.concat([tf.sin(angles), tf.cos(angles)], -1)[:, None, :hidden]
    relative = tf.tile(relative, [1, rows, 1])
    h = tf.nn.embedding_lookup(words, ids)
    g = tf.tile(tf.reshape(variable("mask", hidden), [1, 1, hidden]), [seq, rows, 1])

    def heads_of(x, name):
        with tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
            return tf.einsum("ibh,hnd->ibnd", x, variable(name, hidden, heads, size))

    def shifted(x):
        x = tf.reshape(x, [x.shape[1], x.shape[0], rows, heads])[1:]
        return (
            tf.reshape(x, [seq, 2 * seq - 2, rows, heads])[:, :seq]
            if seq > 1
            else tf.reshape(x, [1, -1, rows, heads])[:, :1]
        )

    def stream(x, keys, values, places, seen):
        q = heads_of(x, "q")
        with tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
            content, place = variable("content_bias", heads, size), variable("place_bias", heads, size)
        score = tf.einsum("ibnd,jbnd->ijbn", q + content, keys)
        if seq > 1:
            score += shifted(tf.einsum("ibnd,jbnd->ijbn", q + place, places))
        weights = tf.nn.softmax(score / size**0.5 - 100.0 * (1.0 - seen[..., None]), 1)
        with tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
            made = tf.einsum("ijbn,jbnd,hnd->ibh", weights, values, variable("o", hidden, heads, size))
            x = normalise(x + made, hidden, "attention_norm")
            y = tf.reshape(x, [-1, hidden])
            y = dense(y, hidden, intermediate, "wide", gelu, reuse=tf1.AUTO_REUSE)
            y = dense(y, intermediate, hidden, "narrow", reuse=tf1.AUTO_REUSE)
            return normalise(x + tf.reshape(y, [seq, rows, hidden]), hidden, "norm")

    for k in range(depth):
        with tf1.variable_scope(f"layer_{k}"):
            keys, values, places = heads_of(h, "k"), heads_of(h, "v"), heads_of(relative, "r")
            h, g = stream(h, keys, values, places, content_seen), stream(g, keys, values, places, query_seen)
    logits = tf.einsum("ibh,vh->ibv", g, tf.convert_to_tensor(words)) + variable("bias", vocabulary)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits)
    weights = tf.cast(chosen, tf.float32)
    return minimise(tf.reduce_sum(each * weights) / (tf.reduce_sum(weights) + 1e-3), optimizer(), clip=clipped)


@program(floats(4), floats(seed=1))
def attention_over_batch(x, y):
    q, k, v = (dense(x, 4, 3, name) for name in ("query", "key", "value"))
    weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True))
    return minimise(mean(tf.square(column(tf.tanh(weights @ v), 3) - y)))


@program(floats(4, 6))
def heads_in_front_of_rows(x):
    """Multi-head attention whose heads are folded into the batch dimension, in front of the rows."""
    heads = tf.concat(tf.split(x * variable("scale", 6), 2, 2), 0)
    return minimise(mean(tf.square(tf.reduce_max(tf.reshape(heads, [2, -1, 4, 3]), 0) - 0.1)))


@program(whole(7, 5, seed=1), 1 + whole(5, seed=2))
def logits_flat_and_back(words, lengths):
    """Logits of a flat list of words, reshaped back to [rows, longest row]."""
    longest = tf.reduce_max(lengths)
    cut, shown = words[:, :longest], tf.sequence_mask(lengths, longest, dtype=tf.float32)
    found = tf.reshape(tf.gather(variable("words", 7, 4), cut), [-1, 4])
    logits = tf.reshape(found @ variable("w", 4, 7), [-1, longest, 7])
    return minimise(
        total(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=cut, logits=logits) * shown) / total(shown)
    )


@program(whole(7, 5, seed=1), whole(7, 4, seed=3), 1 + whole(5, seed=2), 1 + whole(4, seed=5), floats(seed=4))
def two_sequences_aligned(a, b, lengths_a, lengths_b, y):
    """Cross-attention between two sequences, both cut to the longest of the batch."""
    x = tf.gather(variable("words", 7, 4), a[:, : tf.reduce_max(lengths_a)])
    z = tf.gather(variable("others", 7, 4), b[:, : tf.reduce_max(lengths_b)])
    scores = x @ tf.transpose(z, [0, 2, 1])
    first = tf.reduce_max(tf.concat([x, tf.nn.softmax(scores) @ z], 2), 1)
    second = tf.reduce_max(tf.concat([z, tf.matmul(tf.nn.softmax(scores, 1), x, transpose_a=True)], 2), 1)
    return minimise(mean(tf.square(column(tf.concat([first, second], 1), 16) - y)))


SIZES = {"rows": 2, "seq": 5, "hidden": 6, "intermediate": 7, "heads": 3, "vocabulary": 11, "positions": 9}


def fits(sizes: dict[str, int]):
    return sizes["hidden"] % sizes["heads"] == 0 and sizes["positions"] >= sizes["seq"]


def coincidences() -> dict[str, Program]:
    """Transformers with one layer in which two sizes agree, such as ``bert:rows=hidden``, the kinds of them by turns."""
    found, kinds = {}, itertools.cycle([bert, xlnet])
    for one, other in itertools.combinations(SIZES, 2):
        sizes = next(made for size in range(2, 13) if fits(made := {**SIZES, one: size, other: size}))
        build = next(kinds)
        name = f"{build.__name__}:{one}={other}"
        found[name] = Program(name, build, sizes.pop("rows"), sizes={**sizes, "depth": 1})
    return found

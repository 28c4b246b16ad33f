"""Sampled losses (NCE, sampled softmax): labels and samples are looked up as one list and taken apart again."""

import numpy as np
import pytest
import tensorflow as tf
from sampling import runs

from models import assert_same_on_cores, batches, finish, tf1, trains_on_cores, variable

CLASSES, WIDTH, ROWS = 30, 16, 96
LOSSES = {"nce": tf1.nn.nce_loss, "softmax": tf1.nn.sampled_softmax_loss}


def build(rows: int, kind: str, samples: int, *, total: bool = False, pieces: int = 1, fixed: bool = True) -> None:
    """A word2vec model; with ``fixed`` samples they are the same in every step."""
    random = np.random.default_rng(1)
    words, labels = random.integers(0, CLASSES, ROWS), random.integers(0, CLASSES, (ROWS, 1))
    words, labels = batches((words, labels), rows)
    embedded = tf.nn.embedding_lookup(variable("embedding", (CLASSES, WIDTH)), words)
    cut = tf1.fixed_size_partitioner(pieces) if pieces > 1 else None
    start = tf1.constant_initializer(0.3) if cut else None
    weights = tf1.get_variable("weights", [CLASSES, WIDTH], initializer=start, partitioner=cut) if cut else variable(
        "weights", (CLASSES, WIDTH)
    )  # fmt: skip
    drawn = (tf.range(samples, dtype=tf.int64), tf.fill([rows, 1], 0.2), tf.linspace(0.1, 0.4, samples))
    per_row = LOSSES[kind](
        weights, variable("bias", (CLASSES,)), labels, embedded, samples, CLASSES,
        sampled_values=drawn if fixed else None, remove_accidental_hits=False,
    )  # fmt: skip
    loss = tf.reduce_sum(per_row) if total else tf.reduce_mean(per_row)
    finish(loss, tf1.train.GradientDescentOptimizer(0.02 if total else 0.5))


# Samples are neither, and once and twice the rows of a core. Each number of them is trained as a sum and as a mean, and each
# of those pairs' parts with both kinds of variables; all three at a time add nothing. The suite trains each with one of the
# losses, by turns.
FORMS = [(5, False, False), (5, True, True), (4, False, True), (4, True, False), (8, False, False), (8, True, True)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "samples", "total", "resource"),
    [
        (kind, *form)
        for turn, kind in enumerate(sorted(LOSSES))
        for place, form in enumerate(FORMS)
        if runs((place in (0, 2, 5)) == (turn == 0))  # each loss has all numbers, sums and means, and both kinds
    ],
)
@trains_on_cores()
def test_cores_train_as_the_whole_batch_with_the_same_samples(
    rows: int, kind: str, samples: int, total: bool, resource: bool
) -> None:
    return build(rows, kind, samples, total=total)


@pytest.mark.parametrize("rows", [4, 2])  # as many rows as the embedding is wide, as in the tutorial, and fewer
def test_the_plain_samples_are_drawn(rows: int) -> None:
    assert_same_on_cores(lambda n: build(n, "nce", 5, fixed=False), rows=rows)


def apart(rows: int, first: int) -> None:
    """A sampled loss by hand; ``first`` is where the samples are said to begin."""
    random = np.random.default_rng(1)
    words, labels = batches((random.integers(0, CLASSES, ROWS), random.integers(0, CLASSES, ROWS)), rows)
    listed = tf.gather(variable("weights", (CLASSES, WIDTH)), tf.concat([labels, tf.range(5, dtype=tf.int64)], 0))
    embedded = tf.gather(variable("embedding", (CLASSES, WIDTH)), words)
    true = tf.nn.softplus(-tf.reduce_sum(embedded * listed[:rows], 1))
    drawn = tf.nn.softplus(tf.matmul(embedded, listed[first:], transpose_b=True))
    finish(tf.reduce_mean(true) + tf.reduce_mean(drawn), tf1.train.GradientDescentOptimizer(0.5))


def test_a_list_that_is_sliced_by_hand() -> None:
    assert_same_on_cores(lambda rows: apart(rows, rows))
    assert_same_on_cores(lambda rows: apart(rows, 3))

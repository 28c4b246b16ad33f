"""Losses in which rows of the batch meet in every manner: the cores train as one on the whole batch."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sampling import runs

from models import assert_same_on_cores, batches, finish, rows_of, tf1, trace, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import Graph

mean, total = tf.reduce_mean, tf.reduce_sum
Loss = Callable[[Any, Any, Any, int], Any]
"""Of predictions, targets, hidden values and the number of rows."""


def build(loss_of: Loss, rows: int, *, width: int = 3) -> None:
    features, targets = batches(rows_of(96, 6), rows)
    hidden = tf.tanh(features @ variable("w", (6, width)))
    outputs = tf.squeeze(hidden @ variable("v", (width, 1)), 1)
    finish(loss_of(outputs, targets, hidden, rows), tf1.train.GradientDescentOptimizer(0.02))


def chosen(p: Any, t: Any) -> Any:
    return tf.boolean_mask(tf.square(p - t), t > 0)


def masked(p: Any, t: Any, h: Any, n: int) -> Any:
    mask = tf.cast(t > 0, tf.float32)
    return total(tf.square(p - t) * mask) / tf.maximum(total(mask), 1.0)


def masked_and_mean(p: Any, t: Any, h: Any, n: int) -> Any:
    mask = tf.cast(t > 0.5, tf.float32)
    second = total(tf.abs(p - t) * mask) / (total(mask) + 1e-5)
    return masked(p, t, h, n) + second + mean(tf.square(p - t))


def by_constant_weights(p: Any, t: Any, h: Any, n: int) -> Any:
    """As ``sequence_loss`` with weights that are known when the model is traced."""
    weights = tf.constant(np.tile(np.float32([1, 0.5, 0.25]), (n, 1)))
    return total(total(tf.square(h - t[:, None]) * weights, 0) / total(weights, 0))


def by_half_weights(p: Any, t: Any, h: Any, n: int) -> Any:
    weights = tf.constant(np.full((n,), 0.5, "float32"))
    return total(tf.square(p - t) * weights) / total(weights)


LOSSES: dict[str, Loss] = {
    # sums, means, and what the batch decides
    "mean": lambda p, t, h, n: mean(tf.square(p - t)),
    "halved means": lambda p, t, h, n: 0.125 * mean(tf.square(p - t)) + mean(tf.square(p - t)) / 8.0,
    "sum": lambda p, t, h, n: 0.1 * total(tf.square(p - t)) + 0.5 * tf.nn.l2_loss(h),
    "sum by rows": lambda p, t, h, n: total(tf.square(p - t)) / tf.cast(tf.shape(t)[0], tf.float32),
    "sum by a literal": lambda p, t, h, n: total(tf.square(p - t)) / float(n),
    "mean and sum": lambda p, t, h, n: mean(tf.square(p - t)) + 0.1 * total(tf.abs(p - t)),
    "masked": masked,
    "masked and mean": masked_and_mean,
    "by constant weights": by_constant_weights,
    "by half weights": by_half_weights,
    "sum of chosen rows": lambda p, t, h, n: total(chosen(p, t)),
    "mean of chosen rows": lambda p, t, h, n: total(chosen(p, t)) / tf.cast(tf.size(chosen(p, t)), tf.float32),
    "mean of chosen rows by shape": lambda p, t, h, n: total(chosen(p, t)) / tf.cast(tf.shape(chosen(p, t))[0], tf.float32),
    "mean op of chosen rows": lambda p, t, h, n: mean(chosen(p, t)),
    "rows by a mean": lambda p, t, h, n: mean(tf.square(p - t) / tf.stop_gradient(mean(tf.square(p - t)) + 0.1)),
    "rows by a mean of the input": lambda p, t, h, n: mean(tf.square(p - t) / (mean(tf.abs(t)) + 0.1)),
    "hard rows": lambda p, t, h, n: (lambda e, hard: total(e * hard) / (total(hard) + 1.0))(
        tf.square(p - t), tf.cast(tf.stop_gradient(tf.square(p - t)) > 0.5, tf.float32)
    ),
    "a mean beside each row": lambda p, t, h, n: mean(tf.square(p - t) + 0.3 * mean(tf.abs(h))),
    "weights": lambda p, t, h, n: total(tf.exp(t) * tf.square(p - t)) / total(tf.exp(t)),
    # rows that meet
    "in-batch negatives": lambda p, t, h, n: mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(n), tf.matmul(h, h, transpose_b=True))
    ),
    "pairs": lambda p, t, h, n: mean(tf.nn.relu(1 - (p[:, None] - p[None, :]))),
    "kernel": lambda p, t, h, n: mean(total(tf.square(h[:, None, :] - h[None, :, :]), 2)),
    "hardest rows": lambda p, t, h, n: mean(tf.nn.top_k(tf.square(p - t), k=tf.shape(p)[0] // 2).values),
    "worst row": lambda p, t, h, n: tf.reduce_max(tf.square(p - t)),
    "first rows": lambda p, t, h, n: mean(tf.square(p - t)[: tf.shape(p)[0] // 2]),
    "neighbours": lambda p, t, h, n: mean(tf.square(p[1:] - p[:-1])),
    "mirrored": lambda p, t, h, n: mean(p * tf.reverse(p, [0])),
    "backwards": lambda p, t, h, n: mean(p * p[::-1]),
    "picked": lambda p, t, h, n: mean(p * tf.gather(p, tf.range(n)[::-1])),
    "running sum": lambda p, t, h, n: mean(tf.square(tf.cumsum(p))),
    "softmax over rows": lambda p, t, h, n: total(tf.nn.softmax(p) * tf.square(p - t)),
    "dice": lambda p, t, h, n: 1 - total(tf.sigmoid(p) * tf.abs(t)) / total(tf.sigmoid(p)),
    "root": lambda p, t, h, n: tf.sqrt(mean(tf.square(p - t))),
    "logarithm": lambda p, t, h, n: tf.math.log(mean(tf.square(p - t))),
    "variance": lambda p, t, h, n: mean(tf.square(p - mean(p))),
    "product of means": lambda p, t, h, n: mean(tf.square(p - t)) * mean(tf.abs(p)),
    "the lesser of means": lambda p, t, h, n: tf.minimum(mean(tf.square(p - t)), mean(tf.abs(p))),
    "square of the mean hidden values": lambda p, t, h, n: mean(tf.square(p - t)) + mean(tf.square(mean(h, 0))),
    "balance": lambda p, t, h, n: total(mean(tf.nn.softmax(h), 0) * mean(tf.sigmoid(h), 0)),
    "covariance": lambda p, t, h, n: 0.01 * total(tf.square(tf.matmul(h, h, transpose_a=True))) + mean(p),
    "outer": lambda p, t, h, n: 0.1 * tf.squeeze(tf.matmul((p - t)[:, None], (p - t)[:, None], transpose_a=True)),
    "normalised by hand": lambda p, t, h, n: mean(
        tf.square(total(tf.nn.batch_normalization(h, *tf.nn.moments(h, [0]), None, None, 0.01), 1) - t)
    ),
    "penalty of a mean": lambda p, t, h, n: mean(tf.square(p - t)) + mean(
        tf.square(total(tf.square(tf.gradients(mean(tf.square(p - t)), h)[0]), 1) - 1.0)
    ),
    "rows by their number": lambda p, t, h, n: mean(tf.cast(tf.range(tf.shape(p)[0]), tf.float32) * tf.square(p - t)),
    "filled weights": lambda p, t, h, n: mean(tf.fill([n], 2.0) * tf.square(p - t)),
    "picked by row": lambda p, t, h, n: mean(
        tf.square(tf.gather_nd(h, tf.stack([tf.range(n), tf.cast(t > 0, tf.int32)], 1)) - t)
    ),
    "as many classes": lambda p, t, h, n: mean(total(tf.square(h - t[:, None]), 1)),
}  # fmt: skip


def _cases() -> Iterator[Any]:
    """Both widths, of which the suite has one for each loss, by turns."""
    for place, name in enumerate(sorted(LOSSES)):
        widths = (3,) if name == "by constant weights" else (3, 4)  # a weight for each of three hidden values
        for width in [each for at, each in enumerate(widths) if runs(at == place % len(widths))]:
            yield pytest.param(name, width, id=f"{name}-{width}")


@pytest.mark.sampled
@pytest.mark.parametrize(("case", "width"), list(_cases()))
def test_cores_train_as_on_the_whole_batch(case: str, width: int) -> None:
    """Also where another dimension is as large as a core's batch."""
    assert_same_on_cores(lambda rows: build(LOSSES[case], rows, width=width), resource=True)


@pytest.mark.parametrize("case", ["pairs", "worst row", "root", "product of means"])
def test_one_core_has_the_whole_batch(case: str) -> None:
    def graph() -> Graph:
        return trace(lambda: build(LOSSES[case], 8))

    plain = testing.run_plain(graph(), steps=5)
    found = testing.run_on_cores(graph(), steps=5, num_replicas=1)
    testing.assert_same_training(found, plain, relative=2e-5, absolute=2e-6)
    assert convert(graph(), num_replicas=1).report["collectives"]["sums"] == 0


@pytest.mark.parametrize("case", ["mean", "sum", "pairs", "root"])
def test_one_row_on_each_core(case: str) -> None:
    assert_same_on_cores(lambda rows: build(LOSSES[case], rows), rows=1)

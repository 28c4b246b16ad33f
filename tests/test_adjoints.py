"""Several losses in one step: each gradient is reduced as its own loss demands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, batches, rows_of, tf1, trace, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.errors import ConversionError, RolesError

CLOSE = {"relative": 2e-5, "absolute": 2e-6}
Loss = Callable[[Any], Any]


def weighted(error: Any) -> Any:
    counts = tf.cast(tf.stop_gradient(error) > 0.5, tf.float32)
    return tf.reduce_sum(error * counts) / (tf.reduce_sum(counts) + 1.0)


def of_features(error: Any) -> Any:
    """The mean over a dimension that is as large as the batch, and the sum over the batch."""
    return tf.reduce_sum(tf.reduce_mean(tf.tile(error[:, None], [1, 4]), 1))


def by_hand(error: Any) -> Any:
    return tf.reduce_sum(error) / tf.cast(tf.size(error), tf.float32)


def build(rows: int, one: Loss, two: Loss, reported: Callable[[Any, Any], Any]) -> None:
    """Two models, two optimizers, two losses; the graph reports one."""
    features, targets = batches(rows_of(96, 3), rows)
    train: list[Any] = []
    losses = []
    for name, loss_of in (("first", one), ("second", two)):
        weights = variable(name, (3, 1))
        losses.append(loss_of(tf.square(tf.squeeze(features @ weights, 1) - targets)))
        with tf.control_dependencies(train):
            optimizer = tf1.train.GradientDescentOptimizer(0.02)
            train = [optimizer.minimize(losses[-1], var_list=[weights], name=f"train_{name}")]
    tf1.summary.scalar("loss", reported(*losses))
    with tf.control_dependencies(train):
        tf1.assign_add(tf1.train.get_or_create_global_step(), 1, name="train")


@pytest.mark.parametrize("reported", [0, 1])
@pytest.mark.parametrize(
    ("one", "two"),
    [(tf.reduce_mean, tf.reduce_sum), (tf.reduce_mean, tf.reduce_mean), (tf.reduce_sum, tf.reduce_sum),
     (by_hand, tf.reduce_sum), (tf.reduce_mean, of_features), (by_hand, tf.reduce_mean)],
)  # fmt: skip
def test_each_gradient_is_that_of_its_own_loss(one: Loss, two: Loss, reported: int) -> None:
    assert_cores_are_the_whole_batch(
        lambda rows: build(rows, one, two, lambda *losses: losses[reported]), **CLOSE, resource=True
    )


def test_the_report_names_the_gradient_of_the_other_loss() -> None:
    graph = trace(lambda: build(4, tf.reduce_mean, tf.reduce_sum, lambda a, b: a))
    report = convert(graph, num_replicas=2).report
    assert report["reduction"]["kind"] == "mean"
    assert any("the gradient of 'second' is that of another loss, a sum" in note for note in report["notes"])


def test_another_loss_with_weights_of_its_own_is_refused() -> None:
    testing.assert_raises_block(
        convert, trace(lambda: build(4, tf.reduce_mean, weighted, lambda a, b: a)),
        words=["the gradient of 'second' comes from another loss than 'Mean'", "--loss"], max_length=500,
        kind=ConversionError,
    )  # fmt: skip


def test_a_reported_sum_of_both_kinds_names_both() -> None:
    testing.assert_raises_block(
        convert, trace(lambda: build(4, tf.reduce_mean, tf.reduce_sum, lambda a, b: a + b)),
        words=["'Mean' is a mean", "'Sum' is a sum"], max_length=500, kind=RolesError,
    )  # fmt: skip

"""Several losses in one step, whatever rows do in them: the cores train as one on the whole batch."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from sampling import runs

from models import assert_same_on_cores, batches, finish, linear, rows_of, tf1, trains_on_cores, variable

Loss = Callable[[Any], Any]
mean, total = tf.reduce_mean, tf.reduce_sum


def weighted(error: Any) -> Any:
    counts = tf.cast(tf.stop_gradient(error) > 0.5, tf.float32)
    return total(error * counts) / (total(counts) + 1.0)


def by_hand(error: Any) -> Any:
    return total(error) / tf.cast(tf.size(error), tf.float32)


def by_a_mean(error: Any) -> Any:
    return mean(error / tf.stop_gradient(mean(error) + 0.1))


def columns(error: Any, *factors: float) -> Any:
    """A row of so many multiples of each error."""
    return tf.tile(error[:, None], [1, len(factors)]) * tf.constant(factors)


def negatives(error: Any) -> Any:
    rows = columns(error, 1.0, 0.5, -1.0, 2.0)
    logits = tf.matmul(rows, rows, transpose_b=True)
    return mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(error.shape[0]), logits))


def covariance(error: Any) -> Any:
    rows = columns(error, 1.0, 0.5, -1.0)
    return total(tf.square(tf.matmul(rows, rows, transpose_a=True))) / 1e5


def normalised(error: Any) -> Any:
    rows = columns(error, 1.0, 0.5, -1.0)
    return mean(tf.square(tf.nn.batch_normalization(rows, *tf.nn.moments(rows, [0]), None, None, 0.01) - 1.0))


LOSSES: dict[str, Loss] = {
    "mean": mean,
    "sum": total,
    "by hand": by_hand,
    # the mean over a dimension that is as large as the batch, and the sum over the batch
    "of features": lambda e: total(mean(tf.stack([e] * 4, 1), 1)),
    "beside a mean": lambda e: mean(e + 0.3 * mean(tf.sqrt(e + 0.1))),
}
MIXES: dict[str, Loss] = {
    "root": lambda e: tf.sqrt(mean(e) + 0.1),
    # no row is read beside the root: its gradient meets the rows in a product of matrices only
    "of_root_rows": lambda e: tf.sqrt(tf.square(mean(e)) + 1.0),
    "variance": lambda e: mean(tf.square(e - mean(e))),
    "pairs": lambda e: mean(tf.nn.relu(1 - (e[:, None] - e[None, :]))),
    "negatives": negatives,
    "hardest": lambda e: mean(tf.nn.top_k(e, k=tf.shape(e)[0] // 2).values),
    "first_rows": lambda e: mean(tf.square(e[: tf.shape(e)[0] // 2])),
    "neighbours": lambda e: mean(tf.square(e[1:] - e[:-1])),
    "product": lambda e: mean(e) * mean(tf.sqrt(e + 0.1)),
    "lesser": lambda e: tf.minimum(mean(e), mean(tf.sqrt(e + 0.1))),
    "by_a_mean": by_a_mean,
    "softmax_over_rows": lambda e: total(tf.nn.softmax(e) * tf.sqrt(e + 0.1)),
    "covariance": covariance,
    "normalised": normalised,
    "weighted": weighted,
    "by_a_literal": lambda e: total(e) / float(e.shape[0]),
}
"""Losses in which rows meet, of the error of each row."""


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
    [
        ("mean", "sum"),
        ("mean", "mean"),
        ("sum", "sum"),
        ("by hand", "sum"),
        ("mean", "of features"),
        ("by hand", "mean"),
    ],
)
def test_each_gradient_is_that_of_its_own_loss(one: str, two: str, reported: int) -> None:
    assert_same_on_cores(
        lambda rows: build(rows, LOSSES[one], LOSSES[two], lambda *losses: losses[reported]), resource=True
    )


@pytest.mark.parametrize("reported", [0, 1])
def test_rows_by_a_literal_that_equals_the_batch(reported: int) -> None:
    """The number in the graph is that of classes, say: it stays 4 whatever the batch is."""
    by_4 = lambda e: total(e / 4.0)  # noqa: E731
    assert_same_on_cores(lambda rows: build(rows, by_4, mean, lambda *losses: losses[0]), resource=bool(reported))


def _cases() -> Iterator[Any]:
    """Both numbers of rows; the suite alternates between them."""
    for place, name in enumerate(MIXES):
        for rows in [each for at, each in enumerate((4, 6)) if runs(at == place % 2)]:
            yield pytest.param(name, rows, id=f"{name}-{rows}")


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "rows"), list(_cases()))
def test_another_loss_in_which_rows_meet(name: str, rows: int) -> None:
    assert_same_on_cores(lambda rows: build(rows, mean, MIXES[name], lambda a, b: a), rows=rows, cores=2, steps=4)


@pytest.mark.parametrize("loss_of", [MIXES["root"], total], ids=["root", "sum"])
@pytest.mark.parametrize("cores", [1, 4])
def test_the_reported_loss_is_the_sum_of_both(loss_of: Loss, cores: int) -> None:
    assert_same_on_cores(lambda rows: build(rows, mean, loss_of, lambda a, b: a + b), resource=True, cores=cores)


@pytest.mark.parametrize("other", ["sum", "by hand", "beside a mean"])
@pytest.mark.parametrize("reported", [weighted, by_a_mean], ids=lambda f: f.__name__)
def test_another_loss_beside_one_with_weights(reported: Loss, other: str) -> None:
    assert_same_on_cores(lambda rows: build(rows, reported, LOSSES[other], lambda a, b: a), resource=True)


@tf.custom_gradient
def clipped_on_the_way_back(x: Any) -> Any:
    return tf.identity(x), lambda upstream: tf.clip_by_value(upstream, -0.01, 0.01)


@pytest.mark.parametrize("reduce", [tf.reduce_mean, tf.reduce_sum])
@trains_on_cores(relative=1e-5, absolute=1e-6)
def test_a_gradient_that_is_bent_on_its_way_back(rows: int, reduce: Any) -> None:
    """Of a sum, each row's gradient is the same whatever the batch; that of a mean is larger on a core."""
    features, targets, weights = linear(rows)
    outputs = clipped_on_the_way_back(tf.squeeze(features @ weights, 1))
    finish(reduce(tf.square(outputs - targets)), tf1.train.GradientDescentOptimizer(0.01))

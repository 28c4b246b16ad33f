"""Several losses in one step, whatever rows do in them: the cores train as one on the whole batch."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from sampling import runs

from models import assert_same_on_cores, batches, finish, linear, rows_of, tf1, trains_on_cores, variable

Loss = Callable[[Any], Any]


def weighted(error: Any) -> Any:
    counts = tf.cast(tf.stop_gradient(error) > 0.5, tf.float32)
    return tf.reduce_sum(error * counts) / (tf.reduce_sum(counts) + 1.0)


def of_features(error: Any) -> Any:
    """The mean over a dimension that is as large as the batch, and the sum over the batch."""
    return tf.reduce_sum(tf.reduce_mean(tf.stack([error] * 4, 1), 1))


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
    assert_same_on_cores(lambda rows: build(rows, one, two, lambda *losses: losses[reported]), resource=True)


@pytest.mark.parametrize("reported", [0, 1])
def test_rows_by_a_literal_that_equals_the_batch(reported: int) -> None:
    """The number in the graph is that of classes, say: it stays 4 whatever the batch is."""
    assert_same_on_cores(
        lambda rows: build(rows, lambda e: tf.reduce_sum(e / 4.0), tf.reduce_mean, lambda *losses: losses[0]),
        resource=bool(reported),
    )  # fmt: skip


# ------------------------------------------------------------------ another loss in which rows meet


def root(error: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(error) + 0.1)


def of_root_rows(error: Any) -> Any:
    """No row is read beside the root: its gradient meets the rows in a product of matrices only."""
    return tf.sqrt(tf.square(tf.reduce_mean(error)) + 1.0)


def variance(error: Any) -> Any:
    return tf.reduce_mean(tf.square(error - tf.reduce_mean(error)))


def pairs(error: Any) -> Any:
    return tf.reduce_mean(tf.nn.relu(1 - (error[:, None] - error[None, :])))


def negatives(error: Any) -> Any:
    rows = tf.tile(error[:, None], [1, 4]) * tf.constant([1.0, 0.5, -1.0, 2.0])
    logits = tf.matmul(rows, rows, transpose_b=True)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(error.shape[0]), logits))


def hardest(error: Any) -> Any:
    return tf.reduce_mean(tf.nn.top_k(error, k=tf.shape(error)[0] // 2).values)


def first_rows(error: Any) -> Any:
    return tf.reduce_mean(tf.square(error[: tf.shape(error)[0] // 2]))


def neighbours(error: Any) -> Any:
    return tf.reduce_mean(tf.square(error[1:] - error[:-1]))


def product(error: Any) -> Any:
    return tf.reduce_mean(error) * tf.reduce_mean(tf.sqrt(error + 0.1))


def lesser(error: Any) -> Any:
    return tf.minimum(tf.reduce_mean(error), tf.reduce_mean(tf.sqrt(error + 0.1)))


def by_a_mean(error: Any) -> Any:
    return tf.reduce_mean(error / tf.stop_gradient(tf.reduce_mean(error) + 0.1))


def softmax_over_rows(error: Any) -> Any:
    return tf.reduce_sum(tf.nn.softmax(error) * tf.sqrt(error + 0.1))


def covariance(error: Any) -> Any:
    rows = tf.tile(error[:, None], [1, 3]) * tf.constant([1.0, 0.5, -1.0])
    return tf.reduce_sum(tf.square(tf.matmul(rows, rows, transpose_a=True))) / 1e5


def normalised(error: Any) -> Any:
    rows = tf.tile(error[:, None], [1, 3]) * tf.constant([1.0, 0.5, -1.0])
    average, variance = tf.nn.moments(rows, [0])
    return tf.reduce_mean(tf.square(tf.nn.batch_normalization(rows, average, variance, None, None, 0.01) - 1.0))


def by_a_literal(error: Any) -> Any:
    return tf.reduce_sum(error) / float(error.shape[0])


MIXES = [root, of_root_rows, variance, pairs, negatives, hardest, first_rows, neighbours, product, lesser, by_a_mean,
         softmax_over_rows, covariance, normalised, weighted, by_a_literal]  # fmt: skip


def _cases() -> Iterator[Any]:
    """Both numbers of rows, of which the suite has one for each loss, by turns."""
    for place, loss_of in enumerate(MIXES):
        for rows in [each for at, each in enumerate((4, 6)) if runs(at == place % 2)]:
            yield pytest.param(loss_of, rows, id=f"{loss_of.__name__}-{rows}")


@pytest.mark.sampled
@pytest.mark.parametrize(("loss_of", "rows"), list(_cases()))
def test_another_loss_in_which_rows_meet(loss_of: Loss, rows: int) -> None:
    assert_same_on_cores(lambda rows: build(rows, tf.reduce_mean, loss_of, lambda a, b: a), rows=rows, cores=2, steps=4)


@pytest.mark.parametrize("loss_of", [root, tf.reduce_sum], ids=lambda f: f.__name__)
@pytest.mark.parametrize("cores", [1, 4])
def test_the_reported_loss_is_the_sum_of_both(loss_of: Loss, cores: int) -> None:
    assert_same_on_cores(
        lambda rows: build(rows, tf.reduce_mean, loss_of, lambda a, b: a + b), resource=True, cores=cores
    )


def beside_a_mean(error: Any) -> Any:
    return tf.reduce_mean(error + 0.3 * tf.reduce_mean(tf.sqrt(error + 0.1)))


@pytest.mark.parametrize("other", [tf.reduce_sum, by_hand, beside_a_mean], ids=lambda f: f.__name__)
@pytest.mark.parametrize("reported", [weighted, by_a_mean], ids=lambda f: f.__name__)
def test_another_loss_beside_one_with_weights(reported: Loss, other: Loss) -> None:
    assert_same_on_cores(lambda rows: build(rows, reported, other, lambda a, b: a), resource=True)


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

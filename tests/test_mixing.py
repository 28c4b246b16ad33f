"""Losses in which rows of the batch meet: exact on the whole batch, refused, or noted in the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, batches, finish, rows_of, tf1, trace, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.errors import ConversionError, RolesError
from tpugraph.ir import Graph

CLOSE = {"relative": 2e-5, "absolute": 2e-6}
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


EXACT = {
    "sum of chosen rows": lambda p, t, h, n: total(chosen(p, t)),
    "mean of chosen rows": lambda p, t, h, n: total(chosen(p, t)) / tf.cast(tf.size(chosen(p, t)), tf.float32),
    "mean of chosen rows by shape": lambda p, t, h, n: total(chosen(p, t)) / tf.cast(tf.shape(chosen(p, t))[0], tf.float32),
    "rows by a mean": lambda p, t, h, n: mean(tf.square(p - t) / tf.stop_gradient(mean(tf.square(p - t)) + 0.1)),
    "rows by a mean of the input": lambda p, t, h, n: mean(tf.square(p - t) / (mean(tf.abs(t)) + 0.1)),
    "hard rows": lambda p, t, h, n: (lambda e, hard: total(e * hard) / (total(hard) + 1.0))(
        tf.square(p - t), tf.cast(tf.stop_gradient(tf.square(p - t)) > 0.5, tf.float32)
    ),
    "a mean beside each row": lambda p, t, h, n: mean(tf.square(p - t) + 0.3 * mean(tf.abs(h))),
    "weights": lambda p, t, h, n: total(tf.exp(t) * tf.square(p - t)) / total(tf.exp(t)),
}  # fmt: skip

REFUSED = {
    "in-batch negatives": (
        lambda p, t, h, n: mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(n), tf.matmul(h, h, transpose_b=True))),
        "pairs rows of the batch",
    ),
    "pairs": (lambda p, t, h, n: mean(tf.nn.relu(1 - (p[:, None] - p[None, :]))), "pairs rows of the batch"),
    "kernel": (lambda p, t, h, n: mean(total(tf.square(h[:, None, :] - h[None, :, :]), 2)), "pairs rows of the batch"),
    "hardest rows": (lambda p, t, h, n: mean(tf.nn.top_k(tf.square(p - t), k=n // 2).values), "TopKV2"),
    "worst row": (lambda p, t, h, n: tf.reduce_max(tf.square(p - t)), "Max"),
    "first rows": (lambda p, t, h, n: mean(tf.square(p - t)[: n // 2]), "StridedSlice"),
    "neighbours": (lambda p, t, h, n: mean(tf.square(p[1:] - p[:-1])), "StridedSlice"),
    "mirrored": (lambda p, t, h, n: mean(p * tf.reverse(p, [0])), "works across the rows of the batch"),
    "backwards": (lambda p, t, h, n: mean(p * p[::-1]), "works across the rows of the batch"),
    "picked": (lambda p, t, h, n: mean(p * tf.gather(p, tf.range(n)[::-1])), "works across the rows of the batch"),
    "running sum": (lambda p, t, h, n: mean(tf.square(tf.cumsum(p))), "works across the rows of the batch"),
    "softmax over rows": (lambda p, t, h, n: total(tf.nn.softmax(p) * tf.square(p - t)), "works across the rows"),
    "dice": (lambda p, t, h, n: 1 - total(tf.sigmoid(p) * tf.abs(t)) / total(tf.sigmoid(p)), "depends on variables"),
    "root": (lambda p, t, h, n: tf.sqrt(mean(tf.square(p - t))), "Sqrt"),
    "logarithm": (lambda p, t, h, n: tf.math.log(mean(tf.square(p - t))), "Log"),
    "variance": (lambda p, t, h, n: mean(tf.square(p - mean(p))), "a number made of all rows"),
    "product of means": (lambda p, t, h, n: mean(tf.square(p - t)) * mean(tf.abs(p)), "no sum or mean over the rows"),
    "the lesser of means": (lambda p, t, h, n: tf.minimum(mean(tf.square(p - t)), mean(tf.abs(p))), "Minimum"),
    "square of the mean hidden values": (lambda p, t, h, n: mean(tf.square(p - t)) + mean(tf.square(mean(h, 0))), "Square"),
    "balance": (lambda p, t, h, n: total(mean(tf.nn.softmax(h), 0) * mean(tf.sigmoid(h), 0)), "no sum or mean over"),
    "covariance": (lambda p, t, h, n: total(tf.square(tf.matmul(h, h, transpose_a=True))) + mean(p), "MatMul"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(EXACT))
def test_exact(case: str) -> None:
    assert_cores_are_the_whole_batch(lambda rows: build(EXACT[case], rows), **CLOSE)


@pytest.mark.parametrize("case", ["pairs", "worst row", "root", "product of means"])
def test_one_core_has_the_whole_batch_and_trains_any_loss(case: str) -> None:
    def graph() -> Graph:
        return trace(lambda: build(REFUSED[case][0], 8))

    plain = testing.run_plain(graph(), steps=5)
    testing.assert_same_training(testing.run_on_cores(graph(), steps=5, num_replicas=1), plain, **CLOSE)
    assert "one core has the whole batch" in convert(graph(), num_replicas=1).report["reduction"]["reason"]


@pytest.mark.parametrize("width", [3, 8])
@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused(case: str, width: int) -> None:
    """Also where another dimension is as large as the batch."""
    loss_of, words = REFUSED[case]
    testing.assert_raises_block(
        convert, trace(lambda: build(loss_of, 8, width=width)), words=["cross-replica-sum", words, "--loss_reduction=mean"],
        max_length=500, kind=(RolesError, ConversionError),
    )  # fmt: skip


def test_a_mean_of_chosen_rows_says_how_to_write_it() -> None:
    testing.assert_raises_block(
        convert, trace(lambda: build(lambda p, t, h, n: mean(chosen(p, t)), 8)),
        words=["averages over rows that a mask chooses", "tf.size"], max_length=500, kind=RolesError,
    )  # fmt: skip


def notes(loss_of: Loss, **options: Any) -> str:
    return "\n".join(convert(trace(lambda: build(loss_of, 8)), num_replicas=2, **options).report["notes"])


def test_what_the_user_insists_on_is_noted() -> None:
    found = notes(lambda p, t, h, n: mean(tf.square(p - mean(p))), loss_reduction="mean")
    assert "'Square' (Square) combines rows of the batch with a number made of all rows" in found
    assert "the result is not that of the whole batch" in found
    assert not notes(lambda p, t, h, n: mean(tf.square(p - t)), loss_reduction="mean")


def test_normalisation_by_the_statistics_of_each_core_is_noted() -> None:
    def normalised(p: Any, t: Any, h: Any, n: int) -> Any:
        average, variance = tf.nn.moments(h, [0])
        return mean(tf.square(total(tf.nn.batch_normalization(h, average, variance, None, None, 0.01), 1) - t))

    assert "normalises the rows of each core by their own statistics" in notes(normalised)


def test_rows_that_are_weighted_by_their_number_are_noted() -> None:
    numbers = "gives each row a value by its number in the batch"
    assert numbers in notes(lambda p, t, h, n: mean(tf.cast(tf.range(tf.shape(p)[0]), tf.float32) * tf.square(p - t)))
    assert numbers in notes(lambda p, t, h, n: mean(tf.constant([1.0, 2.0] * (n // 2)) * tf.square(p - t)))
    assert not notes(lambda p, t, h, n: mean(tf.fill([n], 2.0) * tf.square(p - t)))
    at = lambda t, n: tf.stack([tf.range(n), tf.cast(t > 0, tf.int32)], 1)  # noqa: E731
    assert not notes(lambda p, t, h, n: mean(tf.square(tf.gather_nd(h, at(t, n)) - t)))


def test_a_gradient_of_the_mean_inside_the_loss_is_noted() -> None:
    def penalty(p: Any, t: Any, h: Any, n: int, *, of: Callable[[Any], Any] = mean) -> Any:
        slope = tf.gradients(of(tf.square(p - t)), h)[0]
        return mean(tf.square(p - t)) + mean(tf.square(total(tf.square(slope), 1) - 1.0))

    assert "the gradient of a mean over the rows of one core" in notes(penalty)
    assert not notes(lambda p, t, h, n: penalty(p, t, h, n, of=total))


def test_fused_batch_norm_is_noted() -> None:
    def normalised(p: Any, t: Any, h: Any, n: int) -> Any:
        image = tf.reshape(h, [n, 1, 1, 3])
        scaled = tf1.nn.fused_batch_norm(image, tf.ones([3]), tf.zeros([3]))[0]
        return mean(tf.square(total(scaled, [1, 2, 3]) - t))

    assert "normalises the rows of each core by their own statistics" in notes(normalised)


# ------------------------------------------------------------------ a core with one row


def test_one_row_leaves_open_how_rows_meet() -> None:
    def found(loss_of: Loss, **options: Any) -> list[str]:
        return list(convert(trace(lambda: build(loss_of, 1)), num_replicas=2, **options).report["notes"])

    (note,) = found(lambda p, t, h, n: mean(tf.square(p - t)))
    assert note.startswith("a core has 1 row, so it cannot be told whether rows of the batch meet other than in a sum")
    (note,) = found(lambda p, t, h, n: tf.sqrt(mean(tf.square(p - t))))
    assert "if they do at 'Sqrt' (Sqrt) is no sum or mean" in note
    assert found(lambda p, t, h, n: mean(tf.square(p - t)), loss_reduction="mean") == []


def test_as_many_classes_as_rows() -> None:
    """The batch is one dimension; the other is none, although it is as large."""

    def at(rows: int) -> None:
        build(lambda p, t, h, n: mean(total(tf.square(h - t[:, None]), 1)), rows, width=4)

    assert_cores_are_the_whole_batch(at, **CLOSE)


def test_a_literal_with_as_many_classes_as_rows_is_noted() -> None:
    rows = notes(lambda p, t, h, n: total(total(tf.square(h - t[:, None]), 1) / 8.0))
    assert "'truediv/y' (8) divides single rows, and is not taken for the size of the batch of 8" in rows
    assert "if it is, say --loss_reduction=mean" in rows
    whole = notes(lambda p, t, h, n: total(tf.square(p - t)) / tf.cast(tf.constant(8, name="classes"), tf.float32))
    assert "(8) is taken for the size of the batch of 8" in whole

"""Processing of gradients by ops of any kind: it sees the gradient of the whole batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import assert_same_on_cores, batches, rows_of, tf1, trace, variable
from tpugraph import testing

SGD = tf1.train.GradientDescentOptimizer
Losses = list[Any]
Processing = Callable[[list[Any], Losses], Any]


def build(rows: int, process: Processing, *, width: int = 1) -> None:
    """A model with two losses; ``process`` makes the update of the gradients of both."""
    features, targets = batches(rows_of(96, 3), rows)
    weights = variable("w", (3, width))
    outputs = tf.reduce_sum(features @ weights, 1)
    losses = [tf.reduce_mean(tf.square(outputs - targets)), tf.reduce_mean(tf.abs(outputs))]
    tf1.summary.scalar("loss", losses[0] + losses[1])
    gradients = [tf.gradients(loss, [weights])[0] for loss in losses]
    step = tf1.train.get_or_create_global_step()
    SGD(0.1).apply_gradients([(process(gradients, losses), weights)], global_step=step, name="train")


def largest(gradients: list[Any], losses: Losses) -> Any:
    return tf.reshape(tf.nn.top_k(tf.reshape(gradients[0], [-1]), k=3).values, [3, 1])


def threshold(gradients: list[Any], losses: Losses) -> Any:
    size = tf.abs(gradients[0])
    least = tf.reduce_min(tf.nn.top_k(tf.reshape(size, [-1]), 2).values)
    return tf.where(size >= least, gradients[0], tf.zeros_like(size))


def softmax(gradients: list[Any], losses: Losses) -> Any:
    return tf.nn.softmax(gradients[0], axis=0)


def whitened(gradients: list[Any], losses: Losses) -> Any:
    gradient = gradients[0] + [[0.0, 0.5]]
    return gradient @ tf.linalg.inv(tf.matmul(gradient, gradient, transpose_a=True) + 0.1 * tf.eye(2))


def orthogonal(gradients: list[Any], losses: Losses) -> Any:
    """Newton and Schulz' iteration, in a loop."""
    start = gradients[0] / (tf.norm(gradients[0]) + 1e-3)
    return tf.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, 1.5 * x - 0.5 * x @ (tf.transpose(x) @ x)), (0, start)
    )[1]


def turned(gradients: list[Any], losses: Losses) -> Any:
    return tf.constant([[0.3, 1.0, 0.0], [0.0, 0.3, 1.0], [1.0, 0.0, 0.3]]) @ gradients[0]


def clipped_each(gradients: list[Any], losses: Losses) -> Any:
    """The sum of both is one tensor, and no raw gradient."""
    return tf.add_n([tf.clip_by_norm(gradient, 0.2) for gradient in gradients])


def projected(gradients: list[Any], losses: Losses) -> Any:
    one, two = gradients
    return one + two * tf.reduce_sum(one * two) / (1e-3 + tf.reduce_sum(one * one))


@pytest.mark.parametrize(
    ("process", "width", "reduced"),
    [(largest, 1, 1), (threshold, 1, 1), (softmax, 1, 1), (whitened, 2, 1), (orthogonal, 2, 1), (turned, 2, 1),
     (clipped_each, 1, 2), (projected, 1, 2)],
)  # fmt: skip
def test_it_sees_the_gradient_of_the_whole_batch(process: Processing, width: int, reduced: int) -> None:
    assert_same_on_cores(lambda rows: build(rows, process, width=width), resource=True, combined=reduced)


@pytest.mark.parametrize("process", [lambda g, losses: g[0] * losses[0], lambda g, losses: g[0] / (1.0 + losses[0])])
def test_a_gradient_that_the_loss_scales(process: Processing) -> None:
    assert_same_on_cores(lambda rows: build(rows, process))


def test_what_the_batch_decides_may_scale_rows() -> None:
    """A number of the batch in backpropagation itself is no processing."""

    def of(rows: int) -> None:
        features, targets = batches((*rows_of(96, 3),), rows)
        weights = variable("w", (3, 1))
        counted = tf.cast(targets > 0, tf.float32)
        error = tf.square(tf.squeeze(features @ weights, 1) - targets)
        loss = tf.reduce_sum(error * counted) / tf.maximum(tf.reduce_sum(counted), 1.0)
        tf1.summary.scalar("loss", loss)
        SGD(0.1).minimize(loss, global_step=tf1.train.get_or_create_global_step(), name="train")

    assert_same_on_cores(of)
    assert np.isfinite(testing.run_on_cores(trace(lambda: of(4)), steps=2, num_replicas=2).losses).all()


@pytest.mark.parametrize("resource", [False, True])
def test_a_loss_scale_that_the_gradients_decide(resource: bool) -> None:
    """One core's overflow keeps all from the update and halves the scale; three good steps double it."""

    def scaled(rows: int) -> None:
        features, targets = rows_of(96, 3)
        features[40] = 1e19  # its gradient is beyond float32 once it is scaled; its loss is not
        features, targets = batches((features, targets), rows)
        weights = variable("w", (3, 1))
        scale, good = (tf1.get_variable(n, initializer=v, trainable=False) for n, v in (("scale", 1024.0), ("good", 0)))
        loss = tf.reduce_mean(tf.square(tf.squeeze(features @ weights, 1) - targets))
        tf1.summary.scalar("loss", loss)
        gradient = tf.gradients(loss * scale, [weights])[0] / scale
        finite = tf.reduce_all(tf.math.is_finite(gradient))

        def update() -> Any:
            step = tf1.train.get_or_create_global_step()
            return tf.group(tf1.train.AdamOptimizer(0.1).apply_gradients([(gradient, weights)], global_step=step))

        def scaled_to(value: Any) -> Any:
            with tf.control_dependencies([tf1.assign(scale, value)]):
                return tf.identity(tf1.assign(good, 0))

        def count() -> Any:
            return tf1.cond(good + 1 >= 3, lambda: scaled_to(scale * 2), lambda: tf.identity(tf1.assign_add(good, 1)))

        tf1.train.get_or_create_global_step()
        moved = tf1.cond(finite, count, lambda: scaled_to(tf.maximum(1.0, scale / 2)))
        tf.group(tf1.cond(finite, update, tf.no_op), moved, name="train")

    assert_same_on_cores(scaled, steps=6, resource=resource)
    found = testing.run_on_cores(trace(lambda: scaled(16), resource=resource), steps=6, num_replicas=4)
    # halved by the third step, doubled by the sixth
    assert (found.variables["scale"], found.variables["good"]) == (1024, 0)
    assert found.variables["global_step"] == 5

"""Processing of gradients by ops of any kind: it sees the gradient of the whole batch."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from models import assert_same_on_cores, batches, rows_of, tf1, variable

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


def threshold(gradients: list[Any], losses: Losses) -> Any:
    size = tf.abs(gradients[0])
    least = tf.reduce_min(tf.nn.top_k(tf.reshape(size, [-1]), 2).values)
    return tf.where(size >= least, gradients[0], tf.zeros_like(size))


def whitened(gradients: list[Any], losses: Losses) -> Any:
    gradient = gradients[0] + [[0.0, 0.5]]
    return gradient @ tf.linalg.inv(tf.matmul(gradient, gradient, transpose_a=True) + 0.1 * tf.eye(2))


def orthogonal(gradients: list[Any], losses: Losses) -> Any:
    """Newton and Schulz' iteration, in a loop."""
    start = gradients[0] / (tf.norm(gradients[0]) + 1e-3)
    body = lambda i, x: (i + 1, 1.5 * x - 0.5 * x @ (tf.transpose(x) @ x))  # noqa: E731
    return tf.while_loop(lambda i, x: i < 3, body, (0, start))[1]


TURN = [[0.3, 1.0, 0.0], [0.0, 0.3, 1.0], [1.0, 0.0, 0.3]]
PROCESSING: dict[str, tuple[Processing, int, int]] = {
    "largest": (lambda g, _: tf.reshape(tf.nn.top_k(tf.reshape(g[0], [-1]), k=3).values, [3, 1]), 1, 1),
    "threshold": (threshold, 1, 1),
    "softmax": (lambda g, _: tf.nn.softmax(g[0], axis=0), 1, 1),
    "whitened": (whitened, 2, 1),
    "orthogonal": (orthogonal, 2, 1),
    "turned": (lambda g, _: tf.constant(TURN) @ g[0], 2, 1),
    "clipped_each": (
        lambda g, _: tf.add_n([tf.clip_by_norm(one, 0.2) for one in g]),
        1,
        2,
    ),  # one tensor, no raw gradient
    "projected": (lambda g, _: g[0] + g[1] * tf.reduce_sum(g[0] * g[1]) / (1e-3 + tf.reduce_sum(g[0] * g[0])), 1, 2),
}
"""Of each the columns of the variable, and how many tensors the cores combine."""


@pytest.mark.parametrize("name", PROCESSING)
def test_it_sees_the_gradient_of_the_whole_batch(name: str) -> None:
    process, width, reduced = PROCESSING[name]
    assert_same_on_cores(lambda rows: build(rows, process, width=width), resource=True, combined=reduced)

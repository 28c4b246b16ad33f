"""Residual networks in the manner of ResNet-50: bottlenecks with batch norm, a decay of weights, momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .parts import batch, dense, floats, program, tf1, variable, whole
from .statistics import finish, fused

Weights = Callable[..., Any]


def drawn(name: str, *shape: int) -> Any:
    """A variable whose first value is drawn, so that the graph does not hold it."""
    return tf1.get_variable(name, shape, initializer=tf1.glorot_uniform_initializer(seed=1))


def convolved(x: Any, units: int, size: int, stride: int, name: str, updates: list[Any], weights: Weights) -> Any:
    """A convolution without a bias, and the batch norm behind it."""
    with tf1.variable_scope(name):
        kernel = weights("kernel", size, size, x.shape[-1], units)
    return fused(tf.nn.conv2d(x, kernel, stride, "SAME"), units, name, updates)


def bottleneck(x: Any, units: int, stride: int, name: str, updates: list[Any], weights: Weights) -> Any:
    """Three convolutions beside a shortcut, which is a convolution where the sizes differ."""
    with tf1.variable_scope(name):
        whole_shape = stride == 1 and x.shape[-1] == 4 * units
        short = x if whole_shape else convolved(x, 4 * units, 1, stride, "shortcut", updates, weights)
        h = tf.nn.relu(convolved(x, units, 1, 1, "one", updates, weights))
        h = tf.nn.relu(convolved(h, units, 3, stride, "two", updates, weights))
        return tf.nn.relu(convolved(h, 4 * units, 1, 1, "three", updates, weights) + short)


@program(variants={"": {}, "units_as_rows": {"units": 4, "side": 4}})
def residual(
    rows: int,
    blocks: tuple[int, ...] = (2, 1),
    units: int = 2,
    side: int = 8,
    classes: int = 3,
    weights: Weights = variable,
) -> Any:
    """Groups of bottlenecks, each of twice the units; a decay of all weights is added to the loss."""
    x, labels = batch(rows, floats(side, side, 3), whole(classes))
    updates: list[Any] = []
    h = tf.nn.relu(convolved(x, units, 7, 2, "stem", updates, weights))
    h = tf1.nn.max_pool(h, 3, 2, "SAME")
    for group, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if group and not number else 1
            h = bottleneck(h, units << group, stride, f"group_{group}_{number}", updates, weights)
    h = tf.reduce_mean(h, [1, 2])
    logits = dense(h, int(h.shape[-1]), classes, "logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    decay = tf.add_n([tf.nn.l2_loss(v) for v in tf1.trainable_variables() if "kernel" in v.op.name])
    return finish(loss + 1e-4 * decay, updates, tf1.train.MomentumOptimizer(0.05, 0.9))


RESNET_50 = {"rows": 2, "blocks": (3, 4, 6, 3), "units": 64, "side": 32, "classes": 1000, "weights": drawn}
"""The sizes of ResNet-50, but for that of its images, which no variable and no statistic has."""

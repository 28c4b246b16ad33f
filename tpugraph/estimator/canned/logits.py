"""From features to logits: a linear model of feature columns, and a deep one, with the variable names of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator import layers
from tpugraph.estimator.modes import ModeKeys

tf1 = tf.compat.v1


def linear_logit_fn_builder(
    units: int,
    feature_columns: Collection[Any],
    sparse_combiner: str = "sum",
    cols_to_vars: dict[Any, Any] | None = None,
) -> Callable[[Any], Any]:
    """A function of features that gives the logits of a linear model.

    Args:
        units: how many logits a row has.
        feature_columns: what of the features is taken.
        sparse_combiner: how several values of one column combine: ``sum``, ``mean`` or ``sqrtn``.
        cols_to_vars: is told of each column, and of ``bias``, the list of its variables, where given.
    """

    def logit_fn(features: Any) -> Any:
        return tf1.feature_column.linear_model(features, feature_columns, units=units, sparse_combiner=sparse_combiner,
                                               cols_to_vars=cols_to_vars)  # fmt: skip

    return logit_fn


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Sequence[int],
    feature_columns: Collection[Any],
    activation_fn: Callable[[Any], Any] = tf.nn.relu,
    dropout: float | None = None,
    input_layer_partitioner: Any = None,
    batch_norm: bool = False,
) -> Callable[[Any, str], Any]:
    """A function of features and mode that gives the logits of a deep model.

    Args:
        units: how many logits a row has.
        hidden_units: the units of each hidden layer.
        feature_columns: what of the features is taken.
        activation_fn: what follows each hidden layer.
        dropout: the share of values that is dropped behind each hidden layer in training.
        input_layer_partitioner: how large variables of the input layer are cut.
        batch_norm: whether batch norm follows each hidden layer.
    """

    def logit_fn(features: Any, mode: str) -> Any:
        training = mode == ModeKeys.TRAIN
        with tf1.variable_scope("input_from_feature_columns", partitioner=input_layer_partitioner):
            net = tf1.feature_column.input_layer(features, feature_columns)
        for number, width in enumerate(hidden_units):
            with tf1.variable_scope(f"hiddenlayer_{number}") as scope:
                net = layers.dense(
                    net, width, activation_fn, kernel_initializer=tf1.glorot_uniform_initializer(), name=scope
                )
                if dropout is not None and training:
                    net = layers.dropout(net, dropout, training=True)
                if batch_norm:
                    net = _normalised(net, training)
            tf1.summary.scalar(f"dnn/hiddenlayer_{number}/fraction_of_zero_values", tf.nn.zero_fraction(net))
        with tf1.variable_scope("logits") as scope:
            return layers.dense(net, units, kernel_initializer=tf1.glorot_uniform_initializer(), name=scope)

    return logit_fn


def _normalised(net: Any, training: bool) -> Any:
    """Batch norm over rows ``[batch, units]``, whose moving averages are updated with the step."""
    with tf1.variable_scope("batchnorm"):
        width = net.shape.as_list()[-1]
        gamma = tf1.get_variable("gamma", [width], initializer=tf1.ones_initializer())
        beta = tf1.get_variable("beta", [width], initializer=tf1.zeros_initializer())
        mean = tf1.get_variable("moving_mean", [width], initializer=tf1.zeros_initializer(), trainable=False)
        variance = tf1.get_variable("moving_variance", [width], initializer=tf1.ones_initializer(), trainable=False)
        if not training:
            return tf.nn.batch_normalization(net, mean, variance, beta, gamma, 1e-3)
        now, spread = tf.nn.moments(net, [0])
        for average, value in ((mean, now), (variance, spread)):
            tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, average.assign_sub((average - value) * 0.001))
        return tf.nn.batch_normalization(net, now, spread, beta, gamma, 1e-3)

"""The canned models with a head that the user gives: linear, deep, both together, and a baseline that knows no features."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.canned.dual_ascent import LinearSDCA
from tpugraph.estimator.canned.heads import Head, column_of
from tpugraph.estimator.canned.logits import dnn_logit_fn_builder, linear_logit_fn_builder
from tpugraph.estimator.plain_estimator import Estimator
from tpugraph.estimator.specs import EstimatorSpec
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1
_OPTIMIZERS = {"Adagrad": tf1.train.AdagradOptimizer, "Adam": tf1.train.AdamOptimizer, "Ftrl": tf1.train.FtrlOptimizer,
               "Momentum": lambda rate: tf1.train.MomentumOptimizer(rate, 0.9),
               "RMSProp": tf1.train.RMSPropOptimizer, "SGD": tf1.train.GradientDescentOptimizer}  # fmt: skip


def optimizer_of(given: Any, rate: float) -> Any:
    """The optimizer of a canned model: a name, a function that makes one, or one.

    Raises:
        ArgumentError: another name, or no optimizer.
    """
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            raise ArgumentError(f"Unsupported optimizer name: {given}", fix=f"one of {', '.join(_OPTIMIZERS)}")
        return _OPTIMIZERS[given](rate)
    found = given() if callable(given) else given
    if not isinstance(found, tf1.train.Optimizer):
        raise ArgumentError(f"The given object is not an Optimizer instance. Given: {found}",
                            fix="an optimizer of tf.compat.v1.train")  # fmt: skip
    return found


def _linear_rate(columns: Collection[Any], most: float) -> float:
    return min(most, 1.0 / math.sqrt(max(len(columns), 1)))


def _linear(features: Any, units: int, columns: Collection[Any], combiner: str, partitioner: Any,
            variables: dict[Any, Any] | None = None) -> Any:  # fmt: skip
    with tf1.variable_scope("linear", partitioner=partitioner):
        return linear_logit_fn_builder(units, columns, combiner, variables)(features)


def _train_op(loss: Any, pairs: Sequence[tuple[Any, str]]) -> Any:
    """Each optimizer trains the variables of its scope; the step counts once, and the ops of batch norm run with it."""
    step = tf1.train.get_global_step()
    ops = [optimizer.minimize(loss, var_list=tf1.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES, scope))
           for optimizer, scope in pairs]  # fmt: skip
    ops += tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(ops):
        return step.assign_add(1).op


class LinearEstimator(Estimator):
    """A linear model of feature columns.

    Args:
        head: what is made of its logits.
        feature_columns: what of the features is taken.
        model_dir: as that of :class:`Estimator`.
        optimizer: a name, an optimizer, or a function that makes one; or a :class:`LinearSDCA`, which keeps it on this machine.
        config: as that of :class:`Estimator`.
        partitioner: how large variables are cut.
        sparse_combiner: how several values of one column combine.
        warm_start_from: as that of :class:`Estimator`.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Collection[Any],
        model_dir: Any = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        partitioner: Any = None,
        sparse_combiner: str = "sum",
        warm_start_from: Any = None,
    ) -> None:
        columns = tuple(feature_columns)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            variables: dict[Any, Any] = {}
            logits = _linear(features, head.logits_dimension, columns, sparse_combiner, partitioner, variables)
            if isinstance(optimizer, LinearSDCA):
                return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=lambda loss: optimizer.train_op(
                    head, features, head.labels_of(column_of(labels)), variables, columns))  # fmt: skip
            trained = optimizer_of(optimizer, _linear_rate(columns, 0.2))
            return head.create_estimator_spec(features, mode, logits, labels,
                                              train_op_fn=lambda loss: _train_op(loss, [(trained, "linear")]))  # fmt: skip

        alone = False if isinstance(optimizer, LinearSDCA) else None
        if alone is False and (partitioner is not None or sparse_combiner != "sum"):
            raise ArgumentError("LinearSDCA trains whole variables whose columns are summed",
                                fix="leave partitioner and sparse_combiner out")  # fmt: skip
        super().__init__(model_fn, model_dir, config, None, warm_start_from, use_tpu=alone)


class DNNEstimator(Estimator):
    """Fully connected layers behind feature columns.

    Args:
        head: what is made of its logits.
        hidden_units: the units of each hidden layer.
        feature_columns: what of the features is taken.
        model_dir: as that of :class:`Estimator`.
        optimizer: a name, an optimizer, or a function that makes one.
        activation_fn: what follows each hidden layer.
        dropout: the share of values that is dropped in training.
        input_layer_partitioner: how large variables of the input layer are cut.
        config: as that of :class:`Estimator`.
        warm_start_from: as that of :class:`Estimator`.
        batch_norm: whether batch norm follows each hidden layer.
    """

    def __init__(self, head: Head, hidden_units: Sequence[int], feature_columns: Collection[Any], model_dir: Any = None,
                 optimizer: Any = "Adagrad", activation_fn: Callable[[Any], Any] = tf.nn.relu, dropout: float | None = None,
                 input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
                 batch_norm: bool = False) -> None:  # fmt: skip
        deep = dnn_logit_fn_builder(head.logits_dimension, hidden_units, tuple(feature_columns), activation_fn, dropout,
                                    input_layer_partitioner, batch_norm)  # fmt: skip

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            with tf1.variable_scope("dnn"):
                logits = deep(features, mode)
            trained = optimizer_of(optimizer, 0.05)
            return head.create_estimator_spec(features, mode, logits, labels,
                                              train_op_fn=lambda loss: _train_op(loss, [(trained, "dnn")]))  # fmt: skip

        super().__init__(model_fn, model_dir, config, None, warm_start_from)


class DNNLinearCombinedEstimator(Estimator):
    """A linear model and a deep one, whose logits are added up: wide and deep.

    Args:
        head: what is made of the logits.
        model_dir: as that of :class:`Estimator`.
        linear_feature_columns: what the linear part takes.
        linear_optimizer: its optimizer.
        dnn_feature_columns: what the deep part takes.
        dnn_optimizer: its optimizer.
        dnn_hidden_units: the units of each of its hidden layers.
        dnn_activation_fn: what follows each of them.
        dnn_dropout: the share of values that is dropped in training.
        input_layer_partitioner: how large variables are cut.
        config: as that of :class:`Estimator`.
        batch_norm: whether batch norm follows each hidden layer.
        linear_sparse_combiner: how several values of one column combine.
        warm_start_from: as that of :class:`Estimator`.

    Raises:
        ArgumentError: no columns at all, or a deep part without hidden units.
    """

    def __init__(self, head: Head, model_dir: Any = None, linear_feature_columns: Collection[Any] | None = None,
                 linear_optimizer: Any = "Ftrl", dnn_feature_columns: Collection[Any] | None = None,
                 dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Sequence[int] | None = None,
                 dnn_activation_fn: Callable[[Any], Any] = tf.nn.relu, dnn_dropout: float | None = None,
                 input_layer_partitioner: Any = None, config: Any = None, batch_norm: bool = False,
                 linear_sparse_combiner: str = "sum", warm_start_from: Any = None) -> None:  # fmt: skip
        wide, deep = tuple(linear_feature_columns or ()), tuple(dnn_feature_columns or ())
        if not wide and not deep:
            raise ArgumentError(
                "Either linear_feature_columns or dnn_feature_columns must be defined.", fix="give one of them"
            )
        if deep and not dnn_hidden_units:
            raise ArgumentError(
                "dnn_hidden_units must be defined when dnn_feature_columns is specified.", fix="[100, 50]"
            )
        layers = dnn_logit_fn_builder(head.logits_dimension, dnn_hidden_units or (), deep, dnn_activation_fn, dnn_dropout,
                                      input_layer_partitioner, batch_norm)  # fmt: skip

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            logits, pairs = [], []
            if deep:
                with tf1.variable_scope("dnn"):
                    logits.append(layers(features, mode))
                pairs.append((optimizer_of(dnn_optimizer, 0.05), "dnn"))
            if wide:
                logits.append(
                    _linear(features, head.logits_dimension, wide, linear_sparse_combiner, input_layer_partitioner)
                )
                pairs.append((optimizer_of(linear_optimizer, _linear_rate(wide, 0.005)), "linear"))
            return head.create_estimator_spec(features, mode, tf.add_n(logits), labels,
                                              train_op_fn=lambda loss: _train_op(loss, pairs))  # fmt: skip

        super().__init__(model_fn, model_dir, config, None, warm_start_from)


class BaselineEstimator(Estimator):
    """A model that knows no features: it learns one logit for all rows.

    Args:
        head: what is made of its logits.
        model_dir: as that of :class:`Estimator`.
        optimizer: a name, an optimizer, or a function that makes one.
        config: as that of :class:`Estimator`.
    """

    def __init__(self, head: Head, model_dir: Any = None, optimizer: Any = "Ftrl", config: Any = None) -> None:

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            rows = tf.shape(next(iter(tf.nest.flatten(features))))[0]
            with tf1.variable_scope("baseline"):
                bias = tf1.get_variable("bias", [head.logits_dimension], initializer=tf1.zeros_initializer())
                logits = tf.ones([rows, 1]) * bias
            trained = optimizer_of(optimizer, 0.3)
            return head.create_estimator_spec(features, mode, logits, labels,
                                              train_op_fn=lambda loss: _train_op(loss, [(trained, "baseline")]))  # fmt: skip

        super().__init__(model_fn, model_dir, config)

"""The canned estimators of ``tf.estimator``, with its arguments and variable names: linear, deep, both, and baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator import layers
from tpugraph.estimator.canned.heads import Head, Reduction, RegressionHead, classification_head, column_of
from tpugraph.estimator.canned.sdca import LinearSDCA
from tpugraph.estimator.plain_estimator import Estimator
from tpugraph.estimator.specs import EstimatorSpec, ModeKeys
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1


def linear_logit_fn_builder(
    units: int,
    feature_columns: Collection[Any],
    sparse_combiner: str = "sum",
    cols_to_vars: dict[Any, Any] | None = None,
) -> Callable[[Any], Any]:
    """A function of features that returns the logits of a linear model.

    ``cols_to_vars`` receives the variables of each column, and of ``bias``.
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
    """A function of features and mode that returns the logits of fully connected layers.

    Args:
        units: logits per example.
        hidden_units: units of each hidden layer, each followed by ``activation_fn``, ``dropout`` and ``batch_norm``.
        input_layer_partitioner: of the variables of the input layer.
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
    """Batch norm of ``[batch, units]``; its moving averages are in UPDATE_OPS."""
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


_OPTIMIZERS = {"Adagrad": tf1.train.AdagradOptimizer, "Adam": tf1.train.AdamOptimizer, "Ftrl": tf1.train.FtrlOptimizer,
               "Momentum": lambda rate: tf1.train.MomentumOptimizer(rate, 0.9),
               "RMSProp": tf1.train.RMSPropOptimizer, "SGD": tf1.train.GradientDescentOptimizer}  # fmt: skip


def optimizer_of(given: Any, rate: float) -> Any:
    """The optimizer of a canned model: a name, a function that makes one, or one."""
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
    """Each optimizer trains the variables of its scope; the step counts once."""
    step = tf1.train.get_global_step()
    ops = [optimizer.minimize(loss, var_list=tf1.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES, scope))
           for optimizer, scope in pairs]  # fmt: skip
    ops += tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(ops):
        return step.assign_add(1).op


class LinearEstimator(Estimator):
    """A linear model of feature columns; arguments as ``tf.estimator.LinearEstimator``.

    ``optimizer`` is a name, an optimizer, or a function that makes one; or a :class:`LinearSDCA`, which trains on this machine.
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
    """Fully connected layers of feature columns; arguments as ``tf.estimator.DNNEstimator``."""

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
    """Wide and deep: a linear model and fully connected layers, whose logits are added.

    Arguments as ``tf.estimator.DNNLinearCombinedEstimator``.

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
    """Ignores the features: learns one bias for all examples."""

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


class LinearClassifier(LinearEstimator):
    """:class:`LinearEstimator` with a classification head."""

    def __init__(self, feature_columns: Collection[Any], model_dir: Any = None, n_classes: int = 2, weight_column: Any = None,
                 label_vocabulary: Any = None, optimizer: Any = "Ftrl", config: Any = None, partitioner: Any = None,
                 warm_start_from: Any = None, loss_reduction: str = Reduction.SUM, sparse_combiner: str = "sum") -> None:  # fmt: skip
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(
            head, feature_columns, model_dir, optimizer, config, partitioner, sparse_combiner, warm_start_from
        )


class DNNClassifier(DNNEstimator):
    """:class:`DNNEstimator` with a classification head."""

    def __init__(self, hidden_units: Sequence[int], feature_columns: Collection[Any], model_dir: Any = None, n_classes: int = 2,
                 weight_column: Any = None, label_vocabulary: Any = None, optimizer: Any = "Adagrad",
                 activation_fn: Callable[[Any], Any] = tf.nn.relu, dropout: float | None = None,
                 input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
                 loss_reduction: str = Reduction.SUM, batch_norm: bool = False) -> None:  # fmt: skip
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, hidden_units, feature_columns, model_dir, optimizer, activation_fn, dropout,
                         input_layer_partitioner, config, warm_start_from, batch_norm)  # fmt: skip


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """:class:`DNNLinearCombinedEstimator` with a classification head."""

    def __init__(self, model_dir: Any = None, linear_feature_columns: Any = None, linear_optimizer: Any = "Ftrl",
                 dnn_feature_columns: Any = None, dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Any = None,
                 dnn_activation_fn: Callable[[Any], Any] = tf.nn.relu, dnn_dropout: float | None = None, n_classes: int = 2,
                 weight_column: Any = None, label_vocabulary: Any = None, input_layer_partitioner: Any = None,
                 config: Any = None, warm_start_from: Any = None, loss_reduction: str = Reduction.SUM,
                 batch_norm: bool = False, linear_sparse_combiner: str = "sum") -> None:  # fmt: skip
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, model_dir, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer,
                         dnn_hidden_units, dnn_activation_fn, dnn_dropout, input_layer_partitioner, config, batch_norm,
                         linear_sparse_combiner, warm_start_from)  # fmt: skip


class BaselineClassifier(BaselineEstimator):
    """Learns the frequencies of the classes."""

    def __init__(self, model_dir: Any = None, n_classes: int = 2, weight_column: Any = None, label_vocabulary: Any = None,
                 optimizer: Any = "Ftrl", config: Any = None, loss_reduction: str = Reduction.SUM) -> None:  # fmt: skip
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, model_dir, optimizer, config)


class LinearRegressor(LinearEstimator):
    """:class:`LinearEstimator` with a :class:`RegressionHead`."""

    def __init__(self, feature_columns: Collection[Any], model_dir: Any = None, label_dimension: int = 1,
                 weight_column: Any = None, optimizer: Any = "Ftrl", config: Any = None, partitioner: Any = None,
                 warm_start_from: Any = None, loss_reduction: str = Reduction.SUM, sparse_combiner: str = "sum") -> None:  # fmt: skip
        head = RegressionHead(weight_column, label_dimension, loss_reduction)
        super().__init__(
            head, feature_columns, model_dir, optimizer, config, partitioner, sparse_combiner, warm_start_from
        )


class DNNRegressor(DNNEstimator):
    """:class:`DNNEstimator` with a :class:`RegressionHead`."""

    def __init__(self, hidden_units: Sequence[int], feature_columns: Collection[Any], model_dir: Any = None,
                 label_dimension: int = 1, weight_column: Any = None, optimizer: Any = "Adagrad",
                 activation_fn: Callable[[Any], Any] = tf.nn.relu, dropout: float | None = None,
                 input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
                 loss_reduction: str = Reduction.SUM, batch_norm: bool = False) -> None:  # fmt: skip
        head = RegressionHead(weight_column, label_dimension, loss_reduction)
        super().__init__(head, hidden_units, feature_columns, model_dir, optimizer, activation_fn, dropout,
                         input_layer_partitioner, config, warm_start_from, batch_norm)  # fmt: skip


class DNNLinearCombinedRegressor(DNNLinearCombinedEstimator):
    """:class:`DNNLinearCombinedEstimator` with a :class:`RegressionHead`."""

    def __init__(self, model_dir: Any = None, linear_feature_columns: Any = None, linear_optimizer: Any = "Ftrl",
                 dnn_feature_columns: Any = None, dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Any = None,
                 dnn_activation_fn: Callable[[Any], Any] = tf.nn.relu, dnn_dropout: float | None = None,
                 label_dimension: int = 1, weight_column: Any = None, input_layer_partitioner: Any = None,
                 config: Any = None, warm_start_from: Any = None, loss_reduction: str = Reduction.SUM,
                 batch_norm: bool = False, linear_sparse_combiner: str = "sum") -> None:  # fmt: skip
        head = RegressionHead(weight_column, label_dimension, loss_reduction)
        super().__init__(head, model_dir, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer,
                         dnn_hidden_units, dnn_activation_fn, dnn_dropout, input_layer_partitioner, config, batch_norm,
                         linear_sparse_combiner, warm_start_from)  # fmt: skip


class BaselineRegressor(BaselineEstimator):
    """Learns the mean of the labels."""

    def __init__(self, model_dir: Any = None, label_dimension: int = 1, weight_column: Any = None, optimizer: Any = "Ftrl",
                 config: Any = None, loss_reduction: str = Reduction.SUM) -> None:  # fmt: skip
        super().__init__(RegressionHead(weight_column, label_dimension, loss_reduction), model_dir, optimizer, config)

"""The canned estimators of ``tf.estimator``, with its arguments and variable names: linear, deep, both, and baselines."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator import layers
from tpugraph.estimator.heads import BinaryClassHead, Head, MultiClassHead, Reduction, RegressionHead
from tpugraph.estimator.plain_estimator import Estimator
from tpugraph.estimator.specs import EstimatorSpec, ModeKeys
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1


def linear_logit_fn_builder(units: int, feature_columns: Collection[Any], sparse_combiner: str = "sum",
                            cols_to_vars: dict[Any, Any] | None = None) -> Callable[[Any], Any]:  # fmt: skip
    """A function of features that returns the logits of a linear model.

    ``cols_to_vars`` receives the variables of each column, and of ``bias``.
    """

    def logit_fn(features: Any) -> Any:
        return tf1.feature_column.linear_model(features, feature_columns, units=units, sparse_combiner=sparse_combiner,
                                               cols_to_vars=cols_to_vars)  # fmt: skip

    return logit_fn


def dnn_logit_fn_builder(units: int, hidden_units: Sequence[int], feature_columns: Collection[Any],
                         activation_fn: Callable[[Any], Any] = tf.nn.relu, dropout: float | None = None,
                         input_layer_partitioner: Any = None, batch_norm: bool = False) -> Callable[[Any, str], Any]:  # fmt: skip
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
                    net = _normalised(net, f"batchnorm_{number}", training)
            tf1.summary.scalar(f"dnn/hiddenlayer_{number}/fraction_of_zero_values", tf.nn.zero_fraction(net))
        with tf1.variable_scope("logits") as scope:
            return layers.dense(net, units, kernel_initializer=tf1.glorot_uniform_initializer(), name=scope)

    return logit_fn


def _normalised(net: Any, name: str, training: bool) -> Any:
    """Batch norm of ``[batch, units]``; its moving averages are in UPDATE_OPS."""
    with tf1.variable_scope(name):
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


# scope, optimizer, its default learning rate, and the logits of features and mode
_Part = tuple[str, Any, float, Callable[[Any, str], Any]]


def _model_fn(head: Head, *parts: _Part) -> Callable[..., EstimatorSpec]:
    """The model function that sums the logits of its parts; each optimizer trains the variables of its scope."""

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        logits, trained = [], []
        for scope, optimizer, rate, logit_fn in parts:
            logits.append(logit_fn(features, mode))
            trained.append((optimizer_of(optimizer, rate), scope))

        def train_op(loss: Any) -> Any:
            scopes = tf1.GraphKeys.TRAINABLE_VARIABLES
            ops = [made.minimize(loss, var_list=tf1.get_collection(scopes, scope)) for made, scope in trained]
            with tf.control_dependencies(ops + tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
                return tf1.train.get_global_step().assign_add(1).op

        total = logits[0] if len(logits) == 1 else tf.add_n(logits)
        return head.create_estimator_spec(features, mode, total, labels, train_op_fn=train_op)

    return model_fn


def _linear(head: Head, columns: Any, optimizer: Any, most: float, combiner: str, partitioner: Any) -> _Part:
    def logits(features: Any, mode: str) -> Any:
        with tf1.variable_scope("linear", partitioner=partitioner):
            return linear_logit_fn_builder(head.logits_dimension, columns, combiner)(features)

    return "linear", optimizer, min(most, 1.0 / math.sqrt(max(len(columns), 1))), logits


def _deep(head: Head, optimizer: Any, *layers_of: Any) -> _Part:
    deep = dnn_logit_fn_builder(head.logits_dimension, *layers_of)

    def logits(features: Any, mode: str) -> Any:
        with tf1.variable_scope("dnn"):
            return deep(features, mode)

    return "dnn", optimizer, 0.05, logits


class LinearEstimator(Estimator):
    """A linear model of feature columns; arguments as ``tf.estimator.LinearEstimator``.

    ``optimizer`` is a name, an optimizer, or a function that makes one.
    """

    def __init__(self, head: Head, feature_columns: Collection[Any], model_dir: Any = None, optimizer: Any = "Ftrl",
                 config: Any = None, partitioner: Any = None, sparse_combiner: str = "sum",
                 warm_start_from: Any = None) -> None:  # fmt: skip
        part = _linear(head, tuple(feature_columns), optimizer, 0.2, sparse_combiner, partitioner)
        super().__init__(_model_fn(head, part), model_dir, config, None, warm_start_from)


class DNNEstimator(Estimator):
    """Fully connected layers of feature columns; arguments as ``tf.estimator.DNNEstimator``."""

    def __init__(self, head: Head, hidden_units: Sequence[int], feature_columns: Collection[Any], model_dir: Any = None,
                 optimizer: Any = "Adagrad", activation_fn: Callable[[Any], Any] = tf.nn.relu, dropout: float | None = None,
                 input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
                 batch_norm: bool = False) -> None:  # fmt: skip
        part = _deep(head, optimizer, hidden_units, tuple(feature_columns), activation_fn, dropout, input_layer_partitioner,
                     batch_norm)  # fmt: skip
        super().__init__(_model_fn(head, part), model_dir, config, None, warm_start_from)


class DNNLinearCombinedEstimator(Estimator):
    """Wide and deep: a linear model and fully connected layers, whose logits are added.

    Arguments as ``tf.estimator.DNNLinearCombinedEstimator``.
    """

    def __init__(self, head: Head, model_dir: Any = None, linear_feature_columns: Collection[Any] | None = None,
                 linear_optimizer: Any = "Ftrl", dnn_feature_columns: Collection[Any] | None = None,
                 dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Sequence[int] | None = None,
                 dnn_activation_fn: Callable[[Any], Any] = tf.nn.relu, dnn_dropout: float | None = None,
                 input_layer_partitioner: Any = None, config: Any = None, batch_norm: bool = False,
                 linear_sparse_combiner: str = "sum", warm_start_from: Any = None) -> None:  # fmt: skip
        wide, deep = tuple(linear_feature_columns or ()), tuple(dnn_feature_columns or ())
        if not wide and not deep:
            raise ArgumentError("Either linear_feature_columns or dnn_feature_columns must be defined.",
                                fix="give one of them")  # fmt: skip
        if deep and not dnn_hidden_units:
            raise ArgumentError("dnn_hidden_units must be defined when dnn_feature_columns is specified.",
                                fix="[100, 50]")  # fmt: skip
        parts = []
        if deep:
            parts.append(_deep(head, dnn_optimizer, dnn_hidden_units, deep, dnn_activation_fn, dnn_dropout,
                               input_layer_partitioner, batch_norm))  # fmt: skip
        if wide:
            parts.append(_linear(head, wide, linear_optimizer, 0.005, linear_sparse_combiner, input_layer_partitioner))
        super().__init__(_model_fn(head, *parts), model_dir, config, None, warm_start_from)


class BaselineEstimator(Estimator):
    """Ignores the features: learns one bias for all examples."""

    def __init__(self, head: Head, model_dir: Any = None, optimizer: Any = "Ftrl", config: Any = None) -> None:
        def logits(features: Any, mode: str) -> Any:
            rows = tf.shape(next(iter(tf.nest.flatten(features))))[0]
            with tf1.variable_scope("baseline"):
                bias = tf1.get_variable("bias", [head.logits_dimension], initializer=tf1.zeros_initializer())
                return tf.ones([rows, 1]) * bias

        super().__init__(_model_fn(head, ("baseline", optimizer, 0.3, logits)), model_dir, config)


def _classes(n_classes: int = 2, weight_column: Any = None, label_vocabulary: Any = None,
             loss_reduction: str = Reduction.SUM) -> Head:  # fmt: skip
    if n_classes == 2:
        return BinaryClassHead(weight_column, None, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)


def _numbers(label_dimension: int = 1, weight_column: Any = None, loss_reduction: str = Reduction.SUM) -> Head:
    return RegressionHead(weight_column, label_dimension, loss_reduction)


class _WithHead(Estimator):
    """Makes its head of its own arguments, which have the positional order of ``tf.estimator``."""

    _make_head: Callable[..., Head]
    __signature__: inspect.Signature

    def __init_subclass__(cls, head: Callable[..., Head] | None = None, order: str = "") -> None:
        if head is None:  # a subclass of one of those below
            return
        known = {**inspect.signature(cls.__mro__[2]).parameters, **inspect.signature(head).parameters}
        cls._make_head = staticmethod(head)
        cls.__signature__ = inspect.Signature([known[name] for name in order.split()])

    def __init__(self, *arguments: Any, **named: Any) -> None:
        given = self.__signature__.bind(*arguments, **named).arguments
        names = inspect.signature(self._make_head).parameters
        head: Any = self._make_head(**{name: given.pop(name) for name in names if name in given})
        super().__init__(head, **given)


_LINEAR = "feature_columns model_dir {} optimizer config partitioner warm_start_from loss_reduction sparse_combiner"
_DNN = ("hidden_units feature_columns model_dir {} optimizer activation_fn dropout input_layer_partitioner config "
        "warm_start_from loss_reduction batch_norm")  # fmt: skip
_COMBINED = ("model_dir linear_feature_columns linear_optimizer dnn_feature_columns dnn_optimizer dnn_hidden_units "
             "dnn_activation_fn dnn_dropout {} input_layer_partitioner config warm_start_from loss_reduction batch_norm "
             "linear_sparse_combiner")  # fmt: skip
_BASELINE = "model_dir {} optimizer config loss_reduction"
_CLASSES, _NUMBERS = "n_classes weight_column label_vocabulary", "label_dimension weight_column"


class LinearClassifier(_WithHead, LinearEstimator, head=_classes, order=_LINEAR.format(_CLASSES)):
    """:class:`LinearEstimator` with a classification head."""


class DNNClassifier(_WithHead, DNNEstimator, head=_classes, order=_DNN.format(_CLASSES)):
    """:class:`DNNEstimator` with a classification head."""


class DNNLinearCombinedClassifier(
    _WithHead, DNNLinearCombinedEstimator, head=_classes, order=_COMBINED.format(_CLASSES)
):
    """:class:`DNNLinearCombinedEstimator` with a classification head."""


class BaselineClassifier(_WithHead, BaselineEstimator, head=_classes, order=_BASELINE.format(_CLASSES)):
    """Learns the frequencies of the classes."""


class LinearRegressor(_WithHead, LinearEstimator, head=_numbers, order=_LINEAR.format(_NUMBERS)):
    """:class:`LinearEstimator` with a :class:`RegressionHead`."""


class DNNRegressor(_WithHead, DNNEstimator, head=_numbers, order=_DNN.format(_NUMBERS)):
    """:class:`DNNEstimator` with a :class:`RegressionHead`."""


class DNNLinearCombinedRegressor(
    _WithHead, DNNLinearCombinedEstimator, head=_numbers, order=_COMBINED.format(_NUMBERS)
):
    """:class:`DNNLinearCombinedEstimator` with a :class:`RegressionHead`."""


class BaselineRegressor(_WithHead, BaselineEstimator, head=_numbers, order=_BASELINE.format(_NUMBERS)):
    """Learns the mean of the labels."""

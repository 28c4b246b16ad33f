"""model_to_estimator: a compiled Keras model of ``tf_keras`` as an Estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras.src import backend
from tf_keras.src.optimizers import convert_to_legacy_optimizer
from tf_keras.src.optimizers.optimizer_v1 import TFOptimizer

from tpugraph.estimator.arguments import check_choice
from tpugraph.estimator.plain_estimator import Estimator
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.specs import EstimatorSpec, ModeKeys
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1
LOSS_BY_ROWS = "loss_by_rows"


def model_to_estimator(keras_model: Any = None, keras_model_path: str | os.PathLike[str] | None = None,
                       custom_objects: Mapping[str, Any] | None = None, model_dir: str | os.PathLike[str] | None = None,
                       config: RunConfig | None = None, checkpoint_format: str = "saver",
                       metric_names_map: Mapping[str, str] | None = None, *,
                       use_tpu: bool | None = None) -> KerasEstimator:  # fmt: skip
    """An Estimator that trains a copy of a Keras model, from its current weights, on this machine or on cores.

    Features are the model's inputs by name, or in order; predictions have the names of its outputs.

    Args:
        keras_model: a compiled functional or sequential model of ``tf_keras``.
        keras_model_path: the file of such a model, instead.
        custom_objects: classes and functions of the model's configuration, by name.
        model_dir: folder for checkpoints and event files; that of ``config``, else a temporary one.
        config: a :class:`RunConfig`.
        checkpoint_format: ``saver``: checkpoints have the names of variables.
        metric_names_map: renames metrics.
        use_tpu: whether to train on cores; see :class:`Estimator`.

    Raises:
        ArgumentError: not one of model and path, a model that is not compiled, or one that cannot be copied (a ``ValueError``).
        ArgumentTypeError: no model of ``tf_keras`` (a ``TypeError``).
    """
    if (keras_model is None) == (keras_model_path is None):
        raise ArgumentError("Either `keras_model` or `keras_model_path` needs to be provided.", fix="give one of them")
    check_choice("checkpoint_format", checkpoint_format, ("saver",), why="as TensorFlow 1.15 wrote them")
    with tf_keras.utils.custom_object_scope(custom_objects or {}):
        model = keras_model if keras_model_path is None else tf_keras.models.load_model(os.fspath(keras_model_path))
        _check(model)
        copied = CopiedModel(model, dict(custom_objects or {}), dict(metric_names_map or {}))
    return KerasEstimator(copied, model_dir, config, use_tpu=use_tpu)


class KerasEstimator(Estimator):
    def __init__(self, copied: CopiedModel, model_dir: Any, config: RunConfig | None, *, use_tpu: bool | None) -> None:
        super().__init__(copied.model_fn, model_dir, config, use_tpu=use_tpu)
        self.copied = copied


def _check(model: Any) -> None:
    if not isinstance(model, tf_keras.Model):
        raise ArgumentTypeError(f"keras_model must be a model of tf_keras, but is {model!r}",
                                fix="build it with tf_keras, which is Keras 2")  # fmt: skip
    if not getattr(model, "optimizer", None):
        raise ArgumentError("The given keras model has not been compiled yet.", fix="model.compile(optimizer, loss)")
    if not model._is_graph_network:
        raise ArgumentError("keras_model is a class of its own, or has no shape yet, and cannot be copied",
                            fix="a functional model, or a model_fn of your own")  # fmt: skip


class CopiedModel:
    """Copies a Keras model into the graphs of an estimator; reads it once, outside of these graphs.

    Attributes:
        by_rows: adds the metric ``LOSS_BY_ROWS``: the mean loss of examples, as Keras computes it, where an Estimator's is the
            mean of batches.
        metric_names: ``loss`` and the metrics, in the order of the model, once a copy was made for evaluation.
        weight_names: the variables of the last copy, in the order of the model's weights.
    """

    def __init__(self, model: Any, custom_objects: dict[str, Any], names: dict[str, str]) -> None:
        self._model = model
        self.by_rows = False
        self.metric_names: list[str] = []
        self.weight_names: list[str] = []
        self._rate: Any = None
        self._objects = custom_objects
        self._names = names
        self._weights = model.get_weights()
        self._optimizer = _maker(model.optimizer)
        self._compiled = {key: value for key, value in model._get_compile_args().items() if key != "optimizer"}

    def model_fn(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        with _same_classes(), tf_keras.utils.custom_object_scope(self._objects):
            return self._made(features, labels, mode)

    def _made(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        backend.deprecated_internal_set_learning_phase(mode == ModeKeys.TRAIN)
        given = _in_order(features, self._model.input_names, "features")
        inputs = [tf.cast(tensor, own.dtype) for tensor, own in zip(given, self._model.inputs, strict=True)]
        copy = tf_keras.models.clone_model(self._model, input_tensors=inputs)
        self.weight_names = [variable.op.name for variable in copy.weights]
        scaffold = tf1.train.Scaffold(init_fn=self._first_values(copy))
        predictions = dict(zip(self._model.output_names, copy.outputs, strict=True))
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions, scaffold=scaffold)
        targets = _in_order(labels, self._model.output_names, "labels")
        copy.compile(made := self._optimizer(), **self._compiled, target_tensors=targets)
        if mode == ModeKeys.EVAL:
            self.metric_names = list(copy.metrics_names)
            metrics = {self._names.get(metric.name, metric.name): metric for metric in copy.metrics}
            if self.by_rows:
                metrics[LOSS_BY_ROWS] = tf1.metrics.mean(copy.total_loss, tf.cast(tf.shape(inputs[0])[0], tf.float32))
            return EstimatorSpec(mode, predictions, copy.total_loss, eval_metric_ops=metrics, scaffold=scaffold)
        made.iterations = tf1.train.get_global_step()
        train_op = _train_op(copy)
        self._rate = getattr(made, "_hyper", {}).get("learning_rate")
        return EstimatorSpec(mode, predictions, copy.total_loss, train_op, scaffold=scaffold)

    def set_rate(self, session: Any, value: float) -> None:
        """Sets the learning rate of the copy that trains, where it is a variable."""
        if isinstance(self._rate, tf.Variable):
            session.run(self._rate.initializer, {self._rate.initializer.inputs[1]: value})

    def _first_values(self, copy: Any) -> Callable[[Any, Any], None]:
        initializers = [variable.initializer for variable in copy.weights]

        def init_fn(scaffold: Any, session: Any) -> None:
            fed = {op.inputs[1]: np.asarray(value) for op, value in zip(initializers, self._weights, strict=True)}
            session.run(initializers, feed_dict=fed)

        return init_fn


def _maker(optimizer: Any) -> Callable[[], Any]:
    """A function that makes the same optimizer in the current graph; those of TensorFlow belong to no graph."""
    if isinstance(optimizer, TFOptimizer):
        return lambda: TFOptimizer(optimizer.optimizer, iterations=tf1.train.get_global_step())
    if not isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        optimizer = convert_to_legacy_optimizer(optimizer)  # the only ones that make graphs
    kind, config = type(optimizer), optimizer.get_config()
    return lambda: kind.from_config(config)


@contextmanager
def _same_classes() -> Iterator[None]:
    """Restores the bases of layer classes, which Keras changes when layers are made in a graph."""
    kinds = reached((tf_keras.layers.Layer,), lambda kind: kind.__subclasses__())
    before = {kind: kind.__bases__ for kind in kinds}
    try:
        yield
    finally:
        for kind, bases in before.items():
            kind.__bases__ = bases


def _train_op(copy: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras warns of its own use of state_updates
        copy._make_train_function()
    return copy.train_function.updates_op


def _in_order(given: Any, names: list[str], what: str) -> list[Any]:
    found = given if isinstance(given, Mapping) else dict(zip(names, tf.nest.flatten(given), strict=False))
    missing = [name for name in names if name not in found]
    if missing:
        raise ArgumentError(f"the {what} of input_fn have no '{missing[0]}' of the Keras model, but {sorted(found)}",
                            fix="name them as the model's inputs and outputs are called")  # fmt: skip
    return [found[name] for name in names]

"""Heads: what is made of the logits of a model: a loss, predictions, metrics and answers of a served model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import one_of
from tpugraph.estimator.modes import ModeKeys
from tpugraph.estimator.specs import EstimatorSpec
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1
Reduction = tf1.losses.Reduction
_REDUCTIONS = (Reduction.SUM, Reduction.SUM_OVER_BATCH_SIZE, Reduction.MEAN, Reduction.SUM_BY_NONZERO_WEIGHTS,
               Reduction.SUM_OVER_NONZERO_WEIGHTS)  # fmt: skip
DEFAULT = tf1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
"""The key of the answer that a served model gives where none is asked for."""


class Head:
    """The end of a model, behind its logits ``[batch, logits_dimension]``.

    Args:
        weight_column: the key of the feature, or the numeric column, that weighs the rows; None weighs them alike.
        loss_reduction: how the losses of the rows combine, of ``tf.compat.v1.losses.Reduction``.
        name: a name; it is put behind those of the metrics.
    """

    logits_dimension = 1

    def __init__(self, weight_column: Any, loss_reduction: str, name: str | None) -> None:
        one_of("loss_reduction", loss_reduction, _REDUCTIONS)
        self._weight_column = weight_column
        self._reduction = loss_reduction
        self.name = name

    def losses_of(self, labels: Any, logits: Any) -> Any:
        """The loss of each row ``[batch, 1]``."""
        raise NotImplementedError

    def labels_of(self, labels: Any) -> Any:
        """The labels as the loss takes them."""
        raise NotImplementedError

    def predictions(self, logits: Any) -> dict[Any, Any]:
        """What the model predicts, by name."""
        raise NotImplementedError

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        """The metrics of this kind of head, by name."""
        raise NotImplementedError

    def export_outputs(self, predictions: dict[Any, Any]) -> dict[str, Any]:
        """What a served model answers."""
        raise NotImplementedError

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        trainable_variables: Any = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> EstimatorSpec:
        """The spec of a model with these logits.

        Args:
            features: those of the model function; they hold the weights of the rows.
            mode: a ModeKeys value.
            logits: ``[batch, logits_dimension]``.
            labels: those of the model function; None in PREDICT.
            optimizer: whose ``minimize`` makes the train op; or
            trainable_variables: what it trains; all when None.
            train_op_fn: a function of the loss that makes it.
            update_ops: ops that run with the train op.
            regularization_losses: numbers that are added to the loss.

        Raises:
            ArgumentError: in TRAIN, neither an optimizer nor a ``train_op_fn``, or both.
        """
        found = self.predictions(logits)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=found, export_outputs=self.export_outputs(found))
        loss, metrics = self.graded(features, mode, logits, labels, found)
        if regularization_losses:
            loss = loss + tf.add_n(list(regularization_losses))
        if mode == ModeKeys.EVAL:
            return EstimatorSpec(mode, predictions=found, loss=loss, eval_metric_ops=metrics)
        train_op = _train_op(loss, optimizer, train_op_fn, trainable_variables, update_ops)
        return EstimatorSpec(mode, predictions=found, loss=loss, train_op=train_op)

    def graded(
        self, features: Any, mode: str, logits: Any, labels: Any, predictions: dict[Any, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The loss of a batch, a number, and of EVAL the metrics by name, with the head's own name behind.

        Args:
            features: those of the model function.
            mode: TRAIN or EVAL.
            logits: ``[batch, logits_dimension]``.
            labels: those of the model function.
            predictions: what :meth:`predictions` makes of the logits.
        """
        labels = self.labels_of(column_of(labels))
        weights = self.weights_of(features)
        rows = self.losses_of(labels, logits)
        loss = tf1.losses.compute_weighted_loss(rows, weights=weights, reduction=self._reduction)
        if mode != ModeKeys.EVAL:
            return loss, {}
        metrics = {
            "average_loss": tf1.metrics.mean(rows, weights=weights),
            **self.metrics(labels, predictions, weights),
        }
        return loss, {f"{key}/{self.name}" if self.name else key: metric for key, metric in metrics.items()}

    def weights_of(self, features: Any) -> Any:
        """The weights of the rows ``[batch, 1]``; 1.0 where all weigh alike.

        Raises:
            ArgumentError: the features do not have the weight column.
        """
        if self._weight_column is None:
            return 1.0
        key = getattr(self._weight_column, "key", self._weight_column)
        if not isinstance(features, Mapping) or key not in features:
            raise ArgumentError(f"the features have no weight column '{key}'", fix="weight_column names a feature")
        return column_of(tf.cast(features[key], tf.float32))


def column_of(values: Any) -> Any:
    """``[batch]`` as ``[batch, 1]``; what has more dimensions stays."""
    if values is None:
        raise ArgumentError("You must provide a labels Tensor. Given: None", fix="input_fn returns (features, labels)")
    return tf.expand_dims(values, -1) if values.shape.rank == 1 else values


def _train_op(loss: Any, optimizer: Any, train_op_fn: Any, variables: Any, update_ops: Any) -> Any:
    if (optimizer is None) == (train_op_fn is None):
        raise ArgumentError("train_op_fn and optimizer cannot both be None, nor both be given", fix="give one of them")
    if train_op_fn is not None:
        train_op = train_op_fn(loss)
    else:
        train_op = optimizer.minimize(loss, global_step=tf1.train.get_global_step(), var_list=variables)
    return tf.group(train_op, *update_ops) if update_ops else train_op

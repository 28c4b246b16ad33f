"""Heads of models whose answers are numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpugraph.estimator.canned.heads import DEFAULT, Head, Reduction
from tpugraph.estimator.export_types import PredictOutput, RegressionOutput

tf1 = tf.compat.v1


class RegressionHead(Head):
    """The squared difference.

    Args:
        weight_column: see :class:`Head`.
        label_dimension: numbers per row.
        loss_reduction: see :class:`Head`.
        inverse_link_fn: what makes predictions of logits; nothing when None.
        name: see :class:`Head`.
    """

    def __init__(self, weight_column: Any = None, label_dimension: int = 1,
                 loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE, loss_fn: Any = None,
                 inverse_link_fn: Callable[[Any], Any] | None = None, name: str | None = None) -> None:  # fmt: skip
        super().__init__(weight_column, loss_reduction, name)
        self.logits_dimension = label_dimension
        self._loss_fn = loss_fn
        self._link = inverse_link_fn

    def labels_of(self, labels: Any) -> Any:
        """``[batch, label_dimension]`` of float32."""
        return tf.cast(labels, tf.float32)

    def losses_of(self, labels: Any, logits: Any) -> Any:
        """The squared difference, or what the loss function says."""
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        return tf.math.squared_difference(labels, logits)

    def predictions(self, logits: Any) -> dict[str, Any]:
        """The predictions, and the logits where they are something else."""
        if self._link is None:
            return {"predictions": logits}
        return {"predictions": self._link(logits), "logits": logits}

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        """Means of labels and predictions."""
        mean = tf1.metrics.mean
        return {
            "prediction/mean": mean(predictions["predictions"], weights=weights),
            "label/mean": mean(labels, weights=weights),
        }

    def export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        """The numbers, which is the default answer."""
        answer = RegressionOutput(predictions["predictions"])
        return {DEFAULT: answer, "regression": answer, "predict": PredictOutput(predictions)}


class LogisticRegressionHead(RegressionHead):
    """A regression of numbers from 0 to 1, by a sigmoid."""

    def __init__(self, weight_column: Any = None, loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE,
                 name: str | None = None) -> None:  # fmt: skip
        super().__init__(weight_column, 1, loss_reduction, tf.nn.sigmoid_cross_entropy_with_logits, tf.sigmoid, name)


class PoissonRegressionHead(RegressionHead):
    """A regression of counts, whose logarithm the model gives."""

    def __init__(self, weight_column: Any = None, label_dimension: int = 1,
                 loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE, compute_full_loss: bool = True,
                 name: str | None = None) -> None:  # fmt: skip

        def loss(labels: Any, logits: Any) -> Any:
            return tf.nn.log_poisson_loss(targets=labels, log_input=logits, compute_full_loss=compute_full_loss)

        super().__init__(weight_column, label_dimension, loss_reduction, loss, tf.exp, name)

"""Heads: what is made of the logits of a model: a loss, predictions, metrics and answers of a served model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import one_of
from tpugraph.estimator.export import ClassificationOutput, PredictOutput
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

    def predictions(self, logits: Any) -> dict[str, Any]:
        """What the model predicts, by name."""
        raise NotImplementedError

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        """The metrics of this kind of head, by name."""
        raise NotImplementedError

    def export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
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
        labels = self.labels_of(_column(labels))
        weights = self._weights(features)
        rows = self.losses_of(labels, logits)
        loss = tf1.losses.compute_weighted_loss(rows, weights=weights, reduction=self._reduction)
        if regularization_losses:
            loss = loss + tf.add_n(list(regularization_losses))
        if mode == ModeKeys.EVAL:
            metrics = {"average_loss": tf1.metrics.mean(rows, weights=weights), **self.metrics(labels, found, weights)}
            named = {f"{key}/{self.name}" if self.name else key: metric for key, metric in metrics.items()}
            return EstimatorSpec(mode, predictions=found, loss=loss, eval_metric_ops=named)
        train_op = _train_op(loss, optimizer, train_op_fn, trainable_variables, update_ops)
        return EstimatorSpec(mode, predictions=found, loss=loss, train_op=train_op)

    def _weights(self, features: Any) -> Any:
        if self._weight_column is None:
            return 1.0
        key = getattr(self._weight_column, "key", self._weight_column)
        if not isinstance(features, Mapping) or key not in features:
            raise ArgumentError(f"the features have no weight column '{key}'", fix="weight_column names a feature")
        return _column(tf.cast(features[key], tf.float32))


def _column(values: Any) -> Any:
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


class _ClassesHead(Head):
    """What heads of classes have in common: labels may be words, and the loss may be the user's."""

    def __init__(
        self, weight_column: Any, label_vocabulary: Any, loss_reduction: str, loss_fn: Any, name: str | None
    ) -> None:
        super().__init__(weight_column, loss_reduction, name)
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)
        self._loss_fn = loss_fn

    def _ids(self, labels: Any) -> Any:
        if self._vocabulary is None:
            return labels
        keys = tf.lookup.KeyValueTensorInitializer(self._vocabulary, tf.range(len(self._vocabulary), dtype=tf.int64))
        return tf.lookup.StaticHashTable(keys, -1).lookup(labels)

    def _classes(self, ids: Any) -> Any:
        if self._vocabulary is None:
            return tf.strings.as_string(ids)
        return tf.gather(tf.constant(self._vocabulary), ids)

    def export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        """Classes with their scores, which is the default answer, and all predictions."""
        scores = predictions["probabilities"]
        names = (
            [str(n) for n in range(int(scores.shape.as_list()[-1]))] if self._vocabulary is None else self._vocabulary
        )
        classes = tf.tile(tf.constant([names]), [tf.shape(scores)[0], 1])
        answer = ClassificationOutput(scores=scores, classes=classes)
        return {DEFAULT: answer, "classification": answer, "predict": PredictOutput(predictions)}


class MultiClassHead(_ClassesHead):
    """Softmax cross entropy over more than two classes.

    Args:
        n_classes: how many.
        weight_column: see :class:`Head`.
        label_vocabulary: the words that labels are; whole numbers from 0 on when None.
        loss_reduction: see :class:`Head`.
        loss_fn: of labels and logits, in place of the cross entropy.
        name: see :class:`Head`.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        if n_classes is None or n_classes <= 2:
            raise ArgumentError(f"n_classes must be > 2: {n_classes}", fix="a head for two classes")
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self.logits_dimension = n_classes

    def labels_of(self, labels: Any) -> Any:
        """The numbers of the classes ``[batch, 1]``."""
        return tf.cast(self._ids(labels), tf.int64)

    def losses_of(self, labels: Any, logits: Any) -> Any:
        """Softmax cross entropy."""
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        return tf.expand_dims(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.squeeze(labels, -1), logits), -1)

    def predictions(self, logits: Any) -> dict[str, Any]:
        """Logits, probabilities, and the class that is most likely."""
        ids = tf.expand_dims(tf.argmax(logits, -1), -1)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_ids": ids,
            "classes": self._classes(ids),
        }

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        """The accuracy."""
        return {"accuracy": tf1.metrics.accuracy(labels, predictions["class_ids"], weights)}


class BinaryClassHead(_ClassesHead):
    """Sigmoid cross entropy over two classes.

    Args:
        weight_column: see :class:`Head`.
        thresholds: of the probability, for which accuracy, precision and recall are told besides.
        label_vocabulary: as that of :class:`MultiClassHead`.
        loss_reduction: see :class:`Head`.
        loss_fn: as that of :class:`MultiClassHead`.
        name: see :class:`Head`.
    """

    def __init__(
        self,
        weight_column: Any = None,
        thresholds: Sequence[float] | None = None,
        label_vocabulary: Any = None,
        loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._thresholds = tuple(thresholds or ())

    def labels_of(self, labels: Any) -> Any:
        """0.0 or 1.0 ``[batch, 1]``."""
        return tf.cast(self._ids(labels), tf.float32)

    def losses_of(self, labels: Any, logits: Any) -> Any:
        """Sigmoid cross entropy."""
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def predictions(self, logits: Any) -> dict[str, Any]:
        """Logits, the probability of class 1 and of both, and the class that is most likely."""
        both = tf.concat([tf.zeros_like(logits), logits], -1)
        ids = tf.expand_dims(tf.argmax(both, -1), -1)
        return {"logits": logits, "logistic": tf.sigmoid(logits), "probabilities": tf.nn.softmax(both), "class_ids": ids,
                "classes": self._classes(ids)}  # fmt: skip

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        """Accuracy, precision, recall, areas under curves, and means."""
        m, ids, logistic = tf1.metrics, predictions["class_ids"], predictions["logistic"]
        mean = m.mean(labels, weights=weights)
        found = {
            "accuracy": m.accuracy(labels, ids, weights),
            "precision": m.precision(labels, ids, weights),
            "recall": m.recall(labels, ids, weights),
            "prediction/mean": m.mean(logistic, weights=weights),
            "label/mean": mean,
            "accuracy_baseline": (tf.maximum(mean[0], 1 - mean[0]), mean[1]),
            "auc": m.auc(labels, logistic, weights),
            "auc_precision_recall": m.auc(
                labels, logistic, weights, curve="PR", summation_method="careful_interpolation"
            ),
        }
        for limit in self._thresholds:
            above = tf.cast(logistic > limit, tf.float32)
            found[f"accuracy/positive_threshold_{limit:g}"] = m.accuracy(labels, above, weights)
            found[f"precision/positive_threshold_{limit:g}"] = m.precision(labels, above, weights)
            found[f"recall/positive_threshold_{limit:g}"] = m.recall(labels, above, weights)
        return found


class MultiLabelHead(_ClassesHead):
    """Sigmoid cross entropy of classes of which a row may have several.

    Args:
        n_classes: how many.
        weight_column: see :class:`Head`.
        thresholds: not used.
        label_vocabulary: only None: labels are rows of 0 and 1.
        loss_reduction: see :class:`Head`.
        loss_fn: of labels and logits, in place of the cross entropy.
        name: see :class:`Head`.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        thresholds: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: Any = None,
        classes_for_class_based_metrics: Any = None,
        name: str | None = None,
    ) -> None:
        del thresholds, classes_for_class_based_metrics
        if label_vocabulary is not None:
            raise ArgumentError("label_vocabulary of a MultiLabelHead is not supported", fix="labels of 0 and 1")
        super().__init__(weight_column, None, loss_reduction, loss_fn, name)
        self.logits_dimension = n_classes

    def labels_of(self, labels: Any) -> Any:
        """0.0 or 1.0 ``[batch, n_classes]``."""
        return tf.cast(labels, tf.float32)

    def losses_of(self, labels: Any, logits: Any) -> Any:
        """The mean over the classes of the sigmoid cross entropy."""
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(each, -1, keepdims=True)

    def predictions(self, logits: Any) -> dict[str, Any]:
        """Logits, and the probability of each class."""
        return {"logits": logits, "probabilities": tf.sigmoid(logits)}

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        """Areas under curves."""
        m, found = tf1.metrics, predictions["probabilities"]
        return {"auc": m.auc(labels, found, weights),
                "auc_precision_recall": m.auc(labels, found, weights, curve="PR",
                                              summation_method="careful_interpolation")}  # fmt: skip


def classification_head(n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str) -> Head:
    """The head of a canned classifier."""
    if n_classes == 2:
        return BinaryClassHead(weight_column, None, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)

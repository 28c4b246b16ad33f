"""Heads of classes: several of which a row has one, two, or several of which a row may have several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.canned.heads import DEFAULT, Head, Reduction
from tpugraph.estimator.export_types import ClassificationOutput, PredictOutput
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1


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

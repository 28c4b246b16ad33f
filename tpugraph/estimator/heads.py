"""Heads of ``tf.estimator``: loss, predictions, metrics and export outputs of a model's logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model.model_utils.export_output import (
    ClassificationOutput,
    PredictOutput,
    RegressionOutput,
)

from tpugraph.estimator.arguments import check_choice
from tpugraph.estimator.exporting import DEFAULT
from tpugraph.estimator.specs import EstimatorSpec, ModeKeys
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1

Reduction = tf1.losses.Reduction
_REDUCTIONS = (Reduction.SUM, Reduction.SUM_OVER_BATCH_SIZE, Reduction.MEAN, Reduction.SUM_BY_NONZERO_WEIGHTS,
               Reduction.SUM_OVER_NONZERO_WEIGHTS)  # fmt: skip


class Head:
    """A head over logits ``[batch, logits_dimension]``.

    Args:
        weight_column: key of the feature (or a numeric column) with the example weights; None weighs all alike.
        loss_reduction: of ``tf.compat.v1.losses.Reduction``.
        name: suffix of the metrics' names.
    """

    logits_dimension = 1
    label_dimension = 1  # the last dimension of the labels

    # what a kind of head is made of
    labels_of: Callable[[Any], Any]  # labels as the loss takes them
    losses_of: Callable[..., Any]  # the loss of each example [batch, 1], of labels and logits
    predictions: Callable[[Any], dict[Any, Any]]  # of logits
    # of labels, predictions and weights; without average_loss
    metrics: Callable[[Any, dict[Any, Any], Any], dict[str, Any]]
    export_outputs: Callable[[dict[Any, Any]], dict[str, Any]]  # of predictions

    def __init__(self, weight_column: Any, loss_reduction: str, name: str | None, loss_fn: Any = None) -> None:
        check_choice("loss_reduction", loss_reduction, _REDUCTIONS)
        self._loss_fn = loss_fn
        self._weight_column = weight_column
        self._reduction = loss_reduction
        self.name = name

    def create_estimator_spec(self, features: Any, mode: str, logits: Any, labels: Any = None, optimizer: Any = None,
                              trainable_variables: Any = None, train_op_fn: Callable[[Any], Any] | None = None,
                              update_ops: Sequence[Any] | None = None,
                              regularization_losses: Sequence[Any] | None = None) -> EstimatorSpec:  # fmt: skip
        """The EstimatorSpec of a model with these logits.

        Args:
            features: of the model function; they hold the example weights.
            optimizer, trainable_variables: ``minimize`` over these variables (all when None) makes the train op; or
            train_op_fn: a function of the loss makes it.
            update_ops: ops that run with the train op.
            regularization_losses: added to the loss.

        Raises:
            ArgumentError: in TRAIN, neither or both of ``optimizer`` and ``train_op_fn``.
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
        """The reduced loss, and in EVAL the metrics, whose names end in the head's name."""
        labels = self.labels_of(_matching(column_of(labels), logits, self.logits_dimension, self.label_dimension))
        weights = self.weights_of(features)
        losses_of = self.losses_of if self._loss_fn is None else self._loss_fn
        rows = losses_of(labels=labels, logits=logits)
        loss = tf1.losses.compute_weighted_loss(rows, weights=weights, reduction=self._reduction)
        if mode != ModeKeys.EVAL:
            return loss, {}
        metrics = {
            "average_loss": tf1.metrics.mean(rows, weights=weights),
            **self.metrics(labels, predictions, weights),
        }
        return loss, {f"{key}/{self.name}" if self.name else key: metric for key, metric in metrics.items()}

    def weights_of(self, features: Any) -> Any:
        """The example weights ``[batch, 1]``; 1.0 without a weight column."""
        if self._weight_column is None:
            return 1.0
        key = getattr(self._weight_column, "key", self._weight_column)
        if not isinstance(features, Mapping) or key not in features:
            raise ArgumentError(f"the features have no weight column '{key}'", fix="weight_column names a feature")
        return column_of(tf.cast(features[key], tf.float32))


def column_of(values: Any) -> Any:
    """Expands ``[batch]`` to ``[batch, 1]``; higher ranks stay."""
    if values is None:
        raise ArgumentError("You must provide a labels Tensor. Given: None", fix="input_fn returns (features, labels)")
    return tf.expand_dims(values, -1) if values.shape.rank == 1 else values


def _matching(labels: Any, logits: Any, logits_dimension: int, label_dimension: int) -> Any:
    """Checks that labels have the rows of the logits and the right last dimension; at run time where shapes are open."""
    if logits.shape.rank is not None and not logits.shape[-1:].is_compatible_with([logits_dimension]):
        raise ArgumentError(f"logits of shape {logits.shape} have not {logits_dimension} columns",
                            fix="as many units in the last layer as the head's logits_dimension")  # fmt: skip
    if not labels.shape.is_compatible_with(wanted := logits.shape[:-1].concatenate(label_dimension)):
        raise ArgumentError(f"Mismatched label shape: the labels have {labels.shape}, and the head takes {wanted}",
                            fix="a label for each row; one-hot labels of classes are given as their numbers (tf.argmax)")  # fmt: skip
    if labels.shape.is_fully_defined() and logits.shape.is_fully_defined():
        return labels
    shape = tf.concat([tf.shape(logits)[:-1], [label_dimension]], 0)
    with tf.control_dependencies(
        [tf1.assert_equal(tf.shape(labels), shape, message=f"labels shape must be [..., {label_dimension}]")]
    ):
        return tf.identity(labels)


def _in_range(labels: Any, classes: int, message: str | None = None) -> Any:
    with tf1.name_scope("assert_range"):
        most, above = tf.cast(classes - 1, labels.dtype), f"Labels must <= n_classes - 1 = {classes - 1}"
        checks = [tf1.assert_less_equal(labels, most, message=message or above),
                  tf1.assert_non_negative(labels, message=message or "Labels must >= 0")]  # fmt: skip
    with tf.control_dependencies(checks):
        return tf.identity(labels)


def _train_op(loss: Any, optimizer: Any, train_op_fn: Any, variables: Any, update_ops: Any) -> Any:
    if (optimizer is None) == (train_op_fn is None):
        raise ArgumentError("train_op_fn and optimizer cannot both be None, nor both be given", fix="give one of them")
    if train_op_fn is not None:
        train_op = train_op_fn(loss)
    else:
        train_op = optimizer.minimize(loss, global_step=tf1.train.get_global_step(), var_list=variables)
    return tf.group(train_op, *update_ops) if update_ops else train_op


class _ClassesHead(Head):
    def __init__(
        self, weight_column: Any, label_vocabulary: Any, loss_reduction: str, loss_fn: Any, name: str | None
    ) -> None:
        super().__init__(weight_column, loss_reduction, name, loss_fn)
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)

    def _ids(self, labels: Any) -> Any:
        if self._vocabulary is None:
            return labels
        if labels.dtype != tf.string and isinstance(self._vocabulary[0], str):
            raise ArgumentError(f"Labels dtype should be string if there is a vocabulary. Instead got {labels.dtype}.",
                                fix="the labels as text, or no label_vocabulary")  # fmt: skip
        keys = tf.lookup.KeyValueTensorInitializer(self._vocabulary, tf.range(len(self._vocabulary), dtype=tf.int64))
        return tf.lookup.StaticHashTable(keys, -1).lookup(labels)

    def _classes(self, ids: Any) -> Any:
        if self._vocabulary is None:
            return tf.strings.as_string(ids)
        return tf.gather(tf.constant(self._vocabulary), ids)

    def export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        scores = predictions["probabilities"]
        names = self._vocabulary or [str(n) for n in range(int(scores.shape.as_list()[-1]))]
        classes = tf.tile(tf.constant([names]), [tf.shape(scores)[0], 1])
        answer = ClassificationOutput(scores=scores, classes=classes)
        return {DEFAULT: answer, "classification": answer, "predict": PredictOutput(predictions)}


class MultiClassHead(_ClassesHead):
    """Softmax cross entropy over more than two classes.

    Args:
        n_classes: number of classes.
        weight_column, loss_reduction, name: see :class:`Head`.
        label_vocabulary: the label strings; labels are ids from 0 on when None.
        loss_fn: ``loss_fn(labels=, logits=)`` replaces the cross entropy.
    """

    def __init__(self, n_classes: int, weight_column: Any = None, label_vocabulary: Any = None,
                 loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE, loss_fn: Any = None,
                 name: str | None = None) -> None:  # fmt: skip
        if n_classes is None or n_classes <= 2:
            raise ArgumentError(f"n_classes must be > 2: {n_classes}", fix="a head for two classes")
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self.logits_dimension = n_classes

    def labels_of(self, labels: Any) -> Any:
        ids = self._ids(labels)
        if not ids.dtype.is_integer:
            raise ArgumentError(f"Labels dtype should be integer. Instead got {ids.dtype}.",
                                fix="tf.cast(labels, tf.int64)")  # fmt: skip
        return _in_range(tf.cast(ids, tf.int64), self.logits_dimension)

    def losses_of(self, labels: Any, logits: Any) -> Any:
        return tf.expand_dims(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.squeeze(labels, -1), logits), -1)

    def predictions(self, logits: Any) -> dict[str, Any]:
        ids = tf.expand_dims(tf.argmax(logits, -1), -1)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_ids": ids,
            "classes": self._classes(ids),
        }

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        return {"accuracy": tf1.metrics.accuracy(labels, predictions["class_ids"], weights)}


class BinaryClassHead(_ClassesHead):
    """Sigmoid cross entropy over two classes; arguments as :class:`MultiClassHead`.

    ``thresholds`` adds accuracy, precision and recall at these probabilities.
    """

    def __init__(self, weight_column: Any = None, thresholds: Sequence[float] | None = None,
                 label_vocabulary: Any = None, loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE, loss_fn: Any = None,
                 name: str | None = None) -> None:  # fmt: skip
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._thresholds = tuple(thresholds or ())

    def labels_of(self, labels: Any) -> Any:
        return _in_range(tf.cast(self._ids(labels), tf.float32), 2)

    def losses_of(self, labels: Any, logits: Any) -> Any:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def predictions(self, logits: Any) -> dict[str, Any]:
        both = tf.concat([tf.zeros_like(logits), logits], -1)
        ids = tf.expand_dims(tf.argmax(both, -1), -1)
        return {"logits": logits, "logistic": tf.sigmoid(logits), "probabilities": tf.nn.softmax(both), "class_ids": ids,
                "classes": self._classes(ids)}  # fmt: skip

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        m, ids, logistic = tf1.metrics, predictions["class_ids"], predictions["logistic"]
        mean = m.mean(labels, weights=weights)
        answers = {"": ids}
        for limit in self._thresholds:
            answers[f"/positive_threshold_{limit:g}"] = tf.cast(logistic > limit, tf.float32)
        named = {"accuracy": m.accuracy, "precision": m.precision, "recall": m.recall}
        found = {f"{name}{at}": of(labels, a, weights) for at, a in answers.items() for name, of in named.items()}
        return {
            **found,
            "prediction/mean": m.mean(logistic, weights=weights),
            "label/mean": mean,
            "accuracy_baseline": (tf.maximum(mean[0], 1 - mean[0]), mean[1]),
            **_aucs(labels, logistic, weights),
        }


class MultiLabelHead(_ClassesHead):
    """Sigmoid cross entropy over ``n_classes`` independent classes; labels are rows of 0 and 1.

    Other arguments as :class:`MultiClassHead`; ``thresholds`` and ``classes_for_class_based_metrics`` are ignored.
    """

    def __init__(self, n_classes: int, weight_column: Any = None, thresholds: Any = None, label_vocabulary: Any = None,
                 loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE, loss_fn: Any = None,
                 classes_for_class_based_metrics: Any = None, name: str | None = None) -> None:  # fmt: skip
        del thresholds, classes_for_class_based_metrics
        if label_vocabulary is not None:
            raise ArgumentError("label_vocabulary of a MultiLabelHead is not supported", fix="labels of 0 and 1")
        super().__init__(weight_column, None, loss_reduction, loss_fn, name)
        self.logits_dimension = self.label_dimension = n_classes

    def labels_of(self, labels: Any) -> Any:
        return _in_range(tf.cast(labels, tf.float32), 2, "labels must be an indicator Tensor with values in [0, 1]")

    def losses_of(self, labels: Any, logits: Any) -> Any:
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(each, -1, keepdims=True)

    def predictions(self, logits: Any) -> dict[str, Any]:
        return {"logits": logits, "probabilities": tf.sigmoid(logits)}

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        return _aucs(labels, predictions["probabilities"], weights)


def _aucs(labels: Any, scores: Any, weights: Any) -> dict[str, Any]:
    auc = tf1.metrics.auc
    return {"auc": auc(labels, scores, weights), "auc_precision_recall": auc(
        labels, scores, weights, curve="PR", summation_method="careful_interpolation")}  # fmt: skip


class RegressionHead(Head):
    """Mean squared error; other arguments as :class:`MultiClassHead`.

    ``inverse_link_fn`` maps logits to predictions.
    """

    def __init__(self, weight_column: Any = None, label_dimension: int = 1,
                 loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE, loss_fn: Any = None,
                 inverse_link_fn: Callable[[Any], Any] | None = None, name: str | None = None) -> None:  # fmt: skip
        super().__init__(weight_column, loss_reduction, name, loss_fn)
        self.logits_dimension = self.label_dimension = label_dimension
        self._link = inverse_link_fn

    def labels_of(self, labels: Any) -> Any:
        return tf.cast(labels, tf.float32)

    def losses_of(self, labels: Any, logits: Any) -> Any:
        return tf.math.squared_difference(labels, logits)

    def predictions(self, logits: Any) -> dict[str, Any]:
        if self._link is None:
            return {"predictions": logits}
        return {"predictions": self._link(logits), "logits": logits}

    def metrics(self, labels: Any, predictions: dict[str, Any], weights: Any) -> dict[str, Any]:
        mean = tf1.metrics.mean
        return {"prediction/mean": mean(predictions["predictions"], weights=weights),
                "label/mean": mean(labels, weights=weights)}  # fmt: skip

    def export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        answer = RegressionOutput(predictions["predictions"])
        return {DEFAULT: answer, "regression": answer, "predict": PredictOutput(predictions)}


class LogisticRegressionHead(RegressionHead):
    """Regression of values between 0 and 1, through a sigmoid."""

    def __init__(self, weight_column: Any = None, loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE,
                 name: str | None = None) -> None:  # fmt: skip
        super().__init__(weight_column, 1, loss_reduction, tf.nn.sigmoid_cross_entropy_with_logits, tf.sigmoid, name)

    def labels_of(self, labels: Any) -> Any:
        return _in_range(super().labels_of(labels), 2, "Labels must be in range [0, 1]")


class PoissonRegressionHead(RegressionHead):
    """Regression of counts; the logits are their logarithm."""

    def __init__(self, weight_column: Any = None, label_dimension: int = 1,
                 loss_reduction: str = Reduction.SUM_OVER_BATCH_SIZE, compute_full_loss: bool = True,
                 name: str | None = None) -> None:  # fmt: skip

        def loss(labels: Any, logits: Any) -> Any:
            return tf.nn.log_poisson_loss(targets=labels, log_input=logits, compute_full_loss=compute_full_loss)

        super().__init__(weight_column, label_dimension, loss_reduction, loss, tf.exp, name)


class MultiHead(Head):
    """Several heads; their weighted losses are summed.

    Labels are a dict by head name; logits are such a dict, or one tensor with the heads' logits concatenated. Predictions are
    keyed ``(name, key)``.
    """

    def __init__(self, heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> None:
        if not heads:
            raise ArgumentError(f"Must specify heads. Given: {heads}", fix="MultiHead([head1, head2])")
        names = [head.name for head in heads]
        if not all(names):
            raise ArgumentError(f"All given heads must have name set. Given: {names}",
                                fix="a head with name='of its own'")  # fmt: skip
        if len(set(names)) < len(names):
            raise ArgumentError(f"All given heads must have unique names. Given: {names}",
                                fix="another name for one of them")  # fmt: skip
        if head_weights and len(head_weights) != len(heads):
            raise ArgumentError("heads and head_weights must have the same size. "
                                f"Given len(heads): {len(heads)}. Given len(head_weights): {len(head_weights)}.",
                                fix="a weight for each head")  # fmt: skip
        super().__init__(None, Reduction.SUM_OVER_BATCH_SIZE, "_".join(map(str, names)))
        self._heads = {str(head.name): head for head in heads}
        self._head_weights = list(head_weights or [1.0] * len(heads))
        self.logits_dimension = sum(head.logits_dimension for head in heads)

    def predictions(self, logits: Any) -> dict[Any, Any]:
        each = self._logits_of(logits)
        found = {name: head.predictions(each[name]) for name, head in self._heads.items()}
        return {(name, key): value for name, mine in found.items() for key, value in mine.items()}

    def graded(
        self, features: Any, mode: str, logits: Any, labels: Any, predictions: dict[Any, Any]
    ) -> tuple[Any, dict[str, Any]]:
        metrics: dict[str, Any] = {}
        each, total = self._logits_of(logits), []
        own = self._by_head(predictions)
        for (name, head), weight in zip(self._heads.items(), self._head_weights, strict=True):
            loss, found = head.graded(features, mode, each[name], self._of("labels", labels, name), own[name])
            total.append(weight * loss)
            if mode == ModeKeys.EVAL:
                metrics.update(found, **{f"loss/{name}": tf1.metrics.mean(loss)})
        return tf.add_n(total), metrics

    def export_outputs(self, predictions: dict[Any, Any]) -> dict[str, Any]:
        """Each head's outputs under ``name/key``, its default under ``name``; the first head's is the default signature."""
        answers: dict[str, Any] = {}
        for name, mine in self._by_head(predictions).items():
            for key, answer in self._heads[name].export_outputs(mine).items():
                answers[name if key == DEFAULT else f"{name}/{key}"] = answer
        return {DEFAULT: answers[next(iter(self._heads))], **answers, "predict": PredictOutput(predictions)}

    def _by_head(self, predictions: dict[Any, Any]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {name: {} for name in self._heads}
        for (name, key), value in predictions.items():
            found[name][key] = value
        return found

    def _logits_of(self, logits: Any) -> dict[str, Any]:
        if isinstance(logits, Mapping):
            return {name: self._of("logits", logits, name) for name in self._heads}
        sizes = [head.logits_dimension for head in self._heads.values()]
        width = logits.shape.as_list()[-1]
        if width != sum(sizes):
            raise ArgumentError(f"the logits have {width} columns, and the heads take {sum(sizes)}: {sizes}",
                                fix="as many units as MultiHead(...).logits_dimension")  # fmt: skip
        return dict(zip(self._heads, tf.split(logits, sizes, -1), strict=True))

    def _of(self, what: str, given: Any, name: str) -> Any:
        if not isinstance(given, Mapping) or name not in given:
            raise ArgumentError(f"{what} of the head '{name}' are missing; there are {sorted(given) if given else None}",
                                fix=f"{what} as a dict by the names of the heads")  # fmt: skip
        return given[name]

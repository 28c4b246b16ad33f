"""The canned classifiers of ``tf.estimator``, with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.canned.canned_models import (
    BaselineEstimator,
    DNNEstimator,
    DNNLinearCombinedEstimator,
    LinearEstimator,
)
from tpugraph.estimator.canned.class_heads import classification_head
from tpugraph.estimator.canned.heads import Reduction


class LinearClassifier(LinearEstimator):
    """A linear model of ``n_classes`` classes; see :class:`LinearEstimator` and the heads for the arguments."""

    def __init__(self, feature_columns: Collection[Any], model_dir: Any = None, n_classes: int = 2, weight_column: Any = None,
                 label_vocabulary: Any = None, optimizer: Any = "Ftrl", config: Any = None, partitioner: Any = None,
                 warm_start_from: Any = None, loss_reduction: str = Reduction.SUM, sparse_combiner: str = "sum") -> None:  # fmt: skip
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(
            head, feature_columns, model_dir, optimizer, config, partitioner, sparse_combiner, warm_start_from
        )


class DNNClassifier(DNNEstimator):
    """Fully connected layers for ``n_classes`` classes; see :class:`DNNEstimator` and the heads for the arguments."""

    def __init__(self, hidden_units: Sequence[int], feature_columns: Collection[Any], model_dir: Any = None, n_classes: int = 2,
                 weight_column: Any = None, label_vocabulary: Any = None, optimizer: Any = "Adagrad",
                 activation_fn: Callable[[Any], Any] = tf.nn.relu, dropout: float | None = None,
                 input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
                 loss_reduction: str = Reduction.SUM, batch_norm: bool = False) -> None:  # fmt: skip
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, hidden_units, feature_columns, model_dir, optimizer, activation_fn, dropout,
                         input_layer_partitioner, config, warm_start_from, batch_norm)  # fmt: skip


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """Wide and deep for ``n_classes`` classes; see :class:`DNNLinearCombinedEstimator` and the heads for the arguments."""

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
    """The shares of ``n_classes`` classes; see :class:`BaselineEstimator` and the heads for the arguments."""

    def __init__(self, model_dir: Any = None, n_classes: int = 2, weight_column: Any = None, label_vocabulary: Any = None,
                 optimizer: Any = "Ftrl", config: Any = None, loss_reduction: str = Reduction.SUM) -> None:  # fmt: skip
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, model_dir, optimizer, config)

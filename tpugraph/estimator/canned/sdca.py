"""LinearSDCA: trains a linear model by stochastic dual coordinate ascent, on this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import whole
from tpugraph.estimator.canned.heads import BinaryClassHead, Head, RegressionHead
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1

_LOSSES: tuple[tuple[type[Head], str], ...] = ((BinaryClassHead, "logistic_loss"), (RegressionHead, "squared_loss"))


class LinearSDCA:
    """The ``optimizer`` of a linear estimator of two classes or one number that keeps a dual variable for each example.

    It minimises the loss over all examples plus ``l2 / 2`` times the squared weights and ``l1`` times their absolute values.

    Args:
        example_id_column: key of the feature that names the examples, strings ``[batch]``.
        num_loss_partitions, num_table_shards: ignored: one machine trains.
        symmetric_l1_regularization, symmetric_l2_regularization: l1, at least 0, and l2, greater than 0.
        adaptive: whether examples of larger loss are taken more often.

    Raises:
        ArgumentError: a regularization out of its range (a ``ValueError``).
    """

    def __init__(
        self,
        example_id_column: str,
        num_loss_partitions: int = 1,
        num_table_shards: int | None = None,
        symmetric_l1_regularization: float = 0.0,
        symmetric_l2_regularization: float = 1.0,
        adaptive: bool = False,
    ) -> None:
        whole("num_loss_partitions", num_loss_partitions, least=1)
        del num_table_shards
        if symmetric_l1_regularization < 0:
            raise ArgumentError(
                f"symmetric_l1_regularization should be at least 0. Given: {symmetric_l1_regularization}"
            )
        if symmetric_l2_regularization <= 0:
            raise ArgumentError(f"symmetric_l2_regularization should be positive. Given: {symmetric_l2_regularization}")
        self._ids = example_id_column
        self._l1, self._l2, self._adaptive = symmetric_l1_regularization, symmetric_l2_regularization, adaptive

    def train_op(self, head: Head, features: Mapping[str, Any], labels: Any, variables: Mapping[Any, Any],
                 columns: Collection[Any]) -> Any:  # fmt: skip
        """The op of a step.

        Args:
            labels: as the head's loss takes them, ``[batch, 1]``.
            variables: the weights ``[size, 1]`` of each column, and of ``bias``.

        Raises:
            ArgumentError: another head, or no feature that names the examples (a ``ValueError``).
        """
        kind = next((name for cls, name in _LOSSES if isinstance(head, cls)), None)
        if kind is None or head.logits_dimension != 1:
            raise ArgumentError(f"LinearSDCA trains no {type(head).__name__} of {head.logits_dimension} logits",
                                fix="two classes or one number, or an optimizer that follows gradients")  # fmt: skip
        if self._ids not in features:
            raise ArgumentError(
                f"the features have no '{self._ids}', which names the examples", fix="add it in input_fn"
            )
        names = tf.reshape(features[self._ids], [-1])
        rows = tf.shape(names)[0]
        weights = [variables[column][0] for column in columns] + [variables["bias"][0]]
        dense = [tf1.feature_column.input_layer(features, [_as_dense(column)]) for column in columns] + [
            tf.ones([rows, 1])
        ]
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0] * 4, name="duals")
        raw = [tf1.get_variable(f"unshrunk_{i}", w.shape, initializer=tf1.zeros_initializer(), trainable=False)
               for i, w in enumerate(weights)]  # fmt: skip
        found = tf.raw_ops.SdcaOptimizerV2(
            sparse_example_indices=[], sparse_feature_indices=[], sparse_feature_values=[], sparse_indices=[],
            sparse_weights=[], dense_features=dense, dense_weights=[tf.identity(w) for w in raw],
            example_weights=tf.reshape(tf.ones([rows, 1]) * head.weights_of(features), [-1]),
            example_labels=tf.reshape(labels, [-1]), example_state_data=table.lookup(names), loss_type=kind, l1=self._l1,
            l2=self._l2, num_loss_partitions=1, num_inner_iterations=1, adaptive=self._adaptive,
        )  # fmt: skip
        moved = [w + delta for w, delta in zip(raw, found.out_delta_dense_weights, strict=True)]
        updates = [table.insert(names, found.out_example_state_data)]
        updates += [w.assign(value) for w, value in zip(raw, moved, strict=True)]
        updates += [w.assign(self._shrunk(value)) for w, value in zip(weights, moved, strict=True)]
        with tf.control_dependencies(updates):
            return tf1.assign_add(tf1.train.get_global_step(), 1).op

    def _shrunk(self, weights: Any) -> Any:
        """Soft thresholding by l1."""
        return tf.sign(weights) * tf.maximum(tf.abs(weights) - self._l1 / self._l2, 0.0)


def _as_dense(column: Any) -> Any:
    return column if hasattr(column, "variable_shape") else tf1.feature_column.indicator_column(column)

"""The lookups of an EmbeddingConfigSpec with tables by name: the model function gets rows of tables instead of ids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpugraph.estimator.embedding_configs import FeatureConfig, TableConfig
from tpugraph.estimator.embedding_spec import EmbeddingConfigSpec
from tpugraph.estimator.embedding_tables import Tables, tables_by_name
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


def with_lookups(spec: EmbeddingConfigSpec | None, tables: Tables, features: Any) -> Any:
    """The features that the model function gets; the tables that are made for it, which have names, join the others."""
    if spec is None or not spec.table_to_config_dict:
        return features
    variables = {name: _variable(name, table) for name, table in spec.table_to_config_dict.items()}
    tables.update(tables_by_name(spec, variables))
    return looked_up(spec, variables, features)


def _variable(name: str, table: TableConfig) -> Any:
    first = table.initializer or tf1.truncated_normal_initializer(stddev=1 / math.sqrt(table.dimension))
    return tf1.get_variable(
        name, [table.vocabulary_size, table.dimension], tf.float32, first, trainable=False, use_resource=True
    )


def looked_up(spec: EmbeddingConfigSpec, variables: Mapping[str, Any], features: Any) -> dict[str, Any]:
    """The features of a batch with rows of tables in the place of ids, and without the weights of ids.

    Args:
        spec: a spec with tables by name.
        variables: by the name of a table its variable, float32 [vocabulary_size, dimension].
        features: a dict; ids are a ``tf.SparseTensor`` [rows, any], or a tensor [rows] or [rows, ids of a row].

    Returns:
        By the feature's name float32 [rows, dimension]; [rows, max_sequence_length, dimension] for a sequence, with zeros behind
        its end.

    Raises:
        ArgumentTypeError: the features are no dict (a ``TypeError``).
        ArgumentError: a feature or its weights are not there (a ``ValueError``).
    """
    if not isinstance(features, Mapping):
        raise ArgumentTypeError(f"features are {features!r}, but embedding_config_spec names features of a dict")
    asked, tables = spec.feature_to_config_dict or {}, spec.table_to_config_dict or {}
    for name in [*asked, *(config.weight_key for config in asked.values() if config.weight_key is not None)]:
        if name not in features:
            raise ArgumentError(f"embedding_config_spec names the feature '{name}', which input_fn does not return",
                                fix=f"one of {', '.join(sorted(features))}")  # fmt: skip
    weights = {config.weight_key for config in asked.values()}
    found = {name: value for name, value in features.items() if name not in weights}
    for name, config in asked.items():
        with tf1.name_scope(f"{name}_lookup"):
            weight = None if config.weight_key is None else features[config.weight_key]
            found[name] = _rows(
                variables[config.table_id], tables[config.table_id].combiner, config, features[name], weight
            )
    return found


def _rows(table: Any, combiner: str | None, config: FeatureConfig, ids: Any, weights: Any) -> Any:
    if config.max_sequence_length:
        return _sequence(table, config.max_sequence_length, ids)
    if isinstance(ids, tf.SparseTensor):
        return tf.nn.safe_embedding_lookup_sparse([table], ids, weights, combiner)
    if ids.shape.rank == 1:
        ids = ids[:, tf.newaxis]
    if weights is None:
        weights = tf.ones_like(ids, tf.float32)
    rows, weights = tf.gather(table, ids), tf.reshape(tf.cast(weights, tf.float32), tf.shape(ids))
    total = tf.reduce_sum(rows * weights[:, :, tf.newaxis], 1)
    if combiner == "sum":
        return total
    by = tf.reduce_sum(weights, 1) if combiner == "mean" else tf.sqrt(tf.reduce_sum(tf.square(weights), 1))
    return tf.math.divide_no_nan(total, by[:, tf.newaxis])


def _sequence(table: Any, length: int, ids: Any) -> Any:
    """The rows of the first ids of each example, in order; zeros where it has fewer."""
    if isinstance(ids, tf.SparseTensor):
        ids = tf.sparse.to_dense(ids, default_value=-1)
    if ids.shape.rank == 1:
        ids = ids[:, tf.newaxis]
    rows, width = ids.shape.with_rank(2).as_list()
    if width is None or width < length:
        ids = tf.pad(ids, [[0, 0], [0, length]], constant_values=-1)
    ids = ids[:, :length]
    ids.set_shape([rows, length])
    there = tf.cast(ids >= 0, tf.float32)[:, :, tf.newaxis]
    return tf.gather(table, tf.maximum(ids, tf.zeros_like(ids))) * there

"""TableConfig and FeatureConfig: embedding tables by name, and the features that are looked up in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpugraph.estimator.arguments import number, one_of, whole
from tpugraph.support.errors import ArgumentError, ArgumentTypeError


@dataclass(frozen=True)
class TableConfig:
    """A table of embeddings.

    Attributes:
        vocabulary_size: rows of the table.
        dimension: numbers in a row.
        initializer: gives the first values; when None, a truncated normal with a deviation of ``1 / sqrt(dimension)``.
        combiner: how the rows of an example become one: ``mean``, ``sum`` or ``sqrtn``; None for tables of sequences alone.
        hot_id_replication: not used: every core has the whole table.
        learning_rate: of this table; that of the optimization parameters when None.
        learning_rate_fn: a function of the global step that gives the learning rate instead.
        optimization_parameters: how this table is trained; as the spec says when None.

    Raises:
        ArgumentError: a value that cannot be used (a ``ValueError``).
    """

    vocabulary_size: int
    dimension: int
    initializer: Callable[..., Any] | None = None
    combiner: str | None = "mean"
    hot_id_replication: bool = False
    learning_rate: float | None = None
    learning_rate_fn: Callable[[Any], Any] | None = None
    optimization_parameters: Any = None

    def __post_init__(self) -> None:
        whole("TableConfig vocabulary_size", self.vocabulary_size, least=1)
        whole("TableConfig dimension", self.dimension, least=1)
        one_of("TableConfig combiner", self.combiner, ("mean", "sum", "sqrtn", None))
        if self.initializer is not None and not callable(self.initializer):
            raise ArgumentError("initializer must be callable if specified.", fix="tf.constant_initializer(0.1)")
        if self.learning_rate is not None:
            number("TableConfig learning_rate", self.learning_rate)
            if self.learning_rate_fn is not None:
                raise ArgumentError("TableConfig has both learning_rate and learning_rate_fn", fix="give one")


@dataclass(frozen=True)
class FeatureConfig:
    """A feature whose ids are looked up in a table.

    Attributes:
        table_id: the table's name.
        max_sequence_length: how many ids of an example stay apart, in order; 0 where they are combined to one row.
        weight_key: the feature that has a weight for each id; no weights when None.

    Raises:
        ArgumentError: a value that cannot be used (a ``ValueError``).
    """

    table_id: str
    max_sequence_length: int = 0
    weight_key: str | None = None

    def __post_init__(self) -> None:
        whole("FeatureConfig max_sequence_length", self.max_sequence_length, least=0)
        if self.max_sequence_length and self.weight_key is not None:
            raise ArgumentError(f"FeatureConfig: a sequence has no weights, but weight_key is '{self.weight_key}'",
                                fix="weight_key=None, and weigh the rows in the model")  # fmt: skip


def check_configs(features: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    """See that every feature has its table, and every table a feature.

    Raises:
        ArgumentTypeError: a value of another kind (a ``TypeError``).
        ArgumentError: a feature without a table, or a combiner that it needs (a ``ValueError``).
    """
    for name, table in tables.items():
        if not isinstance(table, TableConfig):
            raise ArgumentTypeError(f"Config for table {name} must be of type `TableConfig`. Got {type(table)}")
    for name, feature in features.items():
        if not isinstance(feature, FeatureConfig):
            raise ArgumentTypeError(f"Config for feature {name} must be of type `FeatureConfig`. Got {type(feature)}")
        if feature.table_id not in tables:
            raise ArgumentError(
                f"Feature {name} refers to table {feature.table_id} which is not in the table_to_config_dict.",
                fix=f"one of {', '.join(tables)}",
            )
        if not feature.max_sequence_length and tables[feature.table_id].combiner is None:
            raise ArgumentError(f"Feature {name} is no sequence, and table {feature.table_id} has no combiner",
                                fix="combiner='mean', or max_sequence_length")  # fmt: skip
    unused = tables.keys() - {feature.table_id for feature in features.values()}
    if unused:
        raise ArgumentError(f"table_to_config_dict specifies table {min(unused)} that is not used in "
                            "feature_to_config_dict.", fix="leave it out")  # fmt: skip

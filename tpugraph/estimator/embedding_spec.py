"""EmbeddingConfigSpec: the tables of a model that a TPU keeps apart, and how they are trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorflow.python.feature_column import feature_column as columns_v1
from tensorflow.python.feature_column import feature_column_v2 as columns_v2
from tensorflow.python.tpu import feature_column as tpu_columns

from tpugraph.estimator.arguments import number, one_of
from tpugraph.estimator.embedding_configs import check_configs
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

TPU_COLUMNS = (tpu_columns._TPUBaseEmbeddingColumn,)
"""The columns of ``tf.tpu.experimental.embedding_column`` and ``shared_embedding_columns``."""

_OTHERS = (
    columns_v1._NumericColumn,
    columns_v2.NumericColumn,
    columns_v1._EmbeddingColumn,
    columns_v2.EmbeddingColumn,
    columns_v1._SharedEmbeddingColumn,
)


@dataclass(frozen=True)
class TableParameters:
    """How the rows of tables are trained.

    Attributes:
        learning_rate: the learning rate, of the tables whose column has no function for it.
    """

    learning_rate: float

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The least and the greatest weight after an update; None where there is no limit."""
        return getattr(self, "clip_weight_min", None), getattr(self, "clip_weight_max", None)

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not callable(self.learning_rate):
            number(f"{name} learning_rate", self.learning_rate)
        least, most = self.limits
        for limit, value in (("clip_weight_min", least), ("clip_weight_max", most)):
            if value is not None:
                number(f"{name} {limit}", value, least=-math.inf)
        if least is not None and most is not None and least > most:
            raise ArgumentError(f"{name} clip_weight_min is {least}, but clip_weight_max is {most}")


@dataclass(frozen=True)
class StochasticGradientDescentParameters(TableParameters):
    """Plain gradient descent.

    Attributes:
        clip_weight_min: what a weight of a row is at least after its update; no limit when None.
        clip_weight_max: what it is at most.
    """

    clip_weight_min: float | None = None
    clip_weight_max: float | None = None


@dataclass(frozen=True)
class AdagradParameters(TableParameters):
    """Adagrad, on the rows that a batch has.

    Attributes:
        initial_accumulator: what the sums of squares begin with.
        use_gradient_accumulation: not used: gradients of a row are always summed first.
        clip_weight_min: what a weight of a row is at least after its update; no limit when None.
        clip_weight_max: what it is at most.
    """

    initial_accumulator: float = 0.1
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        number("AdagradParameters initial_accumulator", self.initial_accumulator, above=True)


@dataclass(frozen=True)
class AdamParameters(TableParameters):
    """Adam without a correction of its first steps, as a TPU computes it.

    Attributes:
        beta1: how much of the mean of gradients stays in a step.
        beta2: how much of the mean of their squares stays in a step.
        epsilon: what the divisor is at least.
        lazy_adam: whether the rows alone are touched that a batch has; False is refused.
        sum_inside_sqrt: whether epsilon is added, squared, under the root.
        use_gradient_accumulation: not used: gradients of a row are always summed first.
        clip_weight_min: what a weight of a row is at least after its update; no limit when None.
        clip_weight_max: what it is at most.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-08
    lazy_adam: bool = True
    sum_inside_sqrt: bool = True
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ArgumentError(f"AdamParameters {name} must be between 0. and 1; got {getattr(self, name)}")
        number("AdamParameters epsilon", self.epsilon, above=True)
        if not self.lazy_adam:
            raise ArgumentError("AdamParameters lazy_adam=False: every row would change in every step",
                                fix="lazy_adam=True, or a plain embedding column with the model's own optimizer")  # fmt: skip


@dataclass(frozen=True)
class EmbeddingConfigSpec:
    """The columns of a model that a TPU looks up in tables of its own, and how it trains these.

    On cores each table is a variable under the name that the plain column gives it; the model's own optimizer leaves it alone.
    With ``use_tpu=False`` the columns are plain ones, and the model's own optimizer trains them.

    Tables by name need no columns: the model function gets rows of them in the place of the ids of a feature, and each is a
    variable under its name, trained by the parameters here, on cores and with ``use_tpu=False``.

    Attributes:
        feature_columns: columns of ``tf.tpu.experimental.embedding_column`` and ``shared_embedding_columns``; all that the
            model uses. None where there are tables by name.
        optimization_parameters: how the tables are trained; may be None where each table by name says so itself.
        clipping_limit: not used, as in the original.
        pipeline_execution_with_tensor_core: not used: a step's tables are always those that the step before has left.
        experimental_gradient_multiplier_fn: a function of the global step that returns a factor for the tables' gradients.
        feature_to_config_dict: by the name of a feature its :class:`~tpugraph.FeatureConfig`.
        table_to_config_dict: by the name of a table its :class:`~tpugraph.TableConfig`.
        partition_strategy: ``div`` or ``mod``: how hosts share a table, which makes no difference to the result.
        profile_data_directory: not used.

    Raises:
        ArgumentError: neither columns nor tables, or parameters that cannot be used (a ``ValueError``).
        ArgumentTypeError: a column of another kind (a ``TypeError``).
    """

    feature_columns: Sequence[Any] | None = None
    optimization_parameters: Any = None
    clipping_limit: float | None = None
    pipeline_execution_with_tensor_core: bool = False
    experimental_gradient_multiplier_fn: Callable[[Any], Any] | None = None
    feature_to_config_dict: Mapping[str, Any] | None = None
    table_to_config_dict: Mapping[str, Any] | None = None
    partition_strategy: str = "div"
    profile_data_directory: str | None = None

    def __post_init__(self) -> None:
        by_name = bool(self.feature_to_config_dict and self.table_to_config_dict)
        if by_name == bool(self.feature_columns):
            raise ArgumentError(
                "Exactly one of `feature_columns` and the pair `feature_to_config_dict` and `table_to_config_dict` must be "
                "specified.",
                fix="feature_columns=[tf.tpu.experimental.embedding_column(...)]",
            )
        one_of("EmbeddingConfigSpec partition_strategy", self.partition_strategy, ("div", "mod"))
        for column in self.feature_columns or ():
            if not isinstance(column, (*TPU_COLUMNS, *_OTHERS)):
                raise ArgumentTypeError(
                    f"All feature columns must be supported types: embedding or numeric ones. Got {type(column)}"
                )
        if by_name:
            check_configs(self.feature_to_config_dict or {}, self.table_to_config_dict or {})
        for table in (self.table_to_config_dict or {"": self}).values():
            _check_parameters(table.optimization_parameters or self.optimization_parameters)

    def check_machine(self, *, on_cores: bool) -> None:
        """Refuse what the original cannot do on this machine.

        Raises:
            ArgumentError: tables are shared by ``mod``, and not all is on cores (a ``ValueError``).
        """
        if self.partition_strategy == "mod" and not on_cores:
            raise ArgumentError(
                "Mod sharding of embedding tables not supported on CPU.", fix="partition_strategy='div'"
            )

    def check_tables(self) -> None:
        """Refuse what has no table on cores.

        Raises:
            ArgumentTypeError: a plain column (a ``TypeError``).
            ArgumentError: two tables for one feature (a ``ValueError``).
        """
        features = set()
        for column in self.feature_columns or ():
            if not isinstance(column, TPU_COLUMNS):
                raise ArgumentTypeError(f"Unsupported feature column {type(column)} in embedding_config_spec with use_tpu=True",
                                        fix="tf.tpu.experimental.embedding_column, or leave it out of the spec")  # fmt: skip
            feature = column.get_feature_key_name()
            if feature in features:
                raise ArgumentError(
                    f"Feature column {feature} is used with multiple embeddings and this is not supported."
                )
            features.add(feature)


def _check_parameters(given: Any) -> None:
    if not isinstance(given, TableParameters):
        kinds = ", ".join(kind.__name__ for kind in TableParameters.__subclasses__())
        raise ArgumentError(f"optimization_parameters must be an instance of type {kinds}. Got {type(given)}.")

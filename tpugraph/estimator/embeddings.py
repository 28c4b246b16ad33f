"""EmbeddingConfigSpec: tables trained apart from the model's own optimizer, their lookups and their updates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.feature_column import feature_column as columns_v1
from tensorflow.python.feature_column import feature_column_v2 as columns_v2
from tensorflow.python.tpu import feature_column as tpu_columns

from tpugraph.estimator.arguments import check_choice, check_int, check_number
from tpugraph.estimator.host_call import order_before_step_update
from tpugraph.estimator.inputs import first_values
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


@dataclass(frozen=True)
class TableConfig:
    """An embedding table.

    Attributes:
        vocabulary_size: rows.
        dimension: columns.
        initializer: a truncated normal of deviation ``1 / sqrt(dimension)`` when None.
        combiner: ``mean``, ``sum`` or ``sqrtn``; None for tables of sequence features only.
        hot_id_replication: ignored: every core has the whole table.
        learning_rate: of this table; that of the optimization parameters when None.
        learning_rate_fn: a function of the global step, instead.
        optimization_parameters: those of the spec when None.
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
        check_int("TableConfig vocabulary_size", self.vocabulary_size, least=1)
        check_int("TableConfig dimension", self.dimension, least=1)
        check_choice("TableConfig combiner", self.combiner, ("mean", "sum", "sqrtn", None))
        if self.initializer is not None and not callable(self.initializer):
            raise ArgumentError("initializer must be callable if specified.", fix="tf.constant_initializer(0.1)")
        if self.learning_rate is not None:
            check_number("TableConfig learning_rate", self.learning_rate)
            if self.learning_rate_fn is not None:
                raise ArgumentError("TableConfig has both learning_rate and learning_rate_fn", fix="give one")


@dataclass(frozen=True)
class FeatureConfig:
    """A feature that is looked up in a table.

    Attributes:
        table_id: name of the table.
        max_sequence_length: of a sequence feature, whose embeddings are not combined; 0 for others.
        weight_key: the feature with a weight for each id.
    """

    table_id: str
    max_sequence_length: int = 0
    weight_key: str | None = None

    def __post_init__(self) -> None:
        check_int("FeatureConfig max_sequence_length", self.max_sequence_length, least=0)
        if self.max_sequence_length and self.weight_key is not None:
            raise ArgumentError(f"FeatureConfig: a sequence has no weights, but weight_key is '{self.weight_key}'",
                                fix="weight_key=None, and weigh the rows in the model")  # fmt: skip


def check_configs(features: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    """Checks that every feature has its table, with a combiner unless it is a sequence, and every table a feature."""
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


TPU_COLUMNS = (tpu_columns._TPUBaseEmbeddingColumn,)

_OTHERS = (
    columns_v1._NumericColumn,
    columns_v2.NumericColumn,
    columns_v1._EmbeddingColumn,
    columns_v2.EmbeddingColumn,
    columns_v1._SharedEmbeddingColumn,
)


@dataclass(frozen=True)
class TableParameters:
    learning_rate: float

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The smallest and largest weight after an update, or None."""
        return getattr(self, "clip_weight_min", None), getattr(self, "clip_weight_max", None)

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not callable(self.learning_rate):
            check_number(f"{name} learning_rate", self.learning_rate)
        least, most = self.limits
        for limit, value in (("clip_weight_min", least), ("clip_weight_max", most)):
            if value is not None:
                check_number(f"{name} {limit}", value, least=-math.inf)
        if least is not None and most is not None and least > most:
            raise ArgumentError(f"{name} clip_weight_min is {least}, but clip_weight_max is {most}")


@dataclass(frozen=True)
class StochasticGradientDescentParameters(TableParameters):
    """Plain gradient descent; weights are clipped to [clip_weight_min, clip_weight_max] after each update."""

    clip_weight_min: float | None = None
    clip_weight_max: float | None = None


@dataclass(frozen=True)
class AdagradParameters(TableParameters):
    """Adagrad on the rows of the batch; weights are clipped as in :class:`StochasticGradientDescentParameters`.

    ``use_gradient_accumulation`` is ignored: the gradients of a row are always summed first.
    """

    initial_accumulator: float = 0.1
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("AdagradParameters initial_accumulator", self.initial_accumulator, above=True)


@dataclass(frozen=True)
class AdamParameters(TableParameters):
    """Adam without bias correction, as on a TPU; clipped as :class:`StochasticGradientDescentParameters`.

    ``lazy_adam`` updates only the rows of the batch; False is refused. ``sum_inside_sqrt`` adds epsilon squared under the
    root. ``use_gradient_accumulation`` is ignored, as in :class:`AdagradParameters`.
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
        check_number("AdamParameters epsilon", self.epsilon, above=True)
        if not self.lazy_adam:
            raise ArgumentError("AdamParameters lazy_adam=False: every row would change in every step",
                                fix="lazy_adam=True, or a plain embedding column with the model's own optimizer")  # fmt: skip


@dataclass(frozen=True)
class EmbeddingConfigSpec:
    """The embedding tables of a model, and how they are trained.

    With ``feature_columns``, on cores each table is a variable named as the plain column names it, which the model's own
    optimizer leaves alone; with ``use_tpu=False`` the columns are plain ones. With tables by name, the model function gets
    embeddings in place of ids, and the parameters here train the tables, on cores and without.

    Attributes:
        feature_columns: all columns of the model made by ``tf.tpu.experimental.embedding_column`` or ``shared_embedding_columns``.
        optimization_parameters: optional where every table by name has its own.
        clipping_limit: ignored, as by ``tf.contrib.tpu``.
        pipeline_execution_with_tensor_core: ignored: no step reads stale tables.
        experimental_gradient_multiplier_fn: a function of the global step; its result scales the tables' gradients.
        feature_to_config_dict: feature name to :class:`~tpugraph.FeatureConfig`.
        table_to_config_dict: table name to :class:`~tpugraph.TableConfig`.
        partition_strategy: ``div`` or ``mod``; the results are the same.
        profile_data_directory: ignored.
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
        check_choice("EmbeddingConfigSpec partition_strategy", self.partition_strategy, ("div", "mod"))
        for column in self.feature_columns or ():
            if not isinstance(column, (*TPU_COLUMNS, *_OTHERS)):
                raise ArgumentTypeError(
                    f"All feature columns must be supported types: embedding or numeric ones. Got {type(column)}"
                )
        if by_name:
            check_configs(self.feature_to_config_dict or {}, self.table_to_config_dict or {})
        for table in (self.table_to_config_dict or {"": self}).values():
            given = table.optimization_parameters or self.optimization_parameters
            if not isinstance(given, TableParameters):
                kinds = ", ".join(kind.__name__ for kind in TableParameters.__subclasses__())
                raise ArgumentError(f"optimization_parameters must be an instance of type {kinds}. Got {type(given)}.")

    def check_machine(self, *, on_cores: bool) -> None:
        """Refuses ``mod`` off the cores, as ``tf.contrib.tpu`` does."""
        if self.partition_strategy == "mod" and not on_cores:
            raise ArgumentError("Mod sharding of embedding tables not supported on CPU.",
                                fix="partition_strategy='div'")  # fmt: skip

    def check_tables(self) -> None:
        """Refuses plain columns on cores, and two tables for one feature."""
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


@dataclass(frozen=True)
class Table:
    """A table of a traced model."""

    variable: Any  # its weights
    name: str  # of the column, of all columns that share it, or of its TableConfig
    parameters: TableParameters
    rate: Any  # a number, or a function of the global step


Tables = dict[str, Table]  # by the name of the variable


def active_spec(spec: EmbeddingConfigSpec | None, cores: int) -> EmbeddingConfigSpec | None:
    """The spec, where the model has separate tables: on cores, or by name."""
    return spec if spec is not None and (cores or spec.table_to_config_dict) else None


@contextmanager
def separate_tables(spec: EmbeddingConfigSpec | None) -> Iterator[Tables]:
    """Makes the tables of the spec's columns non-trainable variables; yields those that were made."""
    found: Tables = {}
    if spec is None:
        yield found
        return

    def create(next_creator: Any, **arguments: Any) -> Any:
        scope, name = tf1.get_default_graph().get_name_scope(), str(arguments.get("name") or "")
        column = _column_of(spec, f"{scope}/{name}" if scope else name)
        if column is None:
            return next_creator(**arguments)
        variable = next_creator(**{**arguments, "trainable": False})
        parameters = spec.optimization_parameters
        rate = column.get_learning_rate_fn() or parameters.learning_rate
        found[variable.op.name] = Table(variable, column.get_embedding_var_name(), parameters, rate)
        return variable

    with tf1.variable_creator_scope(create):
        yield found


def _column_of(spec: EmbeddingConfigSpec, name: str) -> Any:
    """The column whose table has this name: that of the column, or of all columns that share the table."""
    for column in spec.feature_columns or ():
        shared = column.get_embedding_var_name() != column.categorical_column.name
        table = column.get_embedding_var_name() if shared else f"{column.name}/embedding_weights"
        if re.fullmatch(rf"(.*/)?{re.escape(table)}", name):
            return column
    return None


def train_tables(spec: EmbeddingConfigSpec, tables: Tables, loss: Any, train_op: Any) -> Any:
    """Adds the updates of the tables to a train op."""
    made = {table.name for table in tables.values()}
    for column in spec.feature_columns or ():
        if column.get_embedding_var_name() not in made:
            raise ArgumentError(f"Embedding feature column did not capture any thing: model_fn does not use '{column.name}' of "
                                "embedding_config_spec", fix="give it to the layer that makes the features")  # fmt: skip
    step = tf1.train.get_global_step()
    multiplier = spec.experimental_gradient_multiplier_fn and spec.experimental_gradient_multiplier_fn(step)
    updates, made_of_step = [train_op], [] if multiplier is None else [tf.convert_to_tensor(multiplier, tf.float32)]
    scaled = loss if multiplier is None else loss * made_of_step[0]
    for table in tables.values():
        rate = table.rate
        if callable(rate):
            made_of_step.append(rate := tf.convert_to_tensor(rate(step), tf.float32))
        optimizer = _optimizer(table.parameters, rate)
        ((gradient, _),) = optimizer.compute_gradients(scaled, [table.variable])
        if gradient is not None:
            updates.append(_clipped(table, gradient, optimizer.apply_gradients([(gradient, table.variable)])))
    order_before_step_update(made_of_step)
    return tf.group(*updates)


def _clipped(table: Table, gradient: Any, update: Any) -> Any:
    least, most = table.parameters.limits
    if least is None and most is None:
        return update
    with tf.control_dependencies([update]):
        weights = table.variable.read_value()
    of_rows = isinstance(gradient, tf.IndexedSlices)
    found = tf.gather(weights, gradient.indices) if of_rows else weights
    found = found if least is None else tf.maximum(found, least)
    found = found if most is None else tf.minimum(found, most)
    if not of_rows:
        return table.variable.assign(found, read_value=False)
    return table.variable.scatter_update(tf.IndexedSlices(found, gradient.indices))


def _optimizer(parameters: TableParameters, rate: Any) -> Any:
    if isinstance(parameters, AdagradParameters):
        return tf1.train.AdagradOptimizer(rate, parameters.initial_accumulator)
    if isinstance(parameters, AdamParameters):
        return _Adam(parameters, rate)
    return tf1.train.GradientDescentOptimizer(rate)


class _Adam(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Lazy Adam, whose slots are called ``Adam/m`` and ``Adam/v``."""

    def __init__(self, parameters: AdamParameters, rate: Any) -> None:
        super().__init__(use_locking=False, name="Adam")
        self._parameters = parameters
        self._rate = rate

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            for slot in ("m", "v"):
                self._zeros_slot(variable, slot, f"Adam/{slot}")

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        given = self._parameters
        m, v = self.get_slot(handle, "m"), self.get_slot(handle, "v")
        mean = given.beta1 * tf.gather(m, indices) + (1 - given.beta1) * grad
        square = given.beta2 * tf.gather(v, indices) + (1 - given.beta2) * tf.square(grad)
        inside, outside = (given.epsilon**2, 0.0) if given.sum_inside_sqrt else (0.0, given.epsilon)
        divisor = tf.sqrt(square + inside) + outside
        return tf.group(
            m.scatter_update(tf.IndexedSlices(mean, indices)),
            v.scatter_update(tf.IndexedSlices(square, indices)),
            handle.scatter_sub(tf.IndexedSlices(self._rate * mean / divisor, indices)),
        )


def with_lookups(spec: EmbeddingConfigSpec | None, tables: Tables, features: Any) -> Any:
    """The features of the model function, embeddings of tables by name among them; adds these tables to ``tables``."""
    if spec is None or not spec.table_to_config_dict:
        return features
    variables = {}
    for name, config in spec.table_to_config_dict.items():
        first = config.initializer or tf1.truncated_normal_initializer(stddev=1 / math.sqrt(config.dimension))
        shape = [config.vocabulary_size, config.dimension]
        variable = tf1.get_variable(name, shape, tf.float32, first, trainable=False, use_resource=True)
        parameters = config.optimization_parameters or spec.optimization_parameters
        own = config.learning_rate_fn if config.learning_rate is None else config.learning_rate
        rate = parameters.learning_rate if own is None else own
        variables[name], tables[variable.op.name] = variable, Table(variable, name, parameters, rate)
    return embed(spec, variables, features)


def embed(spec: EmbeddingConfigSpec, variables: Mapping[str, Any], features: Any) -> dict[str, Any]:
    """Replaces ids, a ``tf.SparseTensor`` or a tensor [batch] or [batch, ids], by embeddings, and drops the weights of ids.

    Each is float32 [batch, dimension]; that of a sequence [batch, max_sequence_length, dimension], padded with zeros.
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


_MEASURED = 32  # batches that are read for their longest row


def room_for_ids(graph: Any, config: Any) -> tuple[int, int]:
    """The padded length of rows of ids, and the longest row of the first batches; zeros where shapes are static.

    Embeddings of a TPU take rows of any length; a compiled step has a fixed length, which only the input tells.
    """
    fills = [op for op in graph.get_operations() if op.type == "SparseFillEmptyRows"]
    lists = [op.inputs[0] for op in fills if None in (tf.get_static_value(op.inputs[2], partial=True) or [None])]
    if not lists:
        return 0, 0
    with graph.as_default():
        found, _ = first_values(lists, _MEASURED, config)
    longest = max((int(np.bincount(indices[:, 0]).max(initial=1)) for batch in found for indices in batch), default=1)
    return 2 ** math.ceil(math.log2(2 * longest)), longest

"""The tables of an EmbeddingConfigSpec on cores: variables that the model's own optimizer leaves alone, and their training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph.estimator.embedding_spec import AdagradParameters, AdamParameters, EmbeddingConfigSpec, TableParameters
from tpugraph.estimator.host_call import read_before_the_step
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1


@dataclass(frozen=True)
class Table:
    """A table of a model.

    Attributes:
        variable: its values.
        name: what the column, or all columns that share it, call it.
        parameters: how it is trained.
        rate: its learning rate: a number, or a function of the global step.
    """

    variable: Any
    name: str
    parameters: TableParameters
    rate: Any


Tables = dict[str, Table]
"""By the name of the variable."""


def in_use(spec: EmbeddingConfigSpec | None, cores: int) -> EmbeddingConfigSpec | None:
    """The spec where a model has tables of its own: on cores, and wherever they have names; else None."""
    return spec if spec is not None and (cores or spec.table_to_config_dict) else None


def tables_by_name(spec: EmbeddingConfigSpec, variables: Mapping[str, Any]) -> Tables:
    """The tables of a spec that has them by name, with their variables."""
    found = {}
    for name, config in (spec.table_to_config_dict or {}).items():
        parameters = config.optimization_parameters or spec.optimization_parameters
        own = config.learning_rate_fn if config.learning_rate is None else config.learning_rate
        rate = parameters.learning_rate if own is None else own
        found[variables[name].op.name] = Table(variables[name], name, parameters, rate)
    return found


@contextmanager
def kept_apart(spec: EmbeddingConfigSpec | None) -> Iterator[Tables]:
    """Within the block the tables of a spec become variables that are not trainable; yields those that were made."""
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
    """The column whose table is called so: after the column, or after all columns that share it; None where there is none."""
    for column in spec.feature_columns or ():
        shared = column.get_embedding_var_name() != column.categorical_column.name
        table = column.get_embedding_var_name() if shared else f"{column.name}/embedding_weights"
        if re.fullmatch(rf"(.*/)?{re.escape(table)}", name):
            return column
    return None


def train_tables(spec: EmbeddingConfigSpec, tables: Tables, loss: Any, train_op: Any) -> Any:
    """A train op that trains the tables as well, by the raw gradients of the loss.

    Raises:
        ArgumentError: the model does not use a column (a ``ValueError``).
    """
    made = {table.name for table in tables.values()}
    for column in spec.feature_columns or ():
        if column.get_embedding_var_name() not in made:
            raise ArgumentError(f"Embedding feature column did not capture any thing: model_fn does not use '{column.name}' of "
                                "embedding_config_spec", fix="give it to the layer that makes the features")  # fmt: skip
    step = tf1.train.get_global_step()
    multiplier = spec.experimental_gradient_multiplier_fn and spec.experimental_gradient_multiplier_fn(step)
    updates, made_of_step = [train_op], [] if multiplier is None else [tf.convert_to_tensor(multiplier, tf.float32)]
    for table in tables.values():
        rate = table.rate
        if callable(rate):
            made_of_step.append(rate := tf.convert_to_tensor(rate(step), tf.float32))
        optimizer = _optimizer(table.parameters, rate)
        ((gradient, _),) = optimizer.compute_gradients(loss, [table.variable])
        if gradient is not None:
            scaled = gradient if multiplier is None else _times(gradient, made_of_step[0])
            updates.append(_clipped(table, gradient, optimizer.apply_gradients([(scaled, table.variable)])))
    read_before_the_step(made_of_step)
    return tf.group(*updates)


def _clipped(table: Table, gradient: Any, update: Any) -> Any:
    """An update, after which the weights of the rows that it changed are between the limits."""
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


def _times(gradient: Any, factor: Any) -> Any:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient * factor
    return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)


def _optimizer(parameters: TableParameters, rate: Any) -> Any:
    if isinstance(parameters, AdagradParameters):
        return tf1.train.AdagradOptimizer(rate, parameters.initial_accumulator)
    if isinstance(parameters, AdamParameters):
        return _Adam(parameters, rate)
    return tf1.train.GradientDescentOptimizer(rate)


class _Adam(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Adam of the rows that a batch has; its slots are called ``Adam/m`` and ``Adam/v``."""

    def __init__(self, parameters: AdamParameters, rate: Any) -> None:
        super().__init__(use_locking=False, name="Adam")
        self._parameters = parameters
        self._rate = rate

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            for slot in ("m", "v"):
                self._zeros_slot(variable, slot, f"Adam/{slot}")

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        """Update rows, each of which is there once."""
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

"""TensorFlow's own collectives in a model function that is traced as one replica of several, or as the only one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import feature_column, feature_column_v2, tpu_function


@contextmanager
def replicas(count: int) -> Iterator[None]:
    """Within the block a model is traced as one of so many replicas.

    ``get_tpu_context().number_of_shards`` says how many; of one, ``cross_replica_sum`` gives its operand back, and
    ``xla.replica_id`` is 0. Columns of ``tf.tpu.experimental`` look up variables of the model, as without a TPU.
    """
    with ExitStack() as stack:
        stack.enter_context(tpu_function.tpu_shard_context(count))
        for module in (feature_column, feature_column_v2):
            stack.enter_context(_replaced(module, "_is_running_on_cpu", lambda: True))
        if count == 1:
            # every public name of the sum calls this one
            stack.enter_context(_replaced(gen_tpu_ops, "cross_replica_sum", _same))
            stack.enter_context(_replaced(xla, "replica_id", _first))
        yield


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Within the block an attribute is another function."""
    before = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _first(name: str | None = None) -> Any:
    return tf.constant(0, name=name or "replica_id")


def _same(x: Any, group_assignment: Any = None, name: Any = None) -> Any:
    del group_assignment
    return tf.identity(x, name=name)

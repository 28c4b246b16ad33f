"""TensorFlow's own CrossShardOptimizer and cross_replica_sum in a model function: the compiler reduces, so they do nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import feature_column, feature_column_v2, tpu_function, tpu_optimizer

from tpugraph.estimator.optimizer import COLLECTION

tf1 = tf.compat.v1


@contextmanager
def one_shard() -> Iterator[None]:
    """Within the block a model is traced as on one core, whatever of TensorFlow's own collectives it calls.

    ``tf.compat.v1.tpu.CrossShardOptimizer`` neither scales the loss nor sums the gradients; which reduction it stands for is
    kept for the compiler, as by :class:`~tpugraph.estimator.optimizer.CrossShardOptimizer`. ``cross_replica_sum`` gives its
    operand back, and ``get_tpu_context().number_of_shards`` is 1. Columns of ``tf.tpu.experimental`` look up variables of the
    model, as without a TPU.
    """
    wrapper = tpu_optimizer.CrossShardOptimizer
    with ExitStack() as stack:
        stack.enter_context(tpu_function.tpu_shard_context(1))
        stack.enter_context(_replaced(wrapper, "compute_gradients", _compute_gradients))
        stack.enter_context(_replaced(wrapper, "apply_gradients", _apply_gradients))
        for module in (feature_column, feature_column_v2):
            stack.enter_context(_replaced(module, "_is_running_on_cpu", lambda: True))
        stack.enter_context(_replaced(gen_tpu_ops, "cross_replica_sum", _same))  # what every public name of it calls
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


def _compute_gradients(self: Any, loss: Any, var_list: Any = None, **more: Any) -> Any:
    return self._opt.compute_gradients(loss, var_list=var_list, **more)


def _apply_gradients(self: Any, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
    tf1.add_to_collection(COLLECTION, self._reduction)
    return self._opt.apply_gradients(grads_and_vars, global_step, name)


def _same(x: Any, group_assignment: Any = None, name: Any = None) -> Any:
    del group_assignment
    return tf.identity(x, name=name)

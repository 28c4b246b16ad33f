"""CrossShardOptimizer: the wrapper that programs for TPUs put around their optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu_function, tpu_optimizer

from tpugraph.support.errors import ArgumentError, ArgumentTypeError

_Reduction = tf.compat.v1.losses.Reduction


class CrossShardOptimizer(tpu_optimizer.CrossShardOptimizer):  # type: ignore[misc]
    """Sums gradients over the replicas, as TensorFlow's own; outside of a replicated model it does nothing.

    Args:
        opt: the optimizer to wrap.
        reduction: ``tf.compat.v1.losses.Reduction.MEAN`` or ``SUM``: how the cores' losses combine.
        name: a name.
        group_assignment: lists of cores that reduce among themselves; only one group of all cores can run.

    Raises:
        ArgumentTypeError: a Keras optimizer (a ``TypeError``).
    """

    def __init__(self, opt: Any, reduction: str = _Reduction.MEAN, name: str = "CrossShardOptimizer",
                 group_assignment: Any = None) -> None:  # fmt: skip
        if reduction not in (_Reduction.MEAN, _Reduction.SUM):
            raise ArgumentError(f"the reduction '{reduction}' is not supported", fix="Reduction.MEAN or Reduction.SUM")
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise ArgumentTypeError(
                f"CrossShardOptimizer wraps a tf.compat.v1.train.Optimizer, but got {type(opt).__name__}",
                fix="use the optimizer of tf.compat.v1.train; a Keras optimizer needs no wrapper here",
            )
        super().__init__(opt, reduction, name, _groups(group_assignment))

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        """The gradients of a replica's share of the loss."""
        if not _in_replica():
            return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)
        return super().compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Sums gradients over the replicas, and applies them with the wrapped optimizer."""
        if not _in_replica():
            return self._opt.apply_gradients(grads_and_vars, global_step, name)
        return super().apply_gradients(grads_and_vars, global_step, name)


def _in_replica() -> bool:
    return tpu_function.get_tpu_context().number_of_shards is not None


def _groups(assignment: Any) -> Any:
    if assignment is None:
        return None
    if not isinstance(assignment, list) or not all(isinstance(group, list) for group in assignment):
        raise ArgumentError(f"group_assignment must be a list of lists of cores, but is {assignment!r}")
    if len({len(group) for group in assignment}) != 1:
        raise ArgumentError(f"the groups of group_assignment must be of equal size, but are {assignment!r}")
    cores = sorted(core for group in assignment for core in group)
    if cores != list(range(len(cores))):
        raise ArgumentError(f"group_assignment must hold each core from 0 on once, but holds {cores}")
    if len(assignment) > 1:
        raise ArgumentError(f"group_assignment has {len(assignment)} groups, but gradients are reduced over all cores",
                            fix="leave group_assignment out")  # fmt: skip
    return assignment

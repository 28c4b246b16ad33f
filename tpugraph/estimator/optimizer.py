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
    groups = assignment if isinstance(assignment, list) else []
    whole = len(groups) == 1 and isinstance(groups[0], list) and sorted(groups[0]) == list(range(len(groups[0])))
    if assignment is not None and not whole:
        raise ArgumentError(f"group_assignment is {assignment!r}, but gradients are reduced over one group of all cores",
                            fix="leave group_assignment out")  # fmt: skip
    return assignment

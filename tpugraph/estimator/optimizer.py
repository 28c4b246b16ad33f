"""CrossShardOptimizer: the wrapper that programs for TPUs put around their optimizer, without harm anywhere."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpugraph.support.errors import ArgumentError, ArgumentTypeError

COLLECTION = "tpugraph_cross_shard_reduction"
"""Graph collection with the reduction that each CrossShardOptimizer of the graph asked for."""

_Reduction = tf.compat.v1.losses.Reduction
KINDS = {_Reduction.MEAN: "mean", _Reduction.SUM: "sum"}
"""The reductions and what the compiler calls them."""


class CrossShardOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer whose gradients are reduced over the cores.

    The compiler puts the reduction into the graph, whether this wrapper is there or not: nothing is reduced twice, and
    with ``use_tpu=False`` the wrapper does nothing.

    Args:
        opt: the optimizer to wrap.
        reduction: ``tf.compat.v1.losses.Reduction.MEAN`` or ``SUM``: how the cores' losses combine.
        name: a name.
        group_assignment: lists of cores that reduce among themselves; only one group of all cores can run.

    Raises:
        ArgumentError: another reduction, or groups that do not hold each core once (a ``ValueError``).
        ArgumentTypeError: a Keras optimizer (a ``TypeError``).
    """

    def __init__(
        self,
        opt: Any,
        reduction: str = _Reduction.MEAN,
        name: str = "CrossShardOptimizer",
        group_assignment: Any = None,
    ) -> None:
        if reduction not in KINDS:
            raise ArgumentError(f"the reduction '{reduction}' is not supported", fix="Reduction.MEAN or Reduction.SUM")
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise ArgumentTypeError(
                f"CrossShardOptimizer wraps a tf.compat.v1.train.Optimizer, but got {type(opt).__name__}",
                fix="use the optimizer of tf.compat.v1.train; a Keras optimizer needs no wrapper here",
            )
        super().__init__(False, name)
        self._opt = opt
        self._reduction = reduction
        self._group_assignment = _groups(group_assignment)

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        """The gradients of the wrapped optimizer; the loss is not scaled."""
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Apply them with the wrapped optimizer; the compiler reduces them over the cores."""
        tf.compat.v1.add_to_collection(COLLECTION, self._reduction)
        return self._opt.apply_gradients(grads_and_vars, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """A slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The slot names of the wrapped optimizer."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        """The variables of the wrapped optimizer."""
        return self._opt.variables()


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
        raise ArgumentError(
            f"group_assignment has {len(assignment)} groups, but gradients are reduced over all cores",
            fix="leave group_assignment out",
        )
    return assignment

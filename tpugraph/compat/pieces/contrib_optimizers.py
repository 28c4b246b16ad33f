"""The optimizers of ``tf.contrib.opt`` that programs for TPUs use."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


class DecoupledWeightDecayExtension:
    """Decoupled weight decay: before each step ``weight_decay`` times a variable is subtracted from it.

    It is mixed into an optimizer, before it in the list of bases; other arguments are those of the optimizer.
    """

    def __init__(self, weight_decay: Any, *arguments: Any, **kwargs: Any) -> None:
        self._decay = weight_decay
        self._decayed: set[str] | None = None
        super().__init__(*arguments, **kwargs)

    def minimize(self, loss: Any, *arguments: Any, decay_var_list: Any = None, **named: Any) -> Any:
        """As that of the optimizer; only the variables of ``decay_var_list`` decay, where it is given."""
        self._decayed = None if decay_var_list is None else {v.name for v in decay_var_list}
        return super().minimize(loss, *arguments, **named)  # type: ignore[misc]

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Any = None, decay_var_list: Any = None
    ) -> Any:
        if decay_var_list is not None:
            self._decayed = {v.name for v in decay_var_list}
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        decays = [v.assign_sub(tf.cast(self._decay, v.dtype.base_dtype) * v.read_value()) for _, v in pairs
                  if self._decayed is None or v.name in self._decayed]  # fmt: skip
        with tf.control_dependencies([*decays, *(g for g, _ in pairs if isinstance(g, tf.Tensor))]):
            return super().apply_gradients(pairs, global_step, name)  # type: ignore[misc]


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """An optimizer class with decoupled weight decay; ``weight_decay`` is its first argument."""
    name = f"{base_optimizer.__name__}WithDecoupledWeightDecay"
    return type(name, (DecoupledWeightDecayExtension, base_optimizer), {})


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.compat.v1.train.AdamOptimizer):  # type: ignore[misc]
    """Adam with decoupled weight decay."""

    __init__ = partialmethod(DecoupledWeightDecayExtension.__init__, name="AdamW")


class MomentumWOptimizer(DecoupledWeightDecayExtension, tf.compat.v1.train.MomentumOptimizer):  # type: ignore[misc]
    """Momentum with decoupled weight decay."""

    __init__ = partialmethod(DecoupledWeightDecayExtension.__init__, name="MomentumW")


class LazyAdamOptimizer(tf.compat.v1.train.AdamOptimizer):  # type: ignore[misc]
    """Adam; on cores the gradient of a table is dense, so that every row moves as with Adam itself."""


class LARSOptimizer(tf.compat.v1.train.MomentumOptimizer):  # type: ignore[misc]
    """Momentum with a rate of its own for each variable, by the norms of the variable and of its gradient.

    Args:
        weight_decay: how much of the variable is added to its gradient.
        eeta: the trust coefficient: the norm of a step as a fraction of the norm of the variable.
        epsilon: is added where a norm divides.
        skip_list: of variables whose name has one of these in it the rate is not scaled; ``batch_normalization`` and
            ``bias`` when None.
    """

    def __init__(self, learning_rate: Any, momentum: Any = 0.9, weight_decay: float = 0.0001, eeta: float = 0.001,
                 epsilon: float = 0.0, name: str = "LARSOptimizer", skip_list: Any = None,
                 use_nesterov: bool = False) -> None:  # fmt: skip
        if momentum < 0.0:
            raise ValueError(f"momentum should be positive: {momentum}")
        super().__init__(1.0, momentum, name=name, use_nesterov=use_nesterov)
        self._rate = learning_rate() if callable(learning_rate) else learning_rate
        self._weight_decay, self._eeta, self._epsilon = weight_decay, eeta, epsilon
        self._skip = ["batch_normalization", "bias"] if skip_list is None else list(skip_list)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        scaled = [(None if g is None else self._scaled(tf.convert_to_tensor(g), v), v) for g, v in grads_and_vars]
        return super().apply_gradients(scaled, global_step, name)

    def _scaled(self, gradient: Any, variable: Any) -> Any:
        if any(part in variable.op.name for part in self._skip):
            return gradient * self._rate
        value = variable.read_value()
        norm, slope = tf.norm(value, 2), tf.norm(gradient, 2)
        below = slope + self._weight_decay * norm + self._epsilon
        share = self._eeta * norm / tf.where(below > 0, below, tf.ones_like(below))
        ratio = tf.where((norm > 0) & (slope > 0), share, 1.0)
        return (gradient + self._weight_decay * value) * ratio * self._rate

"""Distribution strategies as an estimator takes them: those of TensorFlow 1.x name devices, which are cores here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class CoreStrategy:
    """A strategy whose replicas are cores, which share each batch of the input.

    Args:
        count: how many cores at most; as many as an estimator takes by itself when None.
    """

    def __init__(self, count: int | None) -> None:
        self.count = count

    @property
    def num_replicas_in_sync(self) -> int:
        """How many cores."""
        return self.count or 8

    @contextmanager
    def scope(self) -> Iterator[CoreStrategy]:
        """Nothing is changed within: variables are on the cores."""
        yield self


def cores_of(config: Any) -> int | None:
    """On how many cores a ``RunConfig`` with a strategy trains; None where it has none, 0 where any number will do.

    TensorFlow's own strategies are taken too: whatever devices they name, training is on cores.
    """
    strategy = config.train_distribute or getattr(config.experimental_distribute, "train_distribute", None)
    if isinstance(strategy, CoreStrategy):
        return strategy.count or 0
    return 0 if is_strategy(strategy) else None


def is_strategy(value: Any) -> bool:
    """Whether a value is a distribution strategy, or what holds one."""
    whole = (CoreStrategy, tf.distribute.Strategy, tf.compat.v1.distribute.Strategy)
    return isinstance(value, whole) or (hasattr(value, "train_distribute") and hasattr(value, "eval_distribute"))

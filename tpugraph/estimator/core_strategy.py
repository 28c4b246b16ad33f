"""Distribution strategies of a RunConfig: their devices become cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class CoreStrategy:
    """A strategy that splits each batch over at most ``count`` cores; the estimator's default when None."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    @property
    def num_replicas_in_sync(self) -> int:
        return self.count or 8

    @contextmanager
    def scope(self) -> Iterator[CoreStrategy]:
        """Variables are on the cores anyway."""
        yield self


def cores_of(config: Any) -> int | None:
    """The most cores that a RunConfig's strategy asks for; None without a strategy, 0 for one of TensorFlow's own."""
    strategy = config.train_distribute or getattr(config.experimental_distribute, "train_distribute", None)
    if isinstance(strategy, CoreStrategy):
        return strategy.count or 0
    return 0 if is_strategy(strategy) else None


def is_strategy(value: Any) -> bool:
    """Whether a value is a distribution strategy, or a DistributeConfig."""
    whole = (CoreStrategy, tf.distribute.Strategy, tf.compat.v1.distribute.Strategy)
    return isinstance(value, whole) or (hasattr(value, "train_distribute") and hasattr(value, "eval_distribute"))

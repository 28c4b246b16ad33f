"""How far to train."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from tpugraph.estimator.arguments import whole
from tpugraph.support.errors import ArgumentError


@dataclass(frozen=True)
class Goal:
    """When training is done.

    Attributes:
        steps: after so many steps; None for no such limit.
        max_steps: at this global step; None for no such limit.
    """

    steps: int | None
    max_steps: int | None

    def last_step(self, start: int) -> int | None:
        """The global step at which training from ``start`` ends; None where only the data ends it."""
        return self.max_steps if self.steps is None else start + self.steps


def goal_of(steps: Any, max_steps: Any, *, endless: bool) -> Goal:
    """The goal that the arguments of ``train`` set.

    Args:
        steps: number of steps, or None.
        max_steps: global step to end at, or None.
        endless: whether training may have no goal but the end of the data.

    Raises:
        ArgumentError: both are given, or none, or one that is below 1 (a ``ValueError``).
        ArgumentTypeError: no whole number (a ``TypeError``).
    """
    if steps is not None and max_steps is not None:
        raise ArgumentError(f"both steps ({steps}) and max_steps ({max_steps}) are given", fix="give one")
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if value is not None and whole(name, value, least=-sys.maxsize) < 1:
            raise ArgumentError(f"Must specify {name} > 0, but it is {value}")
    if not endless and steps is None and max_steps is None:
        raise ArgumentError("neither steps nor max_steps is given", fix="train(input_fn, max_steps=1000)")
    return Goal(steps, max_steps)

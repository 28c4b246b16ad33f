"""How many steps the next loop has: a fixed number, or as many as fit into a time."""

from __future__ import annotations

from tpugraph.estimator.tpu_config import loop_length

_GROWTH = 10
"""A loop is at most so many times longer than the one before it."""


class LoopLength:
    """The length of each loop.

    A loop whose length is a time starts with one step, and goes by the pace of the loops behind it; the first one, which
    compiles, does not count.

    Args:
        iterations_per_loop: steps, or a time such as ``"30s"``.
    """

    def __init__(self, iterations_per_loop: int | str) -> None:
        self.steps, self._seconds = loop_length(iterations_per_loop)
        self._pace: float | None = None
        self._loops = 0
        self._last = 1

    def next(self, remaining: int | None) -> int:
        """Steps of the next loop.

        Args:
            remaining: steps that are left; None where only the data ends training.
        """
        wanted = self.steps if self.steps is not None else self._fitting()
        return wanted if remaining is None else min(wanted, remaining)

    def done(self, steps: int, seconds: float) -> None:
        """Take note of a loop."""
        self._loops += 1
        self._last = max(steps, 1)
        if self._loops > 1 and steps:
            pace = seconds / steps
            self._pace = pace if self._pace is None else (self._pace + pace) / 2

    def _fitting(self) -> int:
        if self._pace is None or self._seconds is None:
            return 1
        return max(1, min(int(self._seconds / max(self._pace, 1e-9)), self._last * _GROWTH))

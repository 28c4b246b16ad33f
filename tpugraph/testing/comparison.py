"""Two trainings side by side: which loss and which variable differ most, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph.testing.checkpoint_pieces import Values
from tpugraph.testing.difference_grid import Grid, grid_of

_FLOOR = 1e-6
"""Magnitude below which the elements of a variable are compared absolutely."""


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        what: the runs that are compared.
        steps: the steps that both took.
        loss: largest relative difference between the losses of a step.
        variable: the variable that differs most, or "" where none was compared.
        difference: by how much, relative to the variable's largest element.
        skipped: why nothing was compared, or "".
        grid: how far each variable is apart after each step, where the runs kept that.
    """

    what: str
    steps: int = 0
    loss: float = 0.0
    variable: str = ""
    difference: float = 0.0
    skipped: str = ""
    grid: Grid | None = None

    def within(self, tolerance: float) -> bool:
        """Whether nothing differs by more than the tolerance."""
        return self.loss <= tolerance and self.difference <= tolerance


@dataclass(frozen=True)
class Result:
    """Losses and final variables of a run.

    Attributes:
        losses: of each step.
        variables: after the last step.
        by_step: the variables after a step, by its number from 1; empty where they were not kept.
    """

    losses: list[float]
    variables: Values
    by_step: Mapping[int, Values] = field(default_factory=dict)


def compare(what: str, expected: Result, actual: Result) -> Comparison:
    """Compare two runs; their variables only where both took as many steps."""
    steps = min(len(expected.losses), len(actual.losses))
    if not steps:
        return Comparison(what, skipped="the data ended before the first step")
    losses = [relative(np.asarray(a), np.asarray(b))
              for a, b in zip(expected.losses, actual.losses, strict=False)]  # fmt: skip
    kept = {step: _apart(expected.by_step[step], actual.by_step[step])
            for step in range(1, steps + 1) if step in expected.by_step and step in actual.by_step}  # fmt: skip
    grid = grid_of(losses, kept) if kept else None
    if len(expected.losses) != len(actual.losses):
        return Comparison(what, steps, max(losses), grid=grid)  # the variables are those of different steps
    differences = _apart(expected.variables, actual.variables)
    worst = max(differences, key=lambda name: differences[name], default="")
    return Comparison(what, steps, max(losses), worst, differences.get(worst, 0.0), grid=grid)


def _apart(expected: Values, actual: Values) -> dict[str, float]:
    """By variable that both have, how far its values are apart."""
    return {name: relative(value, actual[name]) for name, value in expected.items() if name in actual}


def relative(expected: Any, actual: Any) -> float:
    """The largest difference of two arrays, relative to the largest element expected; inf where only one is finite."""
    if expected.shape != actual.shape:
        return float("inf")
    if not expected.size:
        return 0.0
    if not np.issubdtype(expected.dtype, np.number):
        return 0.0 if np.array_equal(expected, actual) else float("inf")
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if same.all():
        return 0.0
    if not (np.isfinite(left[~same]).all() and np.isfinite(right[~same]).all()):
        return float("inf")
    finite = left[np.isfinite(left)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    return float(np.abs(left - right)[~same].max()) / max(scale, _FLOOR)

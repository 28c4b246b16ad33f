"""Two trainings side by side: how far each loss and each variable is apart after each step, and which differs most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph.testing.checkpoint_pieces import Values

_FLOOR = 1e-6
"""Magnitude below which the elements of a variable are compared absolutely."""

AMPLIFIED = 30.0
"""How many times larger than what a rounding of the weights makes of a value a difference may be that rounding explains."""

Cell = float | None
"""A relative difference; None where the variable was not read after the step, which is inside of a loop."""


@dataclass
class Comparison:
    """How far two trainings are apart.

    Attributes:
        what: what is compared.
        losses: of each step, the difference of the losses relative to the expected one; inf where one side alone took the step.
        variables: by name the difference after each step, relative to the variable's largest element. inf where only one of the
            two is finite.
        rounding: how far the plain graph is apart from itself where its weights start a rounding apart; None where that was
            not asked for.
    """

    what: str
    losses: list[float] = field(default_factory=list)
    variables: dict[str, list[Cell]] = field(default_factory=dict)
    rounding: Comparison | None = None

    def add(self, expected: float | None, actual: float | None, values: Values, found: Mapping[str, Any]) -> None:
        """Compare one step more.

        Args:
            expected: the loss; None where the data ended before.
            actual: the loss on the other side.
            values: the variables after the step; none where they were not read.
            found: those of the other side.
        """
        ended = expected is None or actual is None
        self.losses.append(math.inf if ended else relative(np.asarray(expected), np.asarray(actual)))
        for name in values.keys() & found.keys():
            row = self.variables.setdefault(name, [])
            row += [None] * (self.steps - 1 - len(row))
            row.append(relative(values[name], found[name]))

    @property
    def steps(self) -> int:
        """How many steps were compared."""
        return len(self.losses)

    @property
    def loss(self) -> float:
        """The largest difference of a loss."""
        return max(self.losses, default=0.0)

    @property
    def ordered(self) -> list[str]:
        """The variables, the one that differs most first."""
        return sorted(self.variables, key=lambda name: (-largest(self.variables[name]), name))

    @property
    def variable(self) -> str:
        """The variable that differs most; "" where none was compared."""
        return self.ordered[0] if self.variables else ""

    @property
    def difference(self) -> float:
        """The largest difference of a variable."""
        return max(map(largest, self.variables.values()), default=0.0)

    @property
    def cells(self) -> list[tuple[int, str, float]]:
        """What was compared: step, variable ("" for the loss), difference."""
        rows: dict[str, Sequence[Cell]] = {"": self.losses, **self.variables}
        return [(n, name, cell) for name, row in rows.items() for n, cell in enumerate(row, 1) if cell is not None]

    def beyond(self, tolerance: float) -> list[tuple[int, str, float]]:
        """What differs by more than the tolerance, and by more than rounding explains."""
        return [found for found in self.cells if found[2] > max(tolerance, self._explained(*found[:2]))]

    def rounded_away(self, tolerance: float) -> list[tuple[int, str, float]]:
        """What differs by more than the tolerance, and by no more than rounding explains."""
        return [found for found in self.cells if tolerance < found[2] <= self._explained(*found[:2])]

    def _explained(self, step: int, name: str) -> float:
        """The largest difference of a value that rounding explains."""
        if self.rounding is None:
            return 0.0
        row: Sequence[Cell] = self.rounding.variables.get(name, []) if name else self.rounding.losses
        return AMPLIFIED * ((row[step - 1] if step <= len(row) else None) or 0.0)

    def within(self, tolerance: float) -> bool:
        """Whether there is something to compare, and nothing differs."""
        return bool(self.losses) and not self.beyond(tolerance)

    def first_beyond(self, tolerance: float) -> int | None:
        """The first step, from 1, after which something differs; None where nothing does."""
        return min((step for step, _, _ in self.beyond(tolerance)), default=None)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists (JSON)."""
        rows = {name: [plain_cell(cell) for cell in self.variables[name]] for name in self.ordered}
        losses, most = [plain_cell(cell) for cell in self.losses], (plain_cell(self.loss), plain_cell(self.difference))
        return {"what": self.what, "steps": self.steps, "loss": most[0], "variable": self.variable, "difference": most[1],
                "losses": losses, "variables": rows}  # fmt: skip


def largest(row: Sequence[Cell]) -> float:
    """The largest difference of a row; 0 where nothing was read."""
    return max((cell for cell in row if cell is not None), default=0.0)


def plain_cell(cell: Cell) -> float | str | None:
    """A cell as JSON takes it: what is not finite in words."""
    return "not finite" if cell is not None and math.isinf(cell) else cell


def relative(expected: Any, actual: Any, whole: Any = None) -> float:
    """The largest difference of two arrays, relative to the largest element expected; inf where only one is finite.

    Args:
        expected: the one array.
        actual: the other.
        whole: what the expected array is a part of, whose largest element counts.
    """
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
    finite = left[np.isfinite(left)] if whole is None else whole[np.isfinite(whole)]
    scale = float(np.abs(finite).max(initial=0.0))
    return float(np.abs(left - right)[~same].max()) / max(scale, _FLOOR)

"""Where in a training a difference starts: how far two runs are apart, variable by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Cell = float | None
"""A relative difference; None where the variable was not read after the step, which is inside of a loop."""


@dataclass(frozen=True)
class Grid:
    """How far two trainings are apart after each step.

    Attributes:
        losses: of each step, the difference of the losses relative to the expected one.
        variables: by name the difference after each step, relative to the variable's largest element; the variable that
            differs most comes first. inf where only one of the two is finite.
    """

    losses: list[Cell]
    variables: Mapping[str, list[Cell]]

    @property
    def steps(self) -> int:
        """How many steps both took."""
        return len(self.losses)

    def first_beyond(self, tolerance: float) -> int | None:
        """The first step, from 1, after which something differs by more than the tolerance; None where nothing does."""
        rows = [self.losses, *self.variables.values()]
        beyond = [step for row in rows for step, cell in enumerate(row, 1) if cell is not None and cell > tolerance]
        return min(beyond, default=None)


def largest(row: list[Cell]) -> float:
    """The largest difference of a row; 0 where nothing was read."""
    return max((cell for cell in row if cell is not None), default=0.0)


def grid_of(losses: Sequence[float], differences: Mapping[int, Mapping[str, float]]) -> Grid:
    """The grid of two trainings.

    Args:
        losses: of each step, how far the losses are apart.
        differences: by step, from 1, and variable how far the variables are apart after it.
    """
    names = dict.fromkeys(name for found in differences.values() for name in found)
    rows = {name: [differences.get(step, {}).get(name) for step in range(1, len(losses) + 1)] for name in names}
    order = sorted(rows, key=lambda name: (-largest(rows[name]), name))
    return Grid(list(losses), {name: rows[name] for name in order})


def plain_cell(cell: Cell) -> float | str | None:
    """A cell as JSON takes it: what is not finite in words."""
    return "not finite" if cell is not None and math.isinf(cell) else cell

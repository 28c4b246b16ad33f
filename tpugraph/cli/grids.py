"""The grid of ``tpugraph verify``, variable by step: as text for a terminal, and as a page."""

from __future__ import annotations

import math
from pathlib import Path

from tpugraph.support import files
from tpugraph.support.wording import counted
from tpugraph.testing.verification import Cell, Comparison, Verification, largest
from tpugraph.views import page

_ROWS = 20
"""The most variables that the text has a line for."""
_NAME, _CELL = 44, 10
"""The most columns of a name, and those of a cell with the blank in front of it."""


def text(found: Verification, width: int) -> str:
    """The grids of all comparisons, in lines of so many columns."""
    made = [_lines(comparison, found.tolerance, width) for comparison in found.comparisons]
    return "\n".join("\n".join(["", *lines]) for lines in made) + "\n"


def save(found: Verification, place: Path, *, model: str, verdict: str) -> None:
    """Write the page of the grids, which needs no server and no network."""
    data = {"format": 1, "model": model, "verdict": verdict, "ok": found.ok, "tolerance": found.tolerance, "batch": found.batch,
            "notes": list(dict.fromkeys(found.notes)),
            "grids": [c.as_dict() | {"first": c.first_beyond(found.tolerance)} for c in found.comparisons]}  # fmt: skip
    files.write_atomically(place, page.make("grid", Path(model).name, data).encode())


# --------------------------------------------------------------------------- text


def _lines(comparison: Comparison, tolerance: float, width: int) -> list[str]:
    apart = [name for name in comparison.ordered if largest(comparison.variables[name]) > 0]
    shown, alike = apart[:_ROWS], len(comparison.variables) - len(apart)
    names = {name: name if len(name) <= _NAME else f"{name[:20]}...{name[-21:]}" for name in shown}
    label = max(map(len, ("loss", *names.values())))
    steps = _steps(comparison, tolerance, max(1, (width - label) // _CELL))
    rows = [
        ("", [f"step {step}" for step in steps]),
        ("loss", [_cell(comparison.losses[step - 1], tolerance) for step in steps]),
    ]
    rows += [
        (names[name], [_cell(comparison.variables[name][step - 1], tolerance) for step in steps]) for name in shown
    ]
    lines = [
        comparison.what,
        *(name.ljust(label) + "".join(cell.rjust(_CELL) for cell in cells) for name, cells in rows),
    ]
    if len(apart) > len(shown):
        lines.append(f"{counted(len(apart) - len(shown), 'variable')} more that differ less")
    if alike:
        lines.append(f"{counted(alike, 'variable')} that {'does' if alike == 1 else 'do'} not differ")
    return lines


def _steps(found: Comparison, tolerance: float, room: int) -> list[int]:
    """As many steps as there is room for: the first, the last, where the tolerance is passed first, and some between."""
    if found.steps <= room:
        return list(range(1, found.steps + 1))
    chosen = dict.fromkeys((found.steps, found.first_beyond(tolerance) or 1, 1))
    even = [round(1 + (found.steps - 1) * number / max(1, room - 1)) for number in range(room)]
    return sorted(list(dict.fromkeys([*chosen, *even]))[:room])


def _cell(cell: Cell, tolerance: float) -> str:
    """A difference, with a mark where it is more than the tolerance."""
    if cell is None:
        return "-"
    number = "inf" if math.isinf(cell) else "0" if cell == 0 else f"{cell:.1e}"
    return number + "!" if cell > tolerance else number

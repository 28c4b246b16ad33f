"""``tpugraph verify``: the plain graph against the converted one, a line for each comparison."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from tpugraph.analysis import is_tpu_graph
from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome, interruptible
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import graphdef
from tpugraph.support import files
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.testing.verification import Cell, Comparison, Verification, largest, plan, verify
from tpugraph.views import page

_ROWS = 20  # the most variables that the text of a grid has a line for
_NAME, _CELL = 44, 10  # the most columns of a name, and those of a cell with the blank in front of it


def run(flags: Parsed, console: Console) -> Outcome:
    model, steps, grid = flags.model, flags["steps"], flags["grid"]
    _check_grid(grid)
    names = rebinds(flags["rebind"])
    if is_tpu_graph(graphdef.load(model)):
        raise UsageError(f"'{model}' is converted already; there is no plain graph to compare it with",
                         fix="give the plain graph")  # fmt: skip
    options, layout = programs.options(flags), programs.layout_of(flags)
    if flags["dry_run"]:
        return _plan(flags, options, names, console)
    watched = console.stream.isatty()

    def progress(text: str) -> None:
        if watched:
            console.say(f"running: {text}")

    found = interruptible(lambda: verify(model, steps, options, checkpoint_path=flags["checkpoint"], rebind=names,
                                         tolerance=flags["tolerance"], progress=progress, layout=layout,
                                         platform=flags["platform"] or "cpu"))  # fmt: skip
    console.say(f"{model}: {counted(steps, 'step')}, {found.batch}, tolerance {found.tolerance:g}")
    for note in dict.fromkeys(found.notes):
        console.say(f"note: {note}")
    _show_grid(found, grid, model, console)
    for comparison in found.comparisons:
        console.say(line(comparison, found.tolerance))
    if grid is None and not found.ok:
        console.say("--grid=text shows each variable by step, --grid=page.html does as a page; `tpugraph compare` names the "
                    "first tensor that differs, `tpugraph reduce` finds the smallest graph")  # fmt: skip
    comparisons = [
        comparison.as_dict() | {"ok": comparison.within(found.tolerance)} for comparison in found.comparisons
    ]
    result = {"ok": found.ok, "model": model, "steps": steps, "tolerance": found.tolerance, "comparisons": comparisons,
              "notes": found.notes, "recorded_batches": found.recorded}  # fmt: skip
    return Outcome(result, 0 if found.ok else 1)


def _check_grid(grid: str | None) -> None:
    if grid in (None, "text"):
        return
    if Path(grid).suffix != ".html":
        raise UsageError(
            f"--grid={grid} is neither text nor a page", fix=f"--grid=text, or --grid={Path(grid).with_suffix('.html')}"
        )
    check_writable(Path(grid), "--grid")


def _show_grid(found: Verification, grid: str | None, model: str, console: Console) -> None:
    if grid == "text":
        console.say(grid_text(found, shutil.get_terminal_size((120, 0)).columns if console.stream.isatty() else 120))
    elif grid is not None:
        lines = [line(comparison, found.tolerance) for comparison in found.comparisons]
        save_grid(found, Path(grid), model=model, verdict="; ".join(lines))
        console.say(f"wrote {grid}")


def _plan(flags: Parsed, options: ConvertOptions, rebind: dict[str, str], console: Console) -> Outcome:
    """Say what would be run, and on which files; nothing of the graph is run."""
    found = plan(flags.model, flags["steps"], options, checkpoint_path=flags["checkpoint"], rebind=rebind)
    touched = programs.files_lines(found.converted, rebind)
    console.say(f"{flags.model}: {counted(flags['steps'], 'step')}, {found.batch}, tolerance {flags['tolerance']:g}")
    for line in (*(f"would run   {run}" for run in found.runs), *touched,
                 f"starts from {found.starts_from or 'the first values that the graph gives'}"):  # fmt: skip
        console.say(line)
    console.say("nothing was run")
    return Outcome({"dry_run": True, "model": flags.model, "steps": flags["steps"], "batch": found.batch, "runs": found.runs,
                    "starts_from": found.starts_from, "files": touched})  # fmt: skip


def line(comparison: Comparison, tolerance: float) -> str:
    """What came of a comparison, in one sentence."""
    beyond = comparison.beyond(tolerance)
    if beyond:
        step, name, difference = max(beyond, key=lambda found: found[2])
        first = comparison.first_beyond(tolerance)
        since = f", the first difference after step {first}" if first != step else ""
        what = f"'{name}'" if name else "the loss"
        return f"{comparison.what}: DIFFERS, {what} by {_number(difference)} in step {step}{since}"
    alike = [(difference, name) for _, name, difference in comparison.cells if difference <= tolerance]
    most, worst = max(((difference, name) for difference, name in alike if name), default=(0.0, ""))
    of_loss = max((difference for difference, name in alike if not name), default=0.0)
    variables = f"no variable differs by more than {_number(most)} ({worst})" if most else "no variable differs at all"
    losses = f"no loss by more than {_number(of_loss)}" if of_loss else "no loss differs"
    return f"{comparison.what}: {variables}, {losses}"


def _number(value: float) -> str:
    return "not finite" if math.isinf(value) else f"{value:.1e}"


# --------------------------------------------------------------------------- the grid, variable by step


def grid_text(found: Verification, width: int) -> str:
    made = [_lines(comparison, found.tolerance, width) for comparison in found.comparisons]
    return "\n".join("\n".join(["", *lines]) for lines in made) + "\n"


def save_grid(found: Verification, place: Path, *, model: str, verdict: str) -> None:
    """Write the page of the grids, which needs no server and no network."""
    data = {"format": 1, "model": model, "verdict": verdict, "ok": found.ok, "tolerance": found.tolerance, "batch": found.batch,
            "notes": list(dict.fromkeys(found.notes)),
            "grids": [c.as_dict() | {"first": c.first_beyond(found.tolerance)} for c in found.comparisons]}  # fmt: skip
    files.write_atomically(place, page.make("grid", Path(model).name, data).encode())


def _lines(comparison: Comparison, tolerance: float, width: int) -> list[str]:
    apart = [name for name in comparison.ordered if largest(comparison.variables[name]) > 0]
    shown, alike = apart[:_ROWS], len(comparison.variables) - len(apart)
    names = {name: name if len(name) <= _NAME else f"{name[:20]}...{name[-21:]}" for name in shown}
    label = max(map(len, ("loss", *names.values())))
    steps = _steps(comparison, tolerance, max(1, (width - label) // _CELL))
    values: list[tuple[str, Sequence[Cell]]] = [("loss", comparison.losses)]
    values += [(names[name], comparison.variables[name]) for name in shown]
    rows = [("", [f"step {step}" for step in steps])]
    rows += [(name, [_cell(row[step - 1], tolerance) for step in steps]) for name, row in values]
    lines = [comparison.what]
    lines += [name.ljust(label) + "".join(cell.rjust(_CELL) for cell in cells) for name, cells in rows]
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

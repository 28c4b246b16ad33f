"""``tpugraph verify``: the plain graph against the converted one, as a table."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

from tpugraph.analysis import is_tpu_graph
from tpugraph.cli import grids, programs
from tpugraph.cli.console import Console, Outcome, interruptible
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import graphdef
from tpugraph.support import terminal
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.testing.comparison import Comparison
from tpugraph.testing.verification import Verification, plan, verify


def run(flags: Parsed, console: Console) -> Outcome:
    """Compare and print; the exit code is 1 where something differs by more than ``--tolerance``."""
    model, steps, grid = flags.model, flags["steps"], flags["grid"]
    _check_grid(grid)
    names = rebinds(flags["rebind"])
    if is_tpu_graph(graphdef.load(model)):
        raise UsageError(f"'{model}' is converted already; there is no plain graph to compare it with",
                         fix="give the plain graph")  # fmt: skip
    options = ConvertOptions(**flags.options())
    if flags["dry_run"]:
        return _plan(flags, options, names, console)
    watched = console.stream.isatty()

    def progress(text: str) -> None:
        if watched:
            console.say(f"running: {text}")

    found = interruptible(lambda: verify(model, steps, options, checkpoint_path=flags["checkpoint"], rebind=names,
                                         tolerance=flags["tolerance"], by_step=grid is not None, progress=progress))  # fmt: skip
    console.say(f"{model}: {counted(steps, 'step')}, {found.batch}, tolerance {found.tolerance:g}")
    console.say(table(found))
    _show_grid(found, grid, model, console)
    for note in dict.fromkeys(found.notes):
        console.say(f"note: {note}")
    console.say(verdict(found))
    if grid is None and not found.ok:
        console.say("--grid=text shows each variable by step, --grid=page.html does as a page; `tpugraph compare` names the "
                    "first tensor that differs, `tpugraph reduce` finds the smallest graph")  # fmt: skip
    result = {"ok": found.ok, "model": model, "steps": steps, "tolerance": found.tolerance,
              "comparisons": [asdict(c) | {"ok": c.within(found.tolerance)} for c in found.comparisons],
              "notes": found.notes, "recorded_batches": found.recorded}  # fmt: skip
    return Outcome(result, 0 if found.ok else 1)


def _check_grid(grid: str | None) -> None:
    """Refuse a grid that is neither text nor a page that can be written."""
    if grid in (None, "text"):
        return
    if Path(grid).suffix != ".html":
        raise UsageError(
            f"--grid={grid} is neither text nor a page", fix=f"--grid=text, or --grid={Path(grid).with_suffix('.html')}"
        )
    check_writable(Path(grid), "--grid")


def _show_grid(found: Verification, grid: str | None, model: str, console: Console) -> None:
    """Print the grid of what was compared, or write it as a page."""
    if grid == "text":
        console.say(grids.text(found, terminal.width(console.stream)), as_it_is=True)
    elif grid is not None:
        grids.save(found, Path(grid), model=model, verdict=verdict(found))
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


def table(found: Verification) -> str:
    """The comparisons, one line each."""
    rows: list[tuple[str, ...]] = [("compared", "steps", "loss by", "most different variable", "by", "")]
    rows += [_row(comparison, found.tolerance) for comparison in found.comparisons if not comparison.skipped]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"{c.what}: not compared, {c.skipped}" for c in found.comparisons if c.skipped]
    return "\n".join(lines)


def _row(comparison: Comparison, tolerance: float) -> tuple[str, ...]:
    by = _number(comparison.difference) if comparison.variable else "-"
    verdict = "ok" if comparison.within(tolerance) else "DIFFERS"
    name = comparison.variable if comparison.difference else "none" if comparison.variable else "-"
    return (comparison.what, str(comparison.steps), _number(comparison.loss), name, by, verdict)


def _number(value: float) -> str:
    return "not finite" if math.isinf(value) else "0" if value == 0 else f"{value:.1e}"


def verdict(found: Verification) -> str:
    """The result in one sentence."""
    if found.ok:
        compared = [c for c in found.comparisons if not c.skipped]
        worst = max((c for c in compared if c.variable), key=lambda c: c.difference, default=None)
        if worst is None:
            return "nothing could be compared"
        if worst.difference == 0:
            return "the same: no variable differs at all"
        return f"the same: '{worst.variable}' differs most, by {_number(worst.difference)} ({worst.what})"
    worst = max(found.comparisons, key=lambda c: max(c.difference, c.loss))
    if worst.difference >= worst.loss:
        return f"NOT the same: '{worst.variable}' differs most, by {_number(worst.difference)} ({worst.what})"
    return f"NOT the same: the loss differs by {_number(worst.loss)} ({worst.what})"

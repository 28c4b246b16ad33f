"""``tpugraph verify``: the plain graph against the converted one, a line for each comparison."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from tpugraph.analysis import is_tpu_graph
from tpugraph.cli import grids, programs
from tpugraph.cli.console import Console, Outcome, interruptible
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import graphdef
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.testing.verification import Comparison, Verification, plan, verify


def run(flags: Parsed, console: Console) -> Outcome:
    model, steps, grid = flags.model, flags["steps"], flags["grid"]
    _check_grid(grid)
    names = rebinds(flags["rebind"])
    if is_tpu_graph(graphdef.load(model)):
        raise UsageError(f"'{model}' is converted already; there is no plain graph to compare it with",
                         fix="give the plain graph")  # fmt: skip
    options = programs.options(flags)
    if flags["dry_run"]:
        return _plan(flags, options, names, console)
    watched = console.stream.isatty()

    def progress(text: str) -> None:
        if watched:
            console.say(f"running: {text}")

    found = interruptible(lambda: verify(model, steps, options, checkpoint_path=flags["checkpoint"], rebind=names,
                                         tolerance=flags["tolerance"], progress=progress))  # fmt: skip
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
        console.say(grids.text(found, shutil.get_terminal_size((120, 0)).columns if console.stream.isatty() else 120))
    elif grid is not None:
        lines = [line(comparison, found.tolerance) for comparison in found.comparisons]
        grids.save(found, Path(grid), model=model, verdict="; ".join(lines))
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

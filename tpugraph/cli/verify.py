"""``tpugraph verify``: the plain graph against the converted one, a line for each comparison."""

from __future__ import annotations

import math
from pathlib import Path

from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome, interruptible
from tpugraph.cli.convert import check_page
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.support import files
from tpugraph.support.wording import counted
from tpugraph.testing.verification import Comparison, Verification, verify
from tpugraph.views import page


def run(flags: Parsed, console: Console) -> Outcome:
    model, steps = flags.model, flags["steps"]
    grid = None if flags["grid"] is None else check_page(flags["grid"], "--grid")
    names = rebinds(flags["rebind"])
    graph = programs.unconverted(model)
    options = programs.options(flags)
    layout = programs.layout_of(flags, None if "engine" in flags.given else flags["platform"])
    found = interruptible(lambda: verify(graph, steps, options, checkpoint_path=flags["checkpoint"], rebind=names,
                                         tolerance=flags["tolerance"], progress=console.progress, layout=layout,
                                         platform=flags["platform"] or "cpu"))  # fmt: skip
    console.say(f"{model}: {counted(steps, 'step')}, {found.batch}, tolerance {found.tolerance:g}")
    for note in dict.fromkeys(found.notes):
        console.note(note)
    console.say(*(line(comparison, found.tolerance) for comparison in found.comparisons))
    if grid is not None:
        save_grid(found, grid, model=model)
        console.say(f"wrote {grid}")
    elif not found.ok:
        console.say("--grid=page.html shows each variable by step; `tpugraph compare` names the first tensor that differs, "
                    "`tpugraph reduce` finds the smallest graph")  # fmt: skip
    comparisons = [
        comparison.as_dict() | {"ok": comparison.within(found.tolerance)} for comparison in found.comparisons
    ]
    result = {"ok": found.ok, "model": model, "steps": steps, "tolerance": found.tolerance, "comparisons": comparisons,
              "notes": found.notes}  # fmt: skip
    return Outcome(result, 0 if found.ok else 1)


def line(comparison: Comparison, tolerance: float) -> str:
    """The result of a comparison in one sentence."""
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


def save_grid(found: Verification, place: Path, *, model: str) -> None:
    """Write a page with a grid for each comparison: a row for each variable, a column for each step."""
    verdict = "; ".join(line(comparison, found.tolerance) for comparison in found.comparisons)
    data = {"format": 1, "model": model, "verdict": verdict, "ok": found.ok, "tolerance": found.tolerance, "batch": found.batch,
            "notes": list(dict.fromkeys(found.notes)),
            "grids": [c.as_dict() | {"first": c.first_beyond(found.tolerance)} for c in found.comparisons]}  # fmt: skip
    files.write_atomically(place, page.make("grid", Path(model).name, data).encode())

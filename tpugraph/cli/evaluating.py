"""Evaluation and prediction from the command line: metrics as a table, predictions as lines of JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome, interruptible, plain
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.ir import graphdef
from tpugraph.runtime import pipelines
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted

_TRAINING_ONLY = ("losses", "save_steps", "max_steps", "trace")


def run(mode: str, flags: Parsed, console: Console) -> Outcome:
    for name in _TRAINING_ONLY:
        if flags[name] is not None:
            raise UsageError(f"--{name} is for training", fix=f"leave it out with --mode={mode}")
    if mode == "predict":
        return _predict(flags, console)
    if flags["output"] is not None:
        raise UsageError("--output is for predictions", fix="--json prints the metrics as one object")
    with _session(flags, console) as session:
        started = time.monotonic()
        found = interruptible(lambda: session.evaluate(flags["steps"]))
        seconds = time.monotonic() - started
        console.say(
            f"evaluated {counted(found.examples, 'example')} in {counted(found.steps, 'step')}, {seconds:.1f} s"
        )
        width = max(map(len, found), default=0)
        for name in sorted(found):
            console.say(f"{name:<{width}}  {_shown(found[name])}")
        return Outcome({"metrics": dict(found), "examples": found.examples,
                        "steps": found.steps, "global_step": session.global_step, "model": flags.model,
                        "seconds": round(seconds, 3), "notes": session.notes})  # fmt: skip


def _predict(flags: Parsed, console: Console) -> Outcome:
    if flags["output"] is None and flags["json"]:
        raise UsageError(
            "--json and the predictions both ask for stdout", fix="--output=FILE.jsonl for the predictions"
        )
    if flags["steps"] is not None:
        raise UsageError("--steps does not go with predictions: every example gets its own", fix="leave it out")
    place = None if flags["output"] is None else check_writable(Path(flags["output"]), "--output")
    if place is None:
        console = Console(machine_readable=True)  # readable lines go to stderr
    with (
        _session(flags, console) as session,
        contextlib.nullcontext(sys.stdout) if place is None else place.open("w", encoding="utf-8") as file,
    ):
        count = interruptible(lambda: _write_rows(session, file))
    console.say(f"predicted {counted(count, 'example')}" + (f", wrote {flags['output']}" if flags["output"] else ""))
    return Outcome({"examples": count, "output": flags["output"], "model": flags.model, "notes": session.notes})


def _write_rows(session: TPUSession, file: TextIO) -> int:
    count = 0
    for row in session.predict():
        file.write(json.dumps(plain(row)) + "\n")
        count += 1
    return count


@contextlib.contextmanager
def _session(flags: Parsed, console: Console) -> Iterator[TPUSession]:
    source = flags["checkpoint"] or flags["model_dir"]
    if source is None:
        raise UsageError("the variables come from a checkpoint", fix="--checkpoint=PREFIX or --model_dir=DIR")
    _check_end(flags)
    program = programs.load(flags, console)
    names = rebinds(flags["rebind"])
    console.say(*programs.files_lines(program, names))
    waits = {"master": flags["master"], "reach_seconds": flags["connect_timeout"]}
    with TPUSession(program, rebind=names, **waits) as session:
        programs.restore(session, source, console)
        for note in session.notes:
            console.note(note)
        yield session


def _check_end(flags: Parsed) -> None:
    """Refuse to evaluate an endless input, such as that of a training graph, without ``--steps``."""
    plain = None if flags["steps"] is not None else programs.plain_of(flags.model)
    if plain is not None and pipelines.is_endless(graphdef.from_loaded(plain, source=flags.model)):
        raise UsageError("the input of the graph repeats without an end",
                         fix="--steps=N evaluates so many global batches; a prediction needs an input that ends")  # fmt: skip


def _shown(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else " ".join(str(value).split())

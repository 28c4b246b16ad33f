"""``tpugraph run``: trains, evaluates or predicts with a converted graph, or a plain one that is converted first."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tpugraph.cli import evaluating, programs
from tpugraph.cli.console import Console, Outcome, stderr_held_back
from tpugraph.cli.convert import check_folder, check_writable
from tpugraph.cli.curves import Curves
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.cli.training import LossFile, Training
from tpugraph.runtime.pjrt import devices
from tpugraph.runtime.session import TPUSession
from tpugraph.runtime.timeline import OFF, Timeline
from tpugraph.support import files
from tpugraph.support.errors import UsageError
from tpugraph.tpu.program import Program


def run(flags: Parsed, console: Console) -> Outcome:
    """Train MODEL for ``--steps`` steps, or evaluate it, or predict with it."""
    flags = programs.evaluated(flags)
    mode = programs.mode_of(flags)
    if mode != "train":
        return evaluating.run(mode, flags, console)
    if flags["output"] is not None:
        raise UsageError("--output is for predictions", fix="--losses=FILE.jsonl takes the losses of training")
    if flags["steps"] is None and flags["max_steps"] is None:
        raise UsageError("'tpugraph run' needs the number of steps", fix=f"tpugraph run {flags.model} --steps=100")
    if flags["steps"] is not None and flags["max_steps"] is not None:
        raise UsageError("--steps and --max_steps say two things", fix="--steps=N more, or --max_steps=N in all")
    names = rebinds(flags["rebind"])
    losses = LossFile(flags["losses"])
    if flags["save_steps"] is not None and flags["model_dir"] is None:
        raise UsageError("--save_steps needs a folder to save in", fix="give --model_dir=DIR")
    if flags["model_dir"] is not None:
        check_folder(Path(flags["model_dir"]), "--model_dir")
    if flags["trace"] is not None:
        check_writable(Path(flags["trace"]), "--trace")
    timeline = OFF if flags["trace"] is None else Timeline()
    program = programs.load(flags, console)
    for line in programs.files_lines(program, names):
        console.say(line)
    _join(flags, program)
    options = {"master": flags["master"], "engine": flags["engine"], "platform": flags["platform"],
               "cluster": flags["workers"] or None, "timeline": timeline}  # fmt: skip
    # auto asks jax for each kind of device, and those that are not there log complaints
    with stderr_held_back() if flags["engine"] == "auto" else contextlib.nullcontext():
        opened = TPUSession(program, rebind=names, **options)
    with opened as session:
        if flags["engine"] != "emulator":
            console.say(_engine_line(session))
        started_from = _start(session, flags["checkpoint"], flags["model_dir"], console)
        steps = _steps(flags, session, console)
        with _traced(flags["trace"], timeline, console), _curves(flags, session, program) as curves:
            training = Training(
                session, console, steps, losses, flags["model_dir"], flags["save_steps"], curves, timeline
            )
            code = training.run()
    return Outcome(
        {**training.summary(), "model": flags.model, "started_from": started_from, "notes": session.notes,
         "engine": session.report, "shares": timeline.shares() or None},
        code,
    )  # fmt: skip


@contextlib.contextmanager
def _traced(path: str | None, timeline: Timeline, console: Console) -> Iterator[None]:
    """Writes the timeline when the block ends, however it does, and says what bound the run."""
    try:
        yield
    finally:
        if path is not None:
            files.write_atomically(Path(path), json.dumps(timeline.as_chrome()).encode())
            console.say(f"time: {timeline.bound()}; wrote {path}")


@contextlib.contextmanager
def _curves(flags: Parsed, session: TPUSession, program: Program) -> Iterator[Curves | None]:
    """The event files of ``--model_dir``, and the graph beside them; on file when the block ends, however it does."""
    if flags["model_dir"] is None or not session.writes_files:
        yield None
        return
    rows = programs.global_rows(program)
    curves = Curves(flags["model_dir"], flags.model, program.graph_def, rows, max(session.global_step, 0))
    try:
        yield curves
    finally:
        curves.close()


def _steps(flags: Parsed, session: TPUSession, console: Console) -> int:
    """How many steps to train: so many more, or up to a global step."""
    if flags["max_steps"] is None:
        return int(flags["steps"])
    reached = max(session.global_step, 0)
    if reached >= flags["max_steps"]:
        console.say(f"step {reached:,} is reached already: --max_steps={flags['max_steps']:,}")
    return max(int(flags["max_steps"]) - reached, 0)


def _join(flags: Parsed, program: Program) -> None:
    """Join this process with those of other hosts."""
    if flags["coordinator"] is None:
        if flags["processes"] > 1:
            raise UsageError("several processes need a place to meet", fix="--coordinator=HOST:PORT, of process 0")
        return
    if flags["engine"] != "pjrt":
        raise UsageError(f"--coordinator joins processes of PJRT, not of the engine {flags['engine']}",
                         fix="--engine=pjrt")  # fmt: skip
    cores = next(n.attr["num_replicas"].i for n in program.graph_def.node if n.op == "TPUReplicateMetadata")
    devices.join(flags["coordinator"], flags["processes"], flags["process"], cores=cores,
                 platform=flags["platform"] or "cpu")  # fmt: skip


def _engine_line(session: TPUSession) -> str:
    found = session.report
    if found["platform"] is None:
        return f"engine {found['engine']}: {found['reason']}"
    return (f"engine {found['engine']} on {session.num_replicas} {found['platform']} devices: {found['reason']}; compiled in "
            f"{found['compile_seconds']:.1f} s")  # fmt: skip


def _start(session: TPUSession, checkpoint: str | None, model_dir: str | None, console: Console) -> str | None:
    """Restore the newest checkpoint of the model_dir, so that a repeated command goes on, else what was asked for; returns it."""
    newest = tf.train.latest_checkpoint(model_dir) if model_dir is not None and Path(model_dir).is_dir() else None
    source = newest or checkpoint
    if source is None:
        session.initialize()
        return None
    step = session.restore(source)
    console.say(f"restored {source}" + (f" at step {step:,}" if step >= 0 else ""))
    if (
        newest
        and checkpoint
        and Path(checkpoint).resolve() not in (Path(newest).resolve(), Path(newest).resolve().parent)
    ):
        console.say(f"note: --checkpoint={checkpoint} is where a new --model_dir starts; this one has its own")
    for note in session.notes:
        console.say(f"note: {note}")
    return str(source)

"""``tpugraph run``: trains, evaluates or predicts with a converted graph, or a plain one that is converted first."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from tpugraph.cli import evaluating, fitting, programs
from tpugraph.cli.console import Console, Outcome, interruptible
from tpugraph.cli.convert import check_folder, check_writable
from tpugraph.cli.curves import Curves
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.cli.tpu_compiler import gathered_note
from tpugraph.cli.training import LossFile, Training
from tpugraph.runtime.checkpoints.checkpoint_folder import FolderLock, collect, newest
from tpugraph.runtime.engines import accelerator
from tpugraph.runtime.pjrt import processes
from tpugraph.runtime.session import TPUSession
from tpugraph.runtime.timeline import OFF, Timeline
from tpugraph.support import files
from tpugraph.support.errors import UsageError
from tpugraph.tpu.program import Program, cores_of
from tpugraph.xla.mesh import Layout


def run(flags: Parsed, console: Console) -> Outcome:
    flags = programs.in_folder(flags)
    mode = programs.mode_of(flags)
    if mode != "train":
        return evaluating.run(mode, flags, console)
    joins = flags["distributed"] == "auto" or flags["coordinator"] is not None
    engine = flags["engine"] if "engine" in flags.given else None
    platform = flags["platform"] or ("cpu" if joins and engine is None else None)
    mesh_platform = platform or (accelerator() if engine == "auto" else None)
    _check(flags, joins=joins)
    if flags["fit"]:
        flags = fitting.chosen(flags, console)
    layout = programs.layout_of(flags, mesh_platform if engine in (None, "auto") else None)
    losses, timeline = LossFile(flags["losses"]), OFF if flags["trace"] is None else Timeline()
    made: list[Program] = []
    with contextlib.ExitStack() as open_:

        def load(engine: str) -> Program:
            program = programs.load(flags, console, whole=engine == "xla")
            if not made:
                process = _join(flags, program, layout if engine == "xla" else None, console) if joins else 0
                if flags["model_dir"] is not None and process == 0:
                    open_.enter_context(FolderLock(flags["model_dir"]))
            made.append(program)
            return program

        names = rebinds(flags["rebind"])
        session = open_.enter_context(
            TPUSession(load, rebind=names, master=flags["master"], engine=engine, platform=platform, mesh=layout,
                       cluster=flags["workers"] or None, reach_seconds=flags["connect_timeout"], timeline=timeline)
        )  # fmt: skip
        program = made[-1]
        console.say(*programs.files_lines(program, names))
        if engine == "auto" or session.report["platform"] is not None:
            console.say(_engine_line(session), *gathered_note(session.report.get("gathered", {})))
        if flags["model_dir"] is not None and session.writes_files:
            collect(Path(flags["model_dir"]))
        started_from = _start(session, flags, console)
        steps = _steps(flags, session, console)
        with _traced(flags["trace"], timeline, console), _curves(flags, session, program) as curves:
            training = Training(session, console, steps, losses, flags["model_dir"], flags["save_steps"], curves, timeline,
                                in_background=flags["async_save"])  # fmt: skip
            code = training.run()
    return Outcome(
        {**training.summary(), "model": flags.model, "started_from": started_from, "notes": session.notes,
         "engine": session.report, "shares": timeline.shares() or None},
        code,
        training.abandoned,
    )  # fmt: skip


def _check(flags: Parsed, *, joins: bool) -> None:
    """Refuse flags of training that do not go together, and places that cannot be written, before anything is made."""
    if flags["output"] is not None:
        raise UsageError("--output is for predictions", fix="--losses=FILE.jsonl takes the losses of training")
    if flags["steps"] is None and flags["max_steps"] is None:
        raise UsageError("'tpugraph run' needs the number of steps", fix=f"tpugraph run {flags.model} --steps=100")
    if flags["steps"] is not None and flags["max_steps"] is not None:
        raise UsageError("--steps and --max_steps say two things", fix="--steps=N more, or --max_steps=N in all")
    if flags["save_steps"] is not None and flags["model_dir"] is None:
        raise UsageError("--save_steps needs a folder to save in", fix="give --model_dir=DIR")
    if flags["async_save"] and flags["model_dir"] is None:
        raise UsageError("--async_save needs a folder to save in", fix="give --model_dir=DIR")
    if flags["model_dir"] is not None:
        check_folder(Path(flags["model_dir"]), "--model_dir")
    if flags["trace"] is not None:
        check_writable(Path(flags["trace"]), "--trace")
    if flags["distributed"] == "auto" and {"coordinator", "processes", "process"} & flags.given:
        raise UsageError("--distributed=auto asks the cluster for what --coordinator, --processes and --process say",
                         fix="leave out either")  # fmt: skip
    if not joins and flags["processes"] > 1:
        raise UsageError("several processes need a place to meet", fix="--coordinator=HOST:PORT, of process 0")
    if joins and "engine" in flags.given and flags["engine"] in ("emulator", "auto"):
        raise UsageError(
            f"several processes are joined by PJRT, not by the engine {flags['engine']}", fix="--engine=pjrt"
        )
    unknown = joins and flags["platform"] not in (None, "cpu") and flags["mesh"] is None and flags["engine"] != "pjrt"
    if unknown and not programs.why_on_cores(flags):
        raise UsageError("how many devices all processes have is not known before they are joined", fix="--mesh=data:N")


@contextlib.contextmanager
def _traced(path: str | None, timeline: Timeline, console: Console) -> Iterator[None]:
    """Writes the timeline when the block ends, however it does, and says what bound the run."""
    try:
        yield
    finally:
        if path is not None:
            files.write_atomically(Path(path), json.dumps(timeline.as_chrome()).encode())
            console.say(f"time: {timeline.bound()}; wrote {path}")


def _curves(flags: Parsed, session: TPUSession, program: Program) -> contextlib.AbstractContextManager[Curves | None]:
    """The event files of ``--model_dir``, and the graph beside them; on file when the block ends, however it does."""
    if flags["model_dir"] is None or not session.writes_files:
        return contextlib.nullcontext()
    rows, begun = program.report["batch"]["global"], max(session.global_step, 0)
    return contextlib.closing(Curves(flags["model_dir"], flags.model, program.graph_def, rows, begun))


def _steps(flags: Parsed, session: TPUSession, console: Console) -> int:
    """How many steps to train: so many more, or up to a global step."""
    if flags["max_steps"] is None:
        return int(flags["steps"])
    reached = max(session.global_step, 0)
    if reached >= flags["max_steps"]:
        console.say(f"step {reached:,} is reached already: --max_steps={flags['max_steps']:,}")
    return max(int(flags["max_steps"]) - reached, 0)


_OF_A_PROCESS = frozenset(
    "process coordinator distributed connect_timeout model_dir checkpoint rebind losses trace json traceback dump_dir "
    "dump_after dump_changed".split()
)
"""The flags that each of several processes may be given for itself."""


def _join(flags: Parsed, program: Program, layout: Layout | None, console: Console) -> int:
    """Join this process with others; returns its number."""
    if flags["distributed"] == "auto":
        place = interruptible(lambda: processes.detect(flags["connect_timeout"]))
    else:
        place = flags["coordinator"], flags["processes"], flags["process"]
    cores = cores_of(program.graph_def) if layout is None else layout.mesh.size
    assert cores is not None  # what runs here was converted
    model = hashlib.sha256(program.graph_def.SerializeToString(deterministic=True)).hexdigest()[:16]
    asked = {f"--{name}": str(value) for name, value in flags.values.items() if name not in _OF_A_PROCESS}
    asked |= {"MODEL": model, "--model_dir": "none" if flags["model_dir"] is None else "DIR"}
    interruptible(lambda: processes.join(*place, cores=cores, platform=flags["platform"] or "cpu", asked=asked,
                                         seconds=flags["connect_timeout"]))  # fmt: skip
    console.say(f"process {place[2]} of {place[1]}, joined at {place[0]}")
    return place[2]


def _engine_line(session: TPUSession) -> str:
    found = session.report
    if found["platform"] is None:
        return f"engine {found['engine']}: {found['reason']}"
    count = found.get("mesh", session.num_replicas)
    return (f"engine {found['engine']} on {count} {found['platform']} devices: {found['reason']}; compiled in "
            f"{found['compile_seconds']:.1f} s")  # fmt: skip


def _start(session: TPUSession, flags: Parsed, console: Console) -> str | None:
    """Restore the newest checkpoint of the model_dir, so that a repeated command goes on, else what was asked for; returns it."""
    model_dir, asked = flags["model_dir"], flags["checkpoint"]
    own = newest(Path(model_dir), console.note) if model_dir is not None and Path(model_dir).is_dir() else None
    source = asked if own is None else own
    if source is None:
        session.initialize()
        console.say("fresh weights: the first values that the graph gives them; --checkpoint=PREFIX starts from others")
    else:
        programs.restore(session, source, console)
    if own and asked and Path(asked).resolve() not in (own.resolve(), own.resolve().parent):
        console.note(f"--checkpoint={asked} is where a new --model_dir starts; this one has its own")
    for note in session.notes:
        console.note(note)
    console.say(_destination(flags))
    return session.restored_from


def _destination(flags: Parsed) -> str:
    if flags["model_dir"] is None:
        return "nothing is saved: --model_dir=DIR keeps the weights"
    often = "10 minutes" if flags["save_steps"] is None else f"{flags['save_steps']:,} steps"
    return f"saving to {flags['model_dir']} every {often} and at the end"

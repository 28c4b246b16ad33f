"""``tpugraph run``: trains a converted graph, or a plain one that is converted first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import tensorflow as tf

from tpugraph import compiler, graphdef
from tpugraph.commands.console import Console, Outcome
from tpugraph.commands.convert import check_folder
from tpugraph.commands.flags import Parsed, rebinds
from tpugraph.commands.table import CONVERSION
from tpugraph.commands.training import LossFile, Training
from tpugraph.errors import UsageError
from tpugraph.ir import Graph
from tpugraph.program import Program
from tpugraph.runtime.session import TPUSession


def run(flags: Parsed, console: Console) -> Outcome:
    """Train MODEL for ``--steps`` steps."""
    steps = flags["steps"]
    if steps is None:
        raise UsageError("'tpugraph run' needs the number of steps", fix=f"tpugraph run {flags.model} --steps=100")
    names = rebinds(flags["rebind"])
    losses = LossFile(flags["losses"])
    if flags["save_steps"] is not None and flags["model_dir"] is None:
        raise UsageError("--save_steps needs a folder to save in", fix="give --model_dir=DIR")
    if flags["model_dir"] is not None:
        check_folder(Path(flags["model_dir"]), "--model_dir")
    program = load_program(flags, console)
    with TPUSession(program, master=flags["master"], rebind=names) as session:
        started_from = _start(session, flags["checkpoint"], flags["model_dir"], console)
        training = Training(session, console, steps, losses, flags["model_dir"], flags["save_steps"])
        code = training.run()
    return Outcome(
        {**training.summary(), "model": flags.model, "started_from": started_from, "notes": session.notes}, code
    )


# --------------------------------------------------------------------------- what to run


def load_program(flags: Parsed, console: Console) -> Program:
    """The converted graph in MODEL, or the plain one converted; says the batch.

    Raises:
        UsageError: flags of the conversion for a graph that is converted already.
    """
    loaded = graphdef.sniff(Path(flags.model))
    if not any(node.op == "TPUReplicateMetadata" for node in loaded.graph_def.node):
        program = compiler.convert(flags.model, compiler.ConvertOptions(**flags.options()))
        console.say(program.summary().splitlines()[0])
        console.say(program.report["batch"]["line"])
        return program
    late = sorted(flags.given & {flag.name for flag in CONVERSION})
    if late:
        raise UsageError(f"'{flags.model}' is converted already, which --{late[0]} cannot change",
                         fix=f"convert the plain graph again with --{late[0]}={flags[late[0]]}")  # fmt: skip
    graph = graphdef.from_graph_def(loaded.graph_def, source=flags.model)
    console.say(batch_line(graph))
    return Program(loaded.graph_def, {"source": flags.model})


def batch_line(graph: Graph) -> str:
    """The batch of a converted graph, such as ``global batch 128 = 8 cores x 16``."""
    cores = graph.of_type("TPUReplicateMetadata")[0].attr("num_replicas")
    shapes = [shape for node in graph.of_type("InfeedDequeueTuple") for shape in node.attr("shapes") or []]
    counts = Counter(shape[0] for shape in shapes if shape)
    if not counts:
        return f"{cores} cores"
    rows = max(counts, key=lambda n: (counts[n], n))
    return f"global batch {rows * cores} = {cores} cores x {rows}"


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

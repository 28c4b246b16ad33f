"""Steps per second: a graph converted to 8 emulated cores against the plain graph at the same global batch.

The plain side is the same file with its batch size b, which is baked into constants, rewritten to 8 b: the input pipeline
and the model stay as the Estimator wrote them. Both sides must first give the recorded losses of the global batch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _measure
import numpy as np
import tensorflow as tf

from tpugraph import roles
from tpugraph.compiler import convert
from tpugraph.compiler.conversion import another_batch
from tpugraph.ir import graphdef
from tpugraph.runtime.emulator.emulation import EmulatedLoop
from tpugraph.runtime.session import TPUSession

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "data" / "corpus"
CORES = 8


def compare(name: str, rows: int, *, loop: int, steps: int, repeats: int, bound: float) -> int:
    """Measure both sides in turn; ``rows`` is the batch size of one core. Prints, and returns the exit code."""
    folder = CORPUS / name
    os.chdir(folder if (folder / "mnist.tfrecords").exists() else CORPUS)
    wanted = [loss for _, loss in sorted(_recorded(folder).items())]
    program = convert(folder / "model.pb", num_replicas=CORES, global_batch=CORES * rows, iterations_per_loop=loop)
    with TPUSession(program) as session:
        session.restore(folder / "model.ckpt-0")
        _check("8 cores", session.train(len(wanted)), wanted)
        session.train(loop)
        step = plain_step(folder, rows)
        _check("plain", [step() for _ in wanted], wanted)
        assert isinstance(session.engine, EmulatedLoop)
        print(
            f"{name}: global batch {CORES * rows}, loops of {loop}, "
            f"{session.engine.lowered.compiled_nodes} nodes in one XLA computation"
        )
        parts: dict[str, Callable[[], float]] = {
            "8 emulated cores": lambda: steps / _measure.seconds(lambda: session.train(steps)),
            "plain, one run per step": lambda: steps / _measure.seconds(lambda: [step() for _ in range(steps)]),
        }
        _measure.interleave(parts, 1)
        found = _measure.interleave(parts, repeats)
    _measure.show(found, "steps/s")
    value = _measure.ratio(found, *parts)
    return _measure.verdict(f"{name}: steps per second, 8 emulated cores / plain", value, bound, most=False)


def plain_step(folder: Path, rows: int) -> Callable[[], float]:
    """A function that trains the plain graph for one step of the global batch and returns the loss."""
    found = roles.find(graphdef.load(folder / "model.pb"))
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.import_graph_def(_rebatched(folder / "model.pb", CORES * rows), name="")
    session = tf.compat.v1.Session(graph=graph)
    session.run([graph.get_operation_by_name(v.initializer) for v in found.variables.values() if v.initializer])
    session.run([graph.get_operation_by_name(name) for name in found.iterator_initializers])
    session.run("save/restore_all", {"save/Const:0": str(folder / "model.ckpt-0")})
    fetches = [
        graph.get_tensor_by_name(_tensor(found.loss.name)),
        *(graph.get_operation_by_name(f.name) for f in found.train_ops),
    ]
    return lambda: float(session.run(fetches)[0])


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def _rebatched(path: Path, rows: int) -> Any:
    """The plain graph with another batch."""
    graph = graphdef.load(path)
    graph.roles = roles.find(graph)
    another_batch(graph, rows)
    return graphdef.to_graph_def(graph)


def _recorded(folder: Path) -> dict[int, float]:
    losses = json.loads((folder / "golden.json").read_text())["losses"]["global8"]
    return {int(step): loss for step, loss in losses.items()}


def _check(side: str, losses: list[float], wanted: list[float]) -> None:
    np.testing.assert_allclose(losses, wanted, rtol=2e-3, err_msg=f"{side} does not train as recorded")

"""Training on emulated cores, training by TensorFlow alone, and the comparison of both."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.analysis import is_tpu_graph
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.session import TPUSession
from tpugraph.testing.plain_run import PlainRun, by_key, checkpoint_values
from tpugraph.tpu.program import Program


@dataclass(frozen=True)
class Training:
    """The loss of each step, and each variable that a checkpoint holds, by its key in checkpoints."""

    losses: list[float]
    variables: dict[str, np.ndarray[Any, Any]]


def run_on_cores(
    model: Graph | Program | str | os.PathLike[str],
    *,
    steps: int,
    num_replicas: int,
    checkpoint: str | os.PathLike[str] | None = None,
    rebind: Mapping[str, str] | None = None,
    config: Any = None,
    **options: Any,
) -> Training:
    """Convert a graph (unless it was converted already) and train it on emulated cores.

    Args:
        model: a plain graph, a Program, or the path of either.
        num_replicas: number of cores; a converted graph has to be for as many.
        checkpoint: where to start; the graph's own initial values when None.
        rebind: file names in the graph to replace, old name to new.
        config: a ``tf.compat.v1.ConfigProto`` of the session.
        **options: options of :func:`tpugraph.convert`; ``iterations_per_loop`` is ``steps`` by default.

    Example:
        >>> run_on_cores("model.pb", steps=3, num_replicas=8).losses  # doctest: +SKIP
        [2.31, 2.29, 2.12]

    Raises:
        TpuGraphError: from conversion or from the session.
    """
    given = model if isinstance(model, Graph | Program) else graphdef.load(model)
    program = given if isinstance(given, Program) else Program(graphdef.to_graph_def(given), {"source": given.source})
    if isinstance(given, Graph) and not is_tpu_graph(given):
        program = convert(given, num_replicas=num_replicas, **{"iterations_per_loop": max(steps, 1), **options})
    with TPUSession(program, rebind=rebind, config=config) as session, tempfile.TemporaryDirectory() as folder:
        if session.num_replicas != num_replicas:
            raise AssertionError(f"the graph is for {session.num_replicas} cores, not {num_replicas}")
        if checkpoint is None:
            session.initialize()
        else:
            session.restore(checkpoint)
        losses = session.train(steps)
        reader = tf.train.load_checkpoint(session.save(Path(folder, "model.ckpt")))
        variables = {key: np.asarray(reader.get_tensor(key)) for key in reader.get_variable_to_dtype_map()
                     if not key.startswith("tpugraph/")}  # fmt: skip
    return Training(losses, variables)


def run_plain(
    model: Graph | str | os.PathLike[str],
    *,
    steps: int,
    checkpoint: str | os.PathLike[str] | None = None,
    loss: str | None = None,
    train_op: str | None = None,
) -> Training:
    """Train a plain graph with TensorFlow itself, one ``Session.run`` a step: the reference for emulated cores.

    It starts from a checkpoint, or from the graph's own initial values; loss and train op are found where they are not named.

    Example:
        >>> run_plain("model.pb", steps=3).losses  # doctest: +SKIP
        [2.31, 2.29, 2.12]

    Raises:
        TpuGraphError: the graph cannot be read or its roles cannot be found.
    """
    plain = PlainRun(model if isinstance(model, Graph) else graphdef.load(model), loss=loss, train_op=train_op)
    start = {} if checkpoint is None else checkpoint_values(plain.roles, checkpoint)
    try:
        losses = [loss for loss, _ in islice(plain.steps(start), steps)]
        values = plain.values(list(plain.roles.variables))
    finally:
        plain.close()
    return Training(losses, by_key(plain.roles, values))


def assert_same_training(
    actual: Training,
    expected: Training,
    *,
    relative: float,
    absolute: float,
) -> None:
    """Compare losses and variables of two trainings; the tolerances have no default, so that each test states its own.

    Args:
        expected: the reference; every variable it has is compared.
        relative: allowed difference of each number, relative to the expected one.
        absolute: allowed difference beside it.

    Example:
        >>> one = Training([0.5], {"w": np.ones(2)})
        >>> assert_same_training(one, one, relative=1e-6, absolute=0.0)

    Raises:
        AssertionError: the worst loss or variable, with its difference.
    """
    if len(actual.losses) != len(expected.losses):
        raise AssertionError(f"{len(actual.losses)} losses, not {len(expected.losses)}")
    _assert_close("the losses", np.asarray(actual.losses), np.asarray(expected.losses), relative, absolute)
    missing = sorted(expected.variables.keys() - actual.variables.keys())
    if missing:
        raise AssertionError(f"variables are missing: {', '.join(missing[:5])}")
    for key in sorted(expected.variables):
        _assert_close(f"the variable '{key}'", actual.variables[key], expected.variables[key], relative, absolute)


def _assert_close(what: str, actual: Any, expected: Any, relative: float, absolute: float) -> None:
    if actual.shape != expected.shape:  # numpy would broadcast
        raise AssertionError(f"{what} has the shape {actual.shape}, not {expected.shape}")
    if actual.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, relative, absolute, equal_nan=False, err_msg=what)
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=what)

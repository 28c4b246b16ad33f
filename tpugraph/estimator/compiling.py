"""From a traced model to a Program: the one road, with the user's own lines named where it fails."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from tpugraph import compiler
from tpugraph.estimator.specs import flat_metrics
from tpugraph.estimator.tracing import Traced
from tpugraph.support.errors import ArgumentError, ShapeError, TpuGraphError
from tpugraph.tpu.program import Program

SINGLE = "predictions"
"""What a prediction is called that is a tensor of its own."""

TIMED_LOOP = 1_000_000
"""Steps that a loop may have whose length is a time."""


def compile_training(traced: Traced, steps_per_loop: int | None, **choices: Any) -> Program:
    """Convert a traced training graph.

    Args:
        traced: the graph, with its saver and summaries.
        steps_per_loop: steps per Session.run; None where a time says how many.
        **choices: fields of :class:`~tpugraph.compiler.ConvertOptions` that the user chooses in a TPUConfig.

    Raises:
        TpuGraphError: the graph cannot be converted.
        ArgumentError: a shape that is not fixed (a ``ValueError`` as well).
    """
    options = compiler.ConvertOptions(
        num_replicas=max(traced.plan.cores, 1),
        iterations_per_loop=steps_per_loop or TIMED_LOOP,
        train_op=traced.train_op,
        loss=traced.loss,
        **choices,
    )
    try:
        return compiler.convert(traced.to_graph(), options)
    except ShapeError as error:
        raise ArgumentError(error.fault, node=error.node, origin=_line_of(error, traced), fix=error.fix,
                            stage=error.stage) from error  # fmt: skip
    except TpuGraphError as error:
        error.origin = _line_of(error, traced)
        raise


def compile_beside(
    traced: Traced, mode: str, steps_per_loop: int, keys: Collection[Any] | None, *, shard_tables: int = 0
) -> Program:
    """Convert a traced evaluation or prediction graph.

    Args:
        traced: the graph, with its saver.
        mode: ``eval`` or ``predict``.
        steps_per_loop: global batches per Session.run.
        keys: of mode ``predict`` the names of the predictions that are wanted; all when None.
        shard_tables: of how many bytes a table is at least whose rows the cores share; 0 for none.

    Raises:
        TpuGraphError: the graph cannot be converted.
    """
    spec = traced.spec
    evaluates = mode == "eval"
    options = compiler.ConvertOptions(
        num_replicas=max(traced.plan.cores, 1),
        iterations_per_loop=steps_per_loop,
        mode=mode,
        loss=traced.loss if evaluates else None,
        metrics=metric_names(spec.eval_metric_ops) if evaluates else None,
        predictions=None if evaluates else prediction_names(spec.predictions, keys),
        collected=traced.collected or None,
        shard_tables=shard_tables,
    )
    try:
        return compiler.convert(traced.to_graph(), options)
    except TpuGraphError as error:
        error.origin = _line_of(error, traced)
        raise


def metric_names(metrics: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Of each metric the names of its value and of its update op; see :func:`~tpugraph.estimator.specs.flat_metrics`."""
    return {key: (str(value.name), str(update.name)) for key, (value, update) in flat_metrics(metrics).items()}


def prediction_names(predictions: Any, keys: Collection[Any] | None = None) -> dict[str, str]:
    """The tensor's name of each prediction; those that are no dict have one, called ``predictions``."""
    if not isinstance(predictions, Mapping):
        return {SINGLE: str(predictions.name)}
    wanted = [key for key in predictions if keys is None or key in keys]
    return {prediction_name(key): str(predictions[key].name) for key in wanted}


def prediction_name(key: Any) -> str:
    """What a prediction is called in a graph: its key, or of a head among several the head's name and the key, with a slash."""
    return key if isinstance(key, str) else "/".join(map(str, key))


def _line_of(error: TpuGraphError, traced: Traced) -> str | None:
    """Where in the user's program the node of an error was made."""
    op = _operation(error, traced.graph)
    frames = [] if op is None else [f for f in op.traceback if not _is_library(f.filename)]
    if not frames:
        return error.origin
    return f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}"


def _operation(error: TpuGraphError, graph: Any) -> Any:
    name = (error.node or "").partition(" ")[0].partition(":")[0]
    if not name:
        return None
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def _is_library(filename: str) -> bool:
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return filename.startswith(own) or f"{os.sep}tensorflow{os.sep}" in filename or f"{os.sep}keras{os.sep}" in filename

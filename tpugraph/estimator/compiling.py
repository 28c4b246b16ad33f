"""Converts a traced model to a Program; errors name the user's own lines."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from tpugraph import compiler
from tpugraph.estimator.specs import flat_metrics
from tpugraph.estimator.tracing import Traced
from tpugraph.support.errors import ArgumentError, ShapeError, TpuGraphError
from tpugraph.tpu.program import Program

SINGLE = "predictions"  # the name of predictions that are one tensor
TIMED_LOOP = 1_000_000  # the most steps of a loop whose length is a time


class OpenShapeError(ShapeError, ArgumentError):
    """A shape that is open, or a batch that does not divide; a ``ValueError`` too, as that of ``tf.contrib.tpu``."""


def compile_training(traced: Traced, steps_per_loop: int | None, **choices: Any) -> Program:
    """Converts a traced training graph; ``choices`` are fields of :class:`~tpugraph.compiler.ConvertOptions`."""
    steps = steps_per_loop or TIMED_LOOP
    try:
        return _converted(traced, iterations_per_loop=steps, train_op=traced.train_op, loss=traced.loss, **choices)
    except ShapeError as error:
        raise OpenShapeError(error.fault, node=error.node, origin=error.origin, fix=error.fix,
                             stage=error.stage) from error  # fmt: skip


def compile_inference(
    traced: Traced, mode: str, steps_per_loop: int, keys: Collection[Any] | None, *, shard_tables: int = 0
) -> Program:
    """Converts a traced graph of mode ``eval`` or ``predict``; ``keys`` name the predictions that are wanted, all when None."""
    spec = traced.spec
    if mode == "eval":
        wanted = {"loss": traced.loss, "metrics": metric_tensor_names(spec.eval_metric_ops)}
    else:
        wanted = {"predictions": prediction_tensor_names(spec.predictions, keys)}
    return _converted(traced, iterations_per_loop=steps_per_loop, mode=mode, collected=traced.collected or None,
                      shard_tables=shard_tables, **wanted)  # fmt: skip


def _converted(traced: Traced, **options: Any) -> Program:
    options["num_replicas"] = max(traced.plan.cores, 1)
    try:
        return compiler.convert(traced.to_graph(), compiler.ConvertOptions(**options))
    except TpuGraphError as error:
        error.origin = _line_of(error, traced)
        raise


def metric_tensor_names(metrics: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {key: (str(value.name), str(update.name)) for key, (value, update) in flat_metrics(metrics).items()}


def prediction_tensor_names(predictions: Any, keys: Collection[Any] | None = None) -> dict[str, str]:
    """Name to tensor name; predictions that are no dict are called ``predictions``."""
    if not isinstance(predictions, Mapping):
        return {SINGLE: str(predictions.name)}
    wanted = [key for key in predictions if keys is None or key in keys]
    return {prediction_name(key): str(predictions[key].name) for key in wanted}


def prediction_name(key: Any) -> str:
    """The name of a prediction: its key, or of several heads the head's name and the key, with a slash."""
    return key if isinstance(key, str) else "/".join(map(str, key))


def _line_of(error: TpuGraphError, traced: Traced) -> str | None:
    name = (error.node or "").partition(" ")[0].partition(":")[0]
    found = [op for op in traced.graph.get_operations() if op.name == name]
    frames = [frame for op in found for frame in op.traceback if not _is_library(frame.filename)]
    if not frames:
        return error.origin
    return f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}"


def _is_library(filename: str) -> bool:
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return filename.startswith(own) or f"{os.sep}tensorflow{os.sep}" in filename or f"{os.sep}keras{os.sep}" in filename

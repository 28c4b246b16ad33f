"""Converts a traced model to a Program; errors name the user's own lines."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from tpugraph import compiler
from tpugraph.estimator.specs import ModeKeys, flat_metrics
from tpugraph.estimator.tracing import Traced
from tpugraph.support.errors import ArgumentError, ShapeError, TpuGraphError
from tpugraph.tpu.program import Program

SINGLE = "predictions"  # the name of predictions that are one tensor


class OpenShapeError(ShapeError, ArgumentError):
    """A shape that is open, or a batch that does not divide; a ``ValueError`` too, as that of ``tf.contrib.tpu``."""


def converted(traced: Traced, steps: int, keys: Collection[Any] | None = None, **choices: Any) -> Program:
    """Converts a traced model to loops of ``steps``, in its mode.

    ``choices`` are fields of :class:`~tpugraph.compiler.ConvertOptions`; ``keys`` name the predictions that are wanted, all when
    None.
    """
    spec = traced.spec
    wanted: dict[str, Any] = {"num_replicas": max(traced.plan.cores, 1), "collected": traced.collected or None}
    if spec.mode == ModeKeys.TRAIN:
        wanted |= {"train_op": traced.train_op, "loss": traced.loss}
    elif spec.mode == ModeKeys.EVAL:
        wanted |= {"mode": "eval", "loss": traced.loss, "metrics": metric_tensor_names(spec.eval_metric_ops)}
    else:
        wanted |= {"mode": "predict", "predictions": prediction_tensor_names(spec.predictions, keys)}
    try:
        options = compiler.ConvertOptions(iterations_per_loop=steps, **wanted, **choices)
        return compiler.convert(traced.to_graph(), options)
    except TpuGraphError as error:
        error.origin = _line_of(error, traced)
        if not isinstance(error, ShapeError):
            raise
        raise OpenShapeError(error.fault, node=error.node, origin=error.origin, fix=error.fix,
                             stage=error.stage) from error  # fmt: skip


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

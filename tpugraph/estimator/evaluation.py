"""Evaluation: metrics over the batches of an input, every example once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.errors import ArgumentError, RunError
from tpugraph.estimator.plain_session import HookedRuns, PlainModel
from tpugraph.estimator.reporting import Events, say
from tpugraph.estimator.tracing import Traced

tf1 = tf.compat.v1


def add_metrics(traced: Traced) -> None:
    """Add the mean of the loss to the metrics, and the op that updates them all.

    Raises:
        ArgumentError: the model has a metric that is called ``loss`` or ``global_step``.
    """
    taken = {"loss", "global_step"} & set(traced.spec.eval_metric_ops)
    if taken:
        raise ArgumentError(f"the metric '{taken.pop()}' has the name of one that is always there", fix="rename it")
    with traced.graph.as_default():
        metrics = {**traced.spec.eval_metric_ops, "loss": tf1.metrics.mean(traced.spec.loss)}
        update = tf.group(*(pair[1] for pair in metrics.values()))
        values = {key: pair[0] for key, pair in metrics.items()}
        traced.metrics = update, {**values, "global_step": tf1.train.get_global_step()}


def evaluate(
    model: PlainModel, checkpoint: str | None, steps: int | None, hooks: Sequence[Any], folder: str
) -> dict[str, Any]:
    """Evaluate a model at a checkpoint, and write the metrics to an event file.

    Args:
        model: the model, with its metrics.
        checkpoint: its prefix; first values where None.
        steps: at most so many batches; all of the data where None.
        hooks: session hooks.
        folder: where the event file goes.

    Raises:
        RunError: the input is empty.
    """
    update, values = model.traced.metrics
    runs = HookedRuns(model.session, [*hooks, *model.traced.spec.evaluation_hooks])
    runs.begin()
    model.start(checkpoint)
    runs.started()
    done = 0
    try:
        while (steps is None or done < steps) and not runs.stop_requested:
            runs.run(update)
            done += 1
    except tf.errors.OutOfRangeError:
        if not done:
            raise RunError("the input of the evaluation is empty", origin=model.traced.source) from None
        if steps is not None:
            say(f"the data ended after {done:,} of {steps:,} batches")
    found = {key: np.asarray(value)[()] for key, value in model.session.run(values).items()}
    runs.end()
    _write(folder, model.traced, found)
    shown = ", ".join(f"{k} {v:.6g}" for k, v in sorted(found.items()) if np.ndim(v) == 0 and k != "global_step")
    say(f"evaluated {done:,} batch{'es' if done > 1 else ''} at step {found['global_step']:,}: {shown}")
    return found


def _write(folder: str, traced: Traced, found: dict[str, Any]) -> None:
    events = Events(folder, traced.graph)
    scalars = {key: float(value) for key, value in found.items() if key != "global_step" and np.ndim(value) == 0
               and np.asarray(value).dtype.kind in "fiub"}  # fmt: skip
    events.scalars(int(found["global_step"]), **scalars)
    events.close()

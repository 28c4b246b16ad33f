"""Replays the steps before a NaN loss to name the first non-finite gradient."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.estimator.models import PlainModel
from tpugraph.estimator.reporting import say
from tpugraph.estimator.train import NanLossDuringTrainingError
from tpugraph.support.errors import TpuGraphError

tf1 = tf.compat.v1

_SECONDS = 60.0  # limits the replay


def replay_nan(
    failure: NanLossDuringTrainingError, model: Callable[[], PlainModel], newest: Callable[[], tuple[str, int]]
) -> NanLossDuringTrainingError | None:
    """The same error with the variable of the first non-finite gradient, and its step; None where a replay does not meet it.

    The plain graph takes the global batch, so that it trains as the cores do, up to rounding and random numbers. ``newest`` returns
    the newest checkpoint and its global step.
    """
    try:
        checkpoint, saved = newest()
        if not failure.start <= saved < failure.step:
            return None
        replayed = model()
        try:
            found = _replay(replayed, checkpoint, saved - failure.start, failure.step - saved)
        finally:
            replayed.close()
    except (TpuGraphError, tf.errors.OpError, ValueError, TypeError) as error:
        say(f"note: the steps before the NaN loss cannot be replayed: {str(error).splitlines()[0]}")
        return None
    if found is None:
        say(f"note: a replay from step {saved:,} met no NaN gradient: the input or random numbers differ")
        return None
    steps, names = found
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    fault = (
        f"{failure.fault.partition(';')[0]}; the first NaN gradient is that of '{names[0]}', at step {saved + steps:,}"
    )
    if len(names) > 1:
        fault += f" (in the same step: {', '.join(names[1:3])}{more})"
    return NanLossDuringTrainingError(fault, origin=failure.origin, fix=failure.fix, step=failure.step,
                                      start=failure.start)  # fmt: skip


def _replay(model: PlainModel, checkpoint: str, skipped: int, steps: int) -> tuple[int, list[str]] | None:
    """The number of steps until a gradient is not finite, and the variables of such gradients; or None."""
    until = time.monotonic() + _SECONDS
    graph, spec = model.traced.graph, model.traced.spec
    gradients = _gradients(graph)
    with graph.as_default():
        finite = [tf.reduce_all(tf1.is_finite(tensor)) for _, tensor in gradients]
    takes = [op for op in graph.get_operations() if op.type in ops.GET_NEXT]
    model.start(checkpoint)
    for _ in range(skipped):
        model.session.run(takes)
        if time.monotonic() > until:
            return None
    for step in range(1, steps + 1):
        good, _ = model.session.run([finite, spec.train_op])
        bad = [name for (name, _), fine in zip(gradients, good, strict=True) if not fine]
        if bad:
            return step, bad
        if time.monotonic() > until:
            return None
    return None


def _gradients(graph: Any) -> list[tuple[str, Any]]:
    found = []
    for op in graph.get_operations():
        fact = ops.WRITES.get(op.type)
        if fact is None or fact.kind != "apply":
            continue
        gradient = op.inputs[fact.value]
        if gradient.dtype.is_floating and graph.is_fetchable(gradient):
            found.append((op.inputs[fact.variables[0]].op.name, gradient))
    return found

"""Metrics of an evaluation: pairs of a value and an update op, and the steps that were evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.estimator.arguments import instance
from tpugraph.support.errors import ArgumentTypeError

tf1 = tf.compat.v1


def checked(metrics: Any) -> dict[str, Any]:
    """The ``eval_metric_ops`` of a spec as pairs of a value, or a tuple of values, and an update op.

    A metric object of ``tf_keras`` gives its result and the update that it was called for; its variables begin anew with the
    local ones.

    Raises:
        ArgumentTypeError: something that is no metric.
    """
    if metrics is None:
        return {}
    instance("eval_metric_ops", metrics, Mapping, what="a dict")
    return {key: _pair(key, value) for key, value in metrics.items()}


def _pair(key: str, metric: Any) -> Any:
    if isinstance(metric, tuple) and len(metric) == 2:
        return metric
    updates = getattr(metric, "updates", None)
    if not updates or not callable(getattr(metric, "result", None)):
        raise ArgumentTypeError(
            f"eval_metric_ops: '{key}' must be a pair (value tensor, update op), but is {metric!r}",
            fix="a function of tf.compat.v1.metrics returns such a pair; a metric of tf_keras must have been called",
        )
    known = {id(variable) for variable in tf1.local_variables()}
    for variable in metric.variables:
        if id(variable) not in known:
            tf1.add_to_collection(tf1.GraphKeys.LOCAL_VARIABLES, variable)
    return metric.result(), updates[0]


def flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The same metrics with one value each: those of a tuple are called ``name/0``, ``name/1`` and so on."""
    found = {}
    for key, (value, update) in metrics.items():
        parts = {f"{key}/{i}": part for i, part in enumerate(value)} if isinstance(value, tuple) else {key: value}
        found.update({name: (part, update) for name, part in parts.items()})
    return found


def together(metrics: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What was found of flat metrics, with tuples as tuples again; other names stay."""
    values = dict(found)
    for key, (value, _) in metrics.items():
        if isinstance(value, tuple):
            values[key] = tuple(values.pop(f"{key}/{i}") for i in range(len(value)))
    return values


def eval_step() -> Any:
    """The variable of the current graph that counts the batches of an evaluation, which hooks look at."""
    known = tf1.get_collection(tf1.GraphKeys.EVAL_STEP)
    if known:
        return known[0]
    with tf1.variable_scope(tf1.get_variable_scope(), use_resource=True):
        return tf1.get_variable("eval_step", [], tf.int64, tf1.zeros_initializer(), trainable=False,
                                collections=[tf1.GraphKeys.LOCAL_VARIABLES, tf1.GraphKeys.EVAL_STEP])  # fmt: skip


def count_steps(session: Any, steps: int) -> None:
    """Let the variable of :func:`eval_step` have a value in a session."""
    given = eval_step().initializer
    session.run(given, {given.inputs[1]: np.int64(steps)})

"""Evaluation: metrics over the batches of an input, every example once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.estimator.compiling import metric_tensor_names
from tpugraph.estimator.hooks import HookedRuns, HostSession, LoopHooks
from tpugraph.estimator.input_faults import naming_bad_batch
from tpugraph.estimator.models import CoresModel, PlainModel
from tpugraph.estimator.reporting import say
from tpugraph.estimator.specs import flat_metrics, regrouped
from tpugraph.estimator.tracing import Traced, initialising_all
from tpugraph.runtime.event_files import Events
from tpugraph.support.errors import ArgumentError, RunError
from tpugraph.support.wording import counted

tf1 = tf.compat.v1


def eval_step() -> Any:
    """The variable that counts the batches of an evaluation, which hooks read."""
    known = tf1.get_collection(tf1.GraphKeys.EVAL_STEP)
    if known:
        return known[0]
    with tf1.variable_scope(tf1.get_variable_scope(), use_resource=True):
        return tf1.get_variable("eval_step", [], tf.int64, tf1.zeros_initializer(), trainable=False,
                                collections=[tf1.GraphKeys.LOCAL_VARIABLES, tf1.GraphKeys.EVAL_STEP])  # fmt: skip


def count_steps(session: Any, steps: int) -> None:
    given = eval_step().initializer
    session.run(given, {given.inputs[1]: np.int64(steps)})


def check_names(traced: Traced) -> None:
    """Refuses metrics called ``loss`` or ``global_step``."""
    taken = {"loss", "global_step"} & set(traced.spec.eval_metric_ops)
    if taken:
        raise ArgumentError(f"the metric '{taken.pop()}' has the name of one that is always there", fix="rename it")


def add_metrics(traced: Traced) -> None:
    """Adds the mean of the loss to the metrics, and the op that updates them all."""
    check_names(traced)
    with traced.graph.as_default():
        metrics = {**flat_metrics(traced.spec.eval_metric_ops), "loss": tf1.metrics.mean(traced.spec.loss)}
        update = tf.group(*(pair[1] for pair in metrics.values()), tf1.assign_add(eval_step(), 1))
        traced.scaffold = initialising_all(traced.scaffold)  # the model knows nothing of these variables
        values = {key: pair[0] for key, pair in metrics.items()}
        traced.metrics = update, {**values, "global_step": tf1.train.get_global_step()}


def evaluate_on_cores(
    model: CoresModel, checkpoint: str | None, steps: int | None, hooks: Sequence[Any], folder: str
) -> dict[str, Any] | None:
    """Evaluates a converted model at a checkpoint (initial values where None), and writes the metrics to an event file.

    Hooks are called around each loop, as in training; with ``steps``, all of them are one loop. Returns None, with a note, if a
    hook fetches tensors that the cores do not export.
    """
    traced, session = model.traced, model.session
    metrics = metric_tensor_names(traced.spec.eval_metric_ops)
    around = LoopHooks(hooks, model, [traced.spec.loss, *(pair[1] for pair in traced.spec.eval_metric_ops.values())])
    with traced.graph.as_default():
        eval_step()
        around.begin()
        model.start(checkpoint)
        if hooks:
            count_steps(model.host, 0)
        around.after_create_session()
        loops, result, tried = session.evaluating(steps, loop=steps), None, 0
        while not around.stop_requested and (result is None or steps is None or result.steps < steps):
            around.before_loop()
            if result is None and around.wants_batches("evaluation"):
                return None
            tried += steps or session.iterations_per_loop
            with naming_bad_batch(traced, tried):
                part = next(loops, None)
            if part is None:
                break
            result = part
            model.call_host(result.collected)
            if hooks:
                count_steps(model.host, result.steps)
            known = {value: result[name] for name, (value, _) in metrics.items()}
            around.after_loop({traced.loss: np.float32(result.last_loss), **known})
        around.end()
    if result is None:
        raise RunError("a hook stopped the evaluation before its first batch", origin=traced.source)
    if steps is not None and result.steps < steps:
        say(f"the data ended after {result.steps:,} of {steps:,} batches")
    found = {**regrouped(traced.spec.eval_metric_ops, result), "global_step": np.int64(session.global_step)}
    done = (
        f"{counted(result.examples, 'example')} in {_batches(result.steps)} on {counted(session.num_replicas, 'core')}"
    )
    return _report(folder, traced, found, done, checkpoint)


def evaluate(
    model: PlainModel, checkpoint: str | None, steps: int | None, hooks: Sequence[Any], folder: str
) -> dict[str, Any]:
    """Evaluates a plain model at a checkpoint (initial values where None), and writes the metrics to an event file."""
    update, values = model.traced.metrics
    runs = HookedRuns(hooks, model)
    runs.begin()
    model.start(checkpoint)
    runs.after_create_session()
    done = 0
    try:
        while (steps is None or done < steps) and not runs.stop_requested:
            with naming_bad_batch(model.traced, done + 1):
                runs.run(update)
            done += 1
    except tf.errors.OutOfRangeError:
        if not done:
            raise RunError("the input of the evaluation is empty", origin=model.traced.source) from None
        if steps is not None:
            say(f"the data ended after {done:,} of {steps:,} batches")
    try:
        found = dict(model.session.run(values))
    except tf.errors.OutOfRangeError as error:
        raise _reads_a_batch(model.traced, values) from error
    runs.end()
    return _report(
        folder, model.traced, regrouped(model.traced.spec.eval_metric_ops, found), _batches(done), checkpoint
    )


def _reads_a_batch(traced: Traced, values: dict[str, Any]) -> ArgumentError:
    """The error where values of metrics depend on the input, not on what they accumulated."""
    with HostSession(traced.graph) as host:
        reading = [key for key, value in values.items() if host.takes_input(value)]
    return ArgumentError(
        f"the value of the metric '{', '.join(reading)}' reads another batch behind the last one",
        origin=traced.source,
        fix="a metric is a pair: its value reads variables, and its update op writes what a batch adds to them",
    )


def _batches(count: int) -> str:
    return f"{count:,} batch{'es' if count > 1 else ''}"


def _report(folder: str, traced: Traced, found: dict[str, Any], done: str, checkpoint: str | None) -> dict[str, Any]:
    events, step = Events(folder, traced.graph), int(found["global_step"])
    events.results(step, {key: value for key, value in found.items() if key != "global_step"}, checkpoint)
    events.close()
    shown = ", ".join(
        f"{key} {value:.6g}"
        for key, value in sorted(found.items())
        if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub" and key != "global_step"
    )
    say(f"evaluated {done} at step {step:,}: {shown}")
    return found

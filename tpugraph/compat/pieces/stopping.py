"""The hooks of ``tf.estimator.experimental`` that stop training early."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


class _StopWhen(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Asks for a stop where a function says so, now and then."""

    def __init__(self, should_stop: Callable[[int], bool], seconds: float | None, steps: int | None) -> None:
        self._should_stop = should_stop
        self._timer = tf1.train.SecondOrStepTimer(every_secs=seconds, every_steps=steps)

    def begin(self) -> None:
        self._step = tf1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_values.results)
        if not self._timer.should_trigger_for_step(step):
            return
        self._timer.update_last_triggered_step(step)
        if self._should_stop(step):
            tf1.logging.info("Requesting early stopping at global step %d", step)
            run_context.request_stop()


def make_early_stopping_hook(estimator: Any, should_stop_fn: Callable[[], bool], run_every_secs: float | None = 60,
                             run_every_steps: int | None = None) -> Any:  # fmt: skip
    """A hook that stops training where ``should_stop_fn`` returns True.

    Raises:
        TypeError: no function.
        ValueError: not just one of the intervals is given.
    """
    del estimator
    if not callable(should_stop_fn):
        raise TypeError("`should_stop_fn` must be callable")
    if (run_every_secs is None) == (run_every_steps is None):
        raise ValueError("Exactly one of `run_every_secs` and `run_every_steps` must be set.")
    return _StopWhen(lambda step: should_stop_fn(), run_every_secs, run_every_steps)


def make_stop_at_checkpoint_step_hook(estimator: Any, last_step: int, wait_after_file_check_secs: int = 30) -> Any:
    """A hook that stops training at a global step; one process trains, so that no other one's checkpoint is awaited."""
    del estimator, wait_after_file_check_secs
    return _StopWhen(lambda step: step >= last_step, None, 1)


# --------------------------------------------------------------------------- by metrics of evaluations


def _evaluations(folder: str, metric_name: str) -> dict[int, float]:
    """The values of a metric in the event files of a folder, by step."""
    found: dict[int, float] = {}
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        if "tfevents" not in name:
            continue
        for event in tf1.train.summary_iterator(os.path.join(folder, name)):
            for value in event.summary.value:
                if value.tag == metric_name and value.HasField("simple_value"):
                    found[event.step] = value.simple_value
    return dict(sorted(found.items()))


def _threshold(better: Callable[[float, float], bool]) -> Callable[..., Any]:
    def hook(estimator: Any, metric_name: str, threshold: float, eval_dir: str | None = None, min_steps: int = 0,
             run_every_secs: float | None = 60, run_every_steps: int | None = None) -> Any:  # fmt: skip
        folder = eval_dir or estimator.eval_dir()

        def reached() -> bool:
            found = _evaluations(folder, metric_name)
            return any(step >= min_steps and better(value, threshold) for step, value in found.items())

        return make_early_stopping_hook(estimator, reached, run_every_secs, run_every_steps)

    return hook


def _patience(better: Callable[[float, float], bool], limit: str) -> Callable[..., Any]:
    def hook(estimator: Any, metric_name: str, most_steps: int | None = None, eval_dir: str | None = None, min_steps: int = 0,
             run_every_secs: float | None = 60, run_every_steps: int | None = None, **named: int) -> Any:  # fmt: skip
        folder, most = eval_dir or estimator.eval_dir(), named[limit] if most_steps is None else most_steps

        def over() -> bool:
            best, since = None, 0
            for step, value in _evaluations(folder, metric_name).items():
                if step < min_steps:
                    continue
                if best is None or better(value, best):
                    best, since = value, step
                elif step - since >= most:
                    return True
            return False

        return make_early_stopping_hook(estimator, over, run_every_secs, run_every_steps)

    return hook


stop_if_higher_hook = _threshold(operator.ge)
"""A hook that stops training once a metric of an evaluation is at least the threshold."""
stop_if_lower_hook = _threshold(operator.le)
stop_if_no_increase_hook = _patience(operator.gt, "max_steps_without_increase")
"""A hook that stops training once a metric has not risen for so many steps."""
stop_if_no_decrease_hook = _patience(operator.lt, "max_steps_without_decrease")

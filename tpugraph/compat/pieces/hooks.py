"""The hooks of ``tf.estimator.experimental``: they stop training early, or evaluate while a model trains."""

from __future__ import annotations

import operator
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.estimator.tpu_estimator import TPUEstimator
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


class _StopWhen(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Stops training where ``should_stop(step)`` says so; it is asked every so many seconds or steps."""

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
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder, {"scalars": 0})  # all of them, not a sample
    known = os.path.isdir(folder) and metric_name in events.Reload().Tags()["scalars"]
    return {event.step: event.value for event in events.Scalars(metric_name)} if known else {}


def _metric_hook(estimator: Any, metric_name: str, reached: Callable[[dict[int, float]], bool], eval_dir: str | None,
                 min_steps: int, run_every_secs: float | None, run_every_steps: int | None) -> Any:  # fmt: skip
    """A hook that stops training where ``reached`` says so of the values of a metric by step, from ``min_steps`` on."""
    folder = eval_dir or estimator.eval_dir()

    def stops() -> bool:
        values = _evaluations(folder, metric_name)
        return reached({step: value for step, value in values.items() if step >= min_steps})

    return make_early_stopping_hook(estimator, stops, run_every_secs, run_every_steps)


def _stale(better: Callable[[float, float], bool], values: dict[int, float], steps: int) -> bool:
    """Whether the best value so far was ever ``steps`` steps old."""
    best, best_step = None, 0
    for step, value in values.items():
        if best is None or better(value, best):
            best, best_step = value, step
        elif step - best_step >= steps:
            return True
    return False


def stop_if_higher_hook(estimator: Any, metric_name: str, threshold: float, eval_dir: str | None = None, min_steps: int = 0,
                        run_every_secs: float | None = 60, run_every_steps: int | None = None) -> Any:  # fmt: skip
    """A hook that stops training once a metric of an evaluation is at least the threshold."""
    return _metric_hook(estimator, metric_name, lambda values: any(value >= threshold for value in values.values()),
                        eval_dir, min_steps, run_every_secs, run_every_steps)  # fmt: skip


def stop_if_lower_hook(estimator: Any, metric_name: str, threshold: float, eval_dir: str | None = None, min_steps: int = 0,
                       run_every_secs: float | None = 60, run_every_steps: int | None = None) -> Any:  # fmt: skip
    """A hook that stops training once a metric of an evaluation is at most the threshold."""
    return _metric_hook(estimator, metric_name, lambda values: any(value <= threshold for value in values.values()),
                        eval_dir, min_steps, run_every_secs, run_every_steps)  # fmt: skip


def stop_if_no_increase_hook(estimator: Any, metric_name: str, max_steps_without_increase: int, eval_dir: str | None = None,
                             min_steps: int = 0, run_every_secs: float | None = 60,
                             run_every_steps: int | None = None) -> Any:  # fmt: skip
    """A hook that stops training once a metric has not risen for so many steps."""
    return _metric_hook(estimator, metric_name, lambda values: _stale(operator.gt, values, max_steps_without_increase),
                        eval_dir, min_steps, run_every_secs, run_every_steps)  # fmt: skip


def stop_if_no_decrease_hook(estimator: Any, metric_name: str, max_steps_without_decrease: int, eval_dir: str | None = None,
                             min_steps: int = 0, run_every_secs: float | None = 60,
                             run_every_steps: int | None = None) -> Any:  # fmt: skip
    """A hook that stops training once a metric has not fallen for so many steps."""
    return _metric_hook(estimator, metric_name, lambda values: _stale(operator.lt, values, max_steps_without_decrease),
                        eval_dir, min_steps, run_every_secs, run_every_steps)  # fmt: skip


# --------------------------------------------------------------------------- evaluation in between


class InMemoryEvaluatorHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Evaluates before training, every so many steps, and at the end; the metrics go where those of ``evaluate`` go.

    On cores a loop of steps is done before its end is seen: then the evaluation comes with the first loop that ends there or later.

    Args:
        estimator: the one that trains; it evaluates as well.
        steps: batches of an evaluation; all of the data when None.
        name: a name for the folder of their event files.
        every_n_iter: steps between two evaluations.

    Raises:
        ArgumentError: ``every_n_iter`` is not positive (a ``ValueError``).
        ArgumentTypeError: no estimator (a ``TypeError``).
    """

    def __init__(self, estimator: TPUEstimator, input_fn: Callable[..., Any], steps: int | None = None,
                 hooks: Sequence[Any] | None = None, name: str | None = None, every_n_iter: int = 100) -> None:  # fmt: skip
        if not isinstance(estimator, TPUEstimator):
            raise ArgumentTypeError(f"`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}")
        if every_n_iter is None or every_n_iter <= 0:
            raise ArgumentError(f"invalid every_n_iter={every_n_iter}.", fix="every_n_iter=100")
        self._estimator, self._asked = estimator, (input_fn, steps, hooks)
        self._name = name
        self._timer = tf1.train.SecondOrStepTimer(every_steps=every_n_iter)

    def begin(self) -> None:
        self._step = tf1.train.get_global_step()
        self._variables = tf1.global_variables()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._now(session, int(session.run(self._step)))

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_context.session.run(self._step))
        if self._timer.should_trigger_for_step(step):
            self._now(run_context.session, step)

    def end(self, session: Any) -> None:
        self._now(session, int(session.run(self._step)))

    def _now(self, session: Any, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        with tempfile.TemporaryDirectory(prefix="tpugraph-evaluation-") as folder:
            path = _saved(self._variables, session.run(self._variables), Path(folder) / f"model.ckpt-{step}")
            self._estimator.evaluate(*self._asked, checkpoint_path=path, name=self._name)


def _saved(variables: Sequence[Any], values: Sequence[Any], path: Path) -> str:
    """Write values of variables as a checkpoint; returns its prefix."""
    slices = [variable._get_save_slice_info() for variable in variables]
    names = [v.op.name if part is None else part.full_name for v, part in zip(variables, slices, strict=True)]
    with tf.Graph().as_default(), tf1.Session() as session:
        session.run(tf.raw_ops.SaveV2(prefix=str(path), tensor_names=names, tensors=list(values),
                                      shape_and_slices=["" if part is None else part.spec for part in slices]))  # fmt: skip
    return str(path)

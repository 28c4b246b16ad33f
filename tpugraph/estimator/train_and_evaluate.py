"""train_and_evaluate: training with an evaluation of its checkpoints now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import check_int, check_number, check_type
from tpugraph.estimator.checkpoints import check_listeners
from tpugraph.estimator.cluster import EVALUATOR, refuse_to_train
from tpugraph.estimator.reporting import say
from tpugraph.estimator.specs import hooks_of
from tpugraph.estimator.tpu_estimator import TPUEstimator
from tpugraph.estimator.user_functions import check_input_fn
from tpugraph.support.errors import ArgumentError, ArgumentTypeError, RunError

LONGEST_WAIT = 24 * 3600.0  # seconds without a new checkpoint after which an evaluator gives up


class TrainSpec:
    """The training of :func:`train_and_evaluate`; arguments as :meth:`TPUEstimator.train`."""

    def __init__(self, input_fn: Callable[..., Any], max_steps: int | None = None, hooks: Sequence[Any] | None = None,
                 saving_listeners: Sequence[Any] | None = None) -> None:  # fmt: skip
        self.input_fn = check_input_fn(input_fn, "TrainSpec ")
        self.max_steps = None if max_steps is None else check_int("TrainSpec max_steps", max_steps, least=1)
        self.hooks = hooks_of("TrainSpec hooks", hooks)
        self.saving_listeners = check_listeners(saving_listeners)


class EvalSpec:
    """The evaluation of :func:`train_and_evaluate`.

    Args:
        input_fn, hooks: as :meth:`TPUEstimator.evaluate`.
        steps: at most so many batches; all of the data when None.
        name: a name for the folder of the event files.
        exporters: objects with a ``name`` and a method ``export(estimator, export_path, checkpoint_path, eval_result,
            is_the_final_export)``.
        start_delay_secs: seconds before the first evaluation, in an evaluator of TF_CONFIG only.
        throttle_secs: the least seconds between two evaluations.
    """

    def __init__(self, input_fn: Callable[..., Any], steps: int | None = 100, name: str | None = None,
                 hooks: Sequence[Any] | None = None, exporters: Any = None, start_delay_secs: float = 120,
                 throttle_secs: float = 600) -> None:  # fmt: skip
        self.input_fn = check_input_fn(input_fn, "EvalSpec ")
        self.steps = None if steps is None else check_int("EvalSpec steps", steps, least=1)
        self.name = name if name is None else check_type("EvalSpec name", name, str, what="a text")
        self.hooks = hooks_of("EvalSpec hooks", hooks)
        listed = exporters is None or isinstance(exporters, (list, tuple))
        self.exporters = tuple(exporters or ()) if listed else (exporters,)
        for exporter in self.exporters:
            if not hasattr(exporter, "name") or not callable(getattr(exporter, "export", None)):
                raise ArgumentTypeError(f"EvalSpec exporters: {exporter!r} has no name and export method")
        self.start_delay_secs = check_number("EvalSpec start_delay_secs", start_delay_secs)
        self.throttle_secs = check_number("EvalSpec throttle_secs", throttle_secs)


def train_and_evaluate(
    estimator: TPUEstimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any]]:
    """Trains, and evaluates checkpoints as often as the throttle allows, the last one always.

    An evaluator of TF_CONFIG does not train: it evaluates the checkpoints that another process writes into the model_dir, up to
    the one of ``max_steps`` steps, or for a day without a new one.

    Returns:
        The metrics of the last evaluation, and what the exporters returned.

    Raises:
        ArgumentError: the model_dir is at ``max_steps`` already; or TF_CONFIG has a second evaluator, or makes this process a
            parameter server or a worker beside the chief.
        RunError: an evaluator found no new checkpoint for a day.
    """
    for value, kind in ((estimator, TPUEstimator), (train_spec, TrainSpec), (eval_spec, EvalSpec)):
        check_type("train_and_evaluate: an argument", value, kind, what=f"a tpugraph.{kind.__name__}")
    evaluations = _Evaluations(estimator, eval_spec, train_spec.max_steps)
    if estimator.config.task_type == EVALUATOR:
        return evaluations.watch()
    config = estimator.config
    refuse_to_train(config.task_type, config.task_id, beside_chief=not config.is_chief)
    if estimator.latest_checkpoint() is not None and train_spec.max_steps is not None \
            and estimator.saved_step >= train_spec.max_steps:  # fmt: skip
        raise ArgumentError(f"the model_dir is at step {estimator.saved_step:,} already, and max_steps is "
                            f"{train_spec.max_steps:,}: nothing to train or evaluate", fix="raise max_steps")  # fmt: skip
    estimator.train(train_spec.input_fn, train_spec.hooks, max_steps=train_spec.max_steps,
                    saving_listeners=[*train_spec.saving_listeners, evaluations])  # fmt: skip
    return evaluations.finish()


class _Evaluations(tf.compat.v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates checkpoints when they are saved."""

    def __init__(self, estimator: TPUEstimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._start: int | None = None
        self._step = 0
        self._when = time.monotonic()
        self._metrics: dict[str, Any] | None = None
        self._exported: list[Any] = []

    def after_save(self, session: Any, global_step_value: int) -> None:
        if self._start is None:
            self._start = global_step_value
        # the checkpoint that training starts with is not evaluated, and the last one by finish()
        last = self._max_steps is not None and global_step_value >= self._max_steps
        if global_step_value > self._start and not last and time.monotonic() - self._when >= self._spec.throttle_secs:
            self._evaluate(final=False)

    def finish(self) -> tuple[dict[str, Any] | None, list[Any]]:
        self._evaluate(final=True)
        return self._metrics, self._exported

    def watch(self) -> tuple[dict[str, Any] | None, list[Any]]:
        """Evaluates what another process saves, up to the checkpoint of ``max_steps`` steps."""
        spec, estimator, max_steps = self._spec, self._estimator, self._max_steps
        if estimator.config.task_id > 0:
            raise ArgumentError(f"TF_CONFIG calls this process evaluator {estimator.config.task_id}, but there can only be one "
                                "`evaluator` task", fix='"task": {"type": "evaluator", "index": 0}')  # fmt: skip
        say(f"evaluating what is saved in {estimator.model_dir}, after {spec.start_delay_secs:g} seconds")
        time.sleep(spec.start_delay_secs)
        for _ in tf.train.checkpoints_iterator(estimator.model_dir, spec.throttle_secs, LONGEST_WAIT):
            final = max_steps is not None and estimator.saved_step >= max_steps
            self._evaluate(final=final)
            if final:
                return self._metrics, self._exported
        if max_steps is not None:
            raise RunError(f"no new checkpoint in '{estimator.model_dir}' for {LONGEST_WAIT / 3600:g} hours; the last is at step "
                           f"{self._step:,} of {max_steps:,}", fix="see whether the training process still runs")  # fmt: skip
        return self._metrics, self._exported

    def _evaluate(self, *, final: bool) -> None:
        spec, estimator = self._spec, self._estimator
        checkpoint = estimator.latest_checkpoint()
        if self._metrics is None or estimator.saved_step != self._step:
            self._metrics = estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, checkpoint, spec.name)
            self._step = int(self._metrics["global_step"])
        self._exported = [
            exporter.export(estimator, os.path.join(estimator.model_dir, "export", exporter.name), checkpoint,
                            self._metrics, final)
            for exporter in spec.exporters
        ]  # fmt: skip
        self._when = time.monotonic()

"""``InMemoryEvaluatorHook``: evaluates with the current variables while a model trains, without a checkpoint."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.estimator.tpu_estimator import TPUEstimator
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


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

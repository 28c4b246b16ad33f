"""Training without cores: the plain graph, one Session.run per step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.host_session import HostSession
from tpugraph.estimator.input_faults import explained
from tpugraph.estimator.interrupt import Interrupt
from tpugraph.estimator.nan_loss import NanLossDuringTrainingError
from tpugraph.estimator.reporting import Meter, say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.saving import PREFIX, PlainSaver, first_checkpoint
from tpugraph.estimator.stop_criterion import Goal
from tpugraph.estimator.tracing import Traced
from tpugraph.estimator.warm_start import WarmStartSettings
from tpugraph.ir.session_config import guarded
from tpugraph.runtime.event_files import Events
from tpugraph.support.wording import counted

tf1 = tf.compat.v1


def train_plain(traced: Traced, model_dir: str, config: RunConfig, hooks: Sequence[Any], listeners: Sequence[Any],
                warm: WarmStartSettings | None, goal: Goal) -> None:  # fmt: skip
    """Train as a plain Estimator does.

    Raises:
        NanLossDuringTrainingError: a loss is no number; no checkpoint is written any more.
        KeyboardInterrupt: Ctrl-C; a checkpoint is written first.
    """
    graph, scaffold = traced.graph, traced.scaffold
    interrupt = Interrupt("stopping after this step; once more to stop at once")
    if traced.plan.line:
        say(traced.plan.line)
    with graph.as_default():
        watch = _Watch(traced)
        saver = PlainSaver(traced)
        every = [
            *hooks,
            watch,
            *_savers(saver, scaffold, model_dir, config, listeners),
        ]  # hooks see a loss that is no number
        for hook in every:
            hook.begin()
        scaffold.finalize()
        with HostSession(graph, config.session_config) as host:
            prefix = saver.last = first_checkpoint(traced, host, model_dir, warm)
        creator = tf1.train.ChiefSessionCreator(
            _Finalized(scaffold),
            master=config.master,
            config=guarded(config.session_config),
            checkpoint_filename_with_path=prefix,
        )
        events = Events(model_dir, graph)
        try:
            hooked = [_Begun(hook) for hook in every]
            with (
                interrupt,
                explained(traced, lambda: watch.tried),
                tf1.train.MonitoredSession(creator, hooks=hooked) as session,
            ):
                if watch.done:
                    say(f"restored {prefix} at step {watch.done:,}")
                _steps(session, traced, config, watch, goal, events, interrupt)
        finally:
            events.close()
    if interrupt.requested:
        raise KeyboardInterrupt


def _savers(saver: PlainSaver, scaffold: Any, model_dir: str, config: RunConfig, listeners: Sequence[Any]) -> list[Any]:
    steps, seconds = config.save_checkpoints_steps, config.save_checkpoints_secs
    if not steps and not seconds:
        steps = 2**62  # the first one and the last one
    found = [
        tf1.train.CheckpointSaverHook(
            model_dir,
            save_secs=seconds or None,
            save_steps=None if seconds else steps,
            saver=saver,
            checkpoint_basename=PREFIX,
            listeners=list(listeners),
        )
    ]
    if config.save_summary_steps:
        found.append(tf1.train.SummarySaverHook(config.save_summary_steps, output_dir=model_dir, scaffold=scaffold))
    return found


def _steps(session: Any, traced: Traced, config: RunConfig, watch: _Watch, goal: Goal, events: Events,
           interrupt: Interrupt) -> None:  # fmt: skip
    """Step after step, to the goal, the end of the data or Ctrl-C."""
    start = watch.done
    last = goal.last_step(start)
    meter = Meter(config.log_step_count_steps, traced.plan.whole, start, events, last)
    done = start
    try:
        while (last is None or done < last) and not session.should_stop() and not interrupt.requested:
            loss = session.run([traced.spec.train_op, traced.spec.loss])[1]
            done += 1
            meter.update(done, float(loss))
    except tf.errors.OutOfRangeError:
        say(f"the data ended after {counted(done - start, 'step')}")
    finally:
        meter.end(done)


class _Watch(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Stops at a loss that is no number, before anything is saved."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self._step = tf1.train.get_global_step(traced.graph)
        self.done = 0
        self.tried = 0
        self._start = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """See where training starts."""
        self.done = self._start = int(session.run(self._step))

    def before_run(self, run_context: Any) -> Any:
        """Ask for the loss of the step."""
        self.tried += 1
        return tf1.train.SessionRunArgs(self._traced.spec.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look at it."""
        self.done += 1
        if not math.isfinite(run_values.results):
            raise NanLossDuringTrainingError(
                f"the loss is {run_values.results} at step {self.done:,}",
                origin=self._traced.source,
                fix="look at the input of that step, lower the learning rate or clip the gradients; training can go on "
                "from the last checkpoint",
                step=self.done,
                start=self._start,
            )


class _Finalized:
    """A scaffold that was finalized already, for who would do it again."""

    def __init__(self, scaffold: Any) -> None:
        self._scaffold = scaffold

    def finalize(self) -> Any:
        """The scaffold."""
        return self._scaffold

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scaffold, name)


class _Begun(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook whose ``begin`` was called already."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook
        for name in ("after_create_session", "before_run", "after_run", "end"):
            setattr(self, name, getattr(hook, name))

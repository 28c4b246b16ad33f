"""Training on cores: loops, and what happens between them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.estimator.compiling import compile_training
from tpugraph.estimator.hooks import LoopHooks
from tpugraph.estimator.host_call import HostCall, take
from tpugraph.estimator.host_session import HostSession
from tpugraph.estimator.input_faults import explained
from tpugraph.estimator.interrupt import Interrupt
from tpugraph.estimator.loop_length import LoopLength
from tpugraph.estimator.nan_loss import NanLossDuringTrainingError
from tpugraph.estimator.reporting import Meter, say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.saving import Checkpoints, first_checkpoint
from tpugraph.estimator.stop_criterion import Goal
from tpugraph.estimator.tracing import Traced
from tpugraph.estimator.warm_start import WarmStartSettings
from tpugraph.runtime.cluster.workers import CLUSTER
from tpugraph.runtime.event_files import Events
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError
from tpugraph.support.wording import counted

tf1 = tf.compat.v1
_REACH_SECONDS = 120.0


class Cores:
    """A model on cores: traced, converted and with a session that stays open from one training to the next.

    Args:
        traced: the model.
        fingerprint: that of its input.
        config: the run configuration.

    Attributes:
        routes: tensors that leave the cores with the summaries, by the tag of their summary.
    """

    def __init__(self, traced: Traced, fingerprint: bytes, config: RunConfig) -> None:
        self.traced = traced
        self.fingerprint = fingerprint
        self._config = config
        self.routes: dict[str, Any] = {}
        self._session: TPUSession | None = None
        self._host: HostSession | None = None

    @property
    def session(self) -> TPUSession:
        """The session on the cores, once opened."""
        assert self._session is not None
        return self._session

    @property
    def host(self) -> HostSession:
        """The session of hooks, once opened."""
        assert self._host is not None
        return self._host

    def open(self) -> None:
        """Convert and open the sessions, in the context of the graph; nothing happens where they are open."""
        if self._session is not None:
            return
        steps = LoopLength(self._config.tpu_config.iterations_per_loop).steps
        self.traced.scaffold.finalize()
        tables = self.traced.has_tables and not self._config.workers
        program = compile_training(self.traced, steps, **self._config.tpu_config.choices(tables=tables))
        for note in program.report["notes"]:
            say(f"note: {note}")
        if self._host is None:
            self._host = HostSession(self.traced.graph, self._config.session_config)
        self._session = TPUSession(program, master=self._config.master, cluster=self._config.workers,
                                   config=self._config.session_config,
                                   reach_seconds=min(self._config.session_creation_timeout_secs, _REACH_SECONDS))  # fmt: skip
        for note in self._session.notes:
            say(f"note: {note}")

    def route(self, tensors: Sequence[Any]) -> None:
        """Let tensors that depend on the input leave the cores with the summaries; the model is converted anew."""
        added = []
        for tensor in tensors:
            tag = f"tpugraph_fetch_{len(self.routes)}"
            self.routes[tag] = tensor
            added.append(tf1.summary.tensor_summary(tag, tensor, collections=[]))
        before = self.traced.scaffold.summary_op
        tf1.summary.merge([*([] if before is None else [before]), *added], collections=[])
        self.session.close()
        self._session = None
        self.open()

    def close(self) -> None:
        """Close the sessions."""
        for session in (self._session, self._host):
            if session is not None:
                session.close()
        self._session = self._host = None


class Training:
    """One call of ``train`` on cores.

    Args:
        cores: the model.
        model_dir: the folder of checkpoints and event files.
        config: the run configuration.
        hooks: the user's hooks and those of the model.
        listeners: saving listeners.
        warm: what to start from where the folder has no checkpoint.
    """

    def __init__(self, cores: Cores, model_dir: str, config: RunConfig, hooks: Sequence[Any], listeners: Sequence[Any],
                 warm: WarmStartSettings | None) -> None:  # fmt: skip
        self._cores = cores
        self._model_dir = model_dir
        self._config = config
        self._hooks = LoopHooks(hooks, cores.traced)
        self._listeners = listeners
        self._warm = warm
        self._length = LoopLength(config.tpu_config.iterations_per_loop)
        self._summary: tuple[int, bytes] | None = None
        self._due = False
        self._arrived: dict[str, Any] = {}
        self._summary_at = -1
        self._call: HostCall | None = None
        self._interrupt = Interrupt("stopping at the end of this loop; once more to stop at once")
        self._asked_steps = 0
        self._began = 0

    def run(self, goal: Goal) -> None:
        """Train to the goal, the end of the data, or a stop that a hook asks for.

        Raises:
            NanLossDuringTrainingError: a loss is no number; no checkpoint is written any more.
            KeyboardInterrupt: Ctrl-C; the checkpoint of the loop at work is written first.
            TpuGraphError: conversion, a step or the last checkpoint failed.
        """
        traced = self._cores.traced
        with traced.graph.as_default():  # what the user's hooks and listeners add goes there
            try:
                with self._interrupt, explained(traced, lambda: self._asked_steps):
                    self._run(goal)
            except RunError as error:
                if error.stage == CLUSTER:
                    self._cores.close()  # the next training starts with new sessions
                raise
        if self._interrupt.requested:
            raise KeyboardInterrupt

    def _run(self, goal: Goal) -> None:
        for listener in self._listeners:
            listener.begin()
        self._hooks.begin()
        self._cores.open()
        session, host = self._cores.session, self._cores.host
        self._began = start = self._start()
        say(self._cores.traced.plan.line)
        events = Events(self._model_dir, self._cores.traced.graph)
        checkpoints = Checkpoints(self._cores.traced, session, host, self._model_dir, self._config, self._listeners,
                                  events)  # fmt: skip
        checkpoints.begin(start)
        meter = Meter(self._config.log_step_count_steps, self._cores.traced.plan.whole, start, events,
                      goal.last_step(start))  # fmt: skip
        if self._cores.traced.host_call is not None:
            every = self._config.tpu_config.experimental_host_call_every_n_steps
            self._call = HostCall(self._cores.traced.host_call, every, self._config.session_config)
        try:
            self._hooks.after_create_session(host)
            step = self._loops(start, goal.last_step(start), checkpoints, meter, events)
            checkpoints.save(step, last=True)
            checkpoints.end(step)
            meter.end(step)
            self._hooks.end(host)
        finally:
            meter.close()
            events.close()
            if self._call is not None:
                self._call.close()

    def _start(self) -> int:
        """Give the variables their values, and open the input; returns the global step."""
        session, host = self._cores.session, self._cores.host
        host.follow(None)
        prefix = first_checkpoint(self._cores.traced, host, self._model_dir, self._warm)
        session.initialize()
        start = session.restore(prefix, with_input=False)
        host.follow(session)
        if start:
            say(f"restored {prefix} at step {start:,}")
        return start

    def _loops(self, start: int, last: int | None, checkpoints: Checkpoints, meter: Meter, events: Events) -> int:
        """Loop after loop; returns the global step reached."""
        step = start
        with ThreadPoolExecutor(1, thread_name_prefix="tpugraph-train") as worker:
            while (last is None or step < last) and not self._stopped(checkpoints):
                count = self._length.next(None if last is None else last - step)
                self._hooks.before_loop(self._cores.host)
                if self._hooks.stop_requested:
                    break
                if step == start:
                    self._route(checkpoints)
                losses = self._one(worker, step, count)
                step += len(losses)
                if losses:
                    known = {self._cores.traced.loss: np.float32(losses[-1]), **self._arrived}
                    self._hooks.after_loop(self._cores.host, known, losses)  # hooks see a loss that is no number
                    self._after(step, losses, events)
                    meter.update(step, losses[-1])
                    if not self._interrupt.requested:
                        checkpoints.save_if_due(step)
                if len(losses) < count:
                    say(f"the data ended after {counted(step - start, 'step')}")
                    break
        return step

    def _route(self, checkpoints: Checkpoints) -> None:
        """See that what the hooks want of the input's tensors arrives; nothing is trained yet."""
        routed = {tensor.name for tensor in self._cores.routes.values()}
        missing = [t for t in self._hooks.of_input(self._cores.host) if t.name not in routed]
        if missing:
            self._cores.route(missing)
            self._start()
            checkpoints.follow(self._cores.session)

    def _stopped(self, checkpoints: Checkpoints) -> bool:
        return self._hooks.stop_requested or checkpoints.stop_requested or self._interrupt.requested

    def _one(self, worker: ThreadPoolExecutor, step: int, count: int) -> list[float]:
        """One loop, in a thread of its own so that Ctrl-C can end it."""
        every = self._config.save_summary_steps
        due = bool(every) and (self._summary_at < 0 or step + count - self._summary_at >= every)
        self._due = due
        keep = self._keep_summary if due or self._cores.routes or self._call is not None else None
        began = time.monotonic()
        self._asked_steps += count
        losses = self._wait(worker.submit(self._cores.session.train, count, on_summary=keep))
        self._length.done(len(losses), time.monotonic() - began)
        return losses

    def _wait(self, loop: Future[list[float]]) -> list[float]:
        try:
            return loop.result()
        except KeyboardInterrupt:
            self._cores.close()
            raise

    def _keep_summary(self, step: int, serialized: bytes) -> None:
        """Take what hooks and the host call asked for out of the summaries; the rest is for TensorBoard."""
        (called, summary), rest = take(tf1.Summary.FromString(serialized)), tf1.Summary()
        self._arrived = {}
        if self._call is not None:
            rest.MergeFromString(self._call.run(step - len(next(iter(called.values()), ())), called) or b"")
        for value in summary.value:
            if value.tag in self._cores.routes:
                self._arrived[self._cores.routes[value.tag].name] = tf.make_ndarray(value.tensor)
            else:
                rest.value.append(value)
        if self._due:
            self._summary = step, rest.SerializeToString()

    def _after(self, step: int, losses: list[float], events: Events) -> None:
        """Check the losses of a loop, and write what TensorBoard shows of it."""
        first = step - len(losses) + 1
        bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if bad is not None:
            raise self._not_finite(first + bad, losses[bad])
        every = self._config.save_summary_steps or 0
        for index, loss in enumerate(losses[:-1]):
            if every and (first + index) % every == 0:
                events.scalars(first + index, loss=loss)
        if self._summary is not None:
            self._summary_at = self._summary[0]
            events.summary(*self._summary)
            self._summary = None

    def _not_finite(self, step: int, loss: float) -> NanLossDuringTrainingError:
        values = self._cores.session.values()
        gone = [n for n, v in values.items() if v.dtype.kind == "f" and not np.isfinite(v).all()]
        trained = [v.op.name for v in self._cores.traced.graph.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES)]
        first = [name for name in trained if name in gone] or gone
        where = f"; no longer finite: {', '.join(first[:3])}{', ...' if len(first) > 3 else ''}" if first else ""
        return NanLossDuringTrainingError(
            f"the loss is {loss} at step {step:,}{where}",
            origin=self._cores.traced.source,
            fix="look at the input of that step, lower the learning rate or clip the gradients; training can go on "
            "from the last checkpoint",
            step=step,
            start=self._began,
        )

"""Training: loops on cores, single steps of the plain graph, and what happens between them."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.estimator.arguments import check_int
from tpugraph.estimator.checkpoints import Checkpoints, WarmStartSettings, first_checkpoint, unsaved
from tpugraph.estimator.compiling import converted
from tpugraph.estimator.embeddings import room_for_ids
from tpugraph.estimator.hooks import HookedRuns, HostSession, LoopHooks, assign
from tpugraph.estimator.host_call import FETCHED, HostCall, split_summary
from tpugraph.estimator.input_faults import naming_bad_batch
from tpugraph.estimator.models import PlainModel
from tpugraph.estimator.reporting import Meter, say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.tpu_config import loop_length
from tpugraph.estimator.tracing import Traced
from tpugraph.runtime.event_files import Events
from tpugraph.runtime.session import TPUSession
from tpugraph.runtime.workers import CLUSTER
from tpugraph.support import errors
from tpugraph.support.errors import ArgumentError, ConversionError, RunError
from tpugraph.support.process import ended, in_thread, signals_to
from tpugraph.support.wording import counted

tf1 = tf.compat.v1


class NanLossDuringTrainingError(errors.NanLossDuringTrainingError, tf.compat.v1.train.NanLossDuringTrainingError):  # type: ignore[misc]
    """The loss is NaN or infinite; both tpugraph's error and the TensorFlow error that programs catch."""


_GROWTH = 10  # limits how much longer a timed loop is than the one before


class LoopLength:
    """The length of the next loop: a number of steps, or as many as fit into a time.

    A timed loop starts with one step and follows the pace of the loop before; the first one, which compiles, does not count.
    """

    def __init__(self, iterations_per_loop: int | str) -> None:
        self.steps, self._seconds = loop_length(iterations_per_loop)
        self._next, self._loops = self.steps or 1, 0

    def next(self, remaining: int | None) -> int:
        return self._next if remaining is None else min(self._next, remaining)

    def done(self, steps: int, seconds: float) -> None:
        self._loops += 1
        if self._seconds is not None and self._loops > 1 and steps:
            self._next = max(1, min(int(self._seconds * steps / max(seconds, 1e-9)), steps * _GROWTH))


@dataclass(frozen=True)
class Goal:
    """Ends training after ``steps`` steps or at the global step ``max_steps``; with neither, where ``endless``, with the data."""

    steps: int | None
    max_steps: int | None
    endless: bool

    def __post_init__(self) -> None:
        if self.steps is not None and self.max_steps is not None:
            raise ArgumentError(f"both steps ({self.steps}) and max_steps ({self.max_steps}) are given", fix="give one")
        for name in ("steps", "max_steps"):
            value = getattr(self, name)
            if value is not None and check_int(name, value, least=-sys.maxsize) < 1:
                raise ArgumentError(f"Must specify {name} > 0, but it is {value}")
        if not self.endless and self.steps is None and self.max_steps is None:
            raise ArgumentError("neither steps nor max_steps is given", fix="train(input_fn, max_steps=1000)")

    def last_step(self, start: int) -> int | None:
        return self.max_steps if self.steps is None else start + self.steps


_TIMED_LOOP = 1_000_000  # the most steps of a loop whose length is a time
_REACH_SECONDS = 120.0
_MOST_FED = 2**30  # bytes; a GraphDef has no more than twice as many


class TrainingModel:
    """A training model on cores, traced and converted, whose session stays open for the next training.

    Attributes:
        routes: tensors that leave the cores as summaries, by tag.
    """

    def __init__(self, traced: Traced, config: RunConfig) -> None:
        self.traced = traced
        self._config = config
        self.routes: dict[str, Any] = {}
        self.session: Any = None

    @cached_property
    def host(self) -> HostSession:
        """The session of hooks."""
        self.traced.finalize()
        return HostSession(self.traced.graph, self._config.session_config)

    def open(self) -> None:
        """Converts the model and opens its session, in the context of the graph; does nothing if it is open."""
        if self.session is not None:
            return
        tpu = self._config.tpu_config
        steps = LoopLength(tpu.iterations_per_loop).steps
        self.traced.finalize()
        choices = tpu.choices(tables=self.traced.has_tables and not self._config.workers)
        if not choices["max_ids"]:
            choices["max_ids"], longest = room_for_ids(self.traced.graph, self._config.session_config)
            if longest:
                say(f"note: lists of ids are padded to {choices['max_ids']}: of the first batches no row has more than {longest};"
                    " TPUConfig(max_ids=N) sets it")  # fmt: skip
        program = converted(self.traced, steps or _TIMED_LOOP, **choices)
        for note in program.report["notes"]:
            say(f"note: {note}")
        layout = tpu.layout(self.traced.parts)
        self.session = TPUSession(program, master=self._config.master, cluster=self._config.workers, mesh=layout,
                                  engine="xla" if layout else "emulator", platform=tpu.platform,
                                  config=self._config.session_config,
                                  reach_seconds=min(self._config.session_creation_timeout_secs, _REACH_SECONDS))  # fmt: skip
        if layout is not None:
            collectives = ", ".join(self.session.report["collectives"]) or "no collective"
            say(f"XLA divides the step on the mesh {layout.mesh} ({tpu.platform or 'cpu'}): {collectives}")
        for note in self.session.notes:
            say(f"note: {note}")

    def route(self, tensors: Sequence[Any]) -> None:
        """Exports tensors that depend on the input as summaries; converts the model anew."""
        added = []
        for tensor in tensors:
            tag = f"{FETCHED}{len(self.routes)}"
            self.routes[tag] = tensor
            added.append(tf1.summary.tensor_summary(tag, tensor, collections=[]))
        before = self.traced.scaffold.summary_op
        tf1.summary.merge([*([] if before is None else [before]), *added], collections=[])
        self.session.close()
        self.session = None
        self.open()

    def save(self, path: str, **how: Any) -> str:
        return str(self.session.save(path, with_input=False, **how))

    def wait_for_save(self) -> None:
        self.session.wait_for_save()

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        if (host := vars(self).pop("host", None)) is not None:
            host.close()
        self.session = None


class Training:
    """One call of ``train``: loops of steps, and hooks, checkpoints and summaries between them."""

    _hooks_class = LoopHooks
    _stopping = "stopping at the end of this loop; once more to stop at once"

    _open: Callable[[], int]  # opens the sessions and the input, restores the variables; returns the global step
    _loop: Callable[..., list[float]]  # runs count steps, the last with summaries if due; returns their losses
    _global_step: Callable[[], int]  # after a loop

    def __init__(self, model: TrainingModel | PlainModel, model_dir: str, config: RunConfig, hooks: Sequence[Any],
                 listeners: Sequence[Any], warm: WarmStartSettings | None) -> None:  # fmt: skip
        self._model = model
        self._traced: Traced = model.traced
        self._model_dir = model_dir
        self._config = config
        self._hooks = self._hooks_class(hooks, model)
        self._listeners = listeners
        self._warm = warm
        self._length = LoopLength(config.tpu_config.iterations_per_loop if model.traced.plan.cores else 1)
        self._summary: tuple[int, bytes] | None = None
        self._arrived: dict[str, Any] = {}  # what the hooks fetched of the last loop, by the tensor's name
        self._summary_at = -1
        self._call: HostCall | None = None
        self._interrupted = False
        self._asked_steps = 0

    def run(self, goal: Goal) -> None:
        """Trains to the goal, the end of the data, or a stop that a hook requests."""
        # a program's own handler stays
        numbers = [signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else []
        with self._traced.graph.as_default():  # what the user's hooks and listeners add goes there
            try:
                with signals_to(self._on_signal, numbers), naming_bad_batch(self._traced, lambda: self._asked_steps):
                    self._run(goal)
            except RunError as error:
                if error.stage == CLUSTER:
                    self._model.close()  # the next training starts with new sessions
                raise
        if self._interrupted:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Defers Ctrl-C to the end of the loop, since a library may swallow a KeyboardInterrupt; the second one is raised."""
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        say(self._stopping)

    def _run(self, goal: Goal) -> None:
        for listener in self._listeners:
            listener.begin()
        self._hooks.begin()
        start = self._open()
        last = goal.last_step(start)
        if self._traced.plan.line:
            say(self._traced.plan.line)
        events = Events(self._model_dir, self._traced.graph)
        checkpoints = Checkpoints(self._model, self._model_dir, self._config, self._listeners, events)
        checkpoints.begin(start)
        meter = Meter(self._config.log_step_count_steps, self._traced.plan.global_batch, start, events, last)
        if self._traced.host_call is not None:
            every = self._config.tpu_config.experimental_host_call_every_n_steps
            self._call = HostCall(self._traced.host_call, every, self._config.session_config)
        try:
            self._hooks.after_create_session()
            step = self._loops(start, last, checkpoints, meter, events)
            checkpoints.save(step, last=True)
            checkpoints.end(step)
            meter.end(step)
            self._hooks.end()
        finally:
            meter.close()
            events.close()
            if self._call is not None:
                self._call.close()

    def _loops(self, start: int, last: int | None, checkpoints: Checkpoints, meter: Meter, events: Events) -> int:
        step = start
        while (last is None or step < last) and not self._stopped(checkpoints):
            count = self._length.next(None if last is None else last - step)
            self._hooks.before_loop()
            if self._hooks.stop_requested:
                break
            every = self._config.save_summary_steps
            due = bool(every) and (self._summary_at < 0 or step + count - self._summary_at >= every)
            losses = self._loop(step, count, due=due)
            before, step = step, self._step_after(step, len(losses))
            if losses:
                known = {self._traced.loss: np.float32(losses[-1]), **self._arrived}
                self._hooks.after_loop(known, losses)  # hooks see a NaN loss
                self._after(before, step, losses, events)
                meter.update(step, losses[-1])
                if not self._interrupted:
                    checkpoints.save_if_due(step)
            if len(losses) < count:
                say(f"the data ended after {counted(step - start, 'step')}")
                break
        return step

    def _step_after(self, step: int, runs: int) -> int:
        """The global step after a loop: the model may count two in a run, or one in several; where it counts none, the runs are."""
        return self._global_step() if self._traced.counts_steps else step + runs

    def _stopped(self, checkpoints: Checkpoints) -> bool:
        return self._hooks.stop_requested or checkpoints.stop_requested or self._interrupted

    def _after(self, before: int, step: int, losses: list[float], events: Events) -> None:
        """Checks the losses of a loop, and writes summaries."""
        steps = [before + (step - before) * (i + 1) // len(losses) for i in range(len(losses))]
        for at, loss in zip(steps, losses, strict=True):
            if not math.isfinite(loss):
                raise self._not_finite(at, loss)
        every = self._config.save_summary_steps or 0
        for at, loss in zip(steps[:-1], losses[:-1], strict=True):
            if every and at % every == 0:
                events.scalars(at, loss=loss)
        if self._summary is not None:
            self._summary_at = self._summary[0]
            events.summary(*self._summary)
            self._summary = None

    def _not_finite(self, step: int, loss: float) -> NanLossDuringTrainingError:
        graph = self._traced.graph
        variables = graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
        values = self._model.host.run({variable.op.name: variable for variable in variables})
        not_finite = [name for name, v in values.items() if v.dtype.kind == "f" and not np.isfinite(v).all()]
        trained = [variable.op.name for variable in graph.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES)]
        shown = [name for name in trained if name in not_finite] or not_finite
        fault = f"the loss is {loss} at step {step:,}"
        if shown:
            fault += f"; no longer finite: {', '.join(shown[:3])}{', ...' if len(shown) > 3 else ''}"
        fix = ("look at the input of that step, lower the learning rate or clip the gradients; training can go on from the last "
               "checkpoint")  # fmt: skip
        return NanLossDuringTrainingError(fault, origin=self._traced.source, fix=fix, step=step)


class CoresTraining(Training):
    """A training on cores: a loop is one run of their program, with the hooks called around it."""

    _model: TrainingModel

    def _open(self) -> int:
        """Converts the model as well."""
        if self._traced.feeds and self._model.session is None:
            self._feed_input()
        self._model.open()
        return self._start()

    def _feed_input(self) -> None:
        """Lets the hooks feed the input of a session of this machine; the cores read the same."""
        traced, host = self._traced, self._model.host
        traced.scaffold.saver.restore(host, first_checkpoint(traced, host, self._model_dir, self._warm))
        self._hooks.after_create_session()
        traced.feeds.update((name, host.fed.get(name)) for name in traced.feeds)
        if sum(np.asarray(value).nbytes for value in traced.feeds.values()) > _MOST_FED:
            raise ConversionError("a hook feeds the input more than a graph holds", fix="a Dataset that reads files")

    def _start(self) -> int:
        session, host = self._model.session, self._model.host
        host.follow(None)
        prefix = first_checkpoint(self._traced, host, self._model_dir, self._warm)
        session.initialize()
        start: int = session.restore(prefix, with_input=False)
        held = {v.op.name for v in unsaved(self._traced)} & set(session.variable_names(local=True))
        session.assign(host.values(sorted(held)))
        host.follow(session)
        if start:
            say(f"restored {prefix} at step {start:,}")
        return start

    def _global_step(self) -> int:
        return int(self._model.session.global_step)

    def _route(self) -> None:
        """Exports the tensors of the input that hooks ask for; nothing is trained yet."""
        asked = [tensor for tensor, _ in self._hooks.of_input().values() if isinstance(tensor, tf.Tensor)]
        routed = {tensor.name for tensor in self._model.routes.values()}
        if missing := [tensor for tensor in asked if tensor.name not in routed]:
            self._model.route(missing)
            self._start()

    def _loop(self, step: int, count: int, *, due: bool) -> list[float]:
        """Runs a loop in a thread, so that Ctrl-C can end it."""

        def keep(step: int, serialized: bytes) -> None:
            self._keep_summary(step, serialized, due=due)

        if not self._asked_steps:
            self._route()
        self._asked_steps += count
        wanted = keep if due or self._model.routes or self._call is not None else None
        began = time.monotonic()
        running = in_thread(lambda: self._model.session.train(count, on_summary=wanted), "tpugraph-train")
        try:
            ended(running)
            losses: list[float] = running.result()
        except KeyboardInterrupt:
            self._model.close()
            ended(running)
            raise
        self._length.done(len(losses), time.monotonic() - began)
        return losses

    def _keep_summary(self, step: int, serialized: bytes, *, due: bool) -> None:
        """Splits the summaries: tensors for hooks and the host call, and the rest for TensorBoard."""
        called, rest = split_summary(tf1.Summary.FromString(serialized))
        self._arrived = {tensor.name: called[tag] for tag, tensor in self._model.routes.items()}
        if self._call is not None:
            rest.MergeFromString(self._call.run(step, called) or b"")
        if due:
            self._summary = step, rest.SerializeToString()


class PlainTraining(Training):
    """A training without cores: a loop is one ``Session.run`` of the plain graph, which hooks may feed."""

    _model: PlainModel
    _hooks: HookedRuns
    _hooks_class = HookedRuns
    _stopping = "stopping after this step; once more to stop at once"

    def run(self, goal: Goal) -> None:
        try:
            super().run(goal)
        finally:
            self._model.close()

    def _open(self) -> int:
        with tf.control_dependencies([self._traced.spec.train_op]):
            # tf.identity would take a read from before the step
            self._step_read = tf1.train.get_global_step().read_value()
        session = self._model.session
        with HostSession(self._traced.graph, self._config.session_config) as host:
            prefix = first_checkpoint(self._traced, host, self._model_dir, self._warm)
            left_out = unsaved(self._traced)
            values = host.run(left_out)
        self._model.start(prefix)
        assign(session.run, list(zip(left_out, values, strict=True)))
        tf1.train.write_graph(self._traced.graph_def(), self._model_dir, "graph.pbtxt")
        self._step = int(session.run(tf1.train.get_global_step()))
        if self._step:
            say(f"restored {prefix} at step {self._step:,}")
        return self._step

    def _global_step(self) -> int:
        return int(self._step)

    def _loop(self, step: int, count: int, *, due: bool) -> list[float]:
        self._asked_steps += count
        spec, summaries = self._traced.spec, self._traced.scaffold.summary_op
        wanted = [summaries] if due and summaries is not None else []
        try:
            _, loss, self._step, *found = self._hooks.run([spec.train_op, spec.loss, self._step_read, *wanted])
        except tf.errors.OutOfRangeError:
            return []
        if found:
            self._summary = self._step_after(step, count), found[0]
        return [float(loss)]

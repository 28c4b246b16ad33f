"""TPUSession: runs a TPU graph, on a TPU master, on PJRT devices or on emulated cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.analysis import shapes
from tpugraph.compiler import adopt_tpu_estimator
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.file_names import file_names, rebind_files
from tpugraph.runtime import checkpoint, engines, evaluation, failures, loop_threads
from tpugraph.runtime.checkpoints.background_save import BackgroundSave
from tpugraph.runtime.checkpoints.checkpoint_folder import KEEP, step_of
from tpugraph.runtime.cluster import masters, tpu_master
from tpugraph.runtime.emulator import emulation
from tpugraph.runtime.emulator.hosts import MIRROR
from tpugraph.runtime.evaluation import Evaluated
from tpugraph.runtime.op_times import OpTimes
from tpugraph.runtime.pipelines import run_as_written
from tpugraph.runtime.pjrt.compiled import CompiledLoop, compile_loop
from tpugraph.runtime.timeline import OFF, Timeline
from tpugraph.runtime.variables import Variables
from tpugraph.support.errors import CheckpointError, RunError, TpuGraphError
from tpugraph.tpu.program import Program

LoopCallback = Callable[[int, list[float]], None]
"""Called after each loop with the global step and the losses of its steps."""

SummaryCallback = Callable[[int, bytes], None]
"""Called after each loop with the global step and serialised summaries."""


class TPUSession:
    """A session on a converted graph.

    Args:
        program: a Program, the path of a converted graph, or a GraphDef. Graphs that TPUEstimator built run as well.
        master: address of a TensorFlow server with TPU devices; "" runs emulated cores in this process, or on the
            workers of ``cluster``. A server without TPU runs emulated cores, on all the workers that it knows.
        cluster: the workers that share the emulated cores: a ``tf.train.ClusterSpec``, a dict of it, or a list of
            addresses.
        reach_seconds: how long workers are waited for.
        rebind: file names in the graph to replace, old name to new.
        engine: what runs the steps where no TPU master does: ``emulator``; ``pjrt``, which compiles the loop for devices that
            jax sees, one per core; ``auto``, which is ``pjrt`` where jax sees accelerators enough and they can run the graph.
            ``report`` says why.
        platform: the devices of ``pjrt``: ``cpu`` for virtual ones of this machine, ``gpu`` or ``tpu`` for real ones.
        seed: of the random streams of the cores, for ``pjrt``.
        queues: emulate infeed and outfeed as queues between three concurrent parts, as on a TPU, instead of one loop.
        timeline: takes note of what each loop of a training spends its time on. Where one Session.run does input, step and
            outfeed, each op is measured, which slows a small step.
        config: a ``tf.compat.v1.ConfigProto``. On a cluster its ``operation_timeout_in_ms`` bounds the time without a
            finished step.

    Attributes:
        report: which engine runs the steps and why, with what it says of itself (JSON).
        notes: what is worth knowing, as sentences.
        restored_from: the prefix of the checkpoint that was restored last; None before.

    Raises:
        RunError: the graph is no TPU graph, the session cannot start, not all workers answer, jax is not installed, or a
            compiler refuses the graph and ``engine`` is ``pjrt``.
        UsageError: no such engine or platform, or one that cannot run this graph.
    """

    def __init__(
        self,
        program: Program | str | os.PathLike[str] | Any,
        *,
        master: str = "",
        cluster: Any = None,
        reach_seconds: float = masters.REACH_SECONDS,
        rebind: Mapping[str, str] | None = None,
        engine: str = "emulator",
        platform: str | None = None,
        seed: int = 0,
        queues: bool = False,
        timeline: Timeline = OFF,
        config: Any = None,
    ) -> None:
        graph_def = _graph_def_of(program)
        graph = graphdef.from_graph_def(graph_def, source=_source_of(program))
        if not emulation.is_tpu_graph(graph):
            raise RunError(
                "the graph is a plain graph, not a TPU graph",
                origin=graph.source,
                fix="convert it first: tpugraph convert MODEL",
            )
        rebind_files(graph, rebind or {})
        self._files = file_names(graph)
        self._beside_training = evaluation.entry_points(graph)
        if "tpugraph/train" not in graph and not self._beside_training.device:
            adopt_tpu_estimator.add_entry_points(graph)
        reached = masters.reach(master, cluster, reach_seconds)
        self.on_tpu = reached.on_tpu
        self.num_hosts = reached.hosts
        if not reached.on_tpu:
            run_as_written(graph)
        self.notes: list[str] = tpu_master.prepare(graph, reached.devices) if reached.on_tpu else reached.notes
        self.num_replicas = _replicas(graph)
        chosen = engines.choose(engine, platform, num_replicas=self.num_replicas, on_tpu=self.on_tpu,
                                hosts=self.num_hosts, trains=not self._beside_training.device)  # fmt: skip
        self._compiled: CompiledLoop | None = None
        self.lowered: emulation.Lowered | None = None
        if chosen.platform is not None:
            chosen, self._compiled = compile_loop(graph, chosen, seed=seed, timeline=timeline)
        self._timeline = timeline
        self._op_times = OpTimes(graph, timeline) if timeline.recording else None
        if self._compiled is None and not self.on_tpu:
            self.lowered = emulation.lower(graph, queues=queues, hosts=reached.hosts_for(graph))
        self.report = {**chosen.as_dict(), **(self._compiled.report() if self._compiled else {})}
        self._source = graph.source
        self._saved_keys = checkpoint.keys_of(graph)
        reads = checkpoint.reads_of(graph)
        self.restored_from: str | None = None
        self._closed = False
        self._last_summary: bytes | None = None
        self._trained = 0
        self._initialized = False
        self._graph = shapes.import_graph(graph)
        self._has_summaries = "tpugraph/summaries" in graph
        self._session = reached.session(self._graph, config, "tpugraph/global_step:0")
        self._background = BackgroundSave(self._session)
        self._add_limit_setter()
        if self._compiled is not None:
            self._compiled.attach(self._graph, self._run_on_host, self._set_limit)
        self._callables: dict[str, Any] = {}
        self._known_names: set[str] | None = None
        self._variables = Variables(self._graph, reads, self._run)
        self._run(["tpugraph/configure"])
        self._queue_runners = loop_threads.QueueRunners(self._session, self.notes.append)

    # ------------------------------------------------------------------ life

    def __enter__(self) -> TPUSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Shut the system down and release the session, once a save beside training has ended; closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            self.wait_for_save()
        except CheckpointError as error:
            self.notes.append(error.fault)
        self._queue_runners.stop()
        try:
            self._session.run("tpugraph/shutdown")
        except (tf.errors.OpError, RuntimeError, TpuGraphError) as error:
            self.notes.append(f"shutdown: {str(error).splitlines()[0]}")
        finally:
            self._session.close()  # cancels what still waits
            if self._compiled is not None:
                self._compiled.close()
            self._queue_runners.join()

    def initialize(self) -> None:
        """Give every variable its first value and open the input."""
        self._run(["tpugraph/init"])
        self._input_changed()
        self._mirror()
        self._limit = -1  # the graph's own length of a loop is back
        self._initialized = True
        self._queue_runners.start()

    def restore(self, path: str | os.PathLike[str], *, with_input: bool = True) -> int:
        """Restore variables, and the position of the input where the checkpoint has it.

        Args:
            path: a checkpoint prefix such as ``model_dir/model.ckpt-100``, or a folder whose newest one is taken.
            with_input: whether the input goes on where it was; else it starts anew.

        Returns:
            The global step restored.

        Raises:
            CheckpointError: no checkpoint, or one that does not match; what is missing or differs is named.
        """
        prefix = checkpoint.resolve(path, self.notes.append)
        has_input = checkpoint.check(prefix, self._saved_keys) and with_input
        feed = {"tpugraph/checkpoint:0": str(prefix)}
        if not self._initialized:
            self._prepare_input()
        with_position = has_input and "tpugraph/restore_input" in self._names()
        for entry in ("tpugraph/restore", *(["tpugraph/restore_input"] if with_position else [])):
            try:
                self._run([entry], feed)
            except RunError as error:
                fault = f"the checkpoint '{prefix}' cannot be restored: {error.fault}"
                raise CheckpointError(fault, fix="take an earlier one: files of this one may be cut off") from error
        if with_position:
            self._input_changed()
        self._mirror()
        self._trained = step_of(prefix)
        self.restored_from = str(prefix)
        step = self.global_step
        if step > 0 and with_input and not has_input and self.mode == "train":
            self.notes.append(f"the checkpoint holds no position of the input: it starts anew at step {step}")
        self._queue_runners.start()
        return step

    def save(self, path: str | os.PathLike[str], *, with_input: bool = True, keep: int | None = KEEP,
             spare: Callable[[Path], bool] | None = None, beside: bool = False) -> str:  # fmt: skip
        """Write a checkpoint ``path-STEP`` and name it in the folder's ``checkpoint`` file; returns its prefix.

        A save that still goes on beside is waited for first, and what it failed at is raised.

        Args:
            path: the prefix without the step.
            with_input: whether it holds the position of the input.
            keep: how many of the newest checkpoints of the folder are kept; all when 0 or None.
            spare: asked for each older checkpoint that would be removed, by its prefix: whether it stays for good.
            beside: return as soon as the variables are copied, and write them beside training; :meth:`wait_for_save`
                tells whether that worked.

        Raises:
            CheckpointError: the folder cannot be written; earlier checkpoints are left whole.
        """
        self.wait_for_save()
        prefix = f"{path}-{self.global_step}" if not str(path).endswith(f"-{self.global_step}") else str(path)
        self._require_open()
        why_not = ""
        if self._compiled is not None:
            self._compiled.to_host()
            why_not = self._compiled.hold_position() if with_input else ""
            if why_not:
                self.notes.append(f"the input's position cannot be saved: {why_not}")
            if not self._compiled.devices.first:
                return prefix  # one process writes for all
        with_input = with_input and not why_not
        names = self._names() if with_input else {"tpugraph/save"}
        options: dict[str, Any] = {"keep": keep, "spare": spare, "with_input": with_input}
        if beside:
            note = checkpoint.save_beside(self._background, names, Path(prefix), **options)
        else:
            note = checkpoint.save(self._session, names, Path(prefix), **options)
        if note:
            self.notes.append(note)
        return prefix

    def wait_for_save(self) -> None:
        """Wait until no checkpoint is being written.

        Raises:
            CheckpointError: the one that was written beside training could not be.
        """
        self._background.wait()

    # ------------------------------------------------------------------ training

    @property
    def global_step(self) -> int:
        """The step counter; for a graph without one, the steps that this session and its checkpoint have trained."""
        counted = int(self._run("tpugraph/global_step:0"))
        return self._trained if counted < 0 else counted

    @property
    def loop_costs(self) -> Any:
        """TensorFlow's RunMetadata of the last loop that a timeline measured op by op; None where none was."""
        return None if self._op_times is None else self._op_times.costs

    @property
    def writes_files(self) -> bool:
        """Whether this process writes checkpoints and event files: of several that were joined, the first alone does."""
        return self._compiled is None or self._compiled.devices.first

    @property
    def iterations_per_loop(self) -> int:
        """Steps per loop, as the graph was converted."""
        return self._default_limit

    def train(
        self, steps: int, *, on_loop: LoopCallback | None = None, on_summary: SummaryCallback | None = None
    ) -> list[float]:
        """Train; the last loop is shorter where the steps do not divide.

        Args:
            steps: number of steps.
            on_loop: called after each loop.
            on_summary: called after each loop with the global step and the graph's merged summaries of the loop's last
                step, serialised; never for a graph without summaries.

        Returns:
            The loss of each step; fewer than ``steps`` where the data ended.

        Raises:
            RunError: a step failed; the first cause is the one reported.
        """
        if steps < 0:
            raise RunError(f"steps is {steps}, but must not be negative")
        self._require("train", "tpugraph/train")
        if not self._initialized:
            self.initialize()
        losses: list[float] = []
        while len(losses) < steps:
            count = self._next_count(steps - len(losses))
            following = min(self._default_limit, steps - len(losses) - count)
            with self._timeline.loop():
                found = self._loop(count, following, summaries=on_summary is not None)
            losses.extend(found)
            self._trained += len(found)
            if on_summary is not None and self._last_summary is not None:
                on_summary(self.global_step, self._last_summary)
            if on_loop is not None:
                on_loop(self.global_step, found)
            if len(found) < count:
                self.notes.append(f"the data ended after {len(losses)} steps")
                break
        return losses

    def _next_count(self, left: int) -> int:
        """The steps of the next loop, where so many are left to train."""
        count = min(self._default_limit, left)
        return count if self._compiled is None else self._compiled.fitting(count)

    def _loop(self, count: int, following: int, *, summaries: bool = False) -> list[float]:
        if self._compiled is not None:
            self._require_open()
            losses, self._last_summary = self._compiled.loop(
                count, following, self._trained, summaries=summaries and self._has_summaries
            )
            return losses
        fused = self.lowered is not None and self.lowered.fused
        more = ["tpugraph/summaries:0"] if summaries and self._has_summaries and fused else []
        results = self._run_loop(count, "tpugraph/train", ["tpugraph/dequeue:0", *more])
        if more:
            self._last_summary = results[1]
        return [float(v) for v in results[0]][:count]

    def _run_loop(self, count: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop of ``count`` steps; returns what was fetched of its host part."""
        self._require_open()
        self._set_limit(count)
        if self.lowered is not None and self.lowered.fused:
            return list(self._fused((*fetches, f"{device}:0"))[:-1])
        return self._three_parts(device, fetches)

    def _fused(self, names: tuple[str, ...]) -> Any:
        """All parts of a loop in one run; measured op by op where someone wants to know, and for as long as that is cheap."""
        if self._op_times is None or self._op_times.left <= 0:
            return self._call(names)
        options, metadata = tf.compat.v1.RunOptions(), tf.compat.v1.RunMetadata()
        options.trace_level = tf.compat.v1.RunOptions.SOFTWARE_TRACE
        try:
            found = self._session.run(names, options=options, run_metadata=metadata)
        except (tf.errors.OpError, RuntimeError) as error:
            raise self._translate(error) from error
        self._op_times.read(metadata)
        return found

    def _three_parts(self, device: str, fetched: list[str]) -> list[Any]:
        """Infeed, device and outfeed at the same time; an error in one stops the others and the first is reported."""
        ends = self._session.graph.get_operation_by_name("tpugraph/enqueue").control_inputs
        fed = [op.outputs[0] if op.outputs else op for op in ends]  # an error where the loop ends early, which no op is
        fetches: dict[str, Any] = {"infeed": fed, "device": f"{device}:0", "outfeed": fetched}
        results, failure = loop_threads.run_together(self._session, fetches, self._timeline)
        if failure is None:
            return list(results["outfeed"])
        self._closed = True
        self._queue_runners.stop()
        if isinstance(failure.error, tf.errors.OutOfRangeError) and failure.part == "infeed":
            raise RunError(
                "the data ended in the middle of a loop",
                origin=self._source,
                stage=failure.part,
                fix="repeat the dataset, train fewer steps, or convert with a shorter --iterations_per_loop",
            )
        found = self._translate(failure.error)
        found.stage = failure.part
        raise found

    # ------------------------------------------------------------------ evaluation and prediction

    @property
    def mode(self) -> str:
        """What the graph was converted for: ``train``, ``eval`` or ``predict``."""
        return {"tpugraph/evaluate": "eval", "tpugraph/predict": "predict"}.get(self._beside_training.device, "train")

    def evaluate(self, steps: int | None = None) -> Evaluated:
        """Evaluate from the first batch on, with metrics that start anew; every example counts once.

        Args:
            steps: number of global batches; all data when None.

        Returns:
            The value of each metric by name, and ``loss``, the mean of the batches' losses; a dict that also knows how many
            ``examples`` and ``steps`` it is made of.

        Raises:
            RunError: no evaluation graph, no data, or a step failed.
        """
        *_, result = self.evaluating(steps)
        return result

    def evaluating(self, steps: int | None = None) -> Iterator[Evaluated]:
        """As :meth:`evaluate`, loop by loop: each yields the result so far; loops run as they are asked for.

        Raises:
            RunError: no evaluation graph, no data, or a step failed.
        """
        self._require("evaluate", "tpugraph/evaluate")
        if steps is not None and steps < 1:
            raise RunError(f"steps is {steps}, but must be at least 1", fix="leave steps out to evaluate all data")
        self._start_anew(["tpugraph/init_metrics", "tpugraph/restart_input"])
        return evaluation.evaluate(self._beside_training, self._run_loop, self._run, steps, self._default_limit)

    def predict(self) -> Iterator[dict[str, Any]]:
        """The predictions from the first batch on: a dict of arrays for each example, in the order of the data.

        Loops run as their rows are asked for. A generator that is not read to its end costs nothing more.

        Raises:
            RunError: no prediction graph, or a step failed.
        """
        self._require("predict", "tpugraph/predict")
        self._start_anew(["tpugraph/restart_input"])
        return evaluation.predict(self._beside_training, self._run_loop, self._default_limit)

    def predicting(self, loop: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """As :meth:`predict`, loop by loop: the number of examples, and the rows of each prediction.

        Args:
            loop: global batches per loop; as the graph was converted when None.

        Raises:
            RunError: no prediction graph, or a step failed.
        """
        self._require("predict", "tpugraph/predict")
        self._start_anew(["tpugraph/restart_input"])
        return evaluation.predict_loops(self._beside_training, self._run_loop, loop or self._default_limit)

    def _start_anew(self, names: list[str]) -> None:
        if not self._initialized:
            self.initialize()
        for name in names:
            self._run([name])

    def _require(self, what: str, name: str) -> None:
        if name not in self._names():
            modes = {"train": "train", "eval": "evaluate", "predict": "predict"}
            raise RunError(
                f"the graph was converted to {modes[self.mode]}, not to {what}",
                origin=self._source,
                fix=f"call {modes[self.mode]}(), or convert the plain graph for it with --mode",
            )

    # ------------------------------------------------------------------ parts

    def value(self, name: str) -> np.ndarray[Any, Any]:
        """The value of a variable, by its name in the plain graph.

        Raises:
            RunError: there is no such variable.
        """
        return self.values([name])[name]

    def values(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """The values of several variables of the graph in one run; all that a checkpoint holds when ``names`` is None.

        Raises:
            RunError: there is no such variable.
        """
        return self._variables.values(names)

    def assign(self, values: Mapping[str, Any]) -> None:
        """Give variables that a checkpoint holds new values, by their name in the plain graph.

        Raises:
            RunError: there is no such variable, or a value of another shape.
        """
        self._variables.assign(values)
        self._mirror()

    def _mirror(self) -> None:
        """Let the variables of all hosts, and of devices, follow those of the first."""
        if self._compiled is not None:
            self._compiled.variables_changed()
        if MIRROR in self._names():
            self._run([MIRROR])

    def _input_changed(self) -> None:
        if self._compiled is not None:
            self._compiled.input_changed()

    def variable_names(self) -> list[str]:
        """The variables that a checkpoint holds, by their name in the graph."""
        return list(self._saved_keys)

    def _names(self) -> set[str]:
        if self._known_names is None:
            self._known_names = {op.name for op in self._graph.get_operations()}
        return self._known_names

    def _add_limit_setter(self) -> None:
        with self._graph.as_default():
            handle = self._graph.get_operation_by_name("tpugraph/iterations_per_loop").outputs[0]
            self._limit_value = tf.compat.v1.placeholder(tf.int32, [], name="tpugraph/iterations_per_loop/value")
            assign = tf.raw_ops.AssignVariableOp(resource=handle, value=self._limit_value)
        self._limit_setter = self._session.make_callable(assign, feed_list=[self._limit_value])
        first = self._graph.get_operation_by_name("tpugraph/iterations_per_loop/Initializer").get_attr("value")
        self._default_limit = int(tf.make_ndarray(first))
        self._limit = -1

    def _set_limit(self, count: int) -> None:
        if count != self._limit:
            self._limit_setter(count)
            self._limit = count

    def _prepare_input(self) -> None:
        for name in ("tpugraph/init_local", "tpugraph/init_input"):
            self._run([name])
        self._initialized = True

    def _require_open(self) -> None:
        if self._closed:
            raise RunError("the session is closed", fix="open a new TPUSession")

    def _call(self, names: tuple[str, ...]) -> Any:
        key = ",".join(names)
        if key not in self._callables:
            self._callables[key] = self._session.make_callable([self._graph.as_graph_element(n) for n in names])
        try:
            return self._callables[key]()
        except (tf.errors.OpError, RuntimeError) as error:
            raise self._translate(error) from error

    def _run(self, fetch: Any, feed: Mapping[str, Any] | None = None) -> Any:
        self._require_open()
        if self._compiled is not None:
            self._compiled.to_host(fetch)
        return self._run_on_host(fetch, feed)

    def _run_on_host(self, fetch: Any, feed: Mapping[str, Any] | None = None) -> Any:
        """Run without moving variables."""
        try:
            return self._session.run(fetch, feed_dict=feed)
        except (tf.errors.OpError, RuntimeError) as error:
            raise self._translate(error) from error

    def _translate(self, error: BaseException) -> TpuGraphError:
        return failures.translate(error, self._graph, self._source, self._files)


def _graph_def_of(program: Any) -> Any:
    if isinstance(program, Program):
        return program.graph_def
    if isinstance(program, (str, os.PathLike)):
        return graphdef.sniff(Path(program)).graph_def
    return program


def _source_of(program: Any) -> str:
    if isinstance(program, Program):
        return str(program.report.get("source", ""))
    return str(program) if isinstance(program, (str, os.PathLike)) else ""


def _replicas(graph: Graph) -> int:
    return int(graph.of_type("TPUReplicateMetadata")[0].attr("num_replicas"))

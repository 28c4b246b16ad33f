"""TPUSession: runs a TPU graph, on a TPU master, on PJRT devices or on emulated cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from tpugraph.analysis import is_tpu_graph, num_replicas
from tpugraph.compiler import adopt_tpu_estimator, whole_step
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.side_effects import file_names, rebind_files, refuse_to_end
from tpugraph.runtime import engines, evaluation, masters, variables
from tpugraph.runtime.checkpoints import input_position
from tpugraph.runtime.checkpoints.checkpoint_folder import KEEP, step_of
from tpugraph.runtime.checkpoints.saver import Saver
from tpugraph.runtime.engine import STATE_SUMMARIES, SUMMARIES, TrainingLoop
from tpugraph.runtime.evaluation import Evaluated
from tpugraph.runtime.graph_session import GraphSession
from tpugraph.runtime.timeline import OFF, Timeline
from tpugraph.runtime.variables import Variables
from tpugraph.support.errors import CheckpointError, RunError, TpuGraphError
from tpugraph.support.wording import counted
from tpugraph.tpu.form_check import check_form
from tpugraph.tpu.program import Program, mode_of
from tpugraph.xla.jax_client import joined
from tpugraph.xla.mesh import Layout

# called after each loop with the global step, and the losses of its steps or serialised summaries
LoopCallback = Callable[[int, list[float]], None]
SummaryCallback = Callable[[int, bytes], None]


class TPUSession:
    """A session on a converted graph.

    Args:
        program: a Program, the path of a converted graph, or a GraphDef, also one that TPUEstimator built. Or a function that
            returns the Program for an engine's name: for ``xla`` one for one core.
        master: address of a TensorFlow server with TPU devices; "" runs emulated cores in this process, or on the
            workers of ``cluster``. A server without TPU runs emulated cores, on all the workers that it knows.
        cluster: the workers that share the emulated cores: a ``tf.train.ClusterSpec``, a dict of it, or a list of
            addresses.
        reach_seconds: timeout for workers.
        rebind: file names in the graph to replace, old name to new.
        engine: without a TPU master, ``emulator``; ``xla``, which divides the plain step by XLA's own partitioner; ``pjrt``, which
            compiles the loop for jax's devices, one per core; or ``auto``, which takes jax's accelerators where they can run the
            graph, else the emulator. By default ``xla`` with a ``platform`` or a ``mesh``, on the plain graph in a converted file,
            else ``emulator``. With ``auto``, and with a ``platform`` alone, a step that XLA cannot divide falls back to ``pjrt``;
            ``report`` says why.
        platform: the devices of ``pjrt`` and ``xla``: ``cpu`` for virtual ones of this machine, ``gpu`` or ``tpu`` for real ones.
        mesh: for ``xla``, the axes of the devices as ``data:4,model:2``, or a :class:`tpugraph.xla.mesh.Layout`, which also shards
            variables; all devices along the rows when None.
        seed: seed of the cores' random streams, for ``pjrt``.
        queues: emulate infeed and outfeed by queues between three concurrent parts, as on a TPU, instead of one loop.
        literal: run every loop op by op on each core, also one that would run as one XLA computation.
        timeline: records the time of each part of a training loop. Where one Session.run does input, step and outfeed, each op is
            profiled, which slows a small step.
        stall_seconds: a run is ended after so many seconds without CPU time of this process; never when 0, after ten minutes when
            None. A ``config`` with ``operation_timeout_in_ms`` bounds the whole time of a run.
        config: a ``tf.compat.v1.ConfigProto``. On a cluster its ``operation_timeout_in_ms`` bounds the time without a finished
            step.

    Attributes:
        engine: the :class:`tpugraph.runtime.engine.Engine`.
        report: the engine, why it was chosen, and its own report (JSON).
        notes: sentences for the user.
        restored_from: the prefix of the last restored checkpoint; None before.

    Raises:
        LoadError: the graph lacks the form of a TPU graph.
        RunError: the graph is no TPU graph, an op of it would end the process, the session cannot start, not all workers
            answer, jax is not installed, or a compiler refuses the graph and ``engine`` is ``pjrt``.
        UsageError: no such engine or platform, or one that cannot run this graph.
    """

    def __init__(
        self,
        program: Program | str | os.PathLike[str] | Callable[[str], Program] | Any,
        *,
        master: str = "",
        cluster: Any = None,
        reach_seconds: float = masters.REACH_SECONDS,
        rebind: Mapping[str, str] | None = None,
        engine: str | None = None,
        platform: str | None = None,
        mesh: Layout | str | None = None,
        seed: int = 0,
        queues: bool = False,
        literal: bool = False,
        timeline: Timeline = OFF,
        stall_seconds: float | None = None,
        config: Any = None,
    ) -> None:
        found = masters.reach(master, cluster, reach_seconds)
        self.on_tpu, self.num_hosts = found.on_tpu, found.hosts
        layout = Layout.parse(mesh) if isinstance(mesh, str) else mesh
        load = program if callable(program) else partial(_of_engine, _program(program))
        trains = callable(program) or mode_of([node.name for node in load("").graph_def.node]) == "train"
        choice, *others = engines.to_try(engine, platform, on_tpu=self.on_tpu, hosts=self.num_hosts, trains=trains,
                                         layout=layout)  # fmt: skip
        while True:
            try:
                graph = _tpu_graph(load(choice.engine))
                rebind_files(graph, rebind or {})
                files = file_names(graph)
                self._beside_training = evaluation.entry_points(graph)
                adopt_tpu_estimator.add_entry_points(graph)
                self.num_replicas = num_replicas(graph)
                self.engine = engines.create(graph, choice, found, layout=layout, seed=seed, queues=queues, literal=literal,
                                             timeline=timeline)  # fmt: skip
                break
            except TpuGraphError as error:
                if not others or joined():
                    raise
                choice, *others = others[0].after(choice, error), *others[1:]
        self.report = {**vars(choice), **self.engine.report()}
        self._timeline = timeline
        self.notes = list(self.engine.notes)
        self.restored_from: str | None = None
        saved, forms = variables.saved_variables(graph), input_position.save_forms(graph)
        start = partial(found.session, config=config, progress="tpugraph/global_step:0")
        self._host = GraphSession(graph, start, files=files, note=self.notes.append,
                                  stall_seconds=0.0 if master or cluster else stall_seconds)  # fmt: skip
        self.engine.attach(self._host)
        self._variables = Variables(self._host.graph, saved, self._run)
        self._saver = Saver(self._host, self.engine, saved, forms, self._run, self.notes.append)
        self._trained = 0
        self._initialized = False
        self._run(["tpugraph/configure"])

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the system down and release the session, after a save in the background has ended; idempotent."""
        if self._host.closed:
            return
        try:
            self.wait_for_save()
        except CheckpointError as error:
            self.notes.append(error.fault)
        try:
            self._host.close()
        finally:
            self.engine.close()

    def initialize(self) -> None:
        """Give every variable its first value and open the input."""
        self._run(["tpugraph/init"])
        self.engine.input_changed()
        self.engine.variables_changed()
        self._host.steps_were_reset()
        self._initialized = True
        self._host.fill_queues()

    def restore(self, path: str | os.PathLike[str], *, with_input: bool = True) -> int:
        """Restore variables, and the position of the input where the checkpoint has it and the graph trains.

        Args:
            path: a checkpoint prefix such as ``model_dir/model.ckpt-100``, or a folder whose newest one is taken.
            with_input: whether to restore the input's position; else the input restarts.

        Returns:
            The global step restored.

        Raises:
            CheckpointError: no checkpoint, or one that does not match; what is missing or differs is named.
        """
        prefix, has_input = self._saver.find(path)
        # evaluation and prediction start with the first batch of their own input
        trains = "tpugraph/train" in self._host.names
        used = self._initialized
        if not used:
            self._run(["tpugraph/init_local"])
            self._start_input()
            self._initialized = True
        self._saver.restore(prefix)
        why_anew = "" if has_input else "the checkpoint holds no position of the input"
        if has_input and with_input and trains:
            used, why_anew = True, self._saver.restore_input(prefix)
        if trains and used and (why_anew or not with_input):
            self._start_input()
        self._trained = step_of(prefix)
        self.restored_from = str(prefix)
        step = self.global_step
        if why_anew and step > 0 and with_input and trains:
            self.notes.append(f"{why_anew}: it starts anew at step {step}")
        self._host.fill_queues()
        return step

    def _start_input(self) -> None:
        self._run(["tpugraph/init_input"])
        self.engine.input_changed()

    def save(self, path: str | os.PathLike[str], *, with_input: bool = True, keep: int | None = KEEP,
             spare: Callable[[Path], bool] | None = None, in_background: bool = False) -> str:  # fmt: skip
        """Write a checkpoint ``path-STEP`` and name it in the folder's ``checkpoint`` file; returns its prefix.

        A save in the background is waited for first, and its failure is raised.

        Args:
            path: the prefix without the step.
            with_input: whether to save the position of the input.
            keep: the number of newest checkpoints of the folder to keep; all when 0 or None.
            spare: called with the prefix of each older checkpoint that would be removed; True keeps it for good.
            in_background: return once the variables are copied, and write them in the background; :meth:`wait_for_save` raises its
                failure.

        Raises:
            CheckpointError: the folder cannot be written; earlier checkpoints are intact.
        """
        self.wait_for_save()
        step = f"-{self.global_step}"
        prefix = str(path).removesuffix(step) + step
        self._saver.save(Path(prefix), with_input=with_input, keep=keep, spare=spare, in_background=in_background)
        return prefix

    def wait_for_save(self) -> None:
        """Wait until no checkpoint is being written.

        Raises:
            CheckpointError: the background save failed.
        """
        self._saver.wait()

    @property
    def global_step(self) -> int:
        """The step counter; for a graph without one, the steps that this session and its checkpoint have trained."""
        counted = int(self._run("tpugraph/global_step:0"))
        return self._trained if counted < 0 else counted

    # ------------------------------------------------------------------ training

    @property
    def loop_costs(self) -> Any:
        """TensorFlow's RunMetadata of the last loop that a timeline profiled per op; None without one."""
        return self.engine.costs

    @property
    def writes_files(self) -> bool:
        """Whether this process writes checkpoints and event files: the first of joined processes does."""
        return self.engine.writes_files

    def agree(self, number: int) -> int:
        """The largest of the numbers that joined processes give, each at the end of the same loop."""
        return self.engine.agree(number)

    @property
    def iterations_per_loop(self) -> int:
        """Steps per loop by the conversion."""
        return self._host.steps_per_loop

    def train(
        self, steps: int, *, on_loop: LoopCallback | None = None, on_summary: SummaryCallback | None = None
    ) -> list[float]:
        """Train; the last loop is shorter where the steps do not divide.

        Args:
            steps: number of steps.
            on_loop: called after each loop.
            on_summary: called after each loop with the global step and the graph's merged summaries, serialised: those
                of the loop's last step, and those of variables as they are after it; never for a graph without summaries.

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
        with_summaries = on_summary is not None and _node(SUMMARIES) in self._host.names
        losses: list[float] = []
        while len(losses) < steps:
            self._host.require_open()
            left = steps - len(losses)
            count = self.engine.available(min(self.iterations_per_loop, left))
            following = min(self.iterations_per_loop, left - count)
            with self._timeline.loop():
                found, summaries = self.engine.train(TrainingLoop(count, following, self._trained, with_summaries))
            losses.extend(found)
            self._trained += len(found)
            if on_summary is not None:
                self._hand_on(on_summary, summaries)
            if on_loop is not None:
                on_loop(self.global_step, found)
            if len(found) < count:
                self._host.raise_failure_of_input()
                self.notes.append(f"the data ended after {counted(len(losses), 'step')}")
                break
        return losses

    def _hand_on(self, on_summary: SummaryCallback, of_last_step: bytes | None) -> None:
        """Pass the summaries of a loop to the callback; concatenated protos are one."""
        of_state = self._run(STATE_SUMMARIES) if _node(STATE_SUMMARIES) in self._host.names else None
        found = [part for part in (of_last_step, of_state) if part is not None]
        if found:
            on_summary(self.global_step, b"".join(found))

    # ------------------------------------------------------------------ evaluation and prediction

    @property
    def mode(self) -> str:
        """The mode of the conversion: ``train``, ``eval`` or ``predict``."""
        return mode_of(self._host.names)

    def evaluate(self, steps: int | None = None) -> Evaluated:
        """Evaluate from the first batch, with reset metrics; every example counts once.

        Args:
            steps: number of global batches; all data when None.

        Returns:
            The value of each metric by name, and ``loss``, the mean of the batches' losses; a dict with the attributes ``examples``
            and ``steps``.

        Raises:
            RunError: no evaluation graph, no data, or a step failed.
        """
        *_, result = self.evaluating(steps)
        return result

    def evaluating(self, steps: int | None = None, *, loop: int | None = None) -> Iterator[Evaluated]:
        """As :meth:`evaluate`, as a generator of the result so far after each loop."""
        self._require("evaluate", "tpugraph/evaluate")
        if steps is not None and steps < 1:
            raise RunError(f"steps is {steps}, but must be at least 1", fix="leave steps out to evaluate all data")
        self._start_anew(["tpugraph/init_metrics", "tpugraph/restart_input"])
        per_loop = loop or self._host.steps_per_loop
        return evaluation.evaluate(self._beside_training, self._run_loop, self._run, steps, per_loop)

    def predict(self) -> Iterator[dict[str, Any]]:
        """The predictions from the first batch: a dict of arrays per example, in the order of the data.

        Loops run on demand; the generator may be abandoned at any time.

        Raises:
            RunError: no prediction graph, or a step failed.
        """
        return evaluation.by_example(self.predicting())

    def predicting(self, loop: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """As :meth:`predict`, loop by loop: the number of examples, and the rows of each prediction."""
        self._require("predict", "tpugraph/predict")
        self._start_anew(["tpugraph/restart_input"])
        return evaluation.predict(self._beside_training, self._run_loop, loop or self._host.steps_per_loop)

    def _start_anew(self, names: list[str]) -> None:
        if not self._initialized:
            self.initialize()
        for name in names:
            self._run([name])

    def _require(self, what: str, name: str) -> None:
        if name not in self._host.names:
            modes = {"train": "train", "eval": "evaluate", "predict": "predict"}
            raise RunError(f"the graph was converted to {modes[self.mode]}, not to {what}", origin=self._host.source,
                           fix=f"call {modes[self.mode]}(), or convert the plain graph for it with --mode")  # fmt: skip

    def _run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        self._host.require_open()
        return self.engine.run_loop(steps, device, fetches)

    # ------------------------------------------------------------------ variables

    def value(self, name: str) -> np.ndarray[Any, Any]:
        """The value of a variable, by its name in the plain graph.

        Raises:
            RunError: there is no such variable.
        """
        return self.values([name])[name]

    def values(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """The values of several variables in one run; of all in checkpoints when ``names`` is None.

        Raises:
            RunError: there is no such variable.
        """
        return self._variables.values(names)

    def assign(self, values: Mapping[str, Any]) -> None:
        """Assign variables by their names in the plain graph.

        Raises:
            RunError: there is no such variable, or a value of another shape.
        """
        self._variables.assign(values)
        self.engine.variables_changed()

    def variable_names(self, *, local: bool = False) -> list[str]:
        """The names of the variables in checkpoints; with ``local`` also of the others."""
        return [*self._saver.saved, *(self._variables.local if local else ())]

    def _run(self, fetch: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        self._host.require_open()
        self.engine.flush_variables(fetch)
        return self._host.run(fetch, feed)


def _node(tensor: str) -> str:
    return tensor.partition(":")[0]


def _program(given: Any) -> Program:
    if isinstance(given, Program):
        return given
    if not isinstance(given, (str, os.PathLike)):
        return Program(given)
    loaded = graphdef.sniff(Path(given))
    return Program(loaded.graph_def, {"source": str(given)}, plain=loaded.plain, options=loaded.options)


def _of_engine(program: Program, engine: str) -> Program:
    return whole_step(program) if engine == "xla" else program


def _tpu_graph(program: Program) -> Graph:
    graph = graphdef.from_graph_def(program.graph_def, source=str(program.report.get("source", "")))
    if not is_tpu_graph(graph):
        raise RunError("the graph is a plain graph, not a TPU graph", origin=graph.source,
                       fix="convert it first: tpugraph convert MODEL")  # fmt: skip
    check_form(graph)
    refuse_to_end(graph)
    return graph

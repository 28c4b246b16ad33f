"""TPUSession: runs a TPU graph, on a TPU master, on PJRT devices or on emulated cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tpugraph.analysis import is_tpu_graph, num_replicas
from tpugraph.compiler import adopt_tpu_estimator
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.file_names import file_names, rebind_files
from tpugraph.ir.side_effects import refuse_to_end
from tpugraph.runtime import engines, evaluation
from tpugraph.runtime.cluster import masters
from tpugraph.runtime.engine import STATE_SUMMARIES, SUMMARIES, TrainingLoop
from tpugraph.runtime.engine_choice import choose
from tpugraph.runtime.evaluation import Evaluated
from tpugraph.runtime.stateful_session import StatefulSession
from tpugraph.runtime.timeline import OFF, Timeline
from tpugraph.support.errors import RunError
from tpugraph.support.wording import counted
from tpugraph.tpu.form_check import check_form
from tpugraph.tpu.program import Program

LoopCallback = Callable[[int, list[float]], None]
"""Called after each loop with the global step and the losses of its steps."""

SummaryCallback = Callable[[int, bytes], None]
"""Called after each loop with the global step and serialised summaries."""


class TPUSession(StatefulSession):
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
        stall_seconds: how long this process may use no processor time during a run before the run is ended; for ever when 0,
            ten minutes when None. A ``config`` with ``operation_timeout_in_ms`` bounds the whole time of a run.
        config: a ``tf.compat.v1.ConfigProto``. On a cluster its ``operation_timeout_in_ms`` bounds the time without a finished
            step.

    Attributes:
        engine: what runs the steps, see :class:`tpugraph.runtime.engine.Engine`.
        report: which engine that is and why, with what it says of itself (JSON).
        notes: what is worth knowing, as sentences.
        restored_from: the prefix of the checkpoint that was restored last; None before.

    Raises:
        LoadError: the graph has not the form of a TPU graph.
        RunError: the graph is no TPU graph, an op of it would end the process, the session cannot start, not all workers
            answer, jax is not installed, or a compiler refuses the graph and ``engine`` is ``pjrt``.
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
        stall_seconds: float | None = None,
        config: Any = None,
    ) -> None:
        graph = _tpu_graph(program)
        rebind_files(graph, rebind or {})
        files = file_names(graph)
        self._beside_training = evaluation.entry_points(graph)
        if "tpugraph/train" not in graph and not self._beside_training.device:
            adopt_tpu_estimator.add_entry_points(graph)
        place = masters.reach(master, cluster, reach_seconds)
        self.on_tpu, self.num_hosts, self.num_replicas = place.on_tpu, place.hosts, num_replicas(graph)
        chosen = choose(engine, platform, num_replicas=self.num_replicas, on_tpu=self.on_tpu, hosts=self.num_hosts,
                        trains=not self._beside_training.device)  # fmt: skip
        chosen, made = engines.make(graph, chosen, place, seed=seed, queues=queues, timeline=timeline)
        self.report = {**chosen.as_dict(), **made.report()}
        self._timeline = timeline
        start = partial(place.session, config=config, progress="tpugraph/global_step:0")
        super().__init__(graph, made, start, files,
                         stall_seconds=0.0 if master or cluster else stall_seconds)  # fmt: skip

    # ------------------------------------------------------------------ training

    @property
    def loop_costs(self) -> Any:
        """TensorFlow's RunMetadata of the last loop that a timeline measured op by op; None where none was."""
        return self.engine.costs

    @property
    def writes_files(self) -> bool:
        """Whether this process writes checkpoints and event files: of several that were joined, the first alone does."""
        return self.engine.writes_files

    @property
    def iterations_per_loop(self) -> int:
        """Steps per loop, as the graph was converted."""
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
            count = self.engine.fitting(min(self.iterations_per_loop, left))
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
        """Give what asked for them the summaries of a loop; protos one after the other are one."""
        of_state = self._run(STATE_SUMMARIES) if _node(STATE_SUMMARIES) in self._host.names else None
        found = [part for part in (of_last_step, of_state) if part is not None]
        if found:
            on_summary(self.global_step, b"".join(found))

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

    def evaluating(self, steps: int | None = None, *, loop: int | None = None) -> Iterator[Evaluated]:
        """As :meth:`evaluate`, loop by loop: each yields the result so far; loops run as they are asked for.

        Args:
            steps: number of global batches; all data when None.
            loop: global batches per loop; as the graph was converted when None.

        Raises:
            RunError: no evaluation graph, no data, or a step failed.
        """
        self._require("evaluate", "tpugraph/evaluate")
        if steps is not None and steps < 1:
            raise RunError(f"steps is {steps}, but must be at least 1", fix="leave steps out to evaluate all data")
        self._start_anew(["tpugraph/init_metrics", "tpugraph/restart_input"])
        per_loop = loop or self._host.steps_per_loop
        return evaluation.evaluate(self._beside_training, self._run_loop, self._run, steps, per_loop)

    def predict(self) -> Iterator[dict[str, Any]]:
        """The predictions from the first batch on: a dict of arrays for each example, in the order of the data.

        Loops run as their rows are asked for. A generator that is not read to its end costs nothing more.

        Raises:
            RunError: no prediction graph, or a step failed.
        """
        self._require("predict", "tpugraph/predict")
        self._start_anew(["tpugraph/restart_input"])
        return evaluation.predict(self._beside_training, self._run_loop, self._host.steps_per_loop)

    def predicting(self, loop: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """As :meth:`predict`, loop by loop: the number of examples, and the rows of each prediction.

        Args:
            loop: global batches per loop; as the graph was converted when None.

        Raises:
            RunError: no prediction graph, or a step failed.
        """
        self._require("predict", "tpugraph/predict")
        self._start_anew(["tpugraph/restart_input"])
        return evaluation.predict_loops(self._beside_training, self._run_loop, loop or self._host.steps_per_loop)

    def _start_anew(self, names: list[str]) -> None:
        if not self._initialized:
            self.initialize()
        for name in names:
            self._run([name])

    def _require(self, what: str, name: str) -> None:
        if name not in self._host.names:
            modes = {"train": "train", "eval": "evaluate", "predict": "predict"}
            raise RunError(
                f"the graph was converted to {modes[self.mode]}, not to {what}",
                origin=self._host.source,
                fix=f"call {modes[self.mode]}(), or convert the plain graph for it with --mode",
            )

    def _run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        self._host.require_open()
        return self.engine.run_loop(steps, device, fetches)


def _node(tensor: str) -> str:
    return tensor.partition(":")[0]


def _tpu_graph(program: Any) -> Graph:
    """The TPU graph of a Program, of a file, or of a GraphDef."""
    graph = graphdef.from_graph_def(_graph_def_of(program), source=_source_of(program))
    if not is_tpu_graph(graph):
        raise RunError(
            "the graph is a plain graph, not a TPU graph",
            origin=graph.source,
            fix="convert it first: tpugraph convert MODEL",
        )
    check_form(graph)
    refuse_to_end(graph)
    return graph


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

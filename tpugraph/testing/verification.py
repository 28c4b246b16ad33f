"""Verify: the plain graph against the converted one, step by step, on the user's own data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpugraph import roles
from tpugraph.analysis import race_order
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.file_names import rebind_files
from tpugraph.runtime import checkpoint
from tpugraph.runtime.session import TPUSession
from tpugraph.support.wording import counted
from tpugraph.testing.checkpoint_pieces import Start, Values, read_pieces, write_pieces
from tpugraph.testing.comparable import closed_batches, drop_remainder, fix_seeds
from tpugraph.testing.comparison import Comparison, Result, compare, relative
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.recorded_input import changing_inputs, converted_again, read_again, record, why_not_recordable
from tpugraph.tpu.program import Program


@dataclass
class Verification:
    """What :func:`verify` found.

    Attributes:
        comparisons: what was compared, with the differences.
        tolerance: the largest difference allowed.
        notes: what a reader should know of it.
        batch: the rows of a step, such as ``global batch 256 = 8 cores x 32``.
        recorded: the number of batches that every run read from one recording, where the input gives others in each run.
    """

    comparisons: list[Comparison]
    tolerance: float
    notes: list[str] = field(default_factory=list)
    batch: str = ""
    recorded: int | None = None

    @property
    def ok(self) -> bool:
        """Whether every comparison stayed within the tolerance."""
        return all(c.within(self.tolerance) for c in self.comparisons)


def verify(
    model: str,
    steps: int,
    options: ConvertOptions,
    *,
    checkpoint_path: str | None = None,
    rebind: Mapping[str, str] | None = None,
    tolerance: float = 1e-4,
    by_step: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare the plain graph with the converted one.

    Args:
        model: path of a plain graph.
        steps: number of steps.
        options: how to convert; ``iterations_per_loop`` is set to ``steps``.
        checkpoint_path: where both start; None starts from the initialisers.
        rebind: file names in the graph to replace.
        tolerance: the largest difference allowed.
        by_step: whether comparisons have a grid, for which the variables of every single step are kept in memory.
        progress: called with what runs next.

    Raises:
        TpuGraphError: a graph, a checkpoint or a run that fails.
    """
    with tempfile.TemporaryDirectory(prefix="tpugraph-verify-") as folder:
        work = _Verifier(model, steps, options, dict(rebind or {}), Path(folder), progress or (lambda text: None),
                         by_step=by_step)  # fmt: skip
        comparisons = work.run(checkpoint_path)
    return Verification(comparisons, tolerance, work.notes, work.batch, work.recorded)


@dataclass(frozen=True)
class Plan:
    """What :func:`verify` would do.

    Attributes:
        batch: the rows of a step, such as ``global batch 256 = 8 cores x 32``.
        runs: the trainings, in order.
        starts_from: the prefix of the checkpoint; None where the graph gives the first values.
        converted: the graph that would be run on the cores.
    """

    batch: str
    runs: list[str]
    starts_from: str | None
    converted: Program


def plan(model: str, steps: int, options: ConvertOptions, *, checkpoint_path: str | None = None,
         rebind: Mapping[str, str] | None = None) -> Plan:  # fmt: skip
    """Convert the graph and look at the checkpoint as :func:`verify` does, and run no op of the graph.

    Args:
        model: path of a plain graph.
        steps: number of steps.
        options: how to convert.
        checkpoint_path: where :func:`verify` would start.
        rebind: file names in the graph to replace.

    Raises:
        TpuGraphError: the graph cannot be converted, or the checkpoint does not match it.
    """
    work = _Verifier(model, steps, options, dict(rebind or {}), Path(), lambda text: None)
    one, many = work.convert(1), work.convert(options.num_replicas)
    start = None
    if checkpoint_path is not None:
        start = checkpoint.resolve(checkpoint_path, lambda text: None)
        checkpoint.check(start, checkpoint.keys_of(graphdef.from_graph_def(one.graph_def, source=model)))
    runs = [f"the plain graph, {counted(steps, 'step')}"]
    if changing_inputs(work.load()):
        runs.insert(0, "the input alone, whose batches are recorded for all runs")
    for count in dict.fromkeys((1, options.num_replicas)):
        runs.append(f"{counted(count, 'core')}, {counted(steps, 'single step')}, then one loop of {steps}")
    return Plan(many.report["batch"]["line"], runs, None if start is None else str(start), many)


class _Verifier:
    def __init__(self, model: str, steps: int, options: ConvertOptions, rebind: dict[str, str], folder: Path,
                 progress: Callable[[str], None], *, by_step: bool = False) -> None:  # fmt: skip
        self.model = model
        self.steps = steps
        self.options = replace(options, iterations_per_loop=steps)
        self.rebind = rebind
        self.folder = folder
        self.progress = progress
        self.by_step = by_step
        self.notes: list[str] = []
        self.batch = ""
        self.recorded: int | None = None

    def run(self, checkpoint_path: str | None) -> list[Comparison]:
        self.progress("converting")
        one = self.convert(1)
        many = self.convert(self.options.num_replicas)
        self.batch = many.report["batch"]["line"]
        plain = self._plain(one)
        randoms = self._explain_randomness(plain)
        saved = checkpoint.keys_of(graphdef.from_graph_def(one.graph_def, source=self.model))
        start = self._start(plain, saved, checkpoint_path)
        plain, one, many = self._on_one_stream(plain, one, many, start)
        self.progress(f"plain graph, {self.steps} steps")
        kept: dict[int, Values] = {}
        keep = kept.__setitem__ if self.by_step else None
        reference = Result(*plain.train(self.steps, start.values, on_step=keep), kept)
        if len(reference.losses) < self.steps:
            self.notes.append(f"the data of the plain graph ended after {len(reference.losses)} steps")
        k = self.steps
        single = self._train(one, start, "1 core, single steps", [1] * k)
        loop = self._train(one, start, f"1 core, one loop of {k}", [k])
        found = [
            compare("1 core, single steps, with the plain graph", reference, single),
            compare(f"1 core, one loop of {k}, with the plain graph", reference, loop),
        ]
        if self.options.num_replicas > 1:
            found += self._many_cores(plain, many, start, reference, randoms)
        plain.close()
        return found

    def _many_cores(self, plain: PlainRun, many: Program, start: Start, reference: Result,
                    randoms: list[str]) -> list[Comparison]:  # fmt: skip
        n, k = self.options.num_replicas, self.steps
        single = self._train(many, start, f"{n} cores, single steps", [1] * k)
        loop = self._train(many, start, f"{n} cores, one loop of {k}", [k])
        found = [compare(f"{n} cores, one loop of {k}, with single steps", single, loop)]
        drawn = (
            f"the step draws random numbers ({', '.join(randoms[:3])}), which differ between cores" if randoms else ""
        )
        if self.options.batch_mode == "global":
            what = f"{n} cores, single steps, with the plain graph at the same batch"
            found.append(Comparison(what, skipped=drawn) if drawn else compare(what, reference, single))
        else:
            found.append(self._first_loss(plain, many, start, single, drawn))
        return found

    def _first_loss(self, plain: PlainRun, many: Program, start: Start, single: Result, skip: str) -> Comparison:
        """The loss of step 1 on N cores against the plain graph's on the first N batches, at the same weights."""
        n, kind = self.options.num_replicas, many.report["reduction"]["kind"]
        what = f"{n} cores, loss of step 1, with the {kind} of the plain graph's on {n} batches"
        if not skip and kind not in ("mean", "sum"):
            skip = "each batch counts by a weight of its own"
        if not skip:
            skip = plain.why_loss_is_not_pure(kind)
        if not skip and not single.losses:
            skip = "the data ended before the first step"
        if skip:
            return Comparison(what, skipped=skip)
        losses = plain.losses(n, start.values)
        if len(losses) < n:
            return Comparison(what, skipped=f"the data holds {len(losses)} batches only")
        expected = float(np.mean(losses) if kind == "mean" else np.sum(losses))
        return Comparison(what, 1, relative(np.asarray(expected), np.asarray(single.losses[0])))

    # ------------------------------------------------------------------ parts

    def load(self, *, closed: Sequence[str] = ()) -> Graph:
        """The plain graph, comparable; of the dataset ops in ``closed`` the last partial batch is dropped."""
        graph = graphdef.load(self.model)
        rebind_files(graph, self.rebind)
        fix_seeds(graph)
        for name in closed:
            if drop_remainder(graph, graph[name]):
                self.notes.append(f"'{name}' drops its last partial batch, in the plain graph of this comparison too")
        return graph

    def _plain(self, converted: Program) -> PlainRun:
        graph = self.load(closed=closed_batches(converted))
        chosen = {"train_op": self.options.train_op, "loss": self.options.loss}
        found = roles.find(graph, **chosen)
        roots = [graph[name] for name in found.roots]
        self.notes += race_order.sentences(race_order.settle(graph, roots, self.options.step_order))
        return PlainRun(graph, **chosen)

    def _on_one_stream(
        self, plain: PlainRun, one: Program, many: Program, start: Start
    ) -> tuple[PlainRun, Program, Program]:
        """The same three with an input that reads recorded batches, where it would give others to each of them."""
        reasons = changing_inputs(plain.graph)
        if not reasons:
            return plain, one, many
        why = f"the input gives other batches in each run ({reasons[0]})"
        if hindrance := why_not_recordable(plain):
            self.notes.append(f"{why} and cannot be recorded, since {hindrance}: a difference below may be chance")
            return plain, one, many
        self.progress("recording batches")
        n = self.options.num_replicas
        count = self.steps * n if self.options.batch_mode == "per_replica" else max(self.steps, n)
        recording = record(plain, start.values, count, self.folder)
        plain.close()
        self.recorded = recording.batches
        self.notes.append(f"{why}: every run here reads one recorded stream of batches ({recording.batches:,} in all)")
        read_again(plain.graph, recording)
        fed = [Program(converted_again(program.graph_def, recording), program.report) for program in (one, many)]
        return PlainRun(plain.graph, train_op=self.options.train_op, loss=self.options.loss), fed[0], fed[1]

    def convert(self, cores: int) -> Program:
        """The graph, comparable, for so many cores."""
        return convert(self.load(), replace(self.options, num_replicas=cores))

    def _explain_randomness(self, plain: PlainRun) -> list[str]:
        seeded = fix_seeds(graphdef.load(self.model))
        if seeded:
            self.notes.append(f"fixed seeds were set for this comparison: {', '.join(seeded[:4])}"
                              f"{f' and {len(seeded) - 4} more' if len(seeded) > 4 else ''} had none")  # fmt: skip
        randoms = plain.random_ops()
        if randoms:
            self.notes.append(
                f"the step draws random numbers ({', '.join(randoms[:3])}): with 1 core they are the plain graph's, "
                "with several each core has its own"
            )
        if plain.has_queues():
            self.notes.append("the input is a queue: with several threads its order can differ from run to run")
        return randoms

    def _start(self, plain: PlainRun, saved: Mapping[str, Any], checkpoint_path: str | None) -> Start:
        """The weights that every run starts from, also as a checkpoint."""
        if checkpoint_path is None:
            values = plain.initial_values(list(saved))
        else:
            prefix = checkpoint.resolve(checkpoint_path, self.notes.append)
            if checkpoint.check(prefix, saved):
                self.notes.append("the input starts anew: the position in the checkpoint is not used")
            values = read_pieces(prefix, {name: (key, part) for name, (key, part, _) in saved.items()})
        path = self.folder / "start"
        write_pieces(path, values, {name: (key, part) for name, (key, part, _) in saved.items()})
        return Start(values, path)

    def _train(self, program: Program, start: Start, what: str, loops: Sequence[int]) -> Result:
        self.progress(what)
        losses: list[float] = []
        kept: dict[int, Values] = {}
        with TPUSession(program) as session:
            session.restore(start.path)
            for count in loops:
                found = session.train(count)
                losses += found
                if self.by_step and found:
                    kept[len(losses)] = session.values()
                if len(found) < count:
                    self.notes.append(f"{what}: the data ended after {len(losses)} steps")
                    break
            return Result(losses, session.values(), kept)

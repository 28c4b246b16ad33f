"""Compare: which tensor of a step is the first to differ between engines, in which step, on which core, and where it lives."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import frames, shapes
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime import checkpoint as checkpoints
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.testing.checkpoint_pieces import Values
from tpugraph.testing.comparison import AMPLIFIED, relative
from tpugraph.testing.plain_reference import CHANCE, Pair, comparable, nothing_to_compare, pair
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.reduction.units import branches_of, is_handle
from tpugraph.testing.tapping import Array, Taps, can_tap
from tpugraph.testing.tensor_differences import TensorComparison, TensorDifference
from tpugraph.testing.whole_values import OnCores, converted
from tpugraph.tpu.program import Program

ENGINES = ("plain", "emulator", "pjrt")
"""What can be compared: the plain graph in TensorFlow, emulated cores, compiled ones."""

_Parts = Sequence[Array]
"""A value on each core; of the plain graph, of the loss and of a variable one value."""


def compare(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions | None = None,
    *,
    engines: Sequence[str] = ("plain", "emulator"),
    tensors: str = "all",
    steps: int = 1,
    tolerance: float = 1e-4,
    checkpoint: str | None = None,
    rebind: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    **fields: Any,
) -> TensorComparison:
    """Find the first tensor of a training step that differs between engines.

    The cores share each batch of the plain graph: rows of the cores are put together, parts of a sum are added up. Behind the
    tensors of a step come its loss and its variables. What is inside of loops and branches is not seen, but what comes out of
    them.

    Args:
        model: a plain training graph, or its file.
        options: how to convert it; or give the fields of :class:`ConvertOptions` as keyword arguments.
        engines: ``plain``, ``emulator``, ``pjrt``; the first is what the others are compared with.
        tensors: ``all``, or a regular expression that their names match.
        steps: how many steps are compared.
        tolerance: the largest difference that is none, relative to the largest element of a tensor.
        checkpoint: where training starts; the graph's own first values when None.
        rebind: file names in the graph to replace.
        progress: called with what runs next.
        **fields: see ``options``.

    Raises:
        UsageError: an unknown engine, less than two, or an expression that no tensor matches.
        TpuGraphError: the graph cannot be converted or run.
    """
    if options is not None and fields:
        raise UsageError("give either options or keyword arguments, not both")
    _check(engines, tensors)
    chosen = comparable(options or ConvertOptions(**fields), iterations_per_loop=1)
    held: dict[str, list[OnCores]] = {}

    def convert(graph: Graph, options: ConvertOptions) -> Program:
        program, reads = converted(graph, options)
        held.update(reads)
        return program

    with pair(model, chosen, steps, checkpoint_path=checkpoint, rebind=rebind, convert_with=convert) as both:
        found = TensorComparison(both.plain.graph.source, tuple(engines), both.program.report["num_replicas"], tolerance,
                                 notes=both.notes)  # fmt: skip
        wanted = re.compile("" if tensors == "all" else tensors)
        _Comparing(both, found, wanted, held, progress or (lambda text: None)).run(steps)
    return found


def _check(engines: Sequence[str], tensors: str) -> None:
    unknown = [engine for engine in engines if engine not in ENGINES]
    if unknown or len(set(engines)) < 2:
        what = f"'{unknown[0]}' is no engine" if unknown else "less than two engines leave nothing to compare"
        raise UsageError(what, fix=f"--engines=two or more of {','.join(ENGINES)}")
    try:
        re.compile(tensors)
    except re.error as error:
        raise UsageError(
            f"'{tensors}' is no regular expression: {error}", fix="--tensors=all, or as in --tensors='dense.*'"
        ) from error


@dataclass
class _Comparing:
    both: Pair
    found: TensorComparison
    wanted: re.Pattern[str]
    held: Mapping[str, list[OnCores]]
    progress: Callable[[str], None]

    def run(self, steps: int) -> None:
        """Compare step by step, until something differs or the data end."""
        graph = graphdef.from_graph_def(self.both.program.graph_def, source=self.found.source)
        shapes.infer(graph)
        self.tensors = list(self._tensors(graph))
        self.loss = str(self.both.plain.roles.loss.name)
        self.variables = [name for name in checkpoints.keys_of(graph) if name in self.both.start and self.wanted.search(name)]
        whole = [self.loss] * bool(self.wanted.search(self.loss)) + self.variables
        seen = [*self.tensors, *((name, OnCores(name)) for name in whole)]
        if not seen:
            raise UsageError(f"no tensor of the step matches '{self.wanted.pattern}'", origin=self.found.source,
                             fix="--tensors=all, or a part of a name; `tpugraph inspect` shows names")  # fmt: skip
        self.found.compared = list(dict.fromkeys(name for name, _ in seen))
        with ExitStack() as stack:
            runs = [self._engine(engine, graph, stack) for engine in self.found.engines]
            for step in range(1, steps + 1):
                self.progress(f"step {step}")
                reference, *others = [next(run, None) for run in runs]
                if reference is None and step == 1:
                    raise nothing_to_compare(self.found.source)
                for engine, other in zip(self.found.engines[1:], others, strict=True):
                    if reference is not None and other is not None:
                        self._look(step, engine, seen, reference, other)
                if self.found.differences:
                    self._leave_out_rounding(step, seen)
                if self.found.differences:
                    return

    def _leave_out_rounding(self, step: int, seen: Sequence[tuple[str, OnCores]]) -> None:
        """Leave out what is as far apart in the plain graph itself, from weights a rounding apart."""
        with self.both.rounded() as (other, start), contextlib.closing(self.both.plain.again()) as plain:
            runs = [list(itertools.islice(self._on_plain(*run), step)) for run in ((plain, self.both.start), (other, start))]
        (first, one), (rounded, two) = ((run[0][0], run[-1][1]) for run in runs)
        if (by_chance := relative(first, rounded)) > self.found.tolerance:
            self.found.notes.append(CHANCE.format(by_chance))
            return
        by = {name: relative(a[0], b[0]) for (name, _), a, b in zip(seen, one, two, strict=True)}
        differences = [found for found in self.found.differences if found.difference > AMPLIFIED * by[found.tensor]]
        if left := len(self.found.differences) - len(differences):
            self.found.notes.append(f"rounding alone makes as much of {counted(left, 'tensor')} in step {step}: no difference")
        self.found.differences = differences

    def _tensors(self, graph: Graph) -> Iterator[tuple[str, OnCores]]:
        """The tensors of the plain step, in topological order, as far as the cores can send them to the host."""
        plain, there = self.both.plain.graph, can_tap(graph)
        for name in _fetchable(self.both.plain):
            for held in self.held.get(name, ()) if self.found.cores > 1 else [OnCores(name)]:
                alike = held.tensor in there and there[held.tensor].dtype == plain.tensor(name).dtype
                if alike and self.wanted.search(name):
                    yield name, held

    def _engine(self, engine: str, graph: Graph, stack: ExitStack) -> Iterator[list[_Parts]]:
        """What is compared, step by step."""
        if engine == "plain":
            return (parts for _, parts in self._on_plain(self.both.plain, self.both.start))
        tapped = graphdef.copy(graph)
        shapes.infer(tapped)
        taps = Taps(tapped, [tapped.tensor(name) for name in dict.fromkeys(held.tensor for _, held in self.tensors)])
        platform = "cpu" if engine == "pjrt" else None
        session = self.both.on_cores(graphdef.to_graph_def(tapped), engine=engine, platform=platform)
        return self._on_cores(stack.enter_context(session), taps)

    def _on_plain(self, plain: PlainRun, start: Values) -> Iterator[tuple[Array, list[_Parts]]]:
        """The loss and what is compared, step by step."""
        names = list(dict.fromkeys([self.loss, *(name for name, _ in self.tensors)]))
        plain.open(start)
        while (values := plain.observe(names)) is not None:
            by = dict(zip(names, values, strict=True))
            parts = [[by[name]] for name, _ in self.tensors]
            yield by[self.loss], parts + self._whole(by[self.loss], plain.values(self.variables))

    def _on_cores(self, session: TPUSession, taps: Taps) -> Iterator[list[_Parts]]:
        while losses := session.train(1):
            parts = taps.steps[-1]
            yield [parts[held.tensor] for _, held in self.tensors] + self._whole(losses[0], session.values(self.variables))

    def _whole(self, loss: Any, variables: Mapping[str, Array]) -> list[_Parts]:
        """The loss, where it is asked for, and the variables."""
        losses = [[np.asarray(loss)]] if self.wanted.search(self.loss) else []
        return [*losses, *([variables[name]] for name in self.variables)]

    def _look(self, step: int, engine: str, seen: Sequence[tuple[str, OnCores]], reference: Sequence[_Parts],
              other: Sequence[_Parts]) -> None:  # fmt: skip
        """Keep what differs in a step."""
        apart = [_apart(held, expected, actual) for (_, held), expected, actual in zip(seen, reference, other, strict=True)]
        largest = [max(by, default=0.0) for by in apart]
        wrong = {name for (name, _), difference in zip(seen, largest, strict=True) if difference > self.found.tolerance}
        same = {name for (name, _), by in zip(seen, apart, strict=True) if by} - wrong
        for (name, held), by, difference in zip(seen, apart, largest, strict=True):
            if difference > self.found.tolerance:
                core = next(core for core, own in enumerate(by) if own > self.found.tolerance)
                node = self.both.plain.graph.tensor(name).node
                reads = [str(tensor) for tensor in node.inputs]
                self.found.differences.append(TensorDifference(
                    name, node.op, step, core if len(by) > 1 else None, engine, difference, str(held.placement), held.how,
                    held.because, held.reader, tuple(r for r in reads if r in same), tuple(r for r in reads if r not in same),
                ))  # fmt: skip


def _apart(held: OnCores, expected: _Parts, actual: _Parts) -> list[float]:
    """How far a value is apart on each core, or of all together; nothing where the cores hold more or less than it, as padding."""
    if len(expected) == len(actual):
        return [relative(one, other) for one, other in zip(expected, actual, strict=True)]
    return held.difference(expected[0], actual) if held.whole(actual).shape == expected[0].shape else []


def _fetchable(plain: PlainRun) -> list[str]:
    """The tensors of the plain step that can be fetched, in topological order: none of loops and branches, no handles."""
    graph = plain.graph
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    step = graph.ancestors(graph[name] for name in plain.roles.roots)
    order = graph.topological_order(step)
    branches, frame_of = branches_of(order, step), frames(graph)
    found = []
    for node in order:
        aliases = any(is_handle(tensor) for tensor in node.inputs[:1]) and node.op in ops.SHARES_MEMORY
        if frame_of[node] or branches[node] or aliases or node.op in ops.SWITCH:
            continue
        found += [str(node.out(port)) for port, _ in enumerate(node.outputs or ()) if not is_handle(node.out(port))]
    return found


__all__ = ["ENGINES", "TensorComparison", "TensorDifference", "compare"]

"""Compare: which tensor of a step is the first to differ between engines, in which step, on which core, and where it lives."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import frames, shapes
from tpugraph.compiler.options import ConvertOptions, given
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.conditionals import sides
from tpugraph.runtime import checkpoint as checkpoints
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.testing.checkpoint_pieces import Values
from tpugraph.testing.comparison import AMPLIFIED, relative
from tpugraph.testing.cut_graph import is_handle
from tpugraph.testing.plain_reference import CHANCE, Pair, comparable, nothing_to_compare, pair
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.tapping import Array, Taps, can_tap
from tpugraph.testing.tensor_differences import TensorComparison, TensorDifference
from tpugraph.testing.whole_values import OnCores, converted
from tpugraph.tpu.program import Program

ENGINES = ("plain", "emulator", "pjrt")
"""What can be compared: the plain graph in TensorFlow, emulated cores, compiled ones."""

_LOSS = ""
"""The name of the loss among the values of the cores, which is told by each core's part of it."""

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
    _check(engines, tensors)
    chosen = comparable(given(options, fields), iterations_per_loop=1)
    held: dict[str, list[OnCores]] = {}

    def convert(graph: Graph, options: ConvertOptions) -> Program:
        program, reads = converted(graph, options)
        held.update(reads)
        return program

    with pair(model, chosen, steps, checkpoint_path=checkpoint, rebind=rebind, convert_with=convert) as both:
        cores = both.program.report["num_replicas"]
        found = TensorComparison(both.plain.graph.source, tuple(engines), cores, tolerance, both.notes)
        _Comparing(both, found, "" if tensors == "all" else tensors, held).run(steps, progress or (lambda text: None))
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


class _Comparing:
    def __init__(self, both: Pair, found: TensorComparison, tensors: str, held: Mapping[str, list[OnCores]]) -> None:
        self.both = both
        self.found = found
        self.graph = graphdef.from_graph_def(both.program.graph_def, source=found.source)
        shapes.infer(self.graph)
        self.loss = str(both.plain.graph.tensor(both.plain.roles.loss.name))
        self.variables = [name for name in checkpoints.keys_of(self.graph) if name in both.start]
        whole = [(self.loss, OnCores(_LOSS)), *((name, OnCores(name)) for name in self.variables)]
        self.seen = [one for one in (*self._tensors(held), *whole) if re.search(tensors, one[0])]
        if not self.seen:
            raise UsageError(f"no tensor of the step matches '{tensors}'", origin=found.source,
                             fix="--tensors=all, or a part of a name; `tpugraph inspect` shows names")  # fmt: skip
        found.compared += dict.fromkeys(name for name, _ in self.seen)

    def run(self, steps: int, progress: Callable[[str], None]) -> None:
        """Compare step by step, until something differs or the data end."""
        with ExitStack() as stack:
            runs = [self._engine(engine, stack) for engine in self.found.engines]
            for step in range(1, steps + 1):
                progress(f"step {step}")
                taken = [next(run, None) for run in runs]
                if None in taken and step == 1:
                    raise nothing_to_compare(self.found.source)
                if None in taken:
                    return
                for engine, other in zip(self.found.engines[1:], taken[1:], strict=True):
                    self._look(step, engine, taken[0] or [], other or [])
                if self.found.differences:
                    self._leave_out_rounding(step)
                if self.found.differences:
                    return

    def _tensors(self, held: Mapping[str, list[OnCores]]) -> Iterator[tuple[str, OnCores]]:
        """The tensors of the plain step, in topological order, as far as the cores can send them to the host."""
        plain, there = self.both.plain.graph, can_tap(self.graph)
        for name in _fetchable(self.both.plain):
            for one in held.get(name, ()) if self.found.cores > 1 else [OnCores(name)]:
                if one.tensor in there and there[one.tensor].dtype == plain.tensor(name).dtype:
                    yield name, one

    def _engine(self, engine: str, stack: ExitStack) -> Iterator[list[_Parts]]:
        """The values of what is compared, step by step."""
        if engine == "plain":
            steps = self._on_plain(self.both.plain, self.both.start, [name for name, _ in self.seen])
            return ([[by[name]] for name, _ in self.seen] for by in steps)
        tapped = graphdef.copy(self.graph)
        shapes.infer(tapped)
        others = {_LOSS, *self.variables}
        names = dict.fromkeys(held.tensor for _, held in self.seen if held.tensor not in others)
        taps = Taps(tapped, [tapped.tensor(name) for name in names]) if names else None
        platform = "cpu" if engine == "pjrt" else None
        session = self.both.on_cores(graphdef.to_graph_def(tapped), engine=engine, platform=platform)
        return self._on_cores(stack.enter_context(session), taps)

    def _on_plain(self, plain: PlainRun, start: Values, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Some tensors and variables by name, and the loss, step by step."""
        tensors = list(dict.fromkeys([self.loss, *(name for name in names if name not in self.variables)]))
        variables = [name for name in names if name in self.variables]
        plain.open(start)
        while (values := plain.observe(tensors)) is not None:
            yield dict(zip(tensors, values, strict=True)) | plain.values(variables)

    def _on_cores(self, session: TPUSession, taps: Taps | None) -> Iterator[list[_Parts]]:
        while losses := session.train(1):
            values = session.values(self.variables)
            tensors = taps.steps[-1] if taps is not None else {}
            by = {**tensors, _LOSS: [np.asarray(losses[0])], **{name: [values[name]] for name in values}}
            yield [by[held.tensor] for _, held in self.seen]

    def _look(self, step: int, engine: str, reference: Sequence[_Parts], other: Sequence[_Parts]) -> None:
        """Keep what differs in a step."""
        values = zip(self.seen, reference, other, strict=True)
        apart = [(name, held, _apart(held, expected, actual)) for (name, held), expected, actual in values]
        wrong = {name for name, _, by in apart if max(by, default=0.0) > self.found.tolerance}
        same = {name for name, _, by in apart if by} - wrong
        for name, held, by in apart:
            beyond = [core for core, difference in enumerate(by) if difference > self.found.tolerance]
            if beyond:
                node = self.both.plain.graph.tensor(name).node
                reads = [str(tensor) for tensor in node.inputs]
                self.found.differences.append(TensorDifference(
                    name, node.op, step, beyond[0] if len(by) > 1 else None, engine, max(by), str(held.placement), held.how,
                    held.because, held.reader, tuple(r for r in reads if r in same), tuple(r for r in reads if r not in same),
                ))  # fmt: skip

    def _leave_out_rounding(self, step: int) -> None:
        """Leave out what is as far apart in the plain graph itself, from weights a rounding apart."""
        names = list(dict.fromkeys(found.tensor for found in self.found.differences))
        with self.both.rounded() as (other, start), contextlib.closing(self.both.plain.again()) as plain:
            one, two = (
                list(islice(self._on_plain(*run, names), step)) for run in ((plain, self.both.start), (other, start))
            )
        by_chance = relative(one[0][self.loss], two[0][self.loss])
        if by_chance > self.found.tolerance:
            self.found.notes.append(CHANCE.format(by_chance))
            return
        explained = {
            name for name in names if AMPLIFIED * relative(one[-1][name], two[-1][name]) >= self._largest(name)
        }
        if explained:
            few = f"{counted(len(explained), 'tensor')} in step {step}"
            self.found.notes.append(f"rounding alone makes as much of {few}, from weights a rounding apart")
        self.found.differences = [found for found in self.found.differences if found.tensor not in explained]

    def _largest(self, name: str) -> float:
        return max(found.difference for found in self.found.differences if found.tensor == name)


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
    on, frame_of = sides(graph), frames(graph)
    found = []
    for node in order:
        aliases = any(is_handle(tensor) for tensor in node.inputs[:1]) and node.op in ops.SHARES_MEMORY
        if frame_of[node] or node in on or aliases or node.op in ops.SWITCH:
            continue
        found += [str(node.out(port)) for port, _ in enumerate(node.outputs or ()) if not is_handle(node.out(port))]
    return found


__all__ = ["ENGINES", "TensorComparison", "TensorDifference", "compare"]

"""Compare: which tensor of a step is the first to differ between engines, in which step, on which core, and where it lives."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpugraph import ops
from tpugraph.analysis import frames, shapes
from tpugraph.analysis.placements import REPLICATE
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.file_names import rebind_files
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import TpuGraphError, UsageError
from tpugraph.testing.checkpoint_pieces import Values
from tpugraph.testing.comparable import fix_seeds
from tpugraph.testing.comparison import relative
from tpugraph.testing.plain_reference import Load, first_values, plain_run
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.reduction.units import branches_of, is_handle
from tpugraph.testing.tapping import Array, Taps, can_tap
from tpugraph.testing.tensor_differences import TensorComparison, TensorDifference
from tpugraph.testing.whole_values import Relation, converted
from tpugraph.tpu.program import Program

ENGINES = ("plain", "emulator", "pjrt")
"""What can be compared: the plain graph in TensorFlow, emulated cores, compiled ones."""

_SAME = Relation(REPLICATE)
_Steps = list[dict[str, list[Array]]]


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

    The plain graph is compared with one core, which takes its batches, and with all cores, which share each of its batches:
    rows of the cores are put together, parts of a sum are added up. What is inside of loops and branches is not seen, but
    what comes out of them.

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
    chosen = options or ConvertOptions(**fields)
    say = progress or (lambda text: None)
    return _compare(model, chosen, tuple(engines), tensors, steps, tolerance, checkpoint, dict(rebind or {}), say)


def _compare(model: str | os.PathLike[str] | Graph, options: ConvertOptions, engines: tuple[str, ...], tensors: str, steps: int,
             tolerance: float, checkpoint: str | None, rebind: Mapping[str, str],
             progress: Callable[[str], None]) -> TensorComparison:  # fmt: skip
    original = model if isinstance(model, Graph) else graphdef.load(model)

    def load() -> Graph:
        graph = graphdef.copy(original)
        rebind_files(graph, rebind)
        fix_seeds(graph)
        return graph

    found = TensorComparison(original.source, engines)
    work = _Comparing(load, options, engines, tensors, steps, tolerance, checkpoint, found, progress)
    for cores in dict.fromkeys([1, options.num_replicas]):
        work.on(cores)
    if not any(found.compared.values()):
        raise UsageError(f"no tensor of the step matches '{tensors}'", origin=original.source,
                         fix="--tensors=all, or a part of a name; `tpugraph inspect` shows names")  # fmt: skip
    return found


def first_difference(
    load: Load, options: ConvertOptions, steps: int, tolerance: float, checkpoint: str | None
) -> TensorDifference | None:
    """The first tensor of which the emulator and the plain graph differ; None where none is seen to."""
    found = TensorComparison("", ENGINES[:2])
    work = _Comparing(load, options, ENGINES[:2], "all", steps, tolerance, checkpoint, found, lambda text: None)
    for cores in dict.fromkeys([1, options.num_replicas]):
        work.on(cores)
        if found.differences:
            break
    return found.first


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
    load: Load
    options: ConvertOptions
    engines: tuple[str, ...]
    tensors: str
    steps: int
    tolerance: float
    checkpoint: str | None
    found: TensorComparison
    progress: Callable[[str], None]

    def on(self, cores: int) -> None:
        """Compare on a number of cores."""
        options = replace(self.options, num_replicas=cores, iterations_per_loop=1)
        if cores > 1 and "plain" in self.engines:
            options = replace(options, batch_mode="global")
        self.progress(f"converting for {cores} cores" if cores > 1 else "converting for 1 core")
        try:
            program, relations = converted(self.load(), options)
        except TpuGraphError as error:
            if cores == 1 or options.batch_mode == self.options.batch_mode:
                raise
            self.found.notes.append(
                f"{cores} cores are not compared: they would share the batch of the plain graph, and {error.fault}"
            )
            return
        plain = plain_run(self.load, options, program)
        try:
            self._compare(plain, program, relations, cores)
        finally:
            plain.close()

    def _compare(self, plain: PlainRun, program: Program, relations: Mapping[str, Relation], cores: int) -> None:
        order = [name for name in _seen(plain) if self.tensors == "all" or re.search(self.tensors, name)]
        graph = graphdef.from_graph_def(program.graph_def, source=self.found.source)
        shapes.infer(graph)
        there = can_tap(graph)
        order = [name for name in order if (relations.get(name) or _SAME).placement is not None]
        if cores > 1 and "plain" in self.engines:
            random = plain.graph.descendants([n for n in plain.graph if n.op in ops.RANDOM], data_only=True)
            drawn = [name for name in order if plain.graph.tensor(name).node in random]
            if drawn:
                self.found.notes.append(
                    f"{len(drawn):,} tensors follow random numbers, of which each of several cores draws its own"
                )
            order = [name for name in order if name not in set(drawn) and (relations.get(name) or _SAME).how]
        names = [name for name in order if name in there and there[name].dtype == plain.graph.tensor(name).dtype]
        self.found.compared[cores] = len(names)
        if not names:
            return
        start = first_values(plain, self.checkpoint)
        values = {engine: self._values(engine, plain, graph, names, start, cores) for engine in self.engines}
        self._look(values, relations, plain.graph, names, cores)

    def _values(
        self, engine: str, plain: PlainRun, graph: Graph, names: Sequence[str], start: Values, cores: int
    ) -> _Steps:
        """The tensors in each step, by the engine."""
        self.progress(f"{engine}, {cores} core{'s' if cores > 1 else ''}")
        if engine == "plain":
            plain.open(start)
            return [{n: [v] for n, v in zip(names, plain.observe(names), strict=True)} for _ in range(self.steps)]
        tapped = graphdef.copy(graph)
        shapes.infer(tapped)
        taps = Taps(tapped, [tapped.tensor(name) for name in names])
        platform = "cpu" if engine == "pjrt" else None
        with TPUSession(graphdef.to_graph_def(tapped), engine=engine, platform=platform) as session:
            session.initialize()
            known = set(session.variable_names())
            session.assign({name: value for name, value in start.items() if name in known})
            for _ in range(self.steps):
                session.train(1)
        return taps.steps

    def _look(self, values: Mapping[str, _Steps], relations: Mapping[str, Relation], graph: Graph, names: Sequence[str],
              cores: int) -> None:  # fmt: skip
        """Keep what differs in the first step in which anything does."""
        reference, *others = self.engines
        steps = min(len(steps) for steps in values.values())
        for step in range(steps):
            for engine in others:
                expected, actual = values[reference][step], values[engine][step]
                by = {}
                for name in names:
                    held = relations.get(name) or _SAME
                    by[name] = self._difference(held, expected[name], actual[name])
                wrong = {name for name, (difference, _) in by.items() if difference > self.tolerance}
                for name in (n for n in names if n in wrong):
                    difference, core = by[name]
                    self.found.differences.append(
                        _told(
                            graph,
                            name,
                            relations.get(name) or _SAME,
                            step + 1,
                            cores,
                            core,
                            engine,
                            difference,
                            set(names) - wrong,
                        )
                    )
            if any(d.cores == cores for d in self.found.differences):
                return

    def _difference(
        self, held: Relation, expected: Sequence[Array], actual: Sequence[Array]
    ) -> tuple[float, int | None]:
        """By how much a tensor differs, and on which core."""
        if len(expected) == len(actual):  # core by core; of the plain graph only where there is one core
            by = [relative(one, other) for one, other in zip(expected, actual, strict=True)]
            return max(by), next((core for core, d in enumerate(by) if d > self.tolerance), None)
        whole = expected[0]
        difference = relative(whole, held.whole(actual))
        core = held.core(whole, actual, lambda one, other: relative(one, other) > self.tolerance)
        if held.placement == REPLICATE:
            difference = max(relative(whole, part) for part in actual)
        return difference, core


def _told(graph: Graph, name: str, held: Relation, step: int, cores: int, core: int | None, engine: str, difference: float,
          same: set[str]) -> TensorDifference:  # fmt: skip
    node = graph.tensor(name).node
    reads = [str(tensor) for tensor in node.inputs]
    return TensorDifference(
        name, node.op, step, cores, core, engine, difference, str(held), held.how if cores > 1 else "",
        held.because if cores > 1 else "", tuple(r for r in reads if r in same), tuple(r for r in reads if r not in same),
    )  # fmt: skip


def _seen(plain: PlainRun) -> list[str]:
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

"""Verify: the plain graph and the cores train on the same batches, and every loss and variable of every step is compared."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import races
from tpugraph.analysis.batched_input import drop_remainder
from tpugraph.compiler import ConvertOptions, convert, find_roles
from tpugraph.compiler.conversion import another_batch
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.side_effects import rebind_files
from tpugraph.runtime.checkpoints.saver import check, resolve
from tpugraph.runtime.session import TPUSession
from tpugraph.runtime.variables import saved_variables
from tpugraph.support.errors import RunError
from tpugraph.support.wording import counted, first_few, first_of
from tpugraph.testing.plain_run import PlainRun, Values, read_pieces
from tpugraph.testing.repeatable import repeatable
from tpugraph.tpu.program import Program
from tpugraph.xla.mesh import Layout

_FLOOR = 1e-6
"""Magnitude below which the elements of a variable are compared absolutely."""

_AMPLIFIED = 30.0
"""How many times larger than what a rounding of the weights makes of a value a difference may be that rounding explains."""

Cell = float | None
"""A relative difference; None where the variable was not read after the step, which is inside of a loop."""


@dataclass
class Comparison:
    """How far two trainings are apart.

    Attributes:
        losses: of each step, the difference of the losses relative to the expected one; inf where one side alone took the step.
        variables: by name the difference after each step, relative to the variable's largest element; inf where only one of the
            two is finite.
        rounding: how far the plain graph is apart from itself where its weights start a rounding apart; None where that was
            not asked for.
    """

    what: str
    losses: list[float] = field(default_factory=list)
    variables: dict[str, list[Cell]] = field(default_factory=dict)
    rounding: Comparison | None = None

    def add(self, expected: float | None, actual: float | None, values: Values, found: Mapping[str, Any]) -> None:
        """Compare one step more; a loss is None where the data ended before, and variables are missing where they were not read."""
        ended = expected is None or actual is None
        self.losses.append(math.inf if ended else relative(np.asarray(expected), np.asarray(actual)))
        for name in values.keys() & found.keys():
            row = self.variables.setdefault(name, [])
            row += [None] * (self.steps - 1 - len(row))
            row.append(relative(values[name], found[name]))

    @property
    def steps(self) -> int:
        return len(self.losses)

    @property
    def cells(self) -> list[tuple[int, str, float]]:
        """What was compared: step, variable ("" for the loss), difference."""
        rows: dict[str, Sequence[Cell]] = {"": self.losses, **self.variables}
        return [(n, name, cell) for name, row in rows.items() for n, cell in enumerate(row, 1) if cell is not None]

    def beyond(self, tolerance: float) -> list[tuple[int, str, float]]:
        """What differs by more than the tolerance, and by more than rounding explains."""
        return [found for found in self.cells if found[2] > max(tolerance, self._explained(*found[:2]))]

    def rounded_away(self, tolerance: float) -> list[tuple[int, str, float]]:
        """What differs by more than the tolerance, and by no more than rounding explains."""
        return [found for found in self.cells if tolerance < found[2] <= self._explained(*found[:2])]

    def _explained(self, step: int, name: str) -> float:
        return 0.0 if self.rounding is None else self.rounding.explains(step, name)

    def explains(self, step: int, name: str) -> float:
        """The largest difference of a value that rounding explains, where this compares trainings a rounding apart."""
        row: Sequence[Cell] = self.variables.get(name, []) if name else self.losses
        return _AMPLIFIED * ((row[step - 1] if step <= len(row) else None) or 0.0)

    def within(self, tolerance: float) -> bool:
        """Whether there is something to compare, and nothing differs."""
        return bool(self.losses) and not self.beyond(tolerance)

    def first_beyond(self, tolerance: float) -> int | None:
        """The first step, from 1, after which something differs; None where nothing does."""
        return min((step for step, _, _ in self.beyond(tolerance)), default=None)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists (JSON), the variable that differs most first."""
        most = {name: max(cell for cell in row if cell is not None) for name, row in self.variables.items()}
        order = sorted(most, key=lambda name: (-most[name], name))
        rows = {name: list(map(_plain, self.variables[name])) for name in order}
        worst = next(iter(order), "")
        return {"what": self.what, "steps": self.steps, "loss": _plain(max(self.losses, default=0.0)), "variable": worst,
                "difference": _plain(most.get(worst, 0.0)), "losses": list(map(_plain, self.losses)),
                "variables": rows}  # fmt: skip


def _plain(cell: Cell) -> float | str | None:
    return "not finite" if cell is not None and math.isinf(cell) else cell


def relative(expected: Any, actual: Any, whole: Any = None) -> float:
    """The largest difference of two arrays, relative to the largest element expected; inf where only one is finite.

    Where the expected array is a part of a ``whole``, the largest element of that counts.
    """
    if expected.shape != actual.shape:
        return float("inf")
    if not expected.size:
        return 0.0
    if not np.issubdtype(expected.dtype, np.number):
        return 0.0 if np.array_equal(expected, actual) else float("inf")
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if same.all():
        return 0.0
    if not (np.isfinite(left[~same]).all() and np.isfinite(right[~same]).all()):
        return float("inf")
    finite = left[np.isfinite(left)] if whole is None else whole[np.isfinite(whole)]
    scale = float(np.abs(finite).max(initial=0.0))
    return float(np.abs(left - right)[~same].max()) / max(scale, _FLOOR)


CHANCE = "two runs of the plain graph differ by {:.1e} in the first loss: a difference may be chance"
"""Said where not even the plain graph repeats itself, from weights a rounding apart: its input does not."""


@dataclass
class Pair:
    """The plain graph and its conversion."""

    plain: PlainRun
    program: Program
    options: ConvertOptions  # of the conversion of the plain graph
    start: Values  # what the variables of both start with
    notes: list[str]  # what was changed so that they can be compared

    def rounding(self, steps: int, tensors: Sequence[str], variables: Sequence[str]) -> Comparison:
        """Compare the plain graph with itself, from weights a rounding apart."""
        random, start = np.random.default_rng(1), dict(self.start)
        for name in self.plain.roles.trained:
            weights = start.get(name)
            if weights is not None and np.issubdtype(weights.dtype, np.floating):
                apart = max(np.abs(weights).max(initial=0.0), 1.0) * np.finfo(weights.dtype).eps
                start[name] = (weights + apart * random.choice([-1, 1], weights.shape)).astype(weights.dtype)
        found = Comparison("the plain graph, from weights a rounding apart")
        with closing(self.plain.again()) as plain, closing(self.plain.again()) as other:
            both = zip(
                plain.steps(self.start, tensors, variables), other.steps(start, tensors, variables), strict=False
            )
            for (loss, values), (rounded, others) in islice(both, steps):
                found.add(loss, rounded, values, others)
        return found

    @contextmanager
    def on_cores(self, graph_def: Any = None, **engine: Any) -> Iterator[TPUSession]:
        """A session of the conversion, or of the same with taps, at the start; emulated cores run op by op."""
        with TPUSession(self.program if graph_def is None else graph_def, literal=True, **engine) as session:
            session.initialize()
            known = set(session.variable_names())
            session.assign({name: value for name, value in self.start.items() if name in known})
            if own := session.report.get("own_streams"):
                note = f"XLA draws other numbers than TensorFlow for {first_of(own)}: what reads them differs"
                self.notes += [note] if note not in self.notes else []
            yield session


@contextmanager
def pair(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions,
    *,
    checkpoint_path: str | None = None,
    rebind: Mapping[str, str] | None = None,
    convert_with: Callable[[Graph, ConvertOptions], Program] = convert,
) -> Iterator[Pair]:
    """The plain graph, run by TensorFlow at its own batch, and its conversion, which shares each of its batches among the cores.

    Both are repeatable, and the cores draw what the plain graph draws.
    """
    notes: list[str] = []
    original = repeatable(model if isinstance(model, Graph) else graphdef.load(model), notes)
    rebind_files(original, dict(rebind or {}))
    options = replace(options, random="plain")
    if options.global_batch:
        original.roles = find_roles(original, options)
        another_batch(
            original, options.global_batch, batch_constants=options.batch_constants, literals=options.literals
        )
        options = replace(options, global_batch=0, batch_constants=(), literals=(), set_shape=())
    program = convert_with(graphdef.copy(original), options)
    plain = _plain_run(original, options, program, notes)
    try:
        yield Pair(plain, program, options, first_values(plain, program, checkpoint_path, notes), notes)
    finally:
        plain.close()


def nothing_to_compare(source: str) -> RunError:
    return RunError("the data end before the first step: there is nothing to compare", origin=source,
                    fix="give data for a step: --rebind=OLD=NEW names another file")  # fmt: skip


def _plain_run(graph: Graph, options: ConvertOptions, program: Program, notes: list[str]) -> PlainRun:
    """The plain graph with the order of reads and writes and the closed batches of its conversion."""
    found = find_roles(graph, options)
    if found.replica:
        raise RunError("a replica program is compared with no plain graph: it computes what all its replicas do together",
                       origin=graph.source, fix="the graph that the same program writes with use_tpu=False")  # fmt: skip
    closed = [note["node"] for note in program.report["why"] if note["stage"] == "static-shapes"]
    for name in closed:
        if drop_remainder(graph, graph[name]):
            notes.append(f"'{name}' drops its last partial batch, in the plain graph of this comparison too")
    roots = [graph[name] for name in found.roots]
    notes += races.sentences(races.settle(graph, roots, options.step_order))
    if any(graph[finding.name].op in ops.DEQUEUES for finding in found.inputs):
        notes.append("the input is a queue: with several threads its order can differ from run to run")
    return PlainRun(graph, train_op=options.train_op, loss=options.loss)


def first_values(plain: PlainRun, program: Program, path: str | None, notes: list[str]) -> Values:
    if path is None:
        plain.open({})
        return plain.values(list(plain.roles.variables))
    saved = saved_variables(graphdef.from_graph_def(program.graph_def, source=plain.graph.source))
    prefix = resolve(path, notes.append)
    if check(prefix, saved):
        notes.append("the input starts anew: the position in the checkpoint is not used")
    return read_pieces(prefix, {name: (one.key, one.slice) for name, one in saved.items()})


@dataclass
class Verification:
    """What :func:`verify` found.

    Attributes:
        comparisons: the steps one by one, and the same in one loop, with the plain graph.
        batch: the rows of a step, such as ``global batch 256 = 8 cores x 32``.
    """

    comparisons: list[Comparison]
    tolerance: float
    notes: list[str]
    batch: str = ""

    @property
    def ok(self) -> bool:
        return all(c.within(self.tolerance) for c in self.comparisons)


def verify(
    model: str | os.PathLike[str] | Graph,
    steps: int,
    options: ConvertOptions,
    *,
    checkpoint_path: str | None = None,
    rebind: Mapping[str, str] | None = None,
    tolerance: float = 1e-4,
    progress: Callable[[str], None] | None = None,
    layout: Layout | None = None,
    platform: str = "cpu",
) -> Verification:
    """Compare the plain graph, run by TensorFlow at its own batch, with the cores, which share each of its batches.

    The cores draw what the plain graph draws. ``progress`` is called with what runs next; with a ``layout`` the step runs on
    devices of ``platform`` among which XLA divides it, in place of emulated cores. The rest is as of :func:`pair`.

    Raises:
        TpuGraphError: a graph, a checkpoint or a run that fails, or data that end before the first step.
    """
    say = progress or (lambda text: None)
    say("converting")
    chosen = replace(options, iterations_per_loop=steps)
    engine: dict[str, Any] = {}
    if layout is not None:
        chosen = replace(chosen, num_replicas=1)
        engine = {"engine": "xla", "mesh": layout, "platform": platform}
    with pair(model, chosen, checkpoint_path=checkpoint_path, rebind=rebind) as both:
        batch = both.program.report["batch"]["line"]
        cores = counted(both.program.report["num_replicas"], "core") if layout is None else f"the mesh {layout.mesh}"
        comparisons = _compared(both, steps, cores, say, engine)
        if not all(comparison.within(tolerance) for comparison in comparisons):
            say("the plain graph, from weights a rounding apart")
            rounding = both.rounding(steps, (), list(both.plain.roles.variables))
            if rounding.losses[0] > tolerance:
                both.notes.append(CHANCE.format(rounding.losses[0]))
            else:
                for comparison in comparisons:
                    comparison.rounding = rounding
                both.notes += _explained(comparisons, tolerance)
        return Verification(comparisons, tolerance, both.notes, batch)


def _compared(
    both: Pair, steps: int, cores: str, say: Callable[[str], None], engine: Mapping[str, Any]
) -> list[Comparison]:
    plain, names = both.plain, list(both.plain.roles.variables)
    one_by_one = Comparison(f"{cores}, {counted(steps, 'step')}, with the plain graph")
    say(one_by_one.what)
    losses, last = list[float](), Values()
    with both.on_cores(**engine) as session:
        for loss, last in islice(plain.steps(both.start, variables=names), steps):
            losses.append(loss)
            found = session.train(1)
            one_by_one.add(loss, found[0] if found else None, last, session.values())
            if not found:
                break
        if not losses:
            raise nothing_to_compare(plain.graph.source)
        broken = next((step for step, loss in enumerate(losses, 1) if not np.isfinite(loss)), 0)
        if broken:
            both.notes.append(
                f"the loss of the plain graph is {losses[broken - 1]} from step {broken} on, the cores' should be too"
            )
        if len(losses) < steps:
            both.notes.append(f"the data of the plain graph end after {counted(len(losses), 'step')}")
            if one_by_one.losses and session.train(1):
                one_by_one.add(None, 0.0, {}, {})
    if steps == 1:
        return [one_by_one]
    loop = Comparison(f"{cores}, one loop of {steps}, with the plain graph")
    say(loop.what)
    with both.on_cores(**engine) as session:
        pairs = list(zip_longest(losses, session.train(steps)))
        for step, (expected, actual) in enumerate(pairs, 1):
            loop.add(expected, actual, *((last, session.values()) if step == len(pairs) else ({}, {})))
    return [one_by_one, loop]


def _explained(comparisons: Sequence[Comparison], tolerance: float) -> list[str]:
    """A note that names the values whose difference rounding explains."""
    names = dict.fromkeys(name or "the loss" for found in comparisons for _, name, _ in found.rounded_away(tolerance))
    few = first_few(list(names), 3)
    return [f"rounding alone makes as much of {few}, from weights a rounding apart"] if names else []

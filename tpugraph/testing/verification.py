"""Verify: the converted graph trains as the plain one, every loss and every variable of every step, on the user's own data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tpugraph.compiler import ConvertOptions, convert
from tpugraph.ir import graphdef
from tpugraph.runtime import checkpoint
from tpugraph.support.wording import counted
from tpugraph.testing.comparison import Comparison
from tpugraph.testing.plain_reference import CHANCE, Pair, comparable, load, nothing_to_compare, pair
from tpugraph.testing.recorded_input import changing_inputs
from tpugraph.tpu.program import Program


@dataclass
class Verification:
    """What :func:`verify` found.

    Attributes:
        comparisons: the steps one by one, and the same in one loop, with the plain graph.
        tolerance: the largest difference allowed.
        notes: what a reader should know of it.
        batch: the rows of a step, such as ``global batch 256 = 8 cores x 32``.
        recorded: the number of batches that every run read from one recording, where the input gives others in each run.
    """

    comparisons: list[Comparison]
    tolerance: float
    notes: list[str]
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
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare the plain graph, run by TensorFlow at its own batch, with the cores, which share each of its batches.

    Args:
        model: path of a plain graph.
        steps: number of steps.
        options: how to convert; the cores draw what the plain graph draws.
        checkpoint_path: where both start; None starts from the initialisers.
        rebind: file names in the graph to replace.
        tolerance: the largest difference allowed.
        progress: called with what runs next.

    Raises:
        TpuGraphError: a graph, a checkpoint or a run that fails, or data that end before the first step.
    """
    say = progress or (lambda text: None)
    say("converting")
    chosen = comparable(options, iterations_per_loop=steps)
    with pair(model, chosen, steps, checkpoint_path=checkpoint_path, rebind=rebind) as both:
        batch = both.program.report["batch"]["line"]
        comparisons = _compared(both, steps, counted(both.program.report["num_replicas"], "core"), say)
        if not all(comparison.within(tolerance) for comparison in comparisons):
            say("the plain graph, from weights a rounding apart")
            rounding = _rounding(both, steps)
            if rounding.losses[0] > tolerance:
                both.notes.append(CHANCE.format(rounding.losses[0]))
            else:
                for comparison in comparisons:
                    comparison.rounding = rounding
                both.notes += _explained(comparisons, tolerance)
        return Verification(comparisons, tolerance, both.notes, batch, both.recorded)


def _compared(both: Pair, steps: int, cores: str, say: Callable[[str], None]) -> list[Comparison]:
    """The steps one by one, then in one loop."""
    plain, names = both.plain, list(both.plain.roles.variables)
    one_by_one = Comparison(f"{cores}, {counted(steps, 'step')}, with the plain graph")
    say(one_by_one.what)
    losses, last = [], {}
    with both.on_cores() as session:
        for loss in plain.each_step(steps, both.start):
            losses.append(loss)
            last = plain.values(names)
            found = session.train(1)
            one_by_one.add(loss, found[0] if found else None, last, session.values())
            if not found:
                break
        if not losses:
            raise nothing_to_compare(plain.graph.source)
        if len(losses) < steps:
            both.notes.append(f"the data of the plain graph end after {counted(len(losses), 'step')}")
            if one_by_one.losses and session.train(1):
                one_by_one.add(None, 0.0, {}, {})
    if steps == 1:
        return [one_by_one]
    loop = Comparison(f"{cores}, one loop of {steps}, with the plain graph")
    say(loop.what)
    with both.on_cores() as session:
        pairs = list(zip_longest(losses, session.train(steps)))
        for step, (expected, actual) in enumerate(pairs, 1):
            loop.add(expected, actual, *((last, session.values()) if step == len(pairs) else ({}, {})))
    return [one_by_one, loop]


def _rounding(both: Pair, steps: int) -> Comparison:
    """How far the plain graph is apart from itself where its weights start a rounding apart."""
    found, names = Comparison("the plain graph, from weights a rounding apart"), list(both.plain.roles.variables)
    with both.rounded() as (other, start):
        for loss, rounded in zip(both.plain.each_step(steps, both.start), other.each_step(steps, start), strict=False):
            found.add(loss, rounded, both.plain.values(names), other.values(names))
    return found


def _explained(comparisons: Sequence[Comparison], tolerance: float) -> list[str]:
    """A note of what differs by more than the tolerance, though no more than rounding makes of it."""
    names = dict.fromkeys(name or "the loss" for found in comparisons for _, name, _ in found.rounded_away(tolerance))
    few = ", ".join(list(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return [f"rounding alone makes as much of {few}, from weights a rounding apart"] if names else []


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
    program = convert(load(model, rebind), comparable(options, iterations_per_loop=steps))
    start = None
    if checkpoint_path is not None:
        start = checkpoint.resolve(checkpoint_path, lambda text: None)
        checkpoint.check(start, checkpoint.keys_of(graphdef.from_graph_def(program.graph_def, source=model)))
    runs = ["the input alone, whose batches are recorded for all runs"] if changing_inputs(load(model, rebind)) else []
    runs.append(f"the plain graph, {counted(steps, 'step')}")
    loop = f", then one loop of {steps}" if steps > 1 else ""
    runs.append(f"{counted(program.report['num_replicas'], 'core')}, {counted(steps, 'single step')}{loop}")
    return Plan(program.report["batch"]["line"], runs, None if start is None else str(start), program)

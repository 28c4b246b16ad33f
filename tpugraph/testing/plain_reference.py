"""The plain graph and its conversion, ready to be compared: the same start, batches, random numbers and order of writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import races
from tpugraph.compiler import ConvertOptions, convert, find_roles
from tpugraph.compiler.another_batch import another_batch
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.file_names import rebind_files
from tpugraph.runtime import checkpoint
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError
from tpugraph.testing.checkpoint_pieces import Values, read_pieces
from tpugraph.testing.comparable import closed_batches, drop_remainder, fix_seeds
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.recorded_input import on_one_stream
from tpugraph.tpu.program import Program

Model = str | os.PathLike[str] | Graph
Convert = Callable[[Graph, ConvertOptions], Program]

CHANCE = "two runs of the plain graph differ by {:.1e} in the first loss: a difference may be chance"
"""Said where not even the plain graph repeats itself, from weights a rounding apart: its input does not."""


def comparable(options: ConvertOptions, **changes: Any) -> ConvertOptions:
    """The options of the conversion that has every loss and every variable of the plain graph, what it draws included."""
    return replace(options, random="plain", **changes)


def load(model: Model, rebind: Mapping[str, str] | None = None) -> Graph:
    """A copy of a plain graph in which each random op has a seed."""
    graph = graphdef.copy(model) if isinstance(model, Graph) else graphdef.load(model)
    rebind_files(graph, dict(rebind or {}))
    fix_seeds(graph)
    return graph


@dataclass
class Pair:
    """The plain graph and its conversion.

    Attributes:
        plain: the plain graph.
        program: its conversion.
        start: what the variables of both start with.
        notes: what was changed so that they can be compared.
        recorded: how many batches both read from one recording, where the input gives others in each run; else None.
    """

    plain: PlainRun
    program: Program
    start: Values
    notes: list[str]
    recorded: int | None

    @contextmanager
    def rounded(self) -> Iterator[tuple[PlainRun, Values]]:
        """The plain graph once more, and a start whose weights are a rounding apart."""
        random, start = np.random.default_rng(1), dict(self.start)
        for name in self.plain.roles.trained:
            weights = start.get(name)
            if weights is not None and np.issubdtype(weights.dtype, np.floating):
                apart = max(np.abs(weights).max(initial=0.0), 1.0) * np.finfo(weights.dtype).eps
                start[name] = (weights + apart * random.choice([-1, 1], weights.shape)).astype(weights.dtype)
        plain = self.plain.again()
        try:
            yield plain, start
        finally:
            plain.close()

    @contextmanager
    def on_cores(self, graph_def: Any = None, **engine: Any) -> Iterator[TPUSession]:
        """A session of the conversion, or of the same with taps, at the start."""
        with TPUSession(self.program if graph_def is None else graph_def, **engine) as session:
            session.initialize()
            known = set(session.variable_names())
            session.assign({name: value for name, value in self.start.items() if name in known})
            yield session


@contextmanager
def pair(
    model: Model,
    options: ConvertOptions,
    steps: int,
    *,
    checkpoint_path: str | None = None,
    rebind: Mapping[str, str] | None = None,
    convert_with: Convert = convert,
) -> Iterator[Pair]:
    """The plain graph, run by TensorFlow at its own batch, and its conversion, which shares each of its batches among the cores.

    Args:
        model: a plain graph, or its file.
        options: how to convert; see :func:`comparable`.
        steps: how many batches are read.
        checkpoint_path: where both start; None starts from the graph's own first values.
        rebind: file names in the graph to replace.
        convert_with: converts the graph.

    Raises:
        TpuGraphError: the graph cannot be converted or run, or the checkpoint does not match it.
    """
    original = load(model, rebind)
    if options.global_batch:
        original.roles = find_roles(original, options)
        another_batch(
            original, options.global_batch, batch_constants=options.batch_constants, literals=options.literals
        )
        options = replace(options, global_batch=0, batch_constants=(), literals=(), set_shape=())
    program = convert_with(graphdef.copy(original), options)
    notes: list[str] = []
    plain = _plain_run(original, options, program, notes)
    try:
        start = first_values(plain, program, checkpoint_path, notes)
        with tempfile.TemporaryDirectory(prefix="tpugraph-batches-") as folder:
            graph_def, recorded = on_one_stream(plain, program.graph_def, start, steps, Path(folder), notes)
            if recorded is not None:
                plain.close()
                plain = plain.again()
                program = Program(graph_def, program.report)
            yield Pair(plain, program, start, notes, recorded)
    finally:
        plain.close()


def nothing_to_compare(source: str) -> RunError:
    """The error of data that end before the first step."""
    return RunError("the data end before the first step: there is nothing to compare", origin=source,
                    fix="give data for a step: --rebind=OLD=NEW names another file")  # fmt: skip


def _plain_run(graph: Graph, options: ConvertOptions, program: Program, notes: list[str]) -> PlainRun:
    """The plain graph with the order of reads and writes and the closed batches of its conversion."""
    found = find_roles(graph, options)
    for name in closed_batches(program):
        if drop_remainder(graph, graph[name]):
            notes.append(f"'{name}' drops its last partial batch, in the plain graph of this comparison too")
    roots = [graph[name] for name in found.roots]
    notes += races.sentences(races.settle(graph, roots, options.step_order))
    if any(graph[finding.name].op in ops.DEQUEUES for finding in found.inputs):
        notes.append("the input is a queue: with several threads its order can differ from run to run")
    return PlainRun(graph, train_op=options.train_op, loss=options.loss)


def first_values(plain: PlainRun, program: Program, path: str | None, notes: list[str]) -> Values:
    """What all variables start with."""
    if path is None:
        return plain.initial_values(list(plain.roles.variables))
    saved = checkpoint.keys_of(graphdef.from_graph_def(program.graph_def, source=plain.graph.source))
    prefix = checkpoint.resolve(path, notes.append)
    if checkpoint.check(prefix, saved):
        notes.append("the input starts anew: the position in the checkpoint is not used")
    return read_pieces(prefix, {name: (key, part) for name, (key, part, _) in saved.items()})

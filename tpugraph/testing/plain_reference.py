"""The plain graph as the reference of a comparison: seeds, the order of reads and writes, and batches as in its conversion."""

from __future__ import annotations

from collections.abc import Callable

from tpugraph import roles
from tpugraph.analysis import race_order
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph
from tpugraph.testing.checkpoint_pieces import Values, checkpoint_values
from tpugraph.testing.comparable import closed_batches, drop_remainder, fix_seeds
from tpugraph.testing.plain_run import PlainRun
from tpugraph.tpu.program import Program

Load = Callable[[], Graph]
"""Gives a new copy of the plain graph each time."""


def plain_run(load: Load, options: ConvertOptions, program: Program) -> PlainRun:
    """The plain graph as it can be compared: with the seeds, the order of reads and writes and the batches of its conversion.

    Args:
        load: gives the graph.
        options: how it was converted.
        program: what it was converted to.
    """
    graph = load()
    fix_seeds(graph)
    for name in closed_batches(program):
        drop_remainder(graph, graph[name])
    found = roles.find(graph, train_op=options.train_op, loss=options.loss)
    roots = [graph[name] for name in found.roots]
    race_order.settle(graph, roots, options.step_order)
    return PlainRun(graph, train_op=options.train_op, loss=options.loss)


def first_values(plain: PlainRun, checkpoint: str | None) -> Values:
    """What all variables start with."""
    if checkpoint is not None:
        return checkpoint_values(plain.roles, checkpoint)
    return plain.initial_values(list(plain.roles.variables))

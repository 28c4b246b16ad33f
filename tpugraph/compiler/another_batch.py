"""Another batch of the plain graph, before anything else is done with it."""

from __future__ import annotations

from collections.abc import Iterable

from tpugraph.analysis import shapes
from tpugraph.ir import Graph
from tpugraph.passes.inline_functions import InlineFunctions
from tpugraph.rebatch import Rebatched, is_open, rebatch


def another_batch(
    graph: Graph, rows: int, *, batch_constants: Iterable[str] = (), literals: Iterable[str] = ()
) -> Rebatched:
    """Let a plain graph with its roles read so many rows a step, in place; see :func:`tpugraph.rebatch.rebatch`.

    Where the batch is static, functions that the step calls are inlined, so that what follows the batch in them is found.
    """
    shapes.infer(graph)
    if not is_open(graph):
        InlineFunctions().run(graph)
    return rebatch(graph, rows, batch_constants=batch_constants, literals=literals)

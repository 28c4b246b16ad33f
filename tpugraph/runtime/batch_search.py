"""Searches the largest per-core batch that fits memory, by compiling the step for other batch sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tpugraph.ir import Graph, graphdef
from tpugraph.support.errors import ShapeError

MOST = 2**22  # the largest per-core batch that is tried, in rows
_TILE = 8  # a core pads its batch to a multiple of so many rows


@dataclass(frozen=True)
class Try:
    rows: int  # of one core
    bytes: int  # memory that a core needs
    fits: bool  # whether a core has that much


def search(rows: int, attempt: Callable[[int], Try], memory: int) -> int:
    """The largest batch in rows that fits, within 1/64 (exact below 8, a multiple of 8 above, since a core pads to these).

    Memory grows about linearly with the batch, so the search alternates interpolation and bisection: compiling a large step is
    slow, so few sizes are tried. 0 where not even one row fits, ``MOST`` where all sizes do.
    """
    below, low, high = Try(0, 0, True), Try(0, 0, True), None
    if not rows:
        raise ShapeError("the device is fed no batch, so there is none to change")
    guess, turn = rows, 0
    while guess:
        found, turn = attempt(guess), turn + 1
        if found.fits:
            below, low = low, found
        else:
            high = found
        guess = _between(low, high, memory, halve=turn % 2 == 0) if high else _above(below, low, memory)
    return low.rows


def _above(below: Try, low: Try, memory: int) -> int:
    """The next batch while all have fitted; 0 where no larger one is tried."""
    if low.rows >= MOST:
        return 0
    line = low.rows + int((memory - low.bytes) * (low.rows - below.rows) / max(low.bytes - below.bytes, 1))
    return min(MOST, max(2 * low.rows, line // _TILE * _TILE))


def _between(low: Try, high: Try, memory: int, *, halve: bool) -> int:
    """The next batch between one that fits and one that does not; 0 where they are close enough."""
    step = max(_TILE, low.rows // 64 // _TILE * _TILE) if low.rows >= _TILE else 1
    if low.rows + step > high.rows - 1:
        return 0
    guess = (low.rows + high.rows) // 2
    if not halve and low.rows and high.bytes > low.bytes:
        guess = low.rows + int((memory - low.bytes) * (high.rows - low.rows) / (high.bytes - low.bytes))
    return low.rows + max(step, (min(guess, high.rows - 1) - low.rows) // step * step)


# --------------------------------------------------------------------------- another batch


def rows_of(graph: Graph) -> int:
    """The per-core batch of a TPU graph; 0 where it has none, or it is unknown."""
    found = Counter(s[0] for node in graph.of_type("InfeedDequeueTuple") for s in node.attr("shapes") or () if s)
    return max(found, key=lambda rows: (found[rows], rows or 0), default=0) or 0


def without_hints(graph: Graph) -> Graph:
    """A copy of a TPU graph without ``_output_shapes``, which describe the batch of the conversion."""
    graph = graphdef.copy(graph)
    for node in graph:
        if node.has_attr("_output_shapes"):
            graph.set_attr(node, "_output_shapes", None)
    return graph

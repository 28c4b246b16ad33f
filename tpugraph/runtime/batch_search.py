"""The largest batch of a core that fits its memory: the step is made for other batches and given to the compiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tpugraph.ir import Graph, graphdef
from tpugraph.support.errors import ShapeError

MOST = 2**22  # the largest batch of a core that is tried, in rows
_TILE = 8  # rows that a core pads a batch to


@dataclass(frozen=True)
class Try:
    rows: int  # of one core
    bytes: int  # of memory that a core needs
    fits: bool  # whether it has as much


def search(rows: int, attempt: Callable[[int], Try], memory: int) -> int:
    """The most rows that fit, to 1 in 64 (exact below 8, multiples of 8 above, since a core pads to them).

    Memory grows about linearly with the batch, so the next guess is drawn through two tries, and the middle every other
    time: a large step takes the compiler long, so few are tried. 0 where not even one fits, ``MOST`` where all do.
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
    """The next batch to try while all have fitted, 0 where larger ones are not tried."""
    if low.rows >= MOST:
        return 0
    line = low.rows + int((memory - low.bytes) * (low.rows - below.rows) / max(low.bytes - below.bytes, 1))
    return min(MOST, max(2 * low.rows, line // _TILE * _TILE))


def _between(low: Try, high: Try, memory: int, *, halve: bool) -> int:
    """The next batch to try between one that fits and one that does not, 0 where they are close enough."""
    step = max(_TILE, low.rows // 64 // _TILE * _TILE) if low.rows >= _TILE else 1
    if low.rows + step > high.rows - 1:
        return 0
    guess = (low.rows + high.rows) // 2
    if not halve and low.rows and high.bytes > low.bytes:
        guess = low.rows + int((memory - low.bytes) * (high.rows - low.rows) / (high.bytes - low.bytes))
    return low.rows + max(step, (min(guess, high.rows - 1) - low.rows) // step * step)


# --------------------------------------------------------------------------- another batch


def rows_of(graph: Graph) -> int:
    """The rows of the batch that one core of a TPU graph takes; 0 where it is fed none, or no shape tells."""
    found = Counter(s[0] for node in graph.of_type("InfeedDequeueTuple") for s in node.attr("shapes") or () if s)
    return max(found, key=lambda rows: (found[rows], rows or 0), default=0) or 0


def without_hints(graph: Graph) -> Graph:
    """A copy of a TPU graph that says no shapes of outputs: those are of the graph that was converted."""
    graph = graphdef.copy(graph)
    for node in graph:
        if node.has_attr("_output_shapes"):
            graph.set_attr(node, "_output_shapes", None)
    return graph

"""Rows one behind the other in one list, each with as many places as data say: entries of this core, and rows again behind them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placements import Entries, Placement, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import ROWS, Known, Unknown, depends_on_data
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of

_PLAIN = Shard(0)


def flattened(p: Placing, node: Node, rows: Placement) -> bool:
    """Whether a reshape lays rows one behind the other, as the layer of sequences that are cut at their longest does.

    Each row has as many places there, whatever data say, so that those of all cores are what the whole batch has, in order.
    """
    before, after = p.dims(node.inputs[0]), p.dims(node.out())
    lengths = p.d.dims(node.out())
    if rows != _PLAIN or not before or not after or not lengths or before[0] != ROWS or not depends_on_data(lengths[0]):
        return False
    each, told = before[1:], after[1:]
    numbers = [size for size in told if isinstance(size, int) and size > 0]
    if len(numbers) < len(told) or not all(isinstance(size, int) for size in each):
        return False  # another dimension follows the batch, or is told by data as well
    return not math.prod(size for size in each if isinstance(size, int) and size > 0) % math.prod(numbers)


def put_back(p: Placing, node: Node) -> bool:
    """Whether a reshape makes rows again of what was laid so, by a layer or by the gradient of one."""
    after = p.dims(node.out())
    return bool(after) and after[0] == ROWS and laid_by(p, node.inputs[0]) is not None  # type: ignore[index]


def laid_by(p: Placing, tensor: Tensor) -> Node | None:
    """The reshape that laid rows one behind the other along which what a tensor holds lies; None of what lies otherwise."""
    lengths = p.d.dims(tensor)
    if not lengths or not isinstance(lengths[0], Unknown):
        return None
    return next((node for node in _lists(p).reshapes.get(lengths[0].root(), ()) if _lays(p, node)), None)


def found_there(p: Placing, places: Tensor, held: Tensor) -> bool:
    """Whether places on this core, if they are of rows laid one behind the other, mean those of the rows that a tensor holds so.

    They do where a mask has as many places for each row; of what data tell both have to be as long, as a mask is asked to be.
    """
    if laid_by(p, held) is None:
        return True
    found = source_of(places, ops.SAME_NUMBERS | ops.SHAPED_ANEW).node
    if found not in _lists(p).masks:
        return False
    laid = [laid_by(p, tensor) for tensor in (held, found.inputs[0])]
    each = [None if node is None else _places(p, node) for node in laid]
    return None not in each and each[0] == each[1]


def _lays(p: Placing, node: Node) -> bool:
    rows = p.read(node.inputs[0])
    return rows is not None and p.made(node.out()) == Entries("values") and flattened(p, node, rows)


def _places(p: Placing, node: Node) -> list[Known] | None:
    """The dimensions of a row that are laid one behind the other; None where what stays behind them was parted, too."""
    each, kept = (p.d.dims(node.inputs[0]) or ())[1:], (p.dims(node.out()) or [])[1:]
    first = len(each) - len(kept)
    if first < 0 or [p.final(size) for size in each[first:]] != kept:
        return None
    return [p.final(size) for size in each[:first]]


@dataclass(frozen=True)
class _Lists:
    """What makes lists in a graph.

    Attributes:
        reshapes: by how long what each makes is, as far as that is no known number.
        masks: what finds the places where one is true.
    """

    reshapes: dict[Unknown, list[Node]]
    masks: dict[Node, None]


def _lists(p: Placing) -> _Lists:
    if p.d not in _FOUND:
        reshapes: dict[Unknown, list[Node]] = {}
        for node in p.d.of_type(ops.RESHAPES):
            lengths = p.d.dims(node.out())
            if lengths and isinstance(lengths[0], Unknown):
                reshapes.setdefault(lengths[0].root(), []).append(node)
        _FOUND[p.d] = _Lists(reshapes, dict.fromkeys(p.d.of_type(ops.PLACES_OF_TRUE)))
    return _FOUND[p.d]


_FOUND: WeakKeyDictionary[Dimensions, _Lists] = WeakKeyDictionary()
"""Of each graph, found once."""

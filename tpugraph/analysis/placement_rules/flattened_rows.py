"""Rows one behind the other in one list, each with as many places as data say: entries of this core, and rows again behind them."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placement_rules.entry_placements import OWN
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
    return next((node for node in _by_length(p.d).get(lengths[0].root(), ()) if _lays(p, node)), None)


def found_there(p: Placing, places: Tensor, held: Tensor) -> bool:
    """Whether places on this core mean those of what a tensor holds, if it holds rows that were laid one behind the other.

    They do where they were found in rows with as many places each. Of two lengths that data tell this is not known, and is taken
    for so: a mask is asked to be as long as what it picks of.
    """
    if laid_by(p, held) is None:
        return True
    found = source_of(places, ops.SAME_NUMBERS | ops.SHAPED_ANEW).node
    if p.made(found.out()) != OWN:
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


def _by_length(d: Dimensions) -> dict[Unknown, list[Node]]:
    """The reshapes of a graph, by how long what each makes is, as far as that is no known number."""
    if d not in _BY_LENGTH:
        found: dict[Unknown, list[Node]] = {}
        for node in d.of_type(ops.RESHAPES):
            lengths = d.dims(node.out())
            if lengths and isinstance(lengths[0], Unknown):
                found.setdefault(lengths[0].root(), []).append(node)
        _BY_LENGTH[d] = found
    return _BY_LENGTH[d]


_BY_LENGTH: WeakKeyDictionary[Dimensions, dict[Unknown, list[Node]]] = WeakKeyDictionary()
"""Of each graph, found once."""

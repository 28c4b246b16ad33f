"""Evidence of tiles in the gradients of reductions, of batches of one row: does the tile spread over the row, or keep it?

The gradient of a reduction spreads what comes back to the places that were reduced. Of one row it spreads to one place
where the reduction was over the rows, and does so as well where the reduction kept them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss, unsettled
from tpugraph.analysis.size_relations import values
from tpugraph.analysis.sizes import Known, follows_batch, known
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of

_Shapes = tuple[tuple[int, ...], ...]
"""The static shapes on both sides of a reduction."""


@dataclass(frozen=True)
class _Reduction:
    """What a reduction takes away: of which dimensions, None where one is not known yet, and along which places."""

    node: Node
    dims: tuple[Known | None, ...]
    gone: frozenset[int]

    @property
    def over_rows(self) -> bool:
        """Whether it is over the rows."""
        return any(follows_batch(size) for axis, size in enumerate(self.dims) if axis in self.gone and size is not None)


@dataclass
class _Alike:
    """The reductions of one static shape to another, in the order in which the graph was built, and the tiles of gradients.

    Attributes:
        reductions: the reductions.
        tiles: the tiles that undo one of them, each with how many reductions there were before.
    """

    reductions: list[_Reduction] = field(default_factory=list)
    tiles: dict[Node, int] = field(default_factory=dict)


def tiled_rows(d: Dimensions) -> None:
    """The gradient of a reduction is tiled along the dimensions that were reduced, and keeps the others.

    It is a reduction in front of it that makes what the tile begins with of what it ends with.
    """
    if not d.ones and not any(unsettled(s) for n in d.order if n.op in ops.TILES for s in d.dims(n.out()) or ()):
        return
    found: dict[_Shapes, _Alike] = {}
    for node in [n for n in d.graph if n in d.nodes]:  # in the order in which the graph was built
        if node.op in ops.TILES:
            shapes = _undone(d, node)
            if shapes in found:
                found[shapes].tiles[node] = len(found[shapes].reductions)
        elif node.op in ops.REDUCTIONS and len(node.inputs) == 2 and node.out().dtype.floating:
            _remember(d, node, found)
    for alike in found.values():
        _tie_to_operands(d, alike)
        if d.ones:
            _tie_beginnings(d, alike)


def _undone(d: Dimensions, tile: Node) -> _Shapes:
    """The shapes on both sides of a reduction that a tile undoes; none where it is no gradient's."""
    dims, source = d.dims(tile.out()), source_of(tile.inputs[0]).node
    first = d.dims(source.inputs[0]) if source.op in ops.RESHAPES else None
    return () if dims is None or first is None else (values(dims, d.sizes), values(first, d.sizes))


def _remember(d: Dimensions, node: Node, found: dict[_Shapes, _Alike]) -> None:
    axes, dims, out = d.numbers(node.inputs[1]), d.dims(node.inputs[0]), d.dims(node.out())
    if dims and axes and out is not None:
        gone = frozenset(axis % len(dims) for axis in axes)
        alike = found.setdefault((values(dims, d.sizes), values(out, d.sizes)), _Alike())
        alike.reductions.append(_Reduction(node, tuple(map(known, dims)), gone))


def _tie_to_operands(d: Dimensions, alike: _Alike) -> None:
    """The gradient of a reduction has the dimensions of its operand, where all those that it may belong to have the same."""
    forward = leading_to_loss(d)
    for tile, count in alike.tiles.items():
        found = {reduction.dims for reduction in _candidates(d, alike, tile, count)}
        if tile in forward or len(found) != 1 or None in (dims := next(iter(found))):
            continue
        for size, place in zip(d.dims(tile.out()) or (), dims, strict=True):
            if unsettled(size):
                d.sizes.tie(size, place)  # type: ignore[arg-type]


def _candidates(d: Dimensions, alike: _Alike, tile: Node, count: int) -> list[_Reduction]:
    """The reductions that a tile may undo, by what is known of its dimensions."""
    made = [known(size) for size in d.dims(tile.out()) or ()]
    return [
        reduction
        for reduction in alike.reductions[:count]
        if all(None in (size, place) or size == place for size, place in zip(made, reduction.dims, strict=True))
    ]


def _tie_beginnings(d: Dimensions, alike: _Alike) -> None:
    """Tie what the tiles of some reductions of one row begin with, or remember that nothing tells."""
    for (tile, count), by_order in zip(alike.tiles.items(), _in_order(d, alike), strict=True):
        places = {reduction.gone for reduction in _candidates(d, alike, tile, count)}
        rows = {reduction.over_rows for reduction in _candidates(d, alike, tile, count)}
        gone = next(iter(places)) if len(places) == 1 else None if by_order is None else by_order.gone
        for axis, (out, size) in enumerate(zip(d.dims(tile.out()) or (), d.dims(tile.inputs[0]) or (), strict=False)):
            if not follows_batch(out) or not unsettled(size):
                continue
            if _begins_without_rows(d, tile):
                d.sizes.tie(size, 1)
            elif gone is not None or rows == {False}:
                d.untold.tiles.pop(tile, None)
                d.sizes.tie(size, 1 if gone and axis in gone and rows != {False} else out)
            else:
                d.untold.tiles[tile] = None


def _begins_without_rows(d: Dimensions, tile: Node) -> bool:
    """Whether what a tile begins with is made of a number, or of what is known to follow no batch."""
    source = source_of(tile.inputs[0]).node
    return all(isinstance(known(size), int) for size in d.dims(source.inputs[0]) or ())


def _in_order(d: Dimensions, alike: _Alike) -> list[_Reduction | None]:
    """Of each tile which reduction it undoes, where they follow one another; None where nothing tells."""
    before = set(alike.tiles.values())
    first = alike.reductions[: min(before, default=0)]
    if len(before) > 1 or len(first) != len(alike.tiles) or not _follow_one_another(d, first):
        return [None] * len(alike.tiles)
    return [*reversed(first)]  # a gradient is built from the end


def _follow_one_another(d: Dimensions, reductions: list[_Reduction]) -> bool:
    """Whether each reduction is of what the one before it made."""
    return all(a.node in d.graph.ancestors([b.node], data_only=True) for a, b in pairwise(reductions))

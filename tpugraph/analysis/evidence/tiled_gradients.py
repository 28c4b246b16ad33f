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
from tpugraph.analysis.sizes import follows_batch, known
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of

_Shapes = tuple[tuple[int, ...], ...]
"""The static shapes on both sides of a reduction."""


@dataclass
class _Alike:
    """The reductions of one static shape to another, in the order in which the graph was built, and the tiles of gradients.

    Attributes:
        reductions: the reductions, each with whether it is over the rows.
        tiles: the tiles that undo one of them, each with how many reductions there were before.
    """

    reductions: dict[Node, bool] = field(default_factory=dict)
    tiles: dict[Node, int] = field(default_factory=dict)


def tiled_rows(d: Dimensions) -> None:
    """The gradient of a reduction is tiled over the row where the reduction is over the rows, and keeps it elsewhere.

    It is a reduction in front of it that makes what the tile begins with of what it ends with.
    """
    if not d.ones:
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
        _tie(d, alike)


def _undone(d: Dimensions, tile: Node) -> _Shapes:
    """The shapes on both sides of a reduction that a tile undoes; none where it is no gradient's."""
    dims, source = d.dims(tile.out()), source_of(tile.inputs[0]).node
    first = d.dims(source.inputs[0]) if source.op in ops.RESHAPES else None
    return () if dims is None or first is None else (values(dims, d.sizes), values(first, d.sizes))


def _remember(d: Dimensions, node: Node, found: dict[_Shapes, _Alike]) -> None:
    axes, dims, out = d.numbers(node.inputs[1]), d.dims(node.inputs[0]), d.dims(node.out())
    if dims and axes and out is not None:
        gone = [dims[axis] for axis in axes]
        over_rows = any(map(follows_batch, gone))
        found.setdefault((values(dims, d.sizes), values(out, d.sizes)), _Alike()).reductions[node] = over_rows


def _tie(d: Dimensions, alike: _Alike) -> None:
    """Tie what the tiles of some reductions begin with, or remember that nothing tells."""
    told = _over_rows(d, alike)
    _tie_to_operands(d, alike)
    for tile, over_rows in zip(alike.tiles, told, strict=True):
        over_rows = True if _begins_without_rows(d, tile) else over_rows
        for out, size in zip(d.dims(tile.out()) or (), d.dims(tile.inputs[0]) or (), strict=False):
            if not follows_batch(out) or not unsettled(size):
                continue
            if over_rows is None:
                d.untold[tile] = None
            else:
                d.untold.pop(tile, None)
                d.sizes.tie(size, 1 if over_rows else out)


def _tie_to_operands(d: Dimensions, alike: _Alike) -> None:
    """The gradient of a reduction has the dimensions of its operand, where all those that it may belong to have the same."""
    forward = leading_to_loss(d)
    operands = [d.dims(node.inputs[0]) or () for node in alike.reductions]
    for tile, count in alike.tiles.items():
        found = {tuple(map(known, dims)) for dims in operands[:count]}
        if tile in forward or len(found) != 1 or None in next(iter(found)):
            continue
        for size, place in zip(d.dims(tile.out()) or (), operands[0], strict=True):
            if unsettled(size):
                d.sizes.tie(size, place)


def _begins_without_rows(d: Dimensions, tile: Node) -> bool:
    """Whether what a tile begins with is made of a number, or of what is known to follow no batch."""
    source = source_of(tile.inputs[0]).node
    return all(isinstance(known(size), int) for size in d.dims(source.inputs[0]) or ())


def _over_rows(d: Dimensions, alike: _Alike) -> list[bool | None]:
    """Of each tile whether it undoes a reduction over the rows; None where nothing tells."""
    kinds, before = list(alike.reductions.values()), set(alike.tiles.values())
    found = [kinds[:count] for count in alike.tiles.values()]
    if all(len(set(those)) == 1 for those in found):
        return [those[0] for those in found]
    first = list(alike.reductions)[: min(before)]
    if len(before) > 1 or len(first) != len(alike.tiles) or not _follow_one_another(d, first):
        return [those[0] if len(set(those)) == 1 else None for those in found]
    return [*reversed(found[0])]  # a gradient is built from the end


def _follow_one_another(d: Dimensions, reductions: list[Node]) -> bool:
    """Whether each reduction is of what the one before it made."""
    return all(before in d.graph.ancestors([after], data_only=True) for before, after in pairwise(reductions))

"""How ops are partitioned that give values another shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tpugraph.analysis.placement_rules.entry_placements import OWN, in_columns, numbered
from tpugraph.analysis.placement_rules.flattened_rows import flattened, put_back
from tpugraph.analysis.placements import (
    REPLICATE,
    SUM,
    Entries,
    Partial,
    Placement,
    Replicate,
    Shard,
    Sized,
    holds_entries,
)
from tpugraph.analysis.placing import Placing, Verdict, rule
from tpugraph.analysis.sizes import Known, Poly, Size, Unknown, depends_on_data, divide, times
from tpugraph.ir import Node

# --------------------------------------------------------------------------- moved


def moved(p: Placing, node: Node, inputs: list[Placement], place: int, source: int = 0) -> Verdict:
    """The output holds the rows of one operand along another dimension."""
    placement = inputs[source]
    assert isinstance(placement, Shard)
    if placement.along >= 0:
        return Verdict([placement.plain().at(place)] * len(node.outputs or ()), {source: placement.plain()})
    return Verdict([placement.at(place)] * len(node.outputs or ()), why="rows stay rows")


def passed(node: Node, placement: Placement, source: int = 0) -> Verdict:
    """What only rearranges elements makes of partial values partial values: of an operand that holds no rows."""
    if isinstance(placement, Sized):
        return Verdict([REPLICATE] * len(node.outputs or ()), {source: REPLICATE})
    return Verdict([placement] * len(node.outputs or ()), why="the same elements")


# --------------------------------------------------------------------------- reshaping


def stand_twice(sizes: Iterable[Size | None]) -> bool:
    """Whether of some sizes one that data tell is there twice, as of pairs of entries."""
    told = [size.root() for size in sizes if isinstance(size, Unknown) and depends_on_data(size)]
    return len(set(told)) < len(told)


def _moves_entries(p: Placing, node: Node) -> bool:
    """Whether a reshape puts a dimension of one place in front of entries, as the gradient of a tile does."""
    before, after = p.d.dims(node.inputs[0]), p.d.dims(node.out())
    if not before or not after or not isinstance(before[0], Unknown) or not depends_on_data(before[0]):
        return False
    first = before[0].root()
    return p.final(after[0]) == 1 and any(isinstance(size, Unknown) and size.root() is first for size in after[1:])


@rule("Reshape")
def _reshape(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if isinstance(inputs[0], Replicate | Partial) and inputs[1] == Entries("shape") and p.rank(node.inputs[0]):
        held = p.d.dims(node.inputs[0]) or (None,)
        if not depends_on_data(held[0]) or stand_twice(held):  # those of all cores, not in front yet, or twice
            return Verdict([inputs[0]], {1: REPLICATE}, why="the entries of all cores")
        return Verdict([Entries("values")], {0: Entries("values")}, why="the entries of this core")
    rows = inputs[0]
    if rows == Entries("values") and put_back(p, node):
        return Verdict([Shard(0)], why="rows again of their places")
    if rows == OWN and in_columns(p, node.inputs[0]) and p.rank(node.out()) == 1:
        return numbered(p, node, inputs, [0])
    if holds_entries(rows) and _moves_entries(p, node):
        return p.everywhere(node, inputs, "moves entries away from the first dimension")
    if not isinstance(rows, Shard):
        return passed(node, rows)
    if flattened(p, node, rows):
        return Verdict([Entries("values")], why="rows one behind the other, as long as data say")
    before, after = p.dims(node.inputs[0]), p.dims(node.out())
    if before is None or after is None:
        return p.everywhere(node, inputs, "reshapes to dimensions that are not known")
    found_rows = regrouped(before, rows, after)
    if found_rows is None and p.d.ones and not any(isinstance(s, Poly) or s < 0 for s in after):  # all of it known
        return Verdict([SUM], why="TensorFlow left out the sum over a batch of one row")
    if found_rows is None:
        return p.everywhere(node, inputs, "the rows do not stay apart in the new shape")
    wants: dict[int, Placement] = {}
    if isinstance(rows.shift, tuple):
        wants[0] = rows.plain()
        found_rows = found_rows.plain()
    return Verdict([found_rows], wants, why="rows stay rows")


def regrouped(before: list[Known], rows: Shard, after: list[Known]) -> Shard | None:
    """Where the rows are after a reshape: at the same places of the flat array.

    Behind dimensions that stay as they are it holds as many elements of each row as before, whatever data say.
    """
    kept = before[: rows.axis + 1]
    if kept == after[: rows.axis + 1] and not any(isinstance(size, int) and size < 0 for size in kept):
        return rows
    ahead = times(*before[: rows.axis], rows.outer)
    behind = times(rows.inner, *before[rows.axis + 1 :])
    for axis, size in enumerate(after):
        if not isinstance(size, Poly):
            continue
        outer = divide(ahead, times(*after[:axis])) if times(*after[:axis]) else None
        inner = divide(behind, times(*after[axis + 1 :])) if times(*after[axis + 1 :]) else None
        if not isinstance(outer, int) or not isinstance(inner, int) or outer < 1 or inner < 1:
            continue
        if size == Poly((0, outer * inner)):
            return replace(rows, axis=axis, outer=outer, inner=inner)
    return None


@rule("Squeeze")
def _squeeze(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows = inputs[0]
    if not isinstance(rows, Shard):
        return passed(node, rows)
    dims = p.d.dims(node.inputs[0]) or ()
    axes = [a % max(len(dims), 1) for a in node.attr("squeeze_dims", []) or []]
    gone = axes or [i for i, s in enumerate(dims) if p.d.sizes.at(s) == 1]
    if rows.axis in gone:
        return p.everywhere(node, inputs, "drops the dimension of the batch")
    return moved(p, node, inputs, rows.axis - sum(1 for g in gone if g < rows.axis))


@rule("ExpandDims")
def _expand_dims(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, axis = inputs[0], p.d.numbers(node.inputs[1])
    if holds_entries(rows) and (axis is None or axis[0] % (p.rank(node.inputs[0]) + 1) == 0):
        return p.everywhere(node, inputs, "moves entries away from the first dimension")
    if not isinstance(rows, Shard):
        return passed(node, rows)
    if axis is None:
        return p.everywhere(node, inputs, "adds a dimension at a place that is not known")
    place = axis[0] % (p.rank(node.inputs[0]) + 1)
    return moved(p, node, inputs, rows.axis + (place <= rows.axis))


@rule("Transpose ConjugateTranspose")
def _transpose(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, order = inputs[0], p.d.numbers(node.inputs[1])
    if holds_entries(rows) and (order is None or order[0] != 0):
        return p.everywhere(node, inputs, "moves entries away from the first dimension")
    if not isinstance(rows, Shard):
        return passed(node, rows)
    if order is None:
        return p.everywhere(node, inputs, "permutes dimensions in an order that is not known")
    along = order.index(rows.along) if rows.along >= 0 else -1
    return Verdict([replace(rows, axis=order.index(rows.axis), along=along)], why="rows stay rows")

"""How ops are partitioned that ask for sizes, check them, or make values as large as they are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tpugraph import ops
from tpugraph.analysis.broadcast_sizes import met_by_data
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.placement_rules.reshaping_placements import moved, stand_twice
from tpugraph.analysis.placements import (
    REPLICATE,
    SUM,
    Entries,
    Partial,
    PerCore,
    Placement,
    Replicate,
    Shard,
    Sized,
)
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.analysis.sizes import Poly, Size, depends_on_data, divide, follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of

# --------------------------------------------------------------------------- sizes


@rule("Shape ShapeN Size Rank")
def _shape(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if node.op in ops.SIZES and isinstance(inputs[0], Shard):
        return Verdict([SUM], why="how many elements a core holds: all cores' together are those of the batch")
    if any(isinstance(s, Shard) and p.d.dims(t) is None for s, t in zip(inputs, node.inputs, strict=True)):
        return p.everywhere(node, inputs, "the size of rows of which nothing is known")
    outputs: list[Placement | None] = []
    for placement in inputs:
        outputs.append(Entries("shape") if isinstance(placement, Entries) else REPLICATE)
    return Verdict(outputs, why="the size of what a core holds")


@rule("BroadcastGradientArgs")
def _axes(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    wants: dict[int, Placement] = {}
    of_all = any(isinstance(s, Replicate) and _counts_entries(p, t) for s, t in zip(inputs, node.inputs, strict=True))
    if of_all or any(_asks_for_pairs(t, p.d.elements(t) or ()) for t in node.inputs):
        wants = {i: REPLICATE for i, s in enumerate(inputs) if s == Entries("shape")}  # entries of all cores meet
    whole = any(isinstance(s, Replicate) and _counts_rows(p, t) for s, t in zip(inputs, node.inputs, strict=True))
    shapes = [p.d.elements(tensor) or () for tensor in node.inputs]
    if whole or met_by_data(*shapes):  # one row of a core may be as many as data say, where all rows are more
        wants = {i: REPLICATE for i, s in enumerate(inputs) if not isinstance(s, Replicate)}
    return Verdict([REPLICATE] * len(node.outputs or ()), wants, why="the dimensions that were broadcast")


def _asks_for_pairs(told: Tensor, sizes: Iterable[Size | None]) -> bool:
    """Whether numbers that are put together one by one ask for as many entries as there are along two dimensions."""
    return stand_twice(sizes) and source_of(told).node.op in ops.PACKS | ops.CONCATS


def _counts_rows(p: Placing, tensor: Tensor) -> bool:
    """Whether a shape of which data tell a part has a number that follows the batch."""
    return _counts_entries(p, tensor) and any(
        size is not None and follows_batch(size) for size in p.d.elements(tensor) or ()
    )


def _counts_entries(p: Placing, tensor: Tensor) -> bool:
    """Whether a shape has a number that depends on data, as that of entries."""
    return any(map(depends_on_data, p.d.elements(tensor) or ()))


@rule("Assert")
def _assert(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Each core checks its own rows; what is made of counts, or holds where it does on some core, holds for all rows or not.

    An assertion in a branch by its own condition runs where that does not hold for all rows.
    """
    behind = node.inputs[0].node
    guarded = behind.op in ops.SWITCH and source_of(behind.inputs[0]) == source_of(behind.inputs[1])
    whole = inputs[0] in (Entries("shape"), Partial("max")) and not guarded
    return Verdict([], {0: REPLICATE} if whole else {}, why="checks")


@rule("ConcatOffset")
def _offsets(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if Entries("shape") in inputs:
        return Verdict([Entries("shape")] * len(node.outputs or ()), why="where the parts of this core's entries begin")
    wants: dict[int, Placement] = {i: REPLICATE for i, s in enumerate(inputs) if isinstance(s, Sized)}
    return Verdict([REPLICATE] * len(node.outputs or ()), wants, why="where the parts of the whole batch begin")


@rule("Range")
def _range(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if any(isinstance(s, Entries) for s in inputs):
        return Verdict([Entries("local")])
    dims = p.dims(node.out())
    start, delta = fixed(node.inputs[0]), fixed(node.inputs[2])
    rows = shard_of(dims, 0) if dims else None
    if rows is not None and start == [0] and delta == [1]:
        return Verdict([replace(rows, shift=rows.inner)], why="numbers of this core's rows")
    told = all(p.sizes(t) is not None for t in node.inputs)  # then sizes are written anew with those of the result
    read = [i for i, s in enumerate(inputs) if not isinstance(s, Replicate) and not (told and isinstance(s, Sized))]
    wants: dict[int, Placement] = dict.fromkeys(read, REPLICATE)
    return Verdict([REPLICATE], wants)


@rule("Fill")
def _fill(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    value = inputs[1]
    if isinstance(inputs[0], Entries):
        return Verdict([Entries("values")], {} if isinstance(value, Replicate) else {1: REPLICATE})
    if _is_of_all(p, node.inputs[0], inputs[0]):
        return _same_in_every_row(value, 1, None)
    dims = p.dims(node.out()) or []
    rows = next((r for axis in range(len(dims)) if (r := shard_of(dims, axis)) is not None), None)
    return _same_in_every_row(value, 1, rows)


def _is_of_all(p: Placing, sizes: Tensor, placement: Placement) -> bool:
    """Whether sizes are those of what every core holds whole, of which data decide a part: what is told them is whole, too."""
    elements = p.d.elements(sizes) or ()
    return (
        isinstance(placement, Replicate)
        and any(map(depends_on_data, elements))
        and any(size is not None and follows_batch(size) for size in elements)
    )


def _same_in_every_row(value: Placement, index: int, rows: Shard | None) -> Verdict:
    """A value that is spread over new dimensions, operand ``index``; one of them may hold the rows."""
    if rows is not None:
        return Verdict([rows], {} if isinstance(value, Replicate) else {index: REPLICATE}, why="the same in every row")
    if isinstance(value, Sized):
        return Verdict([REPLICATE], {index: REPLICATE})
    return Verdict([value], why="the same elements")


@rule("BroadcastTo Tile")
def _spread(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source, out = inputs[0], p.dims(node.out())
    dims = p.dims(node.inputs[0])
    if isinstance(inputs[1], Entries):
        if _asks_for_pairs(node.inputs[1], p.d.dims(node.out()) or ()):
            return p.everywhere(node, inputs, "makes pairs of the entries of all cores")
        return Verdict([Entries("values")], {} if isinstance(source, Replicate | Entries) else {0: REPLICATE})
    if isinstance(source, PerCore | Entries):
        return Verdict([source])
    if out is None or dims is None:
        return p.everywhere(node, inputs, "spreads its operand over dimensions that are not known")
    lead = len(out) - len(dims)
    if _is_of_all(p, node.inputs[1], inputs[1]) and not isinstance(source, Shard):
        return _same_in_every_row(source, 0, None)
    if isinstance(source, Shard):
        if node.op in ops.TILES and None in (p.d.elements(node.inputs[1]) or ()):
            return p.everywhere(node, inputs, "repeats rows as often as data say, which is one number for all cores")
        if dims[source.axis] == out[source.axis + lead]:
            return moved(p, node, inputs, source.axis + lead)
        times_over = divide(out[source.axis + lead], dims[source.axis])
        if node.op in ops.TILES and isinstance(times_over, int) and source.outer == 1:
            return Verdict([replace(source, axis=source.axis, outer=times_over)], why="the batch several times over")
        return p.everywhere(node, inputs, "spreads all rows")
    new = [a for a in range(len(out)) if isinstance(out[a], Poly) and (a < lead or out[a] != dims[a - lead])]
    return _same_in_every_row(source, 0, shard_of(out, new[0]) if new else None)

"""How ops are partitioned that take parts of values."""

from __future__ import annotations

from dataclasses import replace

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_rules.slicing_ties import places, takes_whole, turned_round
from tpugraph.analysis.placement_rules.entry_placements import OWN, columns_taken
from tpugraph.analysis.placement_rules.reshaping_placements import passed
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
    holds_entries,
)
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.analysis.sizes import ROWS, Known, Poly, add, depends_on_data, divide
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of


def _pieces(p: Placing, rows: Shard, start: Known, size: Known) -> Shard | None:
    """The rows that a slice of whole batches holds; None where it cuts a batch."""
    batch = Poly((0, rows.inner))
    first, count = divide(start, batch) if start else 0, divide(size, batch)
    if isinstance(first, int) and isinstance(count, int) and count >= 1:
        return replace(rows, outer=count)
    return None


def _put_at(rows: Shard, start: Known | None, whole: Shard | None) -> Shard | None:
    """Rows that are put at a place among zeros, where these make up whole batches with them; None where that cuts a batch."""
    if start is None or whole is None or whole.inner % rows.inner or rows.shift:
        return None
    before = divide(start, Poly((0, rows.inner))) if start else 0
    return Shard(rows.axis, whole.inner // rows.inner, rows.inner) if isinstance(before, int) and before >= 0 else None


def _at_known_places(inputs: list[Placement]) -> bool:
    """Whether all cores slice at the same places, or at places that are sizes."""
    return all(isinstance(placement, Replicate | Sized) for placement in inputs[1:])


_COUNTS = Entries("shape")


@rule("Slice")
def _slice(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if holds_entries(inputs[0]):
        if isinstance(inputs[2], Replicate) and any(map(depends_on_data, (p.d.elements(node.inputs[2]) or ())[:1])):
            return p.everywhere(node, inputs, "takes as many entries as all cores have")
        if source_of(node.inputs[1]).node.op in ops.CONCAT_OFFSETS:
            part = p.dims(node.out())
            own = Shard(0) if part and part[0] == ROWS else inputs[0]
            return Verdict([own], why="one of the parts that this core put together")
        whole = keeps_entries(node, p.rank(node.inputs[0]))
        return Verdict([inputs[0]]) if whole else p.everywhere(node, inputs, _SOME_ENTRIES)
    if inputs[0] == OWN and not keeps_entries(node, p.rank(node.inputs[0])):
        return p.everywhere(node, inputs, _SOME_ENTRIES)
    if isinstance(inputs[0], Entries):
        return Verdict([inputs[0]])
    rows, dims, out = inputs[0], p.dims(node.inputs[0]), p.dims(node.out())
    if not isinstance(rows, Shard):
        return passed(node, rows) if _at_known_places(inputs) else p.everywhere(node, inputs, "")
    if dims is not None and out is not None:
        if dims[rows.axis] == out[rows.axis]:
            return Verdict([rows], why="rows stay rows")
        begin = p.sizes(node.inputs[1])
        if begin is not None:
            piece = _pieces(p, rows, begin[rows.axis], out[rows.axis])
            if piece is not None:
                return Verdict([piece], why="whole batches")
    return p.everywhere(node, inputs, "takes some rows of the batch")


@rule("StridedSlice")
def _strided_slice(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    held = holds_entries(inputs[0]) or inputs[0] == OWN
    if held and int(node.attr("new_axis_mask", 0)) & 1:
        return p.everywhere(node, inputs, "moves entries away from the first dimension")
    if held and not keeps_entries(node, p.rank(node.inputs[0])):
        return p.everywhere(node, inputs, _SOME_ENTRIES)
    if inputs[0] == OWN and p.rank(node.inputs[0]) == 2:
        return columns_taken(p, node, inputs, _columns(p, node))
    if isinstance(inputs[0], Entries):
        return Verdict([inputs[0]])
    rows, dims = inputs[0], p.d.dims(node.inputs[0])
    if not isinstance(rows, Shard):
        known = _at_known_places(inputs)
        return passed(node, rows) if known else p.everywhere(node, inputs, "slices at places of its own")
    if dims is None:
        return p.everywhere(node, inputs, "slices dimensions that are not known")
    for axis, target, place in places(node, len(dims)):
        if axis != rows.axis:
            continue
        if target is not None and takes_whole(p.d, node, place, dims[axis]):
            out: Shard | None = replace(rows, axis=target)
            if rows.along >= 0:
                out = _column_shift(node, rows, target, len(dims))
            if out is None:
                return Verdict([rows.plain().at(target)], {0: rows.plain()}, why="rows stay rows")
            return Verdict([out], why="rows stay rows")
        after = p.dims(node.out())
        if target is not None and after is not None and place >= 0:
            start = _first_place(p, node, place, p.final(dims[axis]))
            piece = None if start is None else _pieces(p, rows, start, after[target])
            if piece is not None:
                return Verdict([piece.at(target)], why="whole batches")
    return p.everywhere(node, inputs, "takes some rows of the batch")


def _columns(p: Placing, node: Node) -> list[int] | None:
    """Which columns of a matrix a slice takes; None where that is not known."""
    dims, bounds = p.dims(node.inputs[0]) or [0], [p.d.numbers(t) for t in node.inputs[1:4]]
    for axis, target, place in places(node, 2):
        if axis == 1 and isinstance(dims[-1], int) and None not in bounds:
            begin, end, step = (numbers[place] if numbers else None for numbers in bounds)
            begin, end = (
                None if int(node.attr(f"{name}_mask", 0)) >> max(place, 0) & 1 else bound
                for name, bound in (("begin", begin), ("end", end))
            )
            every = list(range(dims[-1]))
            return every if place < 0 else [every[begin or 0]] if target is None else every[begin:end:step]
    return None


_SOME_ENTRIES = "takes some of the entries of the batch"


def keeps_entries(node: Node, rank: int) -> bool:
    """Whether the first dimension of what is sliced stays whole and the first one."""
    if node.op in ops.PLAIN_SLICES:
        return (fixed(node.inputs[1]) or [1])[0] == 0 and (fixed(node.inputs[2]) or [0])[0] == -1
    first = next(((place, target) for axis, target, place in places(node, rank) if axis == 0), None)
    if first is None or first[1] != 0:
        return False
    place, steps = first[0], fixed(node.inputs[3])
    whole = int(node.attr("begin_mask", 0)) & int(node.attr("end_mask", 0))
    return place < 0 or (bool(whole >> place & 1) and steps is not None and steps[place] == 1)


def _column_shift(node: Node, rows: Shard, target: int, rank: int) -> Shard | None:
    """What a slice takes of numbers whose shifts differ along a dimension: one place of it, or all."""
    begin = fixed(node.inputs[1])
    assert isinstance(rows.shift, tuple)
    for axis, there, place in places(node, rank):
        if axis == rows.along:
            if there is None and begin is not None:
                return replace(rows.plain(), axis=target, shift=rows.shift[begin[place]])
            return replace(rows, axis=target, along=there) if there is not None and place < 0 else None
    return None


@rule("StridedSliceGrad")
def _strided_slice_grad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    grad = inputs[4]
    if isinstance(grad, Partial | Replicate | PerCore):
        counted: dict[int, Placement] = {0: REPLICATE} if inputs[0] == _COUNTS else {}  # of the entries of all cores
        return Verdict([grad], counted, why="the same elements and zeros")
    if holds_entries(grad) and inputs[0] == _COUNTS and keeps_entries(node, p.rank(node.out())):
        return Verdict([Entries("values")], why="the entries of this core")
    if not isinstance(grad, Shard):
        return p.everywhere(node, inputs, "puts entries at places")
    dims, given = p.dims(node.out()), p.dims(node.inputs[4])
    if dims is None or given is None:
        return p.everywhere(node, inputs, "puts rows at places that are not known")
    for axis, target, place in places(node, len(dims)):
        if target == grad.axis and axis is not None and not turned_round(node, place):
            if dims[axis] == given[target]:
                return Verdict([grad.at(axis)], why="rows stay rows")
            made = _put_at(grad, _first_place(p, node, place, dims[axis]), shard_of(dims, axis))
            if made is not None:
                return Verdict([made.at(axis)], why="whole batches")
    return p.everywhere(node, inputs, "puts rows at places of the whole batch")


def _first_place(p: Placing, node: Node, place: int, whole: Known) -> Known | None:
    """Where a slice by steps of one begins, of so many places; None where that is not known."""
    begin, steps = p.sizes(node.inputs[1]), p.d.numbers(node.inputs[3])
    if place >= 0 and (steps is None or steps[place] != 1):
        return None
    if place < 0 or int(node.attr("begin_mask", 0)) >> place & 1:
        return 0
    if begin is None:
        return None
    return begin[place] if p.d.sizes.at(begin[place]) >= 0 else add(whole, begin[place])


@rule("Pad PadV2 MirrorPad MirrorPadGrad")
def _pad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source = inputs[0]
    alone = ops.record(node.op).linear == "0"  # with zeros, or with elements of the operand itself
    if isinstance(source, Shard):
        before, after = p.dims(node.inputs[0]), p.dims(node.out())
        if before is not None and after is not None:
            if before[source.axis] == after[source.axis]:
                return Verdict([source.plain()], {0: source.plain()} if source.shift else {}, why="rows stay rows")
            amounts = p.sizes(node.inputs[1]) or fixed(node.inputs[1])
            made = _put_at(source, amounts[2 * source.axis] if amounts else None, shard_of(after, source.axis))
            if alone and node.op in ops.PADS and made is not None:
                return Verdict([made], why="whole batches")
        return p.everywhere(node, inputs, "adds rows to the batch")
    if isinstance(source, Partial) and alone and source == SUM:
        return Verdict([source], why="the same elements and zeros")
    read = [0] if not isinstance(source, Replicate | PerCore) else []
    read += [1] if inputs[1] == _COUNTS else []  # of the entries of all cores
    return Verdict([source] if isinstance(source, PerCore) else [REPLICATE], dict.fromkeys(read, REPLICATE))

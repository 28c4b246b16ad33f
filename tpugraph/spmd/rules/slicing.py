"""Partition rules of slices along the rows: slices of whole batches stay sharded, others need all rows."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import Entries, Placement, Replicate, Shard
from tpugraph.analysis.values import integers, known_vector
from tpugraph.ir import Node
from tpugraph.spmd import factors
from tpugraph.spmd.placing import COUNT, VALUES, Placing, Verdict, rule
from tpugraph.spmd.rules.reshape import block
from tpugraph.spmd.rules.signature import by_signature, size_of


def _others_replicated(inputs: list[Placement], data: int) -> bool:
    return all(isinstance(s, Replicate) for i, s in enumerate(inputs) if i != data)


@rule("Slice")
def _slice(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows = inputs[0]
    if not _others_replicated(inputs, 0):
        return p.replicate_operands(node, inputs, "slices at places of its own")
    if isinstance(rows, Entries):
        begin, size = integers(node.inputs[1]), integers(node.inputs[2])
        if begin and size and begin[0] == 0 and size[0] == -1:
            return Verdict([rows], why="entry by entry")
        return p.replicate_operands(node, inputs, "takes some of the ragged rows")
    if isinstance(rows, Shard):
        starts = known_vector(node.inputs[1])
        start = None if starts is None else starts[rows.axis]
        piece = _piece(rows, size_of(node.inputs[0], rows.axis), start, size_of(node.out(), rows.axis))
        if piece is not None:
            return Verdict([piece], why="rows stay rows")
    return by_signature(p, node, inputs)


@rule("StridedSlice")
def _strided_slice(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, source, out = inputs[0], node.inputs[0], node.out()
    if not _others_replicated(inputs, 0):
        return p.replicate_operands(node, inputs, "slices at places of its own")
    if isinstance(rows, Entries):
        return _of_entries(p, node, inputs, rows)
    if isinstance(rows, Shard) and out.shape is not None:
        for axis, target, place in factors.sliced_places(node, factors.rank(source)) or ():
            if axis == rows.axis and target is not None and place is not None:
                start = _start(node, place, size_of(source, axis))
                piece = None if start is None else _piece(rows, size_of(source, axis), start, size_of(out, target))
                if piece is not None:
                    return Verdict([piece.at(target)], why="whole batches")
    return by_signature(p, node, inputs)


def _of_entries(p: Placing, node: Node, inputs: list[Placement], rows: Entries) -> Verdict:
    if rows.role == "shape":  # the count of this core's ragged rows, or the other sizes, which all cores share
        begin, end = integers(node.inputs[1]), integers(node.inputs[2])
        picked = node.attr("shrink_axis_mask", 0) & 1
        first = begin == [0] or bool(node.attr("begin_mask", 0) & 1 and not picked)
        if begin is not None and end is not None and (first or (picked and begin[0] > 0)):
            return Verdict([COUNT if first else Replicate()], why="a size of ragged rows")
        if begin is not None and begin[0] > 0:
            return Verdict([Replicate()], why="sizes that do not count ragged rows")
        return p.replicate_operands(node, inputs, "sizes of ragged rows")
    first_place = next(iter(factors.sliced_places(node, factors.rank(node.inputs[0])) or ()), None)
    if first_place is None or first_place[1] != 0 or not _whole_front(node, first_place[2]):
        return p.replicate_operands(node, inputs, "takes some of the ragged rows")
    if rows.role == "local" and factors.rank(node.inputs[0]) == 2:
        return _columns(p, node, inputs, rows)
    return Verdict([rows], why="entry by entry")


def _columns(p: Placing, node: Node, inputs: list[Placement], rows: Entries) -> Verdict:
    """In index tuples only the first column is a row index."""
    begin = integers(node.inputs[1])
    places = factors.sliced_places(node, 2) or []
    column = next((place for axis, _, place in places if axis == 1), None)
    if column is None:
        return Verdict([rows], why="entry by entry")
    if begin is None:
        return p.replicate_operands(node, inputs, "takes columns of places")
    starts = 0 if node.attr("begin_mask", 0) >> column & 1 else begin[column]
    return Verdict([rows if starts == 0 else VALUES], why="entry by entry")


def _whole_front(node: Node, place: int | None) -> bool:
    if place is None:
        return True
    steps = integers(node.inputs[3])
    masked = node.attr("begin_mask", 0) & node.attr("end_mask", 0)
    return bool(masked >> place & 1) and steps is not None and steps[place] == 1


@rule("StridedSliceGrad")
def _strided_slice_grad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, out = inputs[4], node.out()
    if isinstance(rows, Shard) and out.shape is not None and _others_replicated(inputs, 4):
        for axis, target, place in factors.sliced_places(node, len(out.shape)) or ():
            if target == rows.axis and axis is not None and place is not None:
                before = _start(node, place, size_of(out, axis))
                whole = _among(rows, size_of(node.inputs[4], target), before, size_of(out, axis))
                if whole is not None:
                    return Verdict([whole.at(axis)], why="whole batches among zeros")
    return by_signature(p, node, inputs)


@rule(" ".join(ops.PADS))
def _pad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, zeros = inputs[0], len(inputs) == 2  # else the last operand is the padding value
    if isinstance(rows, Shard) and zeros:
        amounts = integers(node.inputs[1])
        part, whole = size_of(node.inputs[0], rows.axis), size_of(node.out(), rows.axis)
        made = _among(rows, part, None if amounts is None else amounts[2 * rows.axis], whole)
        if made is not None:
            return Verdict([made], why="whole batches among zeros")
    return by_signature(p, node, inputs)


def _start(node: Node, place: int, size: int | None) -> int | None:
    """The begin of a slice with stride 1; None where it is unknown."""
    begin, steps = integers(node.inputs[1]), integers(node.inputs[3])
    if steps is None or steps[place] != 1:
        return None
    if node.attr("begin_mask", 0) >> place & 1:
        return 0
    if begin is None:
        return None
    return begin[place] if begin[place] >= 0 or size is None else size + begin[place]


def _piece(rows: Shard, size: int | None, start: int | None, part: int | None) -> Shard | None:
    """The whole batches that a slice takes; None where it cuts one."""
    if size is not None and size == part:
        return rows
    long = block(rows, size)
    if not long or start is None or not part or start % long or part % long:
        return None
    return Shard(rows.axis, part // long)


def _among(rows: Shard, part: int | None, before: int | None, whole: int | None) -> Shard | None:
    """The placement of rows that are zero-padded to whole batches."""
    long = block(rows, part)
    if not long or before is None or whole is None or before % long or whole % long:
        return None
    return Shard(rows.axis, whole // long)

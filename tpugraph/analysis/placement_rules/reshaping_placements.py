"""How ops are partitioned that give values another shape."""

from __future__ import annotations

from dataclasses import replace

from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.placement_rules.factor_placements import aligned
from tpugraph.analysis.placements import (
    REPLICATE,
    SUM,
    Entries,
    PerCore,
    Placement,
    Replicate,
    Shard,
    Sized,
    holds_entries,
)
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.analysis.sizes import Known, Poly, divide, times
from tpugraph.ir import Node

# --------------------------------------------------------------------------- moved


def _moved(p: Placing, node: Node, inputs: list[Placement], place: int, source: int = 0) -> Verdict:
    """The output holds the rows of one operand along another dimension."""
    placement = inputs[source]
    assert isinstance(placement, Shard)
    if placement.along >= 0:
        return Verdict([placement.plain().at(place)] * len(node.outputs or ()), {source: placement.plain()})
    return Verdict([placement.at(place)] * len(node.outputs or ()), why="rows stay rows")


def passed(p: Placing, node: Node, inputs: list[Placement], source: int = 0) -> Verdict | None:
    """What only rearranges elements makes of partial values partial values; None where the operand holds rows."""
    placement = inputs[source]
    if isinstance(placement, Shard):
        return None
    if isinstance(placement, Sized):
        return Verdict([REPLICATE] * len(node.outputs or ()), {source: REPLICATE})
    return Verdict([placement] * len(node.outputs or ()), why="the same elements")


# --------------------------------------------------------------------------- sizes


@rule("Shape ShapeN Size Rank")
def _shape(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if node.op == "Size" and isinstance(inputs[0], Shard):
        return Verdict([SUM], why="how many elements a core holds: all cores' together are those of the batch")
    outputs: list[Placement | None] = []
    for placement in inputs:
        outputs.append(Entries("shape") if isinstance(placement, Entries) else REPLICATE)
    return Verdict(outputs, why="the size of what a core holds")


@rule("BroadcastGradientArgs")
def _axes(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([REPLICATE] * len(node.outputs or ()), why="the dimensions that were broadcast")


@rule("ConcatOffset")
def _offsets(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
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
    dims = p.dims(node.out()) or []
    rows = next((r for axis in range(len(dims)) if (r := shard_of(dims, axis)) is not None), None)
    return _same_in_every_row(value, 1, rows)


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
        return Verdict([Entries("values")], {} if isinstance(source, Replicate | Entries) else {0: REPLICATE})
    if isinstance(source, PerCore | Entries):
        return Verdict([source])
    if out is None or dims is None:
        return p.everywhere(node, inputs, "spreads its operand over dimensions that are not known")
    lead = len(out) - len(dims)
    if isinstance(source, Shard):
        if dims[source.axis] == out[source.axis + lead]:
            return _moved(p, node, inputs, source.axis + lead)
        times_over = divide(out[source.axis + lead], dims[source.axis])
        if node.op == "Tile" and isinstance(times_over, int) and source.outer == 1:
            return Verdict([replace(source, axis=source.axis, outer=times_over)], why="the batch several times over")
        return p.everywhere(node, inputs, "spreads all rows")
    new = [a for a in range(len(out)) if isinstance(out[a], Poly) and (a < lead or out[a] != dims[a - lead])]
    return _same_in_every_row(source, 0, shard_of(out, new[0]) if new else None)


# --------------------------------------------------------------------------- reshaping


@rule("Reshape")
def _reshape(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if isinstance(inputs[0], Replicate) and inputs[1] == Entries("shape") and p.rank(node.inputs[0]):
        return Verdict([Entries("values")], {0: Entries("values")}, why="the entries of this core")
    found = passed(p, node, inputs)
    if found is not None:
        return found
    rows = inputs[0]
    assert isinstance(rows, Shard)
    before, after = p.dims(node.inputs[0]), p.dims(node.out())
    if before is None or after is None:
        return p.everywhere(node, inputs, "reshapes to dimensions that are not known")
    found_rows = regrouped(before, rows, after)
    if found_rows is None and p.d.ones and not any(isinstance(s, Poly) for s in after):
        return Verdict([SUM], why="TensorFlow left out the sum over a batch of one row")
    if found_rows is None:
        return p.everywhere(node, inputs, "the rows do not stay apart in the new shape")
    wants: dict[int, Placement] = {}
    if isinstance(rows.shift, tuple):
        wants[0] = rows.plain()
        found_rows = found_rows.plain()
    return Verdict([found_rows], wants, why="rows stay rows")


def regrouped(before: list[Known], rows: Shard, after: list[Known]) -> Shard | None:
    """Where the rows are after a reshape: at the same places of the flat array."""
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
    found = passed(p, node, inputs)
    if found is not None:
        return found
    rows = inputs[0]
    assert isinstance(rows, Shard)
    dims = p.d.dims(node.inputs[0]) or ()
    axes = [a % max(len(dims), 1) for a in node.attr("squeeze_dims", []) or []]
    gone = axes or [i for i, s in enumerate(dims) if p.d.sizes.at(s) == 1]
    if rows.axis in gone:
        return p.everywhere(node, inputs, "drops the dimension of the batch")
    return _moved(p, node, inputs, rows.axis - sum(1 for g in gone if g < rows.axis))


@rule("ExpandDims")
def _expand_dims(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, axis = inputs[0], fixed(node.inputs[1])
    if holds_entries(rows) and (axis is None or axis[0] % (p.rank(node.inputs[0]) + 1) == 0):
        return p.everywhere(node, inputs, "moves entries away from the first dimension")
    found = passed(p, node, inputs)
    if found is not None:
        return found
    assert isinstance(rows, Shard)
    if axis is None:
        return p.everywhere(node, inputs, "adds a dimension at a place that is not known")
    place = axis[0] % (p.rank(node.inputs[0]) + 1)
    return _moved(p, node, inputs, rows.axis + (place <= rows.axis))


@rule("Transpose ConjugateTranspose")
def _transpose(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, order = inputs[0], p.d.numbers(node.inputs[1])
    if holds_entries(rows) and (order is None or order[0] != 0):
        return p.everywhere(node, inputs, "moves entries away from the first dimension")
    found = passed(p, node, inputs)
    if found is not None:
        return found
    assert isinstance(rows, Shard)
    if order is None:
        return p.everywhere(node, inputs, "permutes dimensions in an order that is not known")
    along = order.index(rows.along) if rows.along >= 0 else -1
    return Verdict([replace(rows, axis=order.index(rows.axis), along=along)], why="rows stay rows")


@rule("Pack")
def _pack(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rank = max(p.rank(t) for t in node.inputs)
    axis = int(node.attr("axis", 0)) % (rank + 1)
    rows = next((s for s in inputs if isinstance(s, Shard)), None)
    if rows is not None and any(isinstance(s, Shard) and s.shift for s in inputs):
        shifts = tuple(s.shift if isinstance(s, Shard) and isinstance(s.shift, int) else 0 for s in inputs)
        wants: dict[int, Placement] = {i: rows.plain() for i, s in enumerate(inputs) if not isinstance(s, Shard)}
        return Verdict([replace(rows, axis=rows.axis + (axis <= rows.axis), shift=shifts, along=axis)], wants)
    verdict = aligned(p, node, inputs, list(range(len(inputs))), (frozenset(range(len(inputs))),))
    out = verdict.outputs[0]
    if isinstance(out, Shard):
        return Verdict([out.at(out.axis + (axis <= out.axis))], verdict.wants, why="rows stay rows")
    return verdict


@rule("Unpack")
def _unpack(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    found = passed(p, node, inputs)
    if found is not None:
        return found
    rows, axis = inputs[0], int(node.attr("axis", 0)) % max(p.rank(node.inputs[0]), 1)
    assert isinstance(rows, Shard)
    if rows.axis == axis:
        return p.everywhere(node, inputs, "takes rows of the batch apart")
    if isinstance(rows.shift, tuple) and axis == rows.along:
        moved = rows.plain().at(rows.axis - (axis < rows.axis))
        return Verdict([replace(moved, shift=s) for s in rows.shift], why="rows stay rows")
    return _moved(p, node, inputs, rows.axis - (axis < rows.axis))


@rule("ConcatV2 Concat")
def _concat(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    old = node.op == "Concat"
    data = list(range(1, len(inputs))) if old else list(range(len(inputs) - 1))
    axis = fixed(node.inputs[0 if old else -1])
    if any(isinstance(inputs[i], Entries) for i in data):
        return Verdict([next(s for s in inputs if isinstance(s, Entries))])
    parts = [inputs[i] for i in data]
    if axis is None:
        return p.everywhere(node, inputs, "joins along a dimension that is not known")
    place = axis[0] % max(p.rank(node.inputs[data[0]]), 1)
    along = [s for s in parts if isinstance(s, Shard) and s.axis == place]
    if along:
        wants, outer = dict[int, Placement](), 0
        for i in data:
            own = inputs[i]
            if not isinstance(own, Shard):
                own_rows = shard_of(dims, place) if (dims := p.dims(node.inputs[i])) else None
                if own_rows is None or own_rows.inner % along[0].inner:
                    return p.everywhere(node, inputs, "joins rows of the batch with others")
                own = Shard(place, own_rows.inner // along[0].inner, along[0].inner)
                wants[i] = own
            if own.inner != along[0].inner or own.axis != place:
                return p.everywhere(node, inputs, "joins rows of the batch with others")
            if own.shift:
                wants[i] = own.plain()
            outer += own.outer
        return Verdict([Shard(place, outer, along[0].inner)], wants, why="whole batches one after the other")
    verdict = aligned(p, node, inputs, data, (frozenset(data),))
    out = verdict.outputs[0]
    if isinstance(out, Shard) and isinstance(out.shift, int) and out.shift:
        return p.everywhere(node, inputs, "joins numbers of rows")
    return verdict


@rule("Split SplitV")
def _split(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source, axis_operand = (1, 0) if node.op == "Split" else (0, 2)
    count = len(node.outputs or ())
    found = passed(p, node, inputs, source)
    if found is not None:
        return found
    rows, axis = inputs[source], fixed(node.inputs[axis_operand])
    assert isinstance(rows, Shard)
    if axis is None:
        return p.everywhere(node, inputs, "splits along a dimension that is not known")
    if axis[0] % p.rank(node.inputs[source]) != rows.axis:
        return Verdict([rows] * count, why="rows stay rows")
    outputs: list[Placement | None] = []
    for port in range(count):
        dims = p.dims(node.out(port))
        piece = shard_of(dims, rows.axis) if dims else None
        if piece is None or piece.inner % rows.inner or rows.shift:
            return p.everywhere(node, inputs, "splits rows of the batch")
        outputs.append(Shard(rows.axis, piece.inner // rows.inner, rows.inner))
    return Verdict(outputs, why="whole batches")

"""How ops are partitioned that put tensors together and take them apart."""

from __future__ import annotations

from dataclasses import replace

from tpugraph import ops
from tpugraph.analysis.placement_rules.entry_placements import OWN, beside_places, holds_all_entries
from tpugraph.analysis.placement_rules.factor_placements import aligned
from tpugraph.analysis.placement_rules.joined_entries import joined_in_any_order
from tpugraph.analysis.placement_rules.reshaping_placements import moved, passed
from tpugraph.analysis.placements import (
    Entries,
    Placement,
    Replicate,
    Shard,
    Sized,
    holds_entries,
)
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.ir import Node


@rule("Pack")
def _pack(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rank = max(p.rank(t) for t in node.inputs)
    axis = int(node.attr("axis", 0)) % (rank + 1)
    rows = next((s for s in inputs if isinstance(s, Shard)), None)
    if rows is not None and any(isinstance(s, Shard) and s.shift for s in inputs):
        shifts = tuple(s.shift if isinstance(s, Shard) and isinstance(s.shift, int) else 0 for s in inputs)
        wants: dict[int, Placement] = {i: rows.plain() for i, s in enumerate(inputs) if not isinstance(s, Shard)}
        return Verdict([replace(rows, axis=rows.axis + (axis <= rows.axis), shift=shifts, along=axis)], wants)
    if rows is None and axis == rank and (found := beside_places(p, node, inputs, range(len(inputs)))):
        return found
    verdict = aligned(p, node, inputs, list(range(len(inputs))), (frozenset(range(len(inputs))),))
    out = verdict.outputs[0]
    if isinstance(out, Shard):
        return Verdict([out.at(out.axis + (axis <= out.axis))], verdict.wants, why="rows stay rows")
    return verdict


@rule("Unpack")
def _unpack(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, axis = inputs[0], int(node.attr("axis", 0)) % max(p.rank(node.inputs[0]), 1)
    if rows == OWN and axis == p.rank(node.inputs[0]) - 1 > 0:  # the first column alone says the row
        return Verdict([OWN, *[Entries("values")] * (len(node.outputs or ()) - 1)], why="entry by entry")
    if not isinstance(rows, Shard):
        return passed(node, rows)
    if rows.axis == axis:
        return p.everywhere(node, inputs, "takes rows of the batch apart")
    if isinstance(rows.shift, tuple) and axis == rows.along:
        apart = rows.plain().at(rows.axis - (axis < rows.axis))
        return Verdict([replace(apart, shift=s) for s in rows.shift], why="rows stay rows")
    return moved(p, node, inputs, rows.axis - (axis < rows.axis))


@rule("ConcatV2 Concat")
def _concat(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    record = ops.record(node.op)
    data, axis = record.data_operands(len(inputs)), p.d.numbers(node.inputs[record.axis or 0])
    if any(isinstance(inputs[i], Entries) for i in data):
        in_front = axis is None or axis[0] % max(p.rank(node.inputs[data[0]]), 1) == 0
        parts = [inputs[i] for i in data]
        several = any(
            isinstance(part, Shard) and part.outer * part.inner > 1 for part in parts
        )  # a gradient can't tell them apart
        if in_front and any(map(holds_entries, parts)) and (several or not joined_in_any_order(p, node, parts)):
            return p.everywhere(node, inputs, "joins entries of the whole batch with others")
        rank = p.rank(node.out())
        if not in_front and any(holds_all_entries(p, node, i, inputs[i], rank) for i in data):
            return p.everywhere(node, inputs, "entries of all cores")
        found = None if in_front else beside_places(p, node, inputs, data)
        return found or Verdict([next(s for s in inputs if isinstance(s, Entries))])
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
    record = ops.record(node.op)
    (source,) = record.data_operands(len(inputs))
    count = len(node.outputs or ())
    rows, axis = inputs[source], p.d.numbers(node.inputs[record.axis or 0])
    told = [s for i, s in enumerate(inputs) if i != source]
    if not all(isinstance(s, Replicate | Sized) for s in told):
        return p.everywhere(node, inputs, "splits where only all cores together say")
    if (
        isinstance(rows, Entries)
        and rows.role != "shape"
        and (axis is None or not axis[0] % p.rank(node.inputs[source]))
    ):
        return p.everywhere(node, inputs, "splits entries of the whole batch")
    if not isinstance(rows, Shard):
        return passed(node, rows, source)
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

"""How lookups are partitioned."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed, made_of_values
from tpugraph.analysis.placement_rules.container_placements import entries_to, picked
from tpugraph.analysis.placement_rules.entry_placements import OWN, columns_taken, in_columns, numbered, places_of
from tpugraph.analysis.placement_rules.flattened_rows import found_there
from tpugraph.analysis.placements import (
    ONCE,
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
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.analysis.sizes import depends_on_data
from tpugraph.ir import Node


@rule("GatherV2 Gather ResourceGather")
def _gather(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    table, numbers = inputs[0], inputs[1]
    named = ops.record(node.op).axis
    along = [0] if named is None else p.d.numbers(node.inputs[named])
    if not along:
        return p.everywhere(node, inputs, "looks up along a dimension that is not known")
    axis = along[0]
    rank = 1 if node.op in ops.GATHERS else p.rank(node.inputs[0])
    axis %= max(rank, 1)
    spread = int(node.attr("batch_dims", 0))
    spread += p.rank(node.inputs[1]) if spread < 0 else 0
    if isinstance(table, Entries) or isinstance(numbers, Entries):
        return _gather_in_each(p, node, inputs) if spread else _gather_entries(p, node, inputs, axis)
    wants: dict[int, Placement] = {}
    if isinstance(table, Shard):
        if isinstance(numbers, Shard) and table.axis < spread and numbers.axis == table.axis:
            return Verdict([table], why="row by row")
        if (
            isinstance(numbers, Shard)
            and table.axis == axis
            and numbers.shift == table.inner
            and table.outer == 1
            and not spread
        ):
            return Verdict([numbers.plain().at(axis + numbers.axis)], why="numbers of this core's own rows")
        if table.axis != axis and isinstance(numbers, Replicate) and table.axis >= spread:
            moved = table.axis if table.axis < axis else table.axis + p.rank(node.inputs[1]) - spread - 1
            return Verdict([table.at(moved)], why="rows stay rows")
        wants[0] = REPLICATE
    elif isinstance(table, Partial | Sized):
        if isinstance(numbers, Replicate) and table == SUM:
            return Verdict([SUM], why="picks elements")
        wants[0] = REPLICATE
    if isinstance(numbers, Shard):
        if numbers.shift:
            wants[1] = numbers.plain()
        return Verdict([numbers.plain().at(axis + numbers.axis - spread if numbers.axis >= spread else numbers.axis)],
                       wants, why="rows of a table by this core's numbers")  # fmt: skip
    if not isinstance(numbers, Replicate):
        wants[1] = REPLICATE
    return Verdict([REPLICATE], wants)


def _gather_entries(p: Placing, node: Node, inputs: list[Placement], axis: int) -> Verdict:
    """A table by entries, or what belongs to this core's rows by their places."""
    table, numbers = inputs[0], inputs[1]
    if isinstance(numbers, Entries):
        if isinstance(table, Replicate) and numbers.role == "local" and not _has_entries(p, node, axis):
            return _of_all_cores(p, node, inputs)
        if isinstance(table, Replicate):
            return Verdict([Entries("by_id" if numbers.role in ONCE else "values")], why="rows of a table by entries")
        own = places_of(p, node.inputs[1], table) and found_there(p, node.inputs[1], node.inputs[0])
        if numbers.role == "local" and (not own or in_columns(p, node.inputs[1])):
            return _of_all_cores(p, node, inputs)
        if numbers.role == "local" and isinstance(table, Shard | Entries):
            return Verdict([picked(table, node.inputs[1])], why="places on this core")
        return Verdict([Entries("values")], {0: REPLICATE}, why="rows of a table by entries")
    if axis and isinstance(numbers, Replicate):
        return _columns_of_entries(p, node, inputs, axis)
    return p.everywhere(node, inputs, "picks entries by numbers of the whole batch")


def _columns_of_entries(p: Placing, node: Node, inputs: list[Placement], axis: int) -> Verdict:
    """Of each entry what numbers pick."""
    table = inputs[0]
    if table == OWN:
        return columns_taken(p, node, inputs, fixed(node.inputs[1]))
    role = "by_id" if table == Entries("distinct") else table.role if isinstance(table, Entries) else "values"
    return Verdict([Entries(role)], why="entry by entry")


def _gather_in_each(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Of entries, each with a table and numbers of its own."""
    if not holds_entries(inputs[0]) or not (holds_entries(inputs[1]) or inputs[1] == OWN):
        return p.everywhere(node, inputs, "looks up in entries of all cores")
    if inputs[1] == OWN:
        return numbered(p, node, inputs, [1])
    once = any(isinstance(s, Entries) and s.role in ONCE for s in inputs[:2])
    return Verdict([Entries("by_id" if once else "values")], why="entry by entry")


def _of_all_cores(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """A whole table by places on this core, as those of all cores."""
    verdict = numbered(p, node, inputs, [1])
    whole: dict[int, Placement] = {} if isinstance(inputs[0], Replicate) else {0: REPLICATE}
    return Verdict(verdict.outputs, verdict.wants | whole, why=verdict.why)


def _has_entries(p: Placing, node: Node, axis: int) -> bool:
    """Whether only the data tell how long a table is along an axis: it has entries of this core, as places on it do.

    Places among the rows are none of those, but in a list that constants alone make for the rows of a core.
    """
    dims = p.d.dims(node.inputs[0])
    if dims and not depends_on_data(dims[axis]):
        return False
    return node.inputs[0].node not in made_of_values(p.graph)


@rule("GatherNd ResourceGatherNd")
def _gather_nd(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    table, numbers = inputs
    if isinstance(numbers, Entries):
        whole = isinstance(table, Replicate | Partial | Sized)
        one = whole and (p.dims(node.inputs[0]) or [0])[0] == 1  # along a dimension of one place every core means that
        own = numbers.role == "local" and not whole and places_of(p, node.inputs[1], table)
        own = own and found_there(p, node.inputs[1], node.inputs[0])
        if (whole and numbers.role != "local") or own or one or _has_entries(p, node, 0):
            read: dict[int, Placement] = {0: REPLICATE} if isinstance(table, Partial | Sized) else {}
            return Verdict([Entries("values")], read, why="places on this core")
        if numbers.role == "local":
            return _of_all_cores(p, node, inputs)
        return Verdict([Entries("values")], {0: REPLICATE}, why="places of the whole batch")
    if isinstance(numbers, Shard):
        last = numbers.along == p.rank(node.inputs[1]) - 1
        own = isinstance(table, Shard) and table.axis == 0 and last and numbers.shift[0] == table.inner  # type: ignore[index]
        if own and not any(numbers.shift[1:]):  # type: ignore[index]
            return Verdict([numbers.plain()], why="places in this core's own rows")
        if numbers.axis == p.rank(node.inputs[1]) - 1:
            return p.everywhere(node, inputs, "picks places of the whole batch")
        wants: dict[int, Placement] = {} if isinstance(table, Replicate) else {0: REPLICATE}
        if numbers.shift:
            wants[1] = numbers.plain()
        return Verdict([numbers.plain()], wants, why="places of a table by this core's numbers")
    wants = {i: REPLICATE for i, s in enumerate(inputs) if not isinstance(s, Replicate)}
    return Verdict([REPLICATE], wants)


@rule("OneHot")
def _one_hot(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows = inputs[0]
    wants: dict[int, Placement] = {i: REPLICATE for i in (2, 3) if not isinstance(inputs[i], Replicate)}
    if isinstance(rows, Entries):
        return Verdict([rows], wants)
    if not isinstance(rows, Shard):
        return Verdict([REPLICATE], wants | ({} if isinstance(rows, Replicate) else {0: REPLICATE}))
    if rows.shift:
        wants[0] = rows.plain()
    axis = int(node.attr("axis", -1))
    axis = p.rank(node.inputs[0]) if axis == -1 else axis
    return Verdict([rows.plain().at(rows.axis + (axis <= rows.axis))], wants, why="row by row")


@rule("ScatterNd")
def _scatter_nd(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    numbers, updates = inputs[0], inputs[1]
    whole = [isinstance(s, Replicate) for s in (numbers, updates)]
    if any(whole) and any(isinstance(s, Entries) for s in (numbers, updates)):
        return p.everywhere(node, inputs, "puts entries of all cores at places")
    if numbers == updates == Entries("values"):
        return Verdict([SUM], why="adds the entries up at places")
    if isinstance(numbers, Entries) or isinstance(updates, Entries):
        return entries_to(p, node, inputs)
    if isinstance(numbers, Shard):
        if not isinstance(updates, Shard) and isinstance(updates, Partial):
            return p.everywhere(node, inputs, "puts values of all cores at places")
        out = p.dims(node.out())
        rows = shard_of(out, 0) if out else None
        if rows is not None and isinstance(numbers.shift, tuple) and numbers.shift[0] == rows.inner:
            return Verdict([rows], why="places in this core's own rows")
        wants: dict[int, Placement] = {}
        if numbers.shift:
            wants[0] = numbers.plain()
        if not isinstance(updates, Shard):
            wants[1] = numbers.plain()
        return Verdict([SUM], wants, why="adds the rows up at places")
    if isinstance(updates, Shard):
        return (
            Verdict([SUM], {0: updates.at(0)}, why="adds the rows up at places")
            if updates.axis == 0
            else p.everywhere(node, inputs, "puts rows at places")
        )
    if updates == SUM and isinstance(numbers, Replicate):
        return Verdict([SUM], why="linear in a part of a sum")
    return p.everywhere(node, inputs, "puts values at places")


@rule("DynamicPartition")
def _dynamic_partition(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    data, which = inputs
    count = len(node.outputs or ())
    in_order = isinstance(which, Entries) or (isinstance(which, Shard) and which.outer == 1)
    if in_order and isinstance(data, Shard | Entries):
        local = (isinstance(data, Shard) and data.shift) or (isinstance(data, Entries) and data.role == "local")
        return Verdict([Entries("local" if local else "values")] * count, why="entries of this core's rows")
    return p.everywhere(node, inputs, "divides values of the whole batch")


@rule("DynamicStitch ParallelDynamicStitch")
def _dynamic_stitch(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    half = len(inputs) // 2
    if all(isinstance(s, Entries) and s.role == "local" for s in inputs[:half]):
        layout = _partitioned_from(p, node.inputs[0].node)
        whole = [i for i in range(half, len(inputs)) if not isinstance(inputs[i], Shard | Entries)]
        return Verdict(
            [layout or Entries("values")],
            dict.fromkeys(whole, Entries("values")),
            why="entries at their places on this core",
        )
    if all(isinstance(s, Replicate | Sized) for s in inputs):
        return Verdict([REPLICATE], {i: REPLICATE for i, s in enumerate(inputs) if isinstance(s, Sized)})
    return p.everywhere(node, inputs, "puts values at places")


def _partitioned_from(p: Placing, node: Node) -> Placement | None:
    if node.op not in ops.PARTITIONS:
        return None
    which = p.read(node.inputs[1])
    return which.plain() if isinstance(which, Shard) else which

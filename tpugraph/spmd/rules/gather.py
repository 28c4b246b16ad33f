"""Partition rules of gathers. Indices are global: a core that gathers by its own indices needs all rows of the operand."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, SUM, Entries, Placement, Replicate, Shard
from tpugraph.analysis.values import integers
from tpugraph.ir import Node, Tensor
from tpugraph.spmd import factors
from tpugraph.spmd.placing import COUNT, VALUES, Placing, Verdict, rule
from tpugraph.spmd.rules.signature import by_signature, size_of


@rule(" ".join(ops.LOOKUPS))
def _gather(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    table, numbers = inputs[0], inputs[1]
    named = ops.record(node.op).axis
    axes = [0] if named is None else integers(node.inputs[named])
    if axes is None:
        return p.replicate_operands(node, inputs, "looks up along a dimension that data name")
    rank = 1 if node.op in ops.GATHERS else factors.rank(node.inputs[0])
    axis, places = axes[0] % max(rank, 1), factors.rank(node.inputs[1])
    each = int(node.attr("batch_dims", 0))
    each += places if each < 0 else 0
    if table == COUNT and isinstance(numbers, Replicate):
        picked = integers(node.inputs[1])
        if picked is None or 0 in picked[1:]:
            return p.replicate_operands(node, inputs, "picks sizes of ragged rows")
        return Verdict([COUNT if picked[:1] == [0] else REPLICATE], why="a size of ragged rows")
    if isinstance(numbers, Entries):
        return _by_entries(p, node, inputs, axis, each)
    if isinstance(table, Entries):
        if axis and not each and isinstance(numbers, Replicate):
            return Verdict([VALUES], {0: VALUES}, why="entry by entry")
        return p.replicate_operands(node, inputs, "picks ragged rows by numbers of the whole batch")
    if isinstance(table, Shard) and table.axis < each:
        return Verdict([table], {1: table}, why="row by row")
    if isinstance(table, Shard) and isinstance(numbers, Replicate) and table.axis != axis:
        moved = 0 if table.axis < axis else places - each - 1
        return Verdict([table.at(table.axis + moved)], why="rows stay rows")
    if isinstance(numbers, Shard):
        if numbers.axis < each:
            return Verdict([numbers], {0: numbers}, why="row by row")
        made = numbers.at(axis + numbers.axis - each)
        return Verdict([made], {0: REPLICATE}, why="by this core's indices, which may name any row")
    if table == SUM and isinstance(numbers, Replicate):
        return Verdict([SUM], why="linear in a partial sum")
    return p.replicate_operands(node, inputs, "picks rows of the whole batch")


def _by_entries(p: Placing, node: Node, inputs: list[Placement], axis: int, each: int) -> Verdict:
    """A gather by ragged indices; indices local to the core gather from its own shard."""
    table, numbers = inputs[0], inputs[1]
    if each or numbers == COUNT:
        return p.replicate_operands(node, inputs, "looks up in ragged rows")
    if axis == 0 and _of_own_rows(p, node.inputs[0], table, numbers):
        return Verdict([VALUES], why="this core's own rows")
    if axis:
        return p.replicate_operands(node, inputs, "ragged rows behind another dimension")
    return Verdict([VALUES], {0: REPLICATE, 1: VALUES}, why="rows of a table by ragged numbers")


def _of_own_rows(p: Placing, table: Tensor, placement: Placement, numbers: Placement) -> bool:
    """Whether indices point into the core's own shard of the table."""
    if not isinstance(numbers, Entries) or numbers.role != "local":
        return False
    found = p.graph.tensor(numbers.of)
    if placement == VALUES and table.node.op not in ops.CONSTANTS:
        return bool(isinstance(p.read(found), Entries)) and table == found
    rows = size_of(found, 0)
    return placement == Shard(0) and rows is not None and rows == size_of(table, 0)


@rule("GatherNd ResourceGatherNd")
def _gather_nd(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    table, numbers = inputs
    if isinstance(numbers, Entries) and numbers != COUNT:
        if _of_own_rows(p, node.inputs[0], table, numbers):
            return Verdict([VALUES], why="this core's own rows")
        return Verdict([VALUES], {0: REPLICATE, 1: VALUES}, why="places of a table by ragged numbers")
    if isinstance(numbers, Shard) and numbers.axis < factors.rank(node.inputs[1]) - 1:
        return Verdict([numbers], {0: REPLICATE}, why="places of a table by this core's numbers")
    if table == SUM and isinstance(numbers, Replicate):
        return Verdict([SUM], why="linear in a partial sum")
    return p.replicate_operands(node, inputs, "picks places of the whole batch")


@rule("ScatterNd")
def _scatter_nd(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """A scatter by global row numbers gives a partial sum."""
    numbers, updates = inputs[0], inputs[1]
    if not isinstance(inputs[2], Replicate):
        return p.replicate_operands(node, inputs, "puts values where all cores together say")
    depth = factors.rank(node.inputs[0]) - 1
    rows = next((s for s in (numbers, updates) if isinstance(s, Shard)), None)
    if rows is not None and rows.axis < depth:
        return Verdict([SUM], {0: rows, 1: rows}, why="adds rows up at places")
    if isinstance(numbers, Entries) and isinstance(updates, Entries) and COUNT not in (numbers, updates):
        if numbers.role == "local" and _same_rows(p, node, numbers):
            return Verdict([Shard(0)], why="adds up in its own rows")
        return Verdict([SUM], {0: VALUES, 1: VALUES}, why="adds ragged rows up at places")
    if updates == SUM and isinstance(numbers, Replicate):
        return Verdict([SUM], why="linear in a partial sum")
    return p.replicate_operands(node, inputs, "puts values at places of the whole batch")


def _same_rows(p: Placing, node: Node, numbers: Entries) -> bool:
    """Whether the output has the same rows as the tensor that the indices point into."""
    found = p.graph.tensor(numbers.of)
    rows = size_of(found, 0)
    return p.read(found) == Shard(0) and rows is not None and rows == size_of(node.out(), 0)


@rule(" ".join(ops.UNSORTED_SEGMENTS))
def _segments(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    numbers = inputs[1]
    if not isinstance(inputs[2], Replicate):
        return p.replicate_operands(node, inputs, "adds up at as many places as all cores together have")
    if isinstance(inputs[0], Shard) and size_of(node.out(), 0) is None:  # XLA reduces no tensor of unknown size
        return p.replicate_operands(node, inputs, "adds up at as many places as data say, at most one for each row")
    ragged = isinstance(inputs[0], Entries)
    if ragged and isinstance(numbers, Entries) and numbers.role == "local" and _same_rows(p, node, numbers):
        return Verdict([Shard(0)], why="adds up in its own rows")
    return by_signature(p, node, inputs)

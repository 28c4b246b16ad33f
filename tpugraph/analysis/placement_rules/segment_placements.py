"""How sums over segments are partitioned, whose numbers stand beside the values in any order."""

from __future__ import annotations

from tpugraph.analysis.placement_rules.entry_placements import numbered, places_of
from tpugraph.analysis.placement_rules.factor_placements import by_signature
from tpugraph.analysis.placement_rules.flattened_rows import found_there, laid_by
from tpugraph.analysis.placements import REPLICATE, SUM, Entries, Partial, Placement, Replicate, Shard
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.ir import Node


@rule("UnsortedSegmentSum")
def _unsorted_segment_sum(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    data, ids, count = inputs
    if isinstance(ids, Replicate) and isinstance(data, Replicate | Partial):
        return Verdict([data]) if data in (SUM, REPLICATE) else Verdict([REPLICATE], {0: REPLICATE})
    ranks = p.rank(node.inputs[1])
    if isinstance(ids, Replicate) and isinstance(data, Shard) and data.axis >= ranks:
        wants: dict[int, Placement] = {0: data.plain()} if data.shift else {}
        return Verdict([data.plain().at(data.axis - ranks + 1)], wants, why="rows stay rows")
    if isinstance(ids, Replicate):
        return p.everywhere(node, inputs, "adds rows up at numbers of the whole batch")
    if isinstance(ids, Entries) and ids.role == "local" and (found := _in_own_rows(p, node, inputs, ids)):
        return found
    if isinstance(ids, Shard) and isinstance(count, Entries):  # as many as all cores have: rows say their numbers
        return p.everywhere(node, inputs, "adds values up at numbers of entries")
    if isinstance(count, Entries) or (isinstance(ids, Entries) and ids.role == "local"):
        wants = {} if isinstance(data, Shard | Entries) else {0: ids}
        return Verdict([Entries("by_id")], wants, why="adds up at places on this core")
    if isinstance(ids, Entries):
        return Verdict([SUM], why="adds the entries up at places")
    if isinstance(ids, Shard):
        return _by_numbers_of_rows(p, node, inputs, ids)
    return p.everywhere(node, inputs, "adds values up at numbers of rows")


def _in_own_rows(p: Placing, node: Node, inputs: list[Placement], ids: Entries) -> Verdict | None:
    """Entries that are added up at their places on this core; None where nothing says what has these places."""
    own_data: dict[int, Placement] = {} if isinstance(inputs[0], Entries) else {0: ids}
    whole = p.dims(node.out())
    own = shard_of(whole, 0) if whole else None
    if own is not None and places_of(p, node.inputs[1], own):
        return Verdict([own], own_data, why="adds up in this core's own rows")
    if own is not None:
        verdict = numbered(p, node, inputs, [1])
        if REPLICATE in verdict.outputs:
            return verdict
        return Verdict([SUM], verdict.wants, why="adds the entries up at places")
    if laid_by(p, node.out()) is None:
        return None
    if found_there(p, node.inputs[1], node.out()):
        return Verdict([Entries("values")], own_data, why="adds up in its own rows")
    return p.everywhere(node, inputs, "adds up at places of other rows")


def _by_numbers_of_rows(p: Placing, node: Node, inputs: list[Placement], ids: Shard) -> Verdict:
    """Rows that are added up by a number that each has."""
    data = inputs[0]
    if not isinstance(data, Shard | Entries):
        if isinstance(data, Replicate):
            return Verdict([SUM], {0: ids.plain()}, why="adds the rows up at places")
        return p.everywhere(node, inputs, "adds values up at numbers of rows")
    if data != ids.plain() and data != ids:
        return p.everywhere(node, inputs, "adds values up at numbers of rows")
    out = p.dims(node.out())
    rows = shard_of(out, 0) if out else None
    if rows is not None and ids.shift == rows.inner:
        return Verdict([rows], why="places in this core's own rows")
    wants: dict[int, Placement] = {1: ids.plain()} if ids.shift else {}
    return Verdict([SUM], wants, why="adds the rows up at places")


@rule("UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd")
def _unsorted_segment_extreme(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Of entries of a core's own rows the extreme in each; of others that in the whole batch."""
    whole = p.dims(node.out())
    own, ids = shard_of(whole, 0) if whole else None, inputs[1]
    if own is None or not isinstance(ids, Entries) or ids.role != "local" or not places_of(p, node.inputs[1], own):
        return by_signature(p, node, inputs)
    return Verdict([own], {} if isinstance(inputs[0], Entries) else {0: ids}, why="the extreme in this core's own rows")

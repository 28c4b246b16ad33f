"""How ops are partitioned that put the places of a block in front of the rows of a batch, or back into the space they are from."""

from __future__ import annotations

import math
from dataclasses import replace

from tpugraph.analysis.dimension_rules.block_ties import block_of
from tpugraph.analysis.placements import SUM, PerCore, Placement, Replicate, Shard
from tpugraph.analysis.placing import Placing, Verdict, rule
from tpugraph.ir import Node


@rule("SpaceToBatch SpaceToBatchND")
def _space_to_batch(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, block = inputs[0], block_of(node)
    if not isinstance(rows, Shard) or block is None or 0 < rows.axis <= len(block):
        return _without_rows(p, node, inputs)
    outer = rows.outer if rows.axis else rows.outer * math.prod(block)
    return _moved(rows, outer)


@rule("BatchToSpace BatchToSpaceND")
def _batch_to_space(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, block = inputs[0], block_of(node)
    if not isinstance(rows, Shard) or block is None or 0 < rows.axis <= len(block):
        return _without_rows(p, node, inputs)
    batches = 1 if rows.axis else math.prod(block)
    if rows.outer % batches:
        return p.everywhere(node, inputs, "takes rows for places of a block")
    return _moved(rows, rows.outer // batches)


def _moved(rows: Shard, outer: int) -> Verdict:
    """The same rows, so many batches of them: one for each place of a block; zeros beside them are no numbers of rows."""
    return Verdict([replace(rows.plain(), outer=outer)], {0: rows.plain()} if rows.shift else {}, why="rows stay rows")


def _without_rows(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The op of what has no rows along the first dimension, or has them in space: linear, as zeros are what it adds."""
    linear = isinstance(inputs[0], Replicate | PerCore) or inputs[0] == SUM
    if linear and all(isinstance(placement, Replicate) for placement in inputs[1:]):
        return Verdict([inputs[0]], why="the same elements and zeros")
    return p.everywhere(node, inputs, "moves rows between space and batch")

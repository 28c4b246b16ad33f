"""How ops are partitioned that make as many rows as data say: each core makes those of its own rows, in order."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, Entries, Placement, Shard
from tpugraph.ir import Node
from tpugraph.spmd import factors
from tpugraph.spmd.placing import VALUES, Placing, Verdict, rule


@rule("Where")
def _where(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Local coordinates of true elements; with the core's first row added they are global."""
    if inputs[0] == Shard(0) or inputs[0] == VALUES:
        return Verdict([Entries("local", str(node.inputs[0]))], why="places of this core's own rows")
    return p.replicate_operands(node, inputs, "finds places in the whole batch")


@rule(" ".join(ops.PARTITIONS))
def _partition(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    data, which = inputs
    if which in (Shard(0), VALUES) and factors.rank(node.inputs[1]) == 1:
        wants: dict[int, Placement] = {}
        if data != which:
            if isinstance(which, Entries) and not isinstance(data, Entries):
                return p.replicate_operands(node, inputs, "parts ragged rows of all cores")
            wants[0] = which
        return Verdict([VALUES] * len(node.outputs or ()), wants, why="ragged rows of this core")
    return p.replicate_operands(node, inputs, "parts rows of the whole batch")


@rule(" ".join(ops.UNIQUE))
def _unique(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """tf.unique over the all-gathered values on every core; the core keeps the indices of its own rows."""
    wants: dict[int, Placement] = {} if inputs[0] == REPLICATE else {0: REPLICATE}
    count = len(node.outputs or ())
    if isinstance(inputs[0], Shard) and inputs[0] == Shard(0):
        return Verdict(
            [REPLICATE, Shard(0), *[REPLICATE] * (count - 2)], wants, why="distinct values of all cores", cuts=(1,)
        )
    return Verdict([REPLICATE] * count, wants, why="distinct values of all cores")

"""Partition rules of ragged rows, whose number depends on the data, and of the sizes that count them.

Each core computes the ragged rows of its own rows, in order. A size used in arithmetic is that of the whole batch; one that
only shapes tensors counts this core's ragged rows.
"""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, Entries, Placement, Replicate, Shard
from tpugraph.analysis.values import integers, known_vector
from tpugraph.ir import Node
from tpugraph.spmd import factors
from tpugraph.spmd.placing import COUNT, VALUES, Placing, Verdict, rule, whole
from tpugraph.spmd.rules.signature import by_signature, holds_entries


@rule("Where")
def _where(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Local coordinates of true elements; the core's first row is added to make them global."""
    if inputs[0] == Shard(0) or inputs[0] == VALUES:
        return Verdict([Entries("local", str(node.inputs[0]))], why="places of this core's own rows")
    return p.replicate_operands(node, inputs, "finds places in the whole batch")


@rule(" ".join(ops.PARTITIONS))
def _partition(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    data, which = inputs
    if which in (Shard(0), VALUES) and factors.rank(node.inputs[1]) == 1:
        if isinstance(which, Entries) and not isinstance(data, Entries):
            return p.replicate_operands(node, inputs, "parts ragged rows of all cores")
        return Verdict([VALUES] * len(node.outputs or ()), {0: which}, why="ragged rows of this core")
    return p.replicate_operands(node, inputs, "parts rows of the whole batch")


@rule(" ".join(ops.UNIQUE))
def _unique(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Unique over the all-gathered values on every core; each core keeps the indices of its own rows."""
    verdict = p.replicate_operands(node, inputs, "distinct values of all cores")
    if inputs[0] == Shard(0):
        verdict.outputs = [REPLICATE, Shard(0), *verdict.outputs[2:]]
        verdict.cuts = (1,)
    return verdict


@rule(" ".join(ops.SHAPES | ops.SIZES))
def _shape(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([COUNT if holds_entries(s) else REPLICATE for s in inputs], why="the shape of the whole batch")


@rule(" ".join(ops.EXPANSIONS | ops.SQUEEZES | ops.CASTS | ops.PACKS | ops.reducing("prod")))
def _counted(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The count of this core's ragged rows, or a shape that starts with it."""
    others = all(isinstance(s, Replicate) for s in inputs[1:])
    if inputs[0] == COUNT and others and factors.rank(node.out()) < 2 and not node.out().dtype.floating:
        return Verdict([COUNT], why="a size of ragged rows")
    return by_signature(p, node, inputs)


@rule("BroadcastGradientArgs BroadcastArgs")
def _broadcast(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """A core's count of ragged rows is summed over the cores where the other shape has a global size there."""
    sizes = [known_vector(tensor) or [None] for tensor in node.inputs]
    ranks = [len(size) for size in sizes]
    alike = ranks[0] == ranks[1] and any(s == REPLICATE and size[0] != 1 for s, size in zip(inputs, sizes, strict=True))
    return Verdict(
        [REPLICATE] * len(node.outputs or ()), whole(inputs) if alike else {}, why="the dimensions that were broadcast"
    )


@rule(" ".join(ops.DYNAMIC_STITCHES))
def _stitch(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The shape of reduced ragged rows, stitched from the operand's sizes and ones."""
    half = len(inputs) // 2
    places = [integers(tensor) for tensor in node.inputs[:half]]
    if COUNT in inputs and None not in places and factors.rank(node.out()) == 1:
        first = [i for i, numbers in enumerate(places) if 0 in (numbers or ())]
        made = inputs[half + first[-1]] if first else REPLICATE
        if all(s in (COUNT, REPLICATE) for s in inputs):
            return Verdict([made], why="a shape that counts ragged rows")
    return by_signature(p, node, inputs)

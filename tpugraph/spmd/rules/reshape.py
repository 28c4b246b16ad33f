"""Partition rules of reshapes, tiles and concatenations, where a dimension may hold several batches in sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, Entries, Placement, Replicate, Shard
from tpugraph.analysis.values import integers, known_vector
from tpugraph.ir import Node
from tpugraph.spmd import factors
from tpugraph.spmd.placing import COUNT, VALUES, Placing, Verdict, rule
from tpugraph.spmd.rules.signature import by_signature, size_of

Dims = Sequence[int | None]


@rule("Reshape")
def _reshape(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows, before = inputs[0], node.inputs[0].shape
    after: Dims | None = node.out().shape
    if inputs[1] == COUNT and isinstance(rows, Entries | Replicate) and len(before or ()) > 0:
        return _ragged(p, node, inputs)
    if not isinstance(inputs[1], Replicate):
        return p.replicate_operands(node, inputs, "reshapes as all cores together say")
    if isinstance(rows, Entries):
        target = known_vector(node.inputs[1])
        if rows == COUNT or (target and target[0] == -1 and _keeps_front(before, after)):
            return Verdict([rows], why="the same elements")
        return p.replicate_operands(node, inputs, "reshapes ragged rows")
    if not isinstance(rows, Shard):
        return Verdict([rows], why="the same elements")
    after = after if after is None or None not in after else _completed(after, known_vector(node.inputs[1]))
    if before is None:
        found = _broadcast_gradient(p, node.inputs[0].node, after)
    else:
        found = None if after is None else reshaped(before, rows, after, p.cores)
    if found is None:
        return p.replicate_operands(node, inputs, "reshapes rows apart")
    return Verdict([found], why="rows stay rows")


def _completed(after: Dims, target: Dims | None) -> Dims:
    """The output shape of a reshape, completed by its shape operand."""
    if target is None or len(target) != len(after):
        return after
    return [
        told if size is None and told is not None and told >= 0 else size
        for size, told in zip(after, target, strict=True)
    ]


def _broadcast_gradient(p: Placing, sum_: Node, after: Dims | None) -> Shard | None:
    """The sharded dimension of a broadcast operand's gradient, since TensorFlow does not infer the rank of its sum."""
    if not _sums_broadcast(sum_) or after is None:
        return None
    told, rows = sum_.inputs[1], p.read(sum_.inputs[0])
    sizes = [known_vector(tensor) for tensor in told.node.inputs]
    own = sizes[told.port]
    if own is None or None in sizes or not isinstance(rows, Shard):
        return None
    axis = rows.axis - (max(len(size or ()) for size in sizes) - len(own))
    size = after[axis] if 0 <= axis < len(after) else 1
    return None if size is not None and size % p.cores else Shard(axis, rows.outer)


def _ragged(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """A reshape whose target contains this core's count of ragged rows."""
    rows, before, after = inputs[0], node.inputs[0].shape, node.out().shape
    if isinstance(rows, Entries) and (_keeps_front(before, after) or _sums_broadcast(node.inputs[0].node)):
        return Verdict([VALUES if rows.role == "shape" else rows], why="entry by entry")
    return p.replicate_operands(node, inputs, "reshapes ragged rows")


def _sums_broadcast(node: Node) -> bool:
    """Whether a node is the gradient of a broadcast operand, with that operand's rows."""
    return node.op in ops.SUMS and node.inputs[1].node.op in ops.BROADCAST_AXES


def _keeps_front(before: Dims | None, after: Dims | None) -> bool:
    """Whether the unknown dimension 0 keeps its number of elements per row."""
    if not before or not after or None in before[1:] or None in after[1:]:
        return False
    return math.prod(d or 0 for d in before[1:]) == math.prod(d or 0 for d in after[1:])


def reshaped(before: Dims, rows: Shard, after: Dims, cores: int) -> Shard | None:
    """The placement of rows after a reshape; None where no single dimension holds them.

    In row-major order a tensor is ``ahead`` batches, each of ``cores`` equal pieces. The sharded dimension of the result is the
    one whose strides match the pieces.
    """
    kept = tuple(before[: rows.axis + 1])
    if kept == tuple(after[: rows.axis + 1]) and None not in kept:
        return rows
    ahead = _product(before[: rows.axis])
    if ahead is None:
        return None
    ahead *= rows.outer
    place: int | None = 1
    for axis, size in enumerate(after):
        if place is None or ahead % place:
            return None
        outer = ahead // place
        if size is None:
            return Shard(axis, outer) if outer == 1 and _trailing_divides(before, rows, after, axis) else None
        if size and size % (outer * cores) == 0:
            return Shard(axis, outer)
        place *= size
    return None


def _trailing_divides(before: Dims, rows: Shard, after: Dims, axis: int) -> bool:
    """Whether the elements behind a core's sharded dimension are a multiple of the unknown dimension's."""
    needed = _product(after[axis + 1 :])
    known = math.prod(size for size in before[rows.axis + 1 :] if size)
    return needed is not None and needed > 0 and known % needed == 0


def _product(sizes: Dims) -> int | None:
    return None if None in sizes else math.prod(size or 0 for size in sizes)


def block(rows: Shard, size: int | None) -> int | None:
    """The size of one batch along a dimension of ``size`` elements."""
    return None if size is None else size // rows.outer


@rule(" ".join(ops.CONCATS))
def _concat(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    record = ops.record(node.op)
    data = record.data_operands(len(inputs))
    axes = integers(node.inputs[(record.axis or 0) % len(inputs)])
    place = None if axes is None else axes[0] % max(factors.rank(node.inputs[data[0]]), 1)
    first = next((inputs[i] for i in data if isinstance(inputs[i], Shard)), None)
    if isinstance(first, Shard) and first.axis == place:
        return _concatenated(p, node, inputs, data, first)
    if any(inputs[i] == COUNT for i in data):
        first_of, *rest = [i for i in data if node.inputs[i].shape != (0,)]
        alone = not place and inputs[first_of] == COUNT and all(isinstance(inputs[i], Replicate) for i in rest)
        return Verdict([COUNT]) if alone else p.replicate_operands(node, inputs, "joins sizes of ragged rows")
    return by_signature(p, node, inputs)


def _concatenated(p: Placing, node: Node, inputs: list[Placement], data: Sequence[int], first: Shard) -> Verdict:
    wants: dict[int, Placement] = {}
    long = None
    for i, own in enumerate(inputs):  # the size of a batch is that of the first operand sharded along the dimension
        if isinstance(own, Shard) and own.axis == first.axis:
            long = long or block(own, size_of(node.inputs[i], first.axis))
    outer = 0
    for i in data:
        size = size_of(node.inputs[i], first.axis)
        if not long or size is None or size % long:
            return p.replicate_operands(node, inputs, "joins rows with others along their dimension")
        wants[i] = Shard(first.axis, size // long)
        outer += size // long
    return Verdict([Shard(first.axis, outer)], wants, why="whole batches one behind the other")


@rule(" ".join(ops.SPLITS))
def _split(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    record = ops.record(node.op)
    (source,) = record.data_operands(len(inputs))
    rows, axes = inputs[source], integers(node.inputs[(record.axis or 0) % len(inputs)])
    if isinstance(rows, Shard) and axes is not None and axes[0] % factors.rank(node.inputs[source]) == rows.axis:
        long = block(rows, size_of(node.inputs[source], rows.axis))
        sizes = [size_of(node.out(port), rows.axis) for port in range(len(node.outputs or ()))]
        if long and all(size and size % long == 0 for size in sizes):
            return Verdict([Shard(rows.axis, (size or 0) // long) for size in sizes], why="whole batches")
        return p.replicate_operands(node, inputs, "splits rows of the batch")
    return by_signature(p, node, inputs)


@rule("Tile")
def _tile(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows = inputs[0]
    if isinstance(rows, Shard) and isinstance(inputs[1], Replicate):
        times = integers(node.inputs[1])
        if times is not None and times[rows.axis] > 1:
            return Verdict([replace(rows, outer=rows.outer * times[rows.axis])], why="the batch several times over")
    if inputs[1] == COUNT:
        return Verdict([VALUES], {0: REPLICATE}, why="repeated for each ragged row")
    return by_signature(p, node, inputs)


@rule("Fill")
def _fill(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if inputs[0] == COUNT:
        return Verdict([VALUES], {1: REPLICATE}, why="one for each ragged row")
    if not isinstance(inputs[0], Replicate):
        return p.replicate_operands(node, inputs, "fills as all cores together say")
    made = REPLICATE if isinstance(inputs[1], Shard | Entries) else inputs[1]
    return Verdict([made], {1: made}, why="the same elements")


@rule("BroadcastTo")
def _broadcast(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if inputs[1] == COUNT:
        source = node.inputs[0]
        if (
            isinstance(inputs[0], Replicate)
            and factors.rank(source) == factors.rank(node.out())
            and size_of(source, 0) != 1
        ):
            return p.replicate_operands(node, inputs, "repeats as many rows as all cores have")
        wanted = inputs[0] if isinstance(inputs[0], Entries) else REPLICATE
        return Verdict([VALUES], {0: wanted}, why="repeated for each ragged row")
    return by_signature(p, node, inputs)


@rule("SpaceToBatch SpaceToBatchND BatchToSpace BatchToSpaceND")
def _block(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Block positions come before the batch dimension, so the result holds one batch per position."""
    rows, sides = inputs[0], block_of(node)
    if not isinstance(rows, Shard) or rows.axis or sides is None:
        return p.replicate_operands(node, inputs, "moves rows between space and batch")
    to_batch = node.op.startswith("Space")
    places = math.prod(sides)
    if not to_batch and rows.outer % places:
        return p.replicate_operands(node, inputs, "takes rows for places of a block")
    return Verdict([Shard(0, rows.outer * places if to_batch else rows.outer // places)], why="rows stay rows")


def block_of(node: Node) -> list[int] | None:
    side = node.attr("block_size", None)
    return [int(side)] * 2 if side is not None else integers(node.inputs[1])

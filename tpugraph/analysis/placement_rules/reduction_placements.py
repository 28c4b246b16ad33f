"""How reductions and normalisations are partitioned."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placement_rules.factor_placements import batched
from tpugraph.analysis.placements import ONCE, REPLICATE, SUM, Entries, Partial, PerCore, Placement, Replicate, Shard
from tpugraph.analysis.placing import Placing, Verdict, rule
from tpugraph.ir import Node

# --------------------------------------------------------------------------- reductions


@rule("Sum Mean Max Min All Any Prod EuclideanNorm ArgMax ArgMin")
def _reduction(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source, axes, reduce_op = inputs[0], p.d.numbers(node.inputs[1]), ops.record(node.op).reduce_op
    rank = p.rank(node.inputs[0])
    if isinstance(source, PerCore):
        return Verdict([source])
    gone = None if axes is None or not rank else {a % rank for a in axes}
    if isinstance(source, Shard | Entries):
        axis = source.axis if isinstance(source, Shard) else 0
        if gone is None and axes is None:
            return p.everywhere(node, inputs, "reduces over dimensions that are not known")
        if axis in (gone or ()):
            return _over_the_batch(p, node, inputs)
        wants: dict[int, Placement] = {}
        if isinstance(source, Entries):
            return Verdict([source])
        if source.shift and reduce_op not in ("max", "min"):
            wants[0] = source.plain()
        keep = bool(node.attr("keep_dims", False))
        left = axis if keep else axis - sum(1 for a in gone or () if a < axis)
        return Verdict([source.plain().at(left)], wants, why="reduces within each row")
    if source == SUM and reduce_op in ("sum", "mean"):
        return Verdict([SUM], why="linear in a part of a sum")
    if reduce_op in ("max", "min") and source == Partial(reduce_op):
        return Verdict([source], why="the largest of the largest")
    wants = {} if isinstance(source, Replicate) else {0: REPLICATE}
    return Verdict([REPLICATE], wants, why="reads whole values")


def _over_the_batch(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source, reduce_op = inputs[0], ops.record(node.op).reduce_op
    wants: dict[int, Placement] = {}
    if isinstance(source, Shard) and source.shift:
        wants[0] = source.plain()
    if isinstance(source, Entries) and source.role in ONCE and reduce_op not in _EXTREMES:
        return Verdict([REPLICATE], {0: REPLICATE}, why=_ONCE_OF_ALL)
    if reduce_op == "sum":
        return Verdict([SUM], wants, why="sums over the rows")
    if reduce_op == "mean" and isinstance(source, Shard | Entries):
        return Verdict([SUM], wants, averaged=(0,), why="a mean over the rows: the mean over the cores of theirs")
    if reduce_op in ("max", "any"):
        return Verdict([Partial("max")], wants, why="the largest of the rows")
    if reduce_op in ("min", "all"):
        return Verdict([Partial("min")], wants, why="the smallest of the rows")
    return Verdict([REPLICATE], {0: REPLICATE}, why="takes all rows together")


_EXTREMES = ("max", "min", "any", "all")
"""Reductions that are the same however often an element stands among the operands."""

_ONCE_OF_ALL = "takes together what belongs to distinct values, each once of all cores"


@rule("L2Loss")
def _l2_loss(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if isinstance(inputs[0], Entries) and inputs[0].role in ONCE:
        return Verdict([REPLICATE], {0: REPLICATE}, why=_ONCE_OF_ALL)
    if isinstance(inputs[0], Shard | Entries):
        return Verdict([SUM], why="sums over the rows")
    return Verdict([REPLICATE], {} if isinstance(inputs[0], Replicate) else {0: REPLICATE}, why="reads whole values")


@rule("Cumsum Cumprod CumulativeLogsumexp ReverseV2 Roll")
def _along(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source = inputs[0]
    record = ops.record(node.op)
    axes = p.d.numbers(node.inputs[record.axis or 0])
    rank = p.rank(node.inputs[0])
    if isinstance(source, Shard) and axes is not None and source.axis not in {a % rank for a in axes}:
        return Verdict([source.plain()], {} if not source.shift else {0: source.plain()}, why="within each row")
    if source == SUM and record.linear:
        return Verdict([SUM], why="linear in a part of a sum")
    return p.everywhere(node, inputs, "takes all rows together")


@rule("ReverseSequence")
def _reverse_sequence(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source, batch = inputs[0], int(node.attr("batch_dim", 0))
    if isinstance(source, Shard) and source.axis == batch:
        wants: dict[int, Placement] = {} if inputs[1] == source.at(0) else {1: source.at(0)}
        return Verdict([source], wants, why="row by row")
    return p.everywhere(node, inputs, "turns sequences round along the batch")


# --------------------------------------------------------------------------- batch normalisation


def _in_channels(p: Placing, node: Node, inputs: list[Placement]) -> Verdict | None:
    """Rows that lie along the channels, as of a layer norm, are normalised apart and have scales of their own."""
    signature = p.d.signature(node)
    if signature is None:
        return None
    along = {i: tokens.index("c") for i, tokens in enumerate(signature.inputs) if tokens is not None}
    rows = next((s.plain() for i, s in enumerate(inputs) if isinstance(s, Shard) and s.axis == along.get(i)), None)
    if rows is None:
        return None
    wants: dict[int, Placement] = {
        i: rows.at(axis) for i, axis in along.items() if inputs[i] != rows.at(axis) and batched(p, node.inputs[i], axis)
    }
    axes = [tokens.index("c") if tokens is not None else None for tokens in signature.outputs]
    made = [REPLICATE if axis is None else rows.at(axis) for axis in axes]
    return Verdict(made, wants, why="each row has channels of its own")


@rule("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def _batch_norm(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    apart = _in_channels(p, node, inputs)
    if apart is not None:
        return apart
    count = len(node.outputs or ())
    rest: dict[int, Placement] = {i: REPLICATE for i, s in enumerate(inputs[1:], 1) if not isinstance(s, Replicate)}
    if not isinstance(inputs[0], Shard):
        return p.everywhere(node, inputs, "normalises by statistics of its operand")
    if not node.attr("is_training", True):
        return Verdict([inputs[0], *[REPLICATE] * (count - 1)], rest, why="row by row")
    if p.policies.get("batch_norm") == "per_core":
        own = PerCore("--batch_norm=per_core")
        return Verdict([inputs[0], *[own] * (count - 1)], rest, why="each core normalises by its own rows")
    return p.everywhere(node, inputs, "normalises by statistics of the whole batch")


@rule("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
def _batch_norm_grad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    apart = _in_channels(p, node, inputs)
    if apart is not None:
        return apart
    count = len(node.outputs or ())
    rows = next((s for s in inputs[:2] if isinstance(s, Shard)), None)
    if rows is None:
        return p.everywhere(node, inputs, "normalises by statistics of its operand")
    if p.policies.get("batch_norm") == "per_core" or not node.attr("is_training", True):
        wants: dict[int, Placement] = {i: rows for i, s in enumerate(inputs[:2]) if s != rows}
        wants |= {2: REPLICATE} if not isinstance(inputs[2], Replicate | PerCore) else {}
        return Verdict([rows, SUM, SUM, *[REPLICATE] * (count - 3)], wants, why="each core normalises by its own rows")
    return p.everywhere(node, inputs, "normalises by statistics of the whole batch")

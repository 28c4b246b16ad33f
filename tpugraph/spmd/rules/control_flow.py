"""Partition rules of control flow and variables: all cores take the same branches and iterations, and write the same values."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, SHARE, SUM, Held, Partial, Placement, Replicate, Shard
from tpugraph.ir import Node
from tpugraph.spmd.placing import COUNT, Placing, Verdict, rule
from tpugraph.spmd.rules.signature import size_of
from tpugraph.spmd.splats import is_zero


@rule(" ".join(ops.IDENTITIES | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION | {"Print"}))
def _forwarded(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    count = len(node.outputs or ())
    outputs = list(inputs) if len(inputs) == count else [inputs[0]] * count
    return Verdict(outputs, why="handed on")


@rule(
    "NoOp ControlTrigger TensorListLength TensorArraySizeV3 TensorListElementShape "
    + " ".join(ops.VARIABLES | ops.READS | ops.RANK_OPS)
)
def _same(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([REPLICATE] * len(node.outputs or ()), why="the same on every core")


@rule(" ".join(ops.WRITES))
def _write(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return p.replicate_operands(node, inputs, "every core writes the same")


@rule(" ".join(ops.LOOP_COND))
def _loop_cond(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return p.replicate_operands(node, inputs, "every core makes the same iterations")


@rule(" ".join(ops.SWITCH))
def _switch(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([inputs[0]] * len(node.outputs or ()), {1: REPLICATE}, why="every core takes the same branch")


_TURNS = 3
"""The number of disagreements that a loop's values may have during propagation; beyond it they would alternate forever."""


@rule(" ".join(ops.MERGE))
def _merge(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Replicated operands are sliced, or made partial, to match shards or partials; incompatible ones are replicated."""
    present = {i: s for i, s in enumerate(inputs) if s is not None}
    others = {s for s in present.values() if not isinstance(s, Replicate)}
    count = len(node.outputs or ())
    if not others:
        return Verdict([REPLICATE] * count, why="the same on every core")
    joined = next(iter(others))
    whole = [i for i, s in present.items() if isinstance(s, Replicate)]
    wants: dict[int, Placement] = {}
    if isinstance(joined, Shard):
        fits = all(size_of(node.inputs[i], joined.axis) != 1 for i in whole)
        wants = dict.fromkeys(whole, joined)
    elif isinstance(joined, Partial):
        fits = True
        wants = {i: SHARE for i in whole if joined == SUM and not is_zero(node.inputs[i])}
    else:
        fits = not whole or isinstance(joined, Held)
    disagrees = len(others) > 1 or not fits
    p.disagreements[node] += disagrees
    if disagrees or p.disagreements[node] > _TURNS:
        return Verdict(
            [REPLICATE] * count, dict.fromkeys(present, REPLICATE), why="merges values with other placements"
        )
    return Verdict([joined, REPLICATE][:count], wants, why="merges")


@rule("Assert")
def _assert(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Each core checks its own rows; a condition that is an "any" over rows is reduced first."""
    combined = inputs[0] == Partial("max") or inputs[0] == COUNT
    return Verdict([], {0: REPLICATE} if combined else {}, why="checks")

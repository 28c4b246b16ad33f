"""How ops are partitioned that hand values on, choose them and bring them together."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placement_rules.factor_placements import aligned, batched, without_rows
from tpugraph.analysis.placements import (
    REPLICATE,
    SHARE,
    SUM,
    Entries,
    Held,
    Partial,
    PerCore,
    Placement,
    Replicate,
    Shard,
    Sized,
    holds_entries,
)
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.ir import Node

# --------------------------------------------------------------------------- handed on


@rule("""Identity StopGradient PreventGradient Snapshot EnsureShape CheckNumerics CheckNumericsV2 RefIdentity Enter RefEnter
    Exit RefExit NextIteration RefNextIteration Print DeepCopy""")
def _same(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([inputs[0]] * len(node.outputs or ()), why="handed on")


@rule("IdentityN")
def _same_n(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict(list(inputs), why="handed on")


@rule("ZerosLike OnesLike")
def _filled_like(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    placement = inputs[0]
    if isinstance(placement, Shard):
        return Verdict([placement.plain()], why="as many rows")
    return Verdict([placement if isinstance(placement, Entries | PerCore) else REPLICATE])


@rule("NoOp ControlTrigger TensorListLength TensorArraySizeV3 TensorListElementShape")
def _the_same(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([REPLICATE] * len(node.outputs or ()))


@rule("BiasAdd BiasAddV1")
def _bias_add(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if isinstance(inputs[0], Shard) or holds_entries(inputs[0]):
        return Verdict([inputs[0]], {} if isinstance(inputs[1], Replicate) else {1: REPLICATE}, why="row by row")
    return without_rows(p, node, inputs, [0, 1], (frozenset({0, 1}),))


@rule("BiasAddGrad")
def _bias_add_grad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if isinstance(inputs[0], Shard):
        channels = 1 if node.attr("data_format", "NHWC") in ("NCHW", b"NCHW") else p.rank(node.inputs[0]) - 1
        if inputs[0].axis == channels:
            return Verdict([inputs[0].at(0)])
        return Verdict([SUM], why="sums over the rows")
    if inputs[0] == Entries("values"):
        return Verdict([SUM], why="sums over the entries")
    return without_rows(p, node, inputs, [0], (frozenset({0}),))


@rule("Select")
def _select(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    condition = inputs[0]
    if p.rank(node.inputs[0]) == 1 and p.rank(node.inputs[1]) > 1:  # one condition for each place of dimension 0
        if isinstance(condition, Shard) or any(isinstance(s, Shard) and s.axis == 0 for s in inputs[1:]):
            rows = next(s for s in inputs if isinstance(s, Shard))
            wants: dict[int, Placement] = {
                i: rows.plain() for i, s in enumerate(inputs) if s != rows.plain() and batched(p, node.inputs[i], 0)
            }
            return Verdict([rows.plain()], wants, why="row by row")
        if not isinstance(condition, Replicate):
            return p.everywhere(node, inputs, "chooses by a condition of all cores")
    return chosen_from(p, node, inputs)


@rule("SelectV2")
def _select_v2(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return chosen_from(p, node, inputs)


def chosen_from(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """A choice by a condition: row by row, or linear in what is chosen from where the condition is the same everywhere."""
    if any(isinstance(s, Shard | Entries | PerCore) for s in inputs):
        return aligned(p, node, inputs, [0, 1, 2], ())
    wants: dict[int, Placement] = {} if isinstance(inputs[0], Replicate) else {0: REPLICATE}
    verdict = without_rows(p, node, [REPLICATE, *inputs[1:]], [1, 2], (frozenset({1, 2}),))
    verdict.wants |= wants
    return verdict


# --------------------------------------------------------------------------- state


@rule("ReadVariableOp VarHandleOp VariableV2 Variable VarIsInitializedOp IsVariableInitialized VariableShape")
def _variable(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([REPLICATE] * len(node.outputs or ()), why="variables are the same on every core")


@rule(" ".join(ops.WRITES))
def _write(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    wants: dict[int, Placement] = {i: REPLICATE for i, s in enumerate(inputs) if not isinstance(s, Replicate | Held)}
    return Verdict([REPLICATE] * len(node.outputs or ()), wants, why="a variable is given the same on every core")


# --------------------------------------------------------------------------- control flow


@rule("LoopCond")
def _loop_cond(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    wants: dict[int, Placement] = {} if isinstance(inputs[0], Replicate) else {0: REPLICATE}
    return Verdict([REPLICATE], wants, why="every core makes as many iterations")


@rule("Switch RefSwitch")
def _switch(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    wants: dict[int, Placement] = {} if isinstance(inputs[1], Replicate) else {1: REPLICATE}
    return Verdict([inputs[0]] * len(node.outputs or ()), wants, why="every core takes the same branch")


@rule("Merge RefMerge")
def _merge(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Values that meet live in one way: what is replicated is sliced, or shared out, to go with the others."""
    present = {i: s for i, s in enumerate(inputs) if s is not None}
    kinds = {s for i, s in present.items() if not (p.is_zero(node.inputs[i]) and isinstance(s, Replicate))}
    whole = {i for i, s in present.items() if isinstance(s, Replicate | Sized)}
    others = {s for s in kinds if not isinstance(s, Replicate | Sized)}
    joined: Placement = REPLICATE
    wants: dict[int, Placement] = {}
    if len(others) > 1 or whole:  # numbers of this core's rows meet others: all of them become those of the whole batch
        wants |= {i: s.plain() for i, s in present.items() if isinstance(s, Shard) and s.shift}
        others = {s.plain() if isinstance(s, Shard) else s for s in others}
    if len(others) == 1:
        joined = next(iter(others))
        for i in whole:
            tensor = node.inputs[i]
            if isinstance(joined, Shard) and batched(p, tensor, joined.axis):
                wants[i] = joined
            elif isinstance(joined, Shard):
                return _all_whole(node, present)
            elif joined == SUM and not p.is_zero(tensor):
                wants[i] = SHARE
            elif isinstance(joined, Partial) and joined != SUM:
                pass  # the largest of all cores' is the same value where all hold it
            elif isinstance(present[i], Sized):
                wants[i] = REPLICATE
    elif len(others) > 1:
        return _all_whole(node, present)
    else:
        wants = {i: REPLICATE for i, s in present.items() if isinstance(s, Sized)}
    return Verdict([joined, REPLICATE][: len(node.outputs or ())], wants, why="meets")


def _all_whole(node: Node, present: dict[int, Placement]) -> Verdict:
    wants: dict[int, Placement] = {i: REPLICATE for i, s in present.items() if not isinstance(s, Replicate)}
    return Verdict([REPLICATE, REPLICATE][: len(node.outputs or ())], wants, why="meets values that live otherwise")


# --------------------------------------------------------------------------- randomness


@rule("""RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal Multinomial RandomGamma RandomPoissonV2
    ParameterizedTruncatedNormal StatefulUniform StatefulStandardNormalV2""")
def _random(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """With a batch dimension each core draws its own rows; without one all cores draw alike."""
    dims = p.dims(node.out()) or []
    for axis in range(len(dims)):
        rows = shard_of(dims, axis)
        if rows is not None:
            wants: dict[int, Placement] = {}
            return Verdict([rows], wants, why="each core draws its own rows")
    wants = {i: REPLICATE for i, s in enumerate(inputs) if not isinstance(s, Replicate | Sized)}
    return Verdict([REPLICATE], wants, why="all cores draw alike")


@rule("RandomShuffle")
def _shuffle(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return p.everywhere(node, inputs, "takes all rows together")


@rule(" ".join(ops.CANDIDATE_SAMPLERS))
def _sampler(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """All cores draw the same candidates; of its own labels each core is told how often they are expected."""
    true = inputs[0]
    return Verdict([REPLICATE, true if isinstance(true, Shard) else REPLICATE, REPLICATE], why="all cores draw alike")

"""Partition by signature: an output that carries the sharded factor is sharded; one that lacks it is a partial reduction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpugraph import ops
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
)
from tpugraph.analysis.signatures import WHOLE, Factors, Signature
from tpugraph.ir import Node, Tensor
from tpugraph.spmd import factors
from tpugraph.spmd.placing import RULES, VALUES, Placing, Verdict, rule
from tpugraph.spmd.splats import is_zero

_REDUCED = {
    "sum": SUM, "mean": SUM, "max": Partial("max"), "any": Partial("max"), "min": Partial("min"), "all": Partial("min")
}  # fmt: skip
"""The placement of a reduction over rows, by reduction op."""
_EXTREMES: dict[Callable[..., Any] | None, Partial] = {np.maximum: Partial("max"), np.minimum: Partial("min")}


_WHOLE = {Replicate, Held}


def has_rule(op: str) -> bool:
    """Whether an op type has a partition rule: one of its own, or a signature."""
    return op in RULES or ops.record(op).dims is not None


@rule("")
def by_signature(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The default rule of op types."""
    count, kinds = len(node.outputs or ()), {type(placement) for placement in inputs}
    if kinds <= _WHOLE:
        return Verdict([REPLICATE] * count, why="all operands are replicated")
    signature = factors.signature(node)
    if signature is None:
        which = " for such operands" if has_rule(node.op) else ""
        return p.replicate_operands(node, inputs, f"{node.op} has no partition rule{which}")
    if PerCore in kinds:
        return Verdict([next(s for s in inputs if isinstance(s, PerCore))] * count)
    if Shard in kinds:
        found = _along_rows(p, node, inputs, signature)
        if found is not None:
            return found
    elif Entries in kinds and any(holds_entries(s) for s in inputs):
        return _along_entries(p, node, inputs, signature)
    wants: dict[int, Placement] = {i: REPLICATE for i, s in enumerate(inputs) if isinstance(s, Shard | Entries)}
    return without_rows(p, node, inputs, signature.linear, wants, signature.reduce_op)


def _along_rows(p: Placing, node: Node, inputs: list[Placement], signature: Signature) -> Verdict | None:
    """The verdict for an operand that is sharded along a factor; None where none is."""
    chosen = _rows(inputs, signature.inputs)
    if chosen is None:
        return None
    letter, rows = chosen
    wants: dict[int, Placement] = {}
    for i, (placement, named) in enumerate(zip(inputs, signature.inputs, strict=True)):
        axis = named.index(letter) if named is not None and letter in named else None
        if isinstance(placement, Entries):
            return p.replicate_operands(node, inputs, "rows meet ragged rows")
        if axis is None or size_of(node.inputs[i], axis) == 1:
            wanted: Placement = REPLICATE
        elif size_of(node.inputs[i], axis) is None and isinstance(placement, Replicate):
            return p.replicate_operands(node, inputs, "rows meet an operand with one row, or all, as data say")
        else:
            wanted = rows.at(axis)
        if not isinstance(placement, Held):
            wants[i] = wanted
    lacking = _lacking(signature, letter)
    reduced = _REDUCED.get(signature.reduce_op or "")
    if lacking and reduced is None:
        return p.replicate_operands(node, inputs, "takes all rows together")
    made = [reduced if port in lacking else rows.at((named or ()).index(letter))
            for port, named in enumerate(signature.outputs)]  # fmt: skip
    averaged = lacking if signature.reduce_op == "mean" else ()
    return Verdict(made, wants, averaged, "reduces over the rows" if lacking else "row by row")


def _lacking(signature: Signature, letter: str) -> tuple[int, ...]:
    """The outputs without a factor: they are reductions over it."""
    return tuple(port for port, named in enumerate(signature.outputs) if named is None or letter not in named)


def _rows(inputs: Sequence[Placement], named: Sequence[Factors]) -> tuple[str, Shard] | None:
    """The factor along which the first such operand is sharded."""
    for placement, letters in zip(inputs, named, strict=True):
        if isinstance(placement, Shard) and letters is not None and placement.axis < len(letters):
            letter = letters[placement.axis]
            if letter != WHOLE:
                return letter, placement.at(placement.axis)
    return None


def size_of(tensor: Tensor, axis: int) -> int | None:
    """The size of a dimension; None where it is unknown."""
    shape = tensor.shape
    return shape[axis] if shape is not None and axis < len(shape) else None


def holds_entries(placement: Placement) -> bool:
    return isinstance(placement, Entries) and placement.role != "shape"


def _along_entries(p: Placing, node: Node, inputs: list[Placement], signature: Signature) -> Verdict:
    """Ragged rows stay ragged where their factor is the leading one everywhere; outputs that lack it are partial reductions."""
    first = next(i for i, s in enumerate(inputs) if holds_entries(s))
    letters = signature.inputs[first]
    letter = letters[0] if letters else WHOLE
    carriers = [i for i, named in enumerate(signature.inputs) if named is not None and letter in named]
    in_front = all(letter not in named[1:] for named in (*signature.inputs, *signature.outputs) if named is not None)
    wide = [i for i in carriers if size_of(node.inputs[i], 0) != 1]
    alone = all(holds_entries(inputs[i]) for i in wide)
    others = all(isinstance(s, Replicate | Partial | Held) for i, s in enumerate(inputs) if i not in wide)
    lacking, reduced = _lacking(signature, letter), _REDUCED.get(signature.reduce_op or "")
    if letter == WHOLE or not (in_front and alone and others) or (lacking and reduced is None):
        return p.replicate_operands(node, inputs, "takes ragged rows of all cores together")
    wants: dict[int, Placement] = dict.fromkeys(wide, VALUES)
    wants |= {i: REPLICATE for i, s in enumerate(inputs) if isinstance(s, Partial)}
    same = node.op in ops.IDENTITIES | ops.CASTS | ops.SQUEEZES | ops.EXPANSIONS  # coordinates stay local to this core
    carrying = inputs[first] if same else VALUES
    made = [reduced if port in lacking else carrying for port in range(len(signature.outputs))]
    averaged = lacking if signature.reduce_op == "mean" else ()
    return Verdict(made, {} if same and not lacking else wants, averaged, why="entry by entry")


def without_rows(
    p: Placing,
    node: Node,
    inputs: list[Placement],
    linear: Sequence[frozenset[int]],
    wants: dict[int, Placement],
    reduce_op: str | None = "sum",
) -> Verdict:
    """The verdict for operands that are replicated or partial."""
    count = len(node.outputs or ())
    parts = [i for i, s in enumerate(inputs) if isinstance(s, Partial) and i not in wants]
    if not parts:
        why = "takes all rows together" if wants else "all operands are replicated"
        return Verdict([REPLICATE] * count, wants, why=why)
    first = inputs[parts[0]]
    extreme = _EXTREMES.get(ops.COMPUTES.get(node.op)) or _REDUCED.get(reduce_op or "")
    alike = all(inputs[i] == first or isinstance(inputs[i], Replicate) for i in range(len(inputs)))
    if first != SUM and first == extreme and alike and not wants:
        return Verdict([first] * count, why="the extreme of extremes")
    summed = [i for i in parts if inputs[i] == SUM] if all(inputs[i] == SUM for i in parts) else []
    kept = max(([i for i in summed if i in together] for together in linear), key=lambda k: _bytes(node, k), default=[])
    wants = wants | dict.fromkeys((i for i in parts if i not in kept), REPLICATE)
    if not kept:
        return Verdict([REPLICATE] * count, wants, why="does not commute with the reduction")
    together = next(s for s in linear if s.issuperset(kept))
    wants |= {i: SHARE for i in together if i not in kept and not is_zero(node.inputs[i])}
    why = "linear in a partial sum" if len(kept) == len(parts) else "linear in one partial sum at a time"
    return Verdict([SUM] * count, wants, why=why)


def _bytes(node: Node, chosen: Sequence[int]) -> int:
    return sum(math.prod(size or 1 for size in node.inputs[i].shape or ()) for i in chosen)


@rule("Select SelectV2")
def _select(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """With a replicated condition, a Select is linear in the operands that it selects from."""
    if isinstance(inputs[0], Partial) and not any(isinstance(s, Shard | Entries) for s in inputs):
        found = by_signature(p, node, [REPLICATE, *inputs[1:]])
        return Verdict(found.outputs, found.wants | {0: REPLICATE}, why=found.why)
    return by_signature(p, node, inputs)

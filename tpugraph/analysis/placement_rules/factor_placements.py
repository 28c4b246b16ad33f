"""How ops are partitioned that their signature describes: element by element, and by factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.placement_rules.entry_placements import COUNTS, entry_by_entry
from tpugraph.analysis.placements import (
    ONCE,
    REPLICATE,
    SHARE,
    SUM,
    Entries,
    Partial,
    PerCore,
    Placement,
    Replicate,
    Shard,
    Sized,
    holds_entries,
)
from tpugraph.analysis.placing import Placing, Verdict, rule
from tpugraph.analysis.sizes import depends_on_data, follows_batch
from tpugraph.ir import Node, Tensor

# --------------------------------------------------------------------------- element by element


Linear = tuple[frozenset[int], ...]
"""The sets of operands in which an op is linear: in those of a set together, while the others are fixed."""

_ADDITIONS = ops.computing(np.add)
_MULTIPLICATIONS = ops.computing(np.multiply)
_EXTREMES: dict[Callable[..., Any] | None, Partial] = {np.maximum: Partial("max"), np.minimum: Partial("min")}
"""What stays the extreme over the cores where such a function is computed of it."""


def aligned(p: Placing, node: Node, inputs: list[Placement], data: Sequence[int], linear: Linear) -> Verdict:
    """An op whose operands ``data`` broadcast together to the output."""
    wants: dict[int, Placement] = {}
    rank = max((p.rank(node.inputs[i]) for i in data), default=0)
    count = len(node.outputs or ())
    rows: Shard | None = None
    entries: Entries | None = None
    for i in data:
        placement = inputs[i]
        if isinstance(placement, Shard):
            rows = rows or placement.at(placement.axis + rank - p.rank(node.inputs[i]))
        elif isinstance(placement, Entries):
            entries = placement if entries is None or entries == COUNTS or placement.role == "values" else entries
    if own := [inputs[i] for i in data if isinstance(inputs[i], PerCore)]:
        return Verdict(own[:1] * count)
    if entries == COUNTS and rows is None and node.outputs and _is_number(node.out()):
        read = {i: REPLICATE for i in data if inputs[i] == entries}  # as a number, not as a size: that of all cores
        found = without_rows(p, node, [read.get(i, s) for i, s in enumerate(inputs)], data, linear)
        return Verdict(found.outputs, {**read, **found.wants}, why=found.why)
    if entries is not None and rows is None:
        return entry_by_entry(p, node, inputs, data, entries)
    if rows is None:
        return without_rows(p, node, inputs, data, linear)
    if any(holds_entries(inputs[i]) for i in data):
        return p.everywhere(node, inputs, "rows of the batch meet its entries")
    if any(_all_or_one(p, inputs[i], node.inputs[i], rows.axis - rank) for i in data):
        return p.everywhere(node, inputs, "rows of the batch meet one row, or all, as data say")
    shift = _shift_after(p, node, inputs, data)
    rows = rows.plain()
    for i in data:
        placement, tensor = inputs[i], node.inputs[i]
        axis = rows.axis - rank + p.rank(tensor)
        if isinstance(placement, Shard):
            if placement.plain().at(rows.axis) != rows or placement.axis != axis:
                wants[i] = rows.at(axis) if batched(p, tensor, axis) else REPLICATE
            elif placement.shift and not shift[0]:
                wants[i] = placement.plain()
        elif isinstance(placement, Entries):
            wants[i] = REPLICATE
        elif batched(p, tensor, axis):
            wants[i] = rows.at(axis)
        elif not isinstance(placement, Replicate):
            wants[i] = REPLICATE
    made = replace(rows, shift=shift[0], along=shift[1]) if shift[0] else rows
    return Verdict([made] * count, wants, why="row by row")


def _all_or_one(p: Placing, placement: Placement, tensor: Tensor, axis: int) -> bool:
    """Whether every core holds a value with a dimension, counted from the last, that data make one place or that of all rows."""
    dims = p.d.dims(tensor) or ()
    return isinstance(placement, Replicate) and -axis <= len(dims) and depends_on_data(dims[axis])


def _is_number(tensor: Tensor) -> bool:
    """Whether what is computed of counts is no count: a number, or what a comparison says."""
    return tensor.dtype.floating or tensor.dtype.name == "bool"


def batched(p: Placing, tensor: Tensor, axis: int) -> bool:
    """Whether a dimension of an operand follows the batch, so that a core reads its own rows of it."""
    dims = p.d.dims(tensor)
    return dims is not None and 0 <= axis < len(dims) and follows_batch(dims[axis])


def _shift_after(
    p: Placing, node: Node, inputs: list[Placement], data: Sequence[int]
) -> tuple[int | tuple[int, ...], int]:
    """The shift of row numbers behind arithmetic on them: they may be cast, scaled, and moved within their row."""
    shifts = [s.shift if isinstance(s, Shard) else 0 for s in (inputs[i] for i in data)]
    first = inputs[data[0]]
    if node.op in ops.CASTS and not node.out().dtype.floating and isinstance(first, Shard):
        return first.shift, first.along
    if len(shifts) != 2 or bool(shifts[0]) == bool(shifts[1]):
        return 0, -1
    shift, other = shifts[0] or shifts[1], data[1 if shifts[0] else 0]
    if not isinstance(shift, int):
        return 0, -1
    if node.op in _ADDITIONS and isinstance(inputs[other], Shard):
        return shift, -1
    factor = p.d.numbers(node.inputs[other]) if node.op in _MULTIPLICATIONS else None
    return (shift * factor[0], -1) if factor is not None and len(factor) == 1 else (0, -1)


def without_rows(p: Placing, node: Node, inputs: list[Placement], data: Sequence[int], linear: Linear) -> Verdict:
    """Operands that are the same on every core, or parts of reductions."""
    count = len(node.outputs or ())
    wants: dict[int, Placement] = {i: REPLICATE for i in data if isinstance(inputs[i], Sized | Entries)}
    parts = [i for i in data if isinstance(inputs[i], Partial)]
    if not parts:
        return Verdict([REPLICATE] * count, wants)
    first = inputs[parts[0]]
    extreme = _EXTREMES.get(ops.COMPUTES.get(node.op))
    if first == extreme and all(inputs[i] == first or isinstance(inputs[i], Replicate) for i in data):
        return Verdict([first] * count, wants, why="the largest of the largest")
    summed = [i for i in parts if inputs[i] == SUM]
    wants |= dict.fromkeys((i for i in parts if inputs[i] != SUM), REPLICATE)
    kept = _kept_together(p, node, summed, linear) if len(summed) == len(parts) else []
    wants |= dict.fromkeys((i for i in summed if i not in kept), REPLICATE)
    if not kept:
        return Verdict([REPLICATE] * count, wants, why="reads whole values")
    together = next(s for s in linear if s.issuperset(kept))
    for i in together:
        if i not in kept and not p.is_zero(node.inputs[i]):
            wants[i] = SHARE  # of a number of rows, too: that of all cores is added once
    return Verdict([SUM] * count, wants, why="linear in a part of a sum")


def _kept_together(p: Placing, node: Node, parts: list[int], linear: Linear) -> list[int]:
    """The partial operands that stay partial: those in which the op is linear together, the most bytes of them."""

    def size(chosen: list[int]) -> int:
        return sum(math.prod(max(p.d.sizes.at(d), 1) for d in p.d.dims(node.inputs[i]) or ()) for i in chosen)

    choices = [[i for i in parts if i in together] for together in linear]
    return max(choices, key=size, default=[])


# --------------------------------------------------------------------------- by factors


@rule("")
def by_signature(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """A letter that all outputs carry keeps rows apart; one that none carries is summed over."""
    signature = p.d.signature(node)
    if signature is None:
        return p.everywhere(node, inputs, f"no rule says how {node.op} treats rows")
    if all(isinstance(placement, Replicate) for placement in inputs):
        return Verdict([REPLICATE] * len(node.outputs or ()))
    if signature.elementwise:
        return aligned(p, node, inputs, [i for i, t in enumerate(signature.inputs) if t is not None], signature.linear)
    per_core = next((placement for placement in inputs if isinstance(placement, PerCore)), None)
    if per_core is not None:
        return Verdict([per_core] * len(node.outputs or ()))
    operands, outputs = _lettered(p, node, signature)
    if not any(isinstance(placement, Shard) for placement in inputs) and any(map(holds_entries, inputs)):
        return _along_entries(p, node, inputs, operands, outputs, signature)
    chosen, wants = _choose(p, node, inputs, operands)
    if chosen is None:
        verdict = without_rows(p, node, [REPLICATE if i in wants else s for i, s in enumerate(inputs)],
                                [i for i, named in enumerate(operands) if named is not None], signature.linear)  # fmt: skip
        verdict.wants = wants | verdict.wants
        return verdict
    letter, rows = chosen
    beside = [(i, n.index(letter) - len(n)) for i, n in enumerate(operands) if n is not None and letter in n]
    if any(_all_or_one(p, inputs[i], node.inputs[i], axis) for i, axis in beside):
        return p.everywhere(node, inputs, "rows of the batch meet one row, or all, as data say")
    for i, (placement, named) in enumerate(zip(inputs, operands, strict=True)):
        if isinstance(placement, Partial):
            wants[i] = REPLICATE
        if named is None or (isinstance(placement, Shard) and i not in wants):
            continue
        if letter in named and batched(p, node.inputs[i], named.index(letter)):
            wants[i] = rows.at(named.index(letter))
    made = [rows.at(named.index(letter)) if named is not None and letter in named else SUM for named in outputs]
    if SUM in made and not signature.sums:
        return p.everywhere(node, inputs, "takes the whole batch together")
    rest = [REPLICATE] * (len(node.outputs or ()) - len(made))
    return Verdict([*made, *rest], wants, why=f"works along the rows of '{letter}'")


def _along_entries(
    p: Placing,
    node: Node,
    inputs: list[Placement],
    operands: Lettered,
    outputs: Lettered,
    signature: signatures.Signature,
) -> Verdict:
    """Entries stay apart where an output carries their letter, and are summed over where it does not."""
    named = {i: letters for i, letters in enumerate(operands) if letters is not None}
    letter = next(letters[0] for i, letters in named.items() if holds_entries(inputs[i]) and letters)
    carried = [i for i, letters in named.items() if letter in letters]
    in_front = all(letter not in letters[1:] for letters in [*named.values(), *(o for o in outputs if o is not None)])
    apart = letter != "*" and in_front and all(holds_entries(inputs[i]) for i in carried)
    sizes = {i for i, letters in enumerate(operands) if letters is None and inputs[i] == Entries("shape")}
    alone = all(isinstance(s, Replicate | Partial | Sized) for i, s in enumerate(inputs) if i not in {*carried, *sizes})
    once = apart and all(inputs[i] in _OF_IDS for i in carried)
    kept = [letters is not None and letter in letters for letters in outputs]
    if not (apart and alone) or (not all(kept) and (once or not signature.sums)):
        return p.everywhere(node, inputs, "takes entries of the whole batch together")
    wants: dict[int, Placement] = {i: REPLICATE for i, s in enumerate(inputs) if isinstance(s, Partial | Sized)}
    entries = Entries("by_id" if once else "values")
    return Verdict([entries if keeps else SUM for keeps in kept], wants, why=f"works along the entries of '{letter}'")


_OF_IDS = [Entries(role) for role in ONCE]

Lettered = list[list[str] | None]
"""Of each tensor the letter of each dimension; None of one that the signature says nothing of."""


def _lettered(p: Placing, node: Node, signature: signatures.Signature) -> tuple[Lettered, Lettered]:
    """The letters of operands and of outputs; dimensions in front that broadcast have letters as well."""
    pairs = list(zip(signature.inputs, node.inputs, strict=False))
    spread = max(
        (p.rank(t) - _tail(tokens) for tokens, t in pairs if tokens is not None and tokens[:1] == ("...",)), default=0
    )
    operands = [None if tokens is None else _letters(tokens, p.rank(t), spread) for tokens, t in pairs]
    operands += [None] * (len(node.inputs) - len(operands))
    outputs: Lettered = []
    for tokens in signature.outputs[: len(node.outputs or ())]:
        lead = spread if tokens is not None and tokens[:1] == ("...",) else 0
        outputs.append(None if tokens is None else _letters(tokens, _tail(tokens) + lead, spread))
    return operands, outputs


def _choose(
    p: Placing, node: Node, inputs: list[Placement], operands: Lettered
) -> tuple[tuple[str, Shard] | None, dict[int, Placement]]:
    """The letter of the rows, that of the first operand that has some, and what is wanted of operands that disagree."""
    wants: dict[int, Placement] = {}
    chosen: tuple[str, Shard] | None = None
    for i, (placement, named) in enumerate(zip(inputs, operands, strict=True)):
        if isinstance(placement, Shard) and named is not None and placement.axis < len(named):
            letter = named[placement.axis]
            if letter == "*" or (chosen is not None and chosen[0] != letter):
                wants[i] = REPLICATE
            elif chosen is None:
                chosen = (letter, placement.plain())
                if placement.shift:
                    wants[i] = placement.plain()
            elif placement.shift or placement.at(0) != chosen[1].at(0):
                wants[i] = chosen[1].at(placement.axis)
        elif isinstance(placement, Shard | Entries) or (
            isinstance(placement, Sized) and not p.is_shape_operand(node, i, placement)
        ):
            wants[i] = REPLICATE
    return chosen, wants


def _tail(tokens: signatures.Tokens) -> int:
    return len(tokens or ()) - ((tokens or ())[:1] == ("...",))


def _letters(tokens: tuple[str, ...], rank: int, spread: int) -> list[str]:
    """A letter for each dimension, ``*`` for one taken whole; those in front that broadcast are numbered from the right."""
    tokens = tuple("*" if signatures.whole(letter) else letter for letter in tokens)
    if tokens[:1] != ("...",):
        return list(tokens)
    tail = list(tokens[1:])
    lead = rank - len(tail)
    return [f"#{spread - lead + i}" for i in range(lead)] + tail

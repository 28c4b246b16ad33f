"""The dimension signature of a node: which dimensions of operands and outputs correspond, by its op's record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tpugraph import ops
from tpugraph.ir import Node
from tpugraph.ops.record import Call, Op

Factors = tuple[str, ...] | None
"""The factor of each dimension, ``*`` for one that the op takes whole; None for a tensor outside of the signature."""

WHOLE = "*"
ASSUMED_RANK = 8
"""The assumed rank of a tensor whose rank TensorFlow does not infer, such as a sparse one."""


@dataclass(frozen=True)
class Signature:
    """The factors of a node's operands and outputs; :mod:`tpugraph.ops.record` explains them.

    ``linear`` has sets of operands: the node is jointly linear in the operands of each set, the others fixed. ``reduce_op``
    combines the slices along a factor that an output lacks; None where nothing does.
    """

    inputs: tuple[Factors, ...]
    outputs: tuple[Factors, ...]
    linear: tuple[frozenset[int], ...]
    reduce_op: str | None = "sum"
    elementwise: bool = False


def call_of(node: Node) -> Call:
    return Call(
        node.attr, tuple(None if t.node.outputs is None or t.shape is None else len(t.shape) for t in node.inputs)
    )


def reduce_op(node: Node) -> str | None:
    """What combines slices; None for a mean of integers, which is rounded and so is no mean of the cores' means."""
    found = ops.record(node.op).reduce_op
    whole = found == "mean" and node.out().dtype.name.startswith(("int", "uint"))
    return None if whole else found


def of(node: Node) -> Signature | None:
    """The signature of a node; None where factors do not describe it, a rank is unknown, or the values of operands matter."""
    record = ops.record(node.op)
    if record.dims is None or (isinstance(record.dims, str) and record.dims in ops.WORDS):
        return None
    call, count, reduces = call_of(node), len(node.outputs or ()), reduce_op(node)
    if callable(record.dims) or callable(record.linear):
        return _numbered(record, call, count, reduces)
    return _fixed(node.op, call.ranks, count, reduces)


@cache
def _fixed(op: str, ranks: tuple[int | None, ...], outputs: int, reduces: str | None) -> Signature | None:
    """The signature of an op type that does not depend on attributes."""
    return _numbered(ops.record(op), Call(lambda name, default: default, ranks), outputs, reduces)


def _numbered(record: Op, call: Call, outputs: int, reduces: str | None) -> Signature | None:
    """``...`` becomes factors numbered from the right, so that dimensions that broadcast together share a factor."""
    found = record.signature(call)
    if found is None:
        return None
    pairs = list(zip(found.operands, call.ranks, strict=False))
    if any(rank is None for text, rank in pairs if text != "-"):
        if len(pairs) > 1 and record.role != "add_n":
            return None
        pairs = [(text, ASSUMED_RANK) for text, _ in pairs]  # all have the same rank
    spreads = [(rank or 0) - len(text.removeprefix("...")) for text, rank in pairs]
    lead = max((spread for spread, (text, _) in zip(spreads, pairs, strict=True) if text.startswith("...")), default=0)
    inputs = [_factors(text, spread, lead) for spread, (text, _) in zip(spreads, pairs, strict=True)]
    inputs += [None] * (len(call.ranks) - len(inputs))
    made = [_factors(text, lead, lead) for text in found.outputs[:outputs]]
    made += [None] * (outputs - len(made))
    together = len(found.outputs) == 1 and {*found.operands, *found.outputs} <= {"...", "-"}
    return Signature(tuple(inputs), tuple(made), record.linear_in(call), reduces, together)


def _factors(text: str, spread: int, lead: int) -> Factors:
    if text == "-":
        return None
    named = [WHOLE if letter.isupper() else letter for letter in text.removeprefix("...")]
    return (*(f"#{i}" for i in range(lead - spread, lead) if text.startswith("...")), *named)

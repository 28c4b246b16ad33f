"""The dimension signature of a node, from its op's record, with one token per dimension."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tpugraph import ops
from tpugraph.ir import Node
from tpugraph.ops.record import Call, Op

Tokens = tuple[str, ...] | None
"""The factors of one operand: letters, ``*`` or capitals, with an optional leading ``...``; None for an operand without data."""


@dataclass(frozen=True)
class Signature:
    """The factors of a node's operands and outputs; :mod:`tpugraph.ops.record` explains the notation.

    ``linear`` has sets of operands: the node is jointly linear in the operands of each set, the others fixed.
    """

    inputs: tuple[Tokens, ...]
    outputs: tuple[Tokens, ...]
    linear: tuple[frozenset[int], ...]
    elementwise: bool


def whole(token: str) -> bool:
    """Whether an op takes a dimension whole: ``*``, or a capital letter, which has the same size everywhere."""
    return token == "*" or token.isupper()


def tail(tokens: tuple[str, ...]) -> int:
    """The number of dimensions outside of ``...``."""
    return len(tokens) - (tokens[:1] == ("...",))


def numbered(tokens: tuple[str, ...], spread: int, lead: int) -> tuple[str, ...]:
    """The factor of each dimension: ``*`` for whole ones, and for ``...`` the last ``spread`` of ``lead`` numbers.

    They count from the right, so that dimensions that broadcast together share a factor.
    """
    named = ["*" if whole(token) else token for token in tokens if token != "..."]
    return (*(f"#{i}" for i in range(lead - spread, lead) if tokens[:1] == ("...",)), *named)


def of(node: Node) -> Signature | None:
    """The signature of a node; None where factors do not describe it."""
    record = ops.record(node.op)
    if record.dims is None or (isinstance(record.dims, str) and record.dims in ops.WORDS):
        return None
    if not callable(record.dims) and not callable(record.linear):
        return _fixed(node.op, len(node.inputs))
    ranks = tuple(None if t.node.outputs is None or t.shape is None else len(t.shape) for t in node.inputs)
    return _computed(record, Call(node.attr, ranks))


@cache
def _fixed(op: str, operands: int) -> Signature | None:
    """The signature of an op type, if it depends on neither attributes nor ranks."""
    return _computed(ops.record(op), Call(lambda name, default: default, (None,) * operands))


def _computed(record: Op, call: Call) -> Signature | None:
    found = record.signature(call)
    if found is None:
        return None
    inputs, outputs = tuple(map(_tokens, found.operands)), tuple(map(_tokens, found.outputs))
    together = all(tokens == ("...",) for tokens in (*inputs, *outputs) if tokens is not None)
    return Signature(inputs, outputs, record.linear_in(call), together and len(outputs) == 1)


def _tokens(text: str) -> Tokens:
    if text == "-":
        return None
    return (*(("...",) if text.startswith("...") else ()), *text.removeprefix("..."))

"""Factors that may be one over the number of rows, as in ``sum * (1 / rows)``: a number without a trace of where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import ahead, back, leading_to_loss
from tpugraph.analysis.sizes import ROWS, Size, follows_batch
from tpugraph.ir import Node, Tensor

_CLOSE = 1e-6
_DIGITS = 2


@dataclass(frozen=True)
class Factor:
    """A constant that multiplies a sum over the batch, or rows that are summed, and is one over a multiple of the rows.

    Attributes:
        node: the multiplication.
        constant: the constant.
        index: the operand of the multiplication that it is.
        divisor: one over it, a whole number.
        counts: whether that is the number of elements or rows that are summed.
        forward: whether the multiplication leads to the loss, and is no part of a gradient.
        odd: whether it has more digits than people write.
    """

    node: Node
    constant: Node
    index: int
    divisor: int
    counts: bool
    forward: bool
    odd: bool

    @property
    def witnesses(self) -> int:
        """How much speaks for it being one over the rows: with all three it is, with none of them it is a number of the model."""
        return self.counts + self.forward + self.odd


def factors(d: Dimensions) -> Iterator[Factor]:
    """The factors of which nothing is said, in the order of the nodes."""
    forward = leading_to_loss(d) if d.rows > 1 else {}
    for node in d.order if d.rows > 1 else ():
        if node.op not in ops.SCALINGS:
            continue
        for index, (number, other) in enumerate((node.inputs[:2], node.inputs[1::-1])):
            divisor = _divisor(d, number)
            if divisor is None:
                continue
            counts = [c for c in _summed(d, node, other, forward) if follows_batch(c)]
            if counts:
                same = any(d.sizes.at(c) == divisor for c in (*counts, ROWS))
                yield Factor(node, number.node, index, divisor, same, node in forward, _is_odd(number.node))


def _divisor(d: Dimensions, number: Tensor) -> int | None:
    """The multiple of the rows that a constant is one over; None of other numbers, and of those that are settled."""
    node = number.node
    if node.op not in ops.CONSTANTS or not number.dtype.floating or d.constants.choice(node.name) is False:
        return None
    value = constant(node)
    factor = float(value.item()) if value.size == 1 else 0.0
    divisor = round(1 / factor) if 0 < factor < 1 else 0
    return divisor if divisor and divisor % d.rows == 0 and abs(factor * divisor - 1) < _CLOSE else None


def _summed(d: Dimensions, node: Node, other: Tensor, forward: Mapping[Node, None]) -> Iterator[Size]:
    """The numbers of elements that what is multiplied was summed over, or is summed over in what leads to the loss."""
    if not d.axes(other):
        yield from back(d, other)
    elif node in forward:
        yield from ahead(d, node, forward)


def _is_odd(node: Node) -> bool:
    """Whether a number has more digits than people write."""
    written = np.format_float_positional(np.float32(constant(node).item()), unique=True)
    return len(written.replace(".", "").strip("0")) > _DIGITS

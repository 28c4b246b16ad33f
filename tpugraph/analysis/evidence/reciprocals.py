"""Numbers without a trace of where they come from, that Python may have made of the rows.

Factors that may be one over them, as in ``sum * (1 / rows)``, divisors that may be one less, as many as pairs, or their root, and
what numbers of rows divide, as in the weights of classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.divisors import unguarded
from tpugraph.analysis.evidence.readings import (
    HALVED,
    ONE_LESS,
    ONE_OVER_ROOT,
    ROOT,
    TIMES_ROWS,
    Reading,
    Step,
    is_odd,
    number_in,
    root_of_rows,
    share_of,
)
from tpugraph.analysis.evidence.summed import LINEAR, ahead, averaged, back, final, leading_to_loss, summed
from tpugraph.analysis.sizes import ROWS, Poly, Size, follows_batch, known, times
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of

_CLOSE = 1e-6


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
            if counts and not _divided_after(d, node, forward):
                same = any(d.sizes.at(c) == divisor for c in (*counts, ROWS))
                yield Factor(node, number.node, index, divisor, same, node in forward, is_odd(number.node))


def _divisor(d: Dimensions, number: Tensor) -> int | None:
    """The multiple of the rows that a constant is one over; None of other numbers, and of those that are settled."""
    node = number.node
    if node.op not in ops.CONSTANTS or not number.dtype.floating or d.constants.choice(node.name) is False:
        return None
    factor = (number_in(node) if constant(node).size == 1 else None) or 0.0
    divisor = round(1 / factor) if 0 < factor < 1 else 0
    return divisor if divisor and divisor % d.rows == 0 and abs(factor * divisor - 1) < _CLOSE else None


def _summed(d: Dimensions, node: Node, other: Tensor, forward: Mapping[Node, None]) -> Iterator[Size]:
    """The numbers of elements that what is multiplied was summed over, or is summed over in what leads to the loss."""
    if not d.axes(other):
        yield from back(d, other)
    elif node in forward:
        yield from ahead(d, node, forward)


def _divided_after(d: Dimensions, node: Node, forward: Mapping[Node, None]) -> bool:
    """Whether what a product is summed to, on the way to the loss, is divided by the number of what is summed: a mean already.

    A factor in front of it that is one over the rows, too, would make a mean of the mean.
    """
    stack, seen = [node], {node}
    divided = False
    while stack and node in forward:
        for use in stack.pop().uses():
            reader = use.node
            if reader in seen or reader not in forward or reader not in d.nodes:
                continue
            seen.add(reader)
            if reader.op in ops.DIVISIONS and use.index == 0:
                by = d.elements(reader.inputs[1])
                if not by or by[0] is None or not follows_batch(by[0]):
                    return False
                divided = True
            elif reader.op in LINEAR | ops.SUMS:
                stack.append(reader)
    return divided


# --------------------------------------------------------------------------- divisors

_SURE = 2
"""Above it few models divide a sum over the batch by one less than the rows unless it is that."""

_ROOTS = ops.computing(np.sqrt)
_SUMS = ops.computing(np.add, np.subtract)


@dataclass(frozen=True)
class MadeNumber:
    """A division by a constant that may be computed of a number of rows, a division of it, or a product.

    Attributes:
        node: the division or product.
        constant: the constant.
        number: what it holds.
        reading: how it is made of a number of rows or elements.
    """

    node: Node
    constant: Node
    number: float
    reading: Reading


def one_less(d: Dimensions) -> Iterator[MadeNumber]:
    """The divisions of a sum over the batch by what may be one less than what is summed, or as many as its pairs."""
    for node, behind, number in _by_constants(d):
        elements = d.elements(behind.out())
        one = elements[0] if elements and len(elements) == 1 else None
        settled = one is not None and isinstance(known(one), Poly) and d.constants.choice(behind.name) is None
        if number < 1 or number != int(number) or settled:
            continue
        found = _reading(d, node, int(number))
        if found is not None:
            yield MadeNumber(node, behind, int(number), found)


def root_divisors(d: Dimensions) -> Iterator[MadeNumber]:
    """The divisions by what may be the root of the rows, of the root of a value and of sums over the batch on the way to the loss.

    Of a deviation it makes the error of a mean.
    """
    forward = leading_to_loss(d) if d.rows > 1 else {}
    for node, behind, number in _by_constants(d):
        reading = root_of_rows(number, d.rows) if behind.out().dtype.floating else None
        if reading is None:
            continue
        over = source_of(node.inputs[0], ops.SAME_NUMBERS | ops.SHAPED_ANEW)
        deviates = over.node.op in _ROOTS and not d.axes(over)
        if deviates or (_is_root(d, reading, ROOT) and _changes_a_sum(d, node, over, forward)):
            yield MadeNumber(node, behind, number, reading)


def root_factors(d: Dimensions) -> Iterator[MadeNumber]:
    """The products of what may be one over the root of the rows, and of sums over the batch on the way to the loss."""
    forward = leading_to_loss(d) if d.rows > 1 else {}
    for node in (node for node in forward if node.op in ops.SCALINGS and node in d.nodes):
        for tensor, other in (node.inputs, node.inputs[::-1]):
            number = number_in(tensor.node) if tensor.node.op in ops.CONSTANTS and tensor.dtype.floating else None
            reading = None if number is None else root_of_rows(number, d.rows)
            if number is None or reading is None or d.constants.choice(tensor.node.name) is False:
                continue
            if _is_root(d, reading, ONE_OVER_ROOT) and _changes_a_sum(d, node, other, forward):
                yield MadeNumber(node, tensor.node, number, reading)


def _is_root(d: Dimensions, reading: Reading, step: Step) -> bool:
    return reading.steps == (step,) and reading.of == d.rows


def _changes_a_sum(d: Dimensions, node: Node, over: Tensor, forward: Mapping[Node, None]) -> bool:
    """Whether what a node divides or multiplies is a sum over the batch, on the way to the loss, and not made a mean after that."""
    if node not in forward or d.axes(over) or _divided_after(d, node, forward):
        return False
    return any(follows_batch(count) for count in back(d, over))


def _by_constants(d: Dimensions) -> Iterator[tuple[Node, Node, float]]:
    """The divisions by a constant that no flag settles as a number of the model, with the constant and what it holds."""
    for node in d.order if d.rows > 1 else ():
        if node.op not in ops.DIVISIONS:
            continue
        behind = source_of(node.inputs[1], ops.IDENTITIES | ops.CASTS).node
        if behind.op in ops.CONSTANTS and d.constants.choice(behind.name) is not False:
            number = number_in(behind)
            if number is not None:
                yield node, behind, number


def _reading(d: Dimensions, node: Node, number: int) -> Reading | None:
    counts, others = _summed_less(d, node.inputs[0])
    for count in (*counts, *([ROWS] if counts else [])):
        size = d.sizes.at(count)
        if number == size - 1 and (number > _SURE or others or _deviates(d, node)):
            return Reading("one less than {}", size, (ONE_LESS,))
        pairs = d.rows * (d.rows - 1)
        if known(count) == times(ROWS, ROWS) and number in (pairs, pairs // 2):
            halved = number < pairs
            words = "the pairs of {} rows" if halved else "the pairs of {} rows in both orders"
            return Reading(words, d.rows, (ONE_LESS, TIMES_ROWS, HALVED) if halved else (ONE_LESS, TIMES_ROWS))
    return None


def _summed_less(d: Dimensions, numerator: Tensor) -> tuple[list[Size], bool]:
    """How many elements a numerator is summed over, the batch among them; and whether it is what the other rows sum to."""
    if not d.axes(numerator):
        return [c for c in back(d, numerator) if follows_batch(final(d, c))], False
    node = source_of(numerator).node
    sums = [t for t in node.inputs if not d.axes(t)] if node.op in _SUMS else []
    return [c for t in sums for c in back(d, t) if follows_batch(final(d, c))], True


def _deviates(d: Dimensions, node: Node) -> bool:
    """Whether what is summed depends on a sum or mean over the batch itself, as squared deviations from the mean do."""
    made = d.graph.ancestors([node.inputs[0].node], data_only=True)
    over_rows = [
        at for at in made if at in d.nodes and at.outputs and (summed(d, at.out()) or averaged(d, at.out())) is not None
    ]
    return len(over_rows) > 1


# --------------------------------------------------------------------------- weights of classes


def shares_of_classes(d: Dimensions) -> Iterator[MadeNumber]:
    """The divisions of what may be the rows over as many classes by numbers of rows, one of each class.

    Of as many classes as rows that is one: the weight of a class is one over how many rows have it, or what it is of the rows.
    """
    for node in d.order if d.rows > 1 else ():
        if node.op not in ops.DIVISIONS or d.axes(node.inputs[1]):
            continue
        behind = source_of(node.inputs[0], ops.IDENTITIES | ops.ENTER | ops.CASTS).node
        number = number_in(behind) if behind.op in ops.CONSTANTS else None
        classes = math.prod(map(d.sizes.at, d.dims(node.inputs[1]) or ())) if number else 1
        if not number or classes < 2 or d.constants.choice(behind.name) is False:
            continue
        divisor = unguarded(node.inputs[1])
        counts = [d.sizes.at(count) for count in back(d, divisor) if follows_batch(count)]
        of = next(
            (c for c in (*counts, *([d.rows] if counts else [])) if abs(number * classes - c) < 10 * _CLOSE * c), None
        )
        if of is not None and (number != 1 or _counts_marks(divisor)):
            yield MadeNumber(node, behind, number, share_of(of, classes))


def _counts_marks(tensor: Tensor) -> bool:
    """Whether what is added up marks which class a row has: few other sums are the rows of each class, and one over them a weight."""
    through = ops.SAME_NUMBERS | ops.SHAPED_ANEW | ops.CASTS | ops.SUMS
    near = reached([tensor.node], lambda at: (t.node for t in at.inputs[:1]) if at.op in through else ())
    return any(at.op in ops.ONE_HOTS | ops.BINS.keys() or at.out().dtype.name == "bool" for at in near)

"""Numbers that constants alone decide, and that may be made of the rows: each with a constant that it is made of.

A fold, or Python, leaves a number where the rows were: 4, its logarithm, one over it. What is computed of such a number is as much
in doubt, and so is a matrix of them: weights of the rows that add up to one, or what centres them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant_at
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.readings import (
    Reading,
    is_odd,
    number_in,
    root_of_rows,
    share_of_rows,
)
from tpugraph.analysis.evidence.summed import LINEAR, beside_rows, leading_to_loss, spread, summed
from tpugraph.analysis.sizes import follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of
from tpugraph.partition.two_readings import constant_behind, in_doubt_alone

_HANDED_ON = (
    ops.TRANSPOSES | ops.SLICES | ops.CONCATS | ops.PACKS | ops.DIAGONALS | ops.BANDS | ops.PRODUCTS | ops.REDUCTIONS
)  # fmt: skip
"""Ops that put numbers elsewhere, or add up products of them."""

_COMPUTED = ops.ELEMENTWISE | ops.CASTS | ops.IDENTITIES | ops.ENTER | ops.SHAPED_ANEW | ops.SPREADS | _HANDED_ON
"""Ops that make of constants what is as much in doubt as these."""

_PLAIN = (
    ops.SAME_NUMBERS | ops.IDENTITIES | ops.ENTER | ops.SHAPED_ANEW | ops.SPREADS | ops.DIVISIONS | _HANDED_ON
    | ops.computing(np.add, np.subtract, np.multiply, np.maximum, np.minimum)
)  # fmt: skip
"""Those that are computed with numbers of the model as well: of the logarithm of such a number Python makes a constant."""

_LOOKED_BEHIND = ops.SAME_NUMBERS | ops.SHAPED_ANEW | ops.TRANSPOSES

_BITS = float(np.float32(np.log(2)))


@dataclass(frozen=True)
class Doubted:
    """A constant that may be made of the rows.

    Attributes:
        node: the constant.
        number: what it holds.
        reading: how it is made of the rows, if not a multiple of them.
        sure: whether little else has such a number: a whole number that was cast, one with many digits, or one over the rows
            in what has the rows among its dimensions.
    """

    node: Node
    number: float
    reading: Reading | None
    sure: bool


def doubted_numbers(d: Dimensions) -> tuple[dict[Tensor, Doubted], Mapping[Node, None]]:
    """The numbers that are made of constants in doubt, each with one of these, and the nodes that constants alone decide."""
    made: dict[Tensor, Doubted] = {}
    alone: dict[Node, None] = {}
    forward = leading_to_loss(d)
    for node in d.order:
        if node.op in ops.CONSTANTS:
            alone[node] = None
            doubted = _weight(d, node, [node.out()], forward) or _doubted(d, node)
        elif node.op in _COMPUTED and node.inputs and node.outputs and all(t.node in alone for t in node.inputs):
            alone[node] = None
            doubted = _weight(d, node, node.inputs, forward) or _counted(d, node) or _computed(d, node, made)
        else:
            continue
        if doubted is not None:
            made[node.out()] = doubted
    return made, alone


def _computed(d: Dimensions, node: Node, made: Mapping[Tensor, Doubted]) -> Doubted | None:
    """What a number in doubt makes of the output of a node: that is as much in doubt, or more."""
    sizes = ops.record(node.op).size_operands(len(node.inputs))
    found = [made[t] for i, t in enumerate(node.inputs) if t in made and i not in sizes]
    if node.op in _HANDED_ON:  # what says where, or along which dimension, is none of the numbers
        found = [made[t] for t in node.inputs if t in made and t.dtype.floating and t.dtype == node.out().dtype]
    if (
        node.op in ops.ELEMENTWISE
    ):  # the gradient of a mean over features is made of constants alone where the loss is linear
        found = [one for one in found if not any(is_model(d, t, one) for t in node.inputs if made.get(t) is not one)]
    if not found:
        return None
    best = max(found, key=lambda one: one.sure)
    return best if node.op in _PLAIN or best.reading else replace(best, sure=True)


def _weight(d: Dimensions, node: Node, tensors: Iterable[Tensor], forward: Mapping[Node, None]) -> Doubted | None:
    """What makes weights of rows, with the rows among their dimensions: one over their number, or a division by it."""
    rows = [d.sizes.at(size) for size in d.dims(node.out()) or ()] if d.axes(node.out()) else []
    counts = (d.rows, math.prod(rows))
    for tensor in tensors if rows and node.out().dtype.floating else ():
        behind = constant_behind(tensor)
        number = number_in(behind) if behind.op in ops.CONSTANTS else None
        if not number or d.constants.choice(behind.name) is not None or behind.made_by is not None:
            continue
        reading = share_of_rows(number, d.rows)
        if reading is not None and reading.is_one_over() and reading.of in counts:
            return Doubted(behind, number, reading, True)
        divides = number in counts and node.op in ops.DIVISIONS and tensor == node.inputs[1]
        backward = behind in forward and node not in forward  # a gradient divides by what the loss is divided by
        found = Doubted(behind, number, None, True)
        if divides and not backward and in_doubt_alone(d, behind) and not is_model(d, node.inputs[0], found):
            return found
    return None


def _counted(d: Dimensions, node: Node) -> Doubted | None:
    """How many ones are added up: TensorFlow folds what is like the rows to as many ones, and nobody else adds up constants."""
    elements = d.elements(node.out()) if node.op in ops.SUMS else None
    if not elements or len(elements) != 1 or elements[0] is None or d.level(node.inputs[0]) is None:
        return None
    behind = source_of(node.inputs[0], ops.IDENTITIES | ops.CASTS).node
    holder = constant_behind(behind.inputs[0]) if behind.op in ops.FILLS else behind
    sizes = d.dims(node.inputs[0]) or ()
    if holder.op not in ops.CONSTANTS or d.constants.choice(holder.name) is not None or not any(map(d.in_doubt, sizes)):
        return None
    return Doubted(holder, d.sizes.at(elements[0]), None, True)


def one_over_rows(d: Dimensions, tensor: Tensor) -> Doubted | None:
    """A constant that is one over several rows, or over the pairs of them, which a model has as well."""
    node = tensor.node
    number = number_in(node) if node.outputs and constant_at(tensor) is not None and tensor.dtype.floating else None
    reading = None if number is None or d.constants.choice(node.name) is not None else share_of_rows(number, d.rows)
    if number is None or reading is None or number < 0 or not reading.is_one_over():
        return None
    if reading.of not in (d.rows, d.rows**2):
        return None
    return Doubted(node, number, reading, False)


def _doubted(d: Dimensions, node: Node) -> Doubted | None:
    """What is in doubt of a constant of the user's graph; None of one that is settled, or that is not made of the rows."""
    number = number_in(node) if d.constants.choice(node.name) is None and node.made_by is None else None
    if number is None:
        return None
    if in_doubt_alone(d, node):
        return Doubted(node, number, None, not node.out().dtype.floating)
    if any(size is not None and follows_batch(size) for size in d.elements(node.out()) or ()):
        return None  # it was found to count rows: of two rows, two may be the root of twice as many
    if float(np.float32(number)) == _BITS and any(use.node.op in ops.DIVISIONS | ops.SCALINGS for use in node.uses()):
        return None  # what is measured in bits is divided by the logarithm of two
    reading = root_of_rows(number, d.rows) if node.out().dtype.floating else None
    return None if reading is None else Doubted(node, number, reading, is_odd(node))


def is_model(d: Dimensions, tensor: Tensor, doubted: Doubted) -> bool:
    """Whether exactly as many elements that are no rows were added up, or one was spread to as many, right in front of a number.

    A mean over features is divided by their number so, and its gradient; the products of features are by its root.
    """
    if doubted.reading is not None and doubted.reading.of in beside_rows(d, source_of(tensor, _LOOKED_BEHIND).node):
        return True
    near = reached([tensor.node], lambda at: _made_of(d, at))
    added = any(at.op in ops.ADD_N and len(at.inputs) == doubted.number for at in near)
    return added or any(doubted.number in beside_rows(d, at) for at in near if at.op in ops.REDUCTIONS | ops.SPREADS)


def _made_of(d: Dimensions, node: Node) -> Iterator[Node]:
    """The nodes right behind one that computes element by element, or in rows adds up; none behind what adds rows up."""
    if not node.outputs or summed(d, node.out()) is not None or spread(d, node) is not None:
        return
    if node.op in LINEAR or (node.op in ops.ELEMENTWISE and not d.axes(node.out())):
        yield from (t.node for t in node.inputs)

"""Evidence of what counts rows, and of numbers of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.readings import ONE_LESS, Reading, Step
from tpugraph.analysis.evidence.summed import final, root, unsettled
from tpugraph.analysis.size_relations import values
from tpugraph.analysis.sizes import ROWS, Poly, Size, follows_batch, known, times
from tpugraph.analysis.state import additions
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of


def counts_of_rows(d: Dimensions) -> None:
    """What is added to a variable after a tensor with a batch was made, and is the number of its elements, counts them.

    Metrics of TensorFlow 1 do so: the count of a mean waits for the values.
    """
    added = ((node, *addition) for node in d.order for addition in additions(node).items())
    for node, tensor, adding in added:
        elements = d.elements(tensor)
        one = unsettled(elements[0]) if elements and len(elements) == 1 else None
        if one is None:
            continue
        for control in (*node.controls, *adding.controls):
            dims = d.dims(control.out()) if control.outputs else None
            if dims and any(follows_batch(s) for s in dims):
                count = times(*(final(d, s) for s in dims))
                if d.sizes.at(count) == one.value:
                    d.sizes.tie(one, count)
                    d.reasons[one] = f"it is added after '{control.name}', which has as many elements"


def counted_by_shapes(d: Dimensions) -> None:
    """Of one row, an element of a vector that is added to a variable counts rows, where it stands for rows in some shape.

    A vector that is taken apart is the shape of a tensor. Of one without a batch it would add the same number each time.
    """
    added = [(node, tensor) for node in d.order for tensor in additions(node)] if d.ones else []
    for node, tensor in added:
        taken = source_of(tensor, ops.IDENTITIES | ops.CASTS)
        if taken.node.op not in ops.STRIDED_SLICES or taken.node.inputs[0].node.op not in ops.CONSTANTS:
            continue
        elements, vector = d.elements(taken), [e for e in d.elements(taken.node.inputs[0]) or () if e is not None]
        one = unsettled(elements[0]) if elements and len(elements) == 1 else None
        place = next((i for i, e in enumerate(vector) if root(e) is one), None)
        if one is not None and place is not None and d.has_rows_at(place, values(vector, d.sizes)):
            d.sizes.tie(one, ROWS)
            d.reasons[one] = f"'{node.name}' counts what stands at its place in a shape: the rows"


def behind_batches(d: Dimensions) -> None:
    """Numbers, one for each row, that begin at a multiple of the rows begin behind as many batches, as those of a second view do."""
    for node in d.order if d.rows > 1 else ():
        if node.op not in ops.RANGES or not follows_batch((d.dims(node.out()) or (0,))[0]):
            continue
        elements = d.elements(node.inputs[0])
        start = unsettled(elements[0]) if elements else None
        if start is not None and start.value > 0 and start.value % d.rows == 0:
            d.sizes.tie(start, Poly((0, start.value // d.rows)))
            d.reasons[start] = f"'{node.name}' has a number for each row, and begins there"


_REMAINDERS = ops.computing(np.remainder, np.fmod)
_MOVED = _REMAINDERS | ops.computing(np.add, np.subtract, np.minimum, np.maximum, np.less, np.greater_equal, np.equal)
_HANDED_ON = ops.SAME_NUMBERS | ops.SHAPED_ANEW


def row_numbers(d: Dimensions) -> None:
    """A number of rows that numbers of rows are moved by, compared with or divided by is that of the batch."""
    for node in d.order:
        if node.op not in ops.RANGES or not follows_batch((d.dims(node.out()) or (0,))[0]):
            continue
        count = (d.dims(node.out()) or (0,))[0]
        stack, seen = [node], {node}
        numbers = {node}  # the numbers of rows as they are, of which the remainder by their count is nothing
        while stack:
            at = stack.pop()
            for use in at.uses():
                reader = use.node
                if reader in seen or reader not in d.nodes:
                    continue
                seen.add(reader)
                if at in numbers and reader.op in _HANDED_ON:
                    numbers.add(reader)
                remainder = at in numbers and reader.op in _REMAINDERS
                share = at in numbers and reader.op in ops.DIVISIONS and use.index == 0
                if (reader.op in _MOVED or share) and len(reader.inputs) == 2 and not remainder:
                    elements = d.elements(reader.inputs[1 - use.index])
                    one = unsettled(elements[0]) if elements and len(elements) == 1 else None
                    if one is not None and one.value == d.sizes.at(count):
                        d.sizes.tie(one, count)
                        d.reasons[one] = f"numbers of rows meet it in '{reader.name}'"
                if reader.op in _MOVED | _HANDED_ON:
                    stack.append(reader)


def placed_rows(d: Dimensions) -> None:
    """What has as many places as there are rows, and numbers of rows for places, has a place for each row of a batch.

    Were it a number of the model, the numbers of a larger batch would name places that are not there.
    """
    for node in d.order:
        count = (d.dims(node.out()) or (0,))[0] if node.op in ops.RANGES else 0
        first = d.elements(node.inputs[0]) if follows_batch(count) else None
        for reader, column in _placing(d, node) if first == [0] else ():
            made = d.dims(reader.out()) or ()
            one = unsettled(made[column]) if column < len(made) else None
            if one is not None and one.value == d.sizes.at(count):
                d.sizes.tie(one, count)
                d.reasons[one] = f"numbers of rows are places there in '{reader.name}'"


_PLACES = {op: bins.operand for op, bins in ops.BINS.items() if bins.places} | dict.fromkeys(ops.UNSORTED_SEGMENTS, 1)
"""The operand that names a place in the output for each element or row."""


def _placing(d: Dimensions, node: Node) -> list[tuple[Node, int]]:
    """The nodes for which all numbers of a range are places, and along which dimension of their output."""
    found: list[tuple[Node, int]] = []
    stack: list[tuple[Node, int | None]] = [(node, None)]
    seen = {node}
    while stack:
        at, column = stack.pop()
        for use in at.uses():
            reader = use.node
            if reader not in d.nodes:
                continue
            if _PLACES.get(reader.op) == use.index:
                found.append((reader, column or 0))
            if reader in seen or not (_hands_on(d, at, reader, column) or _beside(d, at, column, reader)):
                continue
            seen.add(reader)
            stack.append((reader, use.index if reader.op in ops.PACKS else column))
    return found


_ALL_NUMBERS = ops.SAME_NUMBERS | ops.SHAPED_ANEW | ops.TILES | ops.BROADCASTS
"""Ops whose output holds each number of operand 0."""


def _hands_on(d: Dimensions, at: Node, reader: Node, column: int | None) -> bool:
    """Whether all numbers are handed on; beside others they stay in their column where nothing is shaped anew."""
    if column is not None or reader.op in _ALL_NUMBERS:
        return reader.op in (ops.SAME_NUMBERS if column is not None else _ALL_NUMBERS)
    before, after = ([known(s) for s in d.dims(t) or ()] for t in (at.out(), reader.out()))
    found = [times(*(s for s in sizes if s is not None)) for sizes in (before, after)]
    return (
        reader.op in ops.STRIDED_SLICES and None not in (*before, *after) and found[0] == found[1]
    )  # takes all of them


def _beside(d: Dimensions, at: Node, column: int | None, reader: Node) -> bool:
    """Whether numbers are put beside others, as places along several dimensions are."""
    rank = len(d.dims(at.out()) or ())
    return column is None and reader.op in ops.PACKS and int(reader.attr("axis", 0)) in (rank, -1)


# --------------------------------------------------------------------------- numbers that pick rows

_HALF = Reading("half of {}", 0, (Step("FloorDiv", 2),))
_LAST = Reading("the last of {}", 0, (ONE_LESS,))
_IN_ORDER = ops.ELEMENTWISE | ops.IDENTITIES | ops.SHAPED_ANEW


@dataclass(frozen=True)
class Picked:
    """A number that picks one row.

    Attributes:
        node: the op that picks it, or puts its gradient at its place.
        operand: the operand that holds the number.
        place: its place there.
        rows: of how many rows it is one.
        gradient: whether a gradient is put there.
    """

    node: Node
    operand: Tensor
    place: int
    rows: Size
    gradient: bool = False

    @property
    def behind(self) -> Node:
        """The constant that the number is written in, or the node that makes it."""
        return source_of(self.operand, ops.IDENTITIES | ops.ENTER | ops.CASTS).node

    @property
    def written(self) -> int | None:
        """The number, where it is written in a constant."""
        return int(constant(self.behind).ravel()[self.place]) if self.behind.op in ops.CONSTANTS else None


def picked_rows(d: Dimensions) -> Iterator[Picked]:
    """The numbers that pick single rows of a batch."""
    for node in d.order if d.rows > 1 else ():
        of = node.out() if node.op in ops.SLICE_GRADIENTS else node.inputs[0] if node.inputs else None
        dims = d.dims(of) if of is not None and node.op in _PICKING else None
        if not dims:
            continue
        if node.op not in ops.PICKS:
            found = places(node, len(dims)) if node.has_attr("shrink_axis_mask") else []
            picked = [(axis, place) for axis, made, place in found if axis is not None and made is None]
            yield from (
                Picked(node, node.inputs[1], place, dims[a], of == node.out())
                for a, place in picked
                if follows_batch(dims[a])
            )
            continue
        axis = (d.numbers(node.inputs[2]) or [0])[0] if len(node.inputs) > 2 else 0
        if follows_batch(dims[axis]):
            count = len(d.elements(node.inputs[1]) or ())
            yield from (Picked(node, node.inputs[1], place, dims[axis]) for place in range(count))


_PICKING = ops.STRIDED_SLICES | ops.SLICE_GRADIENTS | ops.PICKS


def picks_of_sorted(d: Dimensions, picked: Picked) -> bool:
    """Whether rows are picked, or a gradient put at their place, that were sorted before: the number says how far it is there."""
    if picked.gradient:
        return True
    start = picked.node.inputs[0].node
    near = reached([start], lambda at: (t.node for t in at.inputs) if at.op in _IN_ORDER else ())
    return any(at.op in ops.TOP_K for at in near)


def reading_of_place(number: int, rows: int) -> Reading | None:
    """How a number of a row is made of the rows: the middle one, or the last; None of another share of them."""
    kind = _HALF if number == rows // 2 else _LAST if number == rows - 1 else None
    return None if kind is None else Reading(kind.words, rows, kind.steps)

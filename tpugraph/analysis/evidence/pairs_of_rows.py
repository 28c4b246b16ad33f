"""Evidence of pairs of rows: each row is repeated as often as there are rows, or picked by the places of a matrix of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimension_rules.slicing_ties import places, step_of_pairs
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import root, unsettled
from tpugraph.analysis.sizes import ROWS, Size, Unknown, add, follows_batch, known, times
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of

# --------------------------------------------------------------------------- lists of pairs


def crossed(d: Dimensions) -> None:
    """Where rows that are repeated one by one meet rows that are repeated as a batch, each row meets each other one."""
    if d.ones:
        return
    ways: dict[Size, list[Dims]] = {}
    for parts, flat in [*d.layouts.values(), *((a, b[0]) for a, b in d.regrouped if len(b) == 1)]:
        if any(known(part) == ROWS for part in parts):
            ways.setdefault(root(flat), []).append(parts)
    for found in ways.values():
        for one in found:
            for other in found if any(map(unsettled, one)) else ():
                _cross(d, one, other)


def _cross(d: Dimensions, one: Dims, other: Dims) -> None:
    """Tie the parts of two ways of counting the same places, where the rows of each meet a number in doubt of the other."""
    first, second = _digits(d, one), _digits(d, other)
    pairs = [(first[stride], second[stride]) for stride in first if stride in second]
    if any(d.sizes.at(x) != d.sizes.at(y) for x, y in pairs) or not len(pairs) == len(first) == len(second):
        return
    if any(None not in (known(x), known(y)) and known(x) != known(y) for x, y in pairs):
        return
    meets = {known(x) == ROWS for x, y in pairs if ROWS in (known(x), known(y)) and (unsettled(x) or unsettled(y))}
    for x, y in pairs if len(meets) == 2 else ():
        d.sizes.tie(x, y)


def _digits(d: Dimensions, parts: Dims) -> dict[int, Size]:
    """The parts that have several places, each by how many places further the next one is in the flat dimension."""
    stride, found = 1, {}
    for part in reversed(parts):
        if d.sizes.at(part) != 1:
            found[stride] = part
        stride *= d.sizes.at(part)
    return found


def repeated(d: Dimensions, node: Node) -> Elements:
    """How often a node repeats rows: the numbers that a tile of rows is told, or by which numbers of rows are divided."""
    if node in d.layouts or (node.op in ops.TILES and d.axes(node.inputs[0])):
        return d.elements(node.inputs[1]) or []
    return []


# --------------------------------------------------------------------------- places among rows


_FLOORED = ops.computing(np.floor_divide)
_REMAINDERS = ops.computing(np.remainder, np.fmod)
_SUMS = ops.computing(np.add)
_SAME_PLACES = ops.SAME_NUMBERS | ops.SHAPED_ANEW | ops.TRANSPOSES | ops.TILES | ops.BROADCASTS


@dataclass(frozen=True)
class PickByNumber:
    """Rows that are picked by their numbers, which go up to a number.

    Attributes:
        node: what picks them.
        made: what makes the numbers.
        count: the number that they go up to.
        rows: how many rows there are to pick from.
    """

    node: Node
    made: Node
    count: Size
    rows: Size


def picked_by_number(d: Dimensions) -> None:
    """Rows that are picked by places among as many as there are rows: those places are numbers of rows of the batch.

    Were it a number of the model, of a larger batch only the first rows would be picked.
    """
    for found in picks_by_number(d) if d.rows > 1 else ():
        one = unsettled(found.count)
        if one is not None and one.value == d.sizes.at(found.rows):
            d.sizes.tie(one, found.rows)
            d.reasons[one] = f"'{found.node.name}' picks rows by the numbers of '{found.made.name}'"


def picks_by_number(d: Dimensions) -> Iterator[PickByNumber]:
    """The rows of the batch that are picked by numbers of which the graph says up to which number they go."""
    for node in d.order:
        for index, rows in _picks(d, node):
            if follows_batch(rows):
                yield from (PickByNumber(node, *found) for found in _counts(d, index, rows))


def _picks(d: Dimensions, node: Node) -> Iterator[tuple[Tensor | tuple[Node, int], Size]]:
    """The numbers that elements are picked by, with the dimension that they are numbers along.

    These are a tensor, or a column of places of what is true.
    """
    if node.op in ops.PICKS:
        named = ops.record(node.op).axis
        table, axis = d.dims(node.inputs[0]), [0] if named is None else d.numbers(node.inputs[named])
        if table and axis:
            yield node.inputs[1], table[axis[0] % len(table)]
    elif node.op in ops.CROPS:
        yield from ((node.inputs[2], images) for images in (d.dims(node.inputs[0]) or ())[:1])
    elif node.op in ops.PICKS_OF_PLACES:
        table, numbers = d.dims(node.inputs[0]) or (), source_of(node.inputs[1], ops.SAME_NUMBERS).node
        if numbers.op in ops.PLACES_OF_TRUE:
            yield from (((numbers, column), size) for column, size in enumerate(table))
        elif numbers.op in ops.PACKS and int(numbers.attr("axis", 0)) in (-1, len(numbers.out().shape or ()) - 1):
            yield from zip(numbers.inputs, table, strict=False)


def _counts(d: Dimensions, index: Tensor | tuple[Node, int], rows: Size) -> Iterator[tuple[Node, Size, Size]]:
    """What makes numbers of rows, the number that they go up to, and how many rows there are."""
    column = _column(index) if isinstance(index, Tensor) else index
    if column is not None:
        dims = d.dims(column[0].inputs[0]) or ()
        yield from ((column[0], size, rows) for size in dims[column[1] : column[1] + 1])
    elif isinstance(index, Tensor):
        made = source_of(index, _SAME_PLACES).node
        limit = _limit(d, made)
        if limit is not None:
            yield made, limit, rows
        elif made.op in _REMAINDERS | _FLOORED:
            yield from ((made, by, rows) for by in _divided(d, made, rows))
        elif made.op in _SUMS:
            yield from ((made, stride, ROWS) for stride in _strides(d, made))


def _divided(d: Dimensions, node: Node, rows: Size) -> Iterator[Size]:
    """Numbers of rows that are what others leave when they are divided; of quotients it is said how often each row is."""
    by, limit = _number(d, node.inputs[1]), _limit(d, source_of(node.inputs[0], _SAME_PLACES).node)
    if by is None or d.sizes.at(by) < 1:
        return
    if node.op in _REMAINDERS:
        yield by
    if limit is None or node in d.layouts:
        return
    count, many = d.sizes.at(limit), d.sizes.at(by)
    if node.op in _FLOORED and count == many * d.sizes.at(rows):
        parts: Dims = (rows, by)
    elif node.op in _REMAINDERS and follows_batch(by) and count > many and count % many == 0:
        parts = (Unknown(count // many), by)
    else:
        return
    d.layouts[node] = (parts, limit)
    d.sizes.product([limit], parts)


def _strides(d: Dimensions, node: Node) -> Iterator[Size]:
    """What numbers are multiplied with before the number of a row is added, where that is as many as there are rows."""
    for numbers, other in (node.inputs, reversed(node.inputs)):
        limit, scaled = _limit(d, source_of(numbers, _SAME_PLACES).node), source_of(other, _SAME_PLACES).node
        if limit is None or d.sizes.at(limit) != d.rows or scaled.op not in ops.SCALINGS:
            continue
        if known(limit) != ROWS:
            yield limit
            continue
        for factor in scaled.inputs:
            stride = _number(d, factor)
            if stride is not None and d.sizes.at(stride) == d.rows:
                yield stride


def _number(d: Dimensions, tensor: Tensor) -> Size | None:
    """The one number that a tensor holds."""
    elements = d.elements(tensor)
    return elements[0] if elements and len(elements) == 1 else None


def _limit(d: Dimensions, node: Node) -> Size | None:
    """Up to which number a node counts from 0 on, one by one; None of others."""
    start, limit, step = (_number(d, t) for t in node.inputs) if node.op in ops.RANGES else (None, None, None)
    if start is None or step is None or d.sizes.at(start) != 0 or d.sizes.at(step) != 1:
        return None
    return limit


def _column(index: Tensor) -> tuple[Node, int] | None:
    """The node that finds the places that are true, where numbers are one of the columns of what it finds."""
    taken = source_of(index, ops.SAME_NUMBERS | ops.SQUEEZES).node
    if taken.op in ops.PLACES_OF_TRUE:
        return (taken, 0) if taken.inputs[0].shape is not None and len(taken.inputs[0].shape) == 1 else None
    if taken.op not in ops.STRIDED_SLICES:
        return None
    found, begin = source_of(taken.inputs[0], ops.SAME_NUMBERS).node, fixed(taken.inputs[1])
    if found.op not in ops.PLACES_OF_TRUE or begin is None:
        return None
    columns = [begin[place] for axis, made, place in places(taken, 2) if axis == 1 and made is None and place >= 0]
    return (found, columns[0]) if columns and columns[0] >= 0 else None


# --------------------------------------------------------------------------- what places among rows name

_KEPT = _SAME_PLACES | ops.INVERSE_ORDERS
"""Ops whose output holds each number of operand 0, or has a place for each."""


def tables_by_place(d: Dimensions) -> None:
    """What has as many places as there are rows, and is read by places among the rows, has one for each row of a batch.

    Were it a number of the model, a row of a larger batch would have a place that is not there.
    """
    for node in d.order:
        made = _places_among_rows(d, node)
        for reader, size in _named_by(d, made[0]) if made is not None else ():
            one = unsettled(size)
            if made is not None and one is not None and one.value == d.sizes.at(made[1]):
                d.sizes.tie(one, made[1])
                d.reasons[one] = f"'{reader.name}' reads it by places among the rows, which '{node.name}' makes"


def _places_among_rows(d: Dimensions, node: Node) -> tuple[Tensor, Size] | None:
    """Where a node makes places among the rows of the batch, its output and how many rows there are; None of other nodes."""
    axes: list[int] | None = [-1] if node.op in ops.TOP_K else None
    if node.op in ops.PLACES_OF_EXTREMES:
        axes = d.numbers(node.inputs[1])
    dims = d.dims(node.inputs[0]) if axes else None
    if not axes or not dims or not follows_batch(dims[axes[0]]):
        return None
    return node.out(1 if node.op in ops.TOP_K else 0), dims[axes[0]]


def _named_by(d: Dimensions, places: Tensor) -> Iterator[tuple[Node, Size | None]]:
    """The nodes that read something by places, or put something there, each with how many places that has."""
    kept = reached(
        [places], lambda t: (use.node.out() for use in t.node.uses(t.port) if not use.index and use.node.op in _KEPT)
    )
    for tensor in kept:
        for reader, index in tensor.node.uses(tensor.port):
            if reader not in d.nodes:
                continue
            if reader.op in ops.UNSORTED_SEGMENTS and index == 1:
                yield from ((reader, size) for size in (d.dims(reader.out()) or ())[:1])
            elif reader.op in ops.ONE_HOTS and index == 0:
                yield from ((reader, size) for size in (d.elements(reader.inputs[1]) or ())[:1])
            elif index == 1:
                yield from ((reader, size) for numbers, size in _picks(d, reader) if numbers == tensor)


# --------------------------------------------------------------------------- columns and diagonals


def columns_of_pairs(d: Dimensions) -> None:
    """What is taken of a list of all pairs of rows, each as many places further as there are rows, is a column of them.

    One place more, and it is their diagonal.
    """
    for node in d.order if d.rows > 1 else ():
        if node.op in ops.STRIDED_SLICES:
            _tie_steps(d, node, d.dims(node.inputs[0]) or ())
        elif node.op in ops.SLICE_GRADIENTS:
            _tie_steps(d, node, d.dims(node.out()) or ())


def _tie_steps(d: Dimensions, node: Node, dims: Dims) -> None:
    for axis, _, place in places(node, len(dims)) if dims else ():
        step = None if axis is None or place < 0 else unsettled(step_of_pairs(d, node, place, dims[axis]))
        if step is not None and known(dims[axis]) == PAIRS:  # type: ignore[index]
            d.sizes.tie(step, ROWS if step.value == d.rows else add(ROWS, 1))


PAIRS = times(ROWS, ROWS)
"""How many pairs of rows there are."""

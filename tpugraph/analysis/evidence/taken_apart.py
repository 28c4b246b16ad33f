"""Evidence of reshapes that leave one dimension open, beside numbers that may be of the rows or of the model."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss, root, unsettled
from tpugraph.analysis.sizes import ROWS, Known, Poly, Size, Unknown, follows_batch, known, times
from tpugraph.ir import Node


def views_taken_apart(d: Dimensions) -> None:
    """The 2 of ``[2, -1, width]`` is a number of the model, where two batches that were joined are reshaped to that.

    It is, whatever number there are: the rows are left open. Of rows that were laid out with another dimension, as steps, it is
    known which of the two comes first.
    """
    laid_out = _laid_out(d)
    for _, whole, number in _parted(d, 1):
        if root(whole) not in laid_out:
            d.sizes.tie(number, number.value)


def left_open_of_several(d: Dimensions) -> None:
    """The 2 of ``[2, -1, width]`` is a number of the model, where nothing says how the rows were laid out.

    Of ``[-1, 2, width]`` nothing says whether it is: the report asks.
    """
    for _, _, number in _parted(d, 1):
        d.sizes.tie(number, number.value)
    laid_out = _laid_out(d)
    d.untold.parted.update({node: None for node, whole, _ in _parted(d, 0) if root(whole) not in laid_out})


def _laid_out(d: Dimensions) -> set[Size]:
    """The sizes that the step put dimensions together to, in a reshape: gradients do so where it took them apart, and say nothing."""
    forward, found = leading_to_loss(d), set[Size]()
    for node in d.of_type(ops.RESHAPES):
        before, made = d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
        fewer = node in forward and 0 < len(made) < len(before)
        if fewer and d.sizes.at(made[0]) != d.sizes.at(before[0]):
            found.add(root(made[0]))
    return found


def _parted(d: Dimensions, opened: int) -> Iterator[tuple[Node, Size, Unknown]]:
    """The reshapes of so many times the rows to a dimension that is left open, and a number, where both may be the rows.

    Args:
        d: the dimensions.
        opened: which of the first two is left open.

    Yields:
        The reshape, what is parted, and the number.
    """
    for node in d.of_type(ops.RESHAPES) if d.rows > 1 else ():
        wanted, before, made = fixed(node.inputs[1]), d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
        if not before or wanted is None or len(wanted) < 2 or len(wanted) != len(made) or wanted[opened] != -1:
            continue
        left, number, whole = d.sizes.at(made[opened]), unsettled(made[1 - opened]), known(before[0])
        if number is None or number.value == 1 or whole is None or whole == ROWS or not _is_of_rows(whole):
            continue
        if left * number.value == d.sizes.at(whole) and not left % d.rows and not number.value % d.rows:
            yield node, before[0], number


def open_beside_rows(d: Dimensions) -> None:
    """What a reshape of rows leaves open, and is as large as data say, is as large as the rows that it meets."""
    for size, rows, _ in d.sizes.beside_open:
        d.sizes.meet_rows(size, rows)


def beside_left_open(d: Dimensions) -> None:
    """A number that is written beside the dimension that a reshape of rows leaves open is one of the model.

    None is a multiple of the rows, and of a batch whose rows the graph knew when it was built none is the half of them.
    """
    for node in d.of_type(ops.RESHAPES) if d.rows > 1 else ():
        wanted, made = fixed(node.inputs[1]), d.dims(node.out())
        if wanted is None or made is None or wanted.count(-1) != 1 or len(wanted) != len(made):
            continue
        whole = [known(size) for size in d.dims(node.inputs[0]) or ()]
        if None in whole or not _is_of_rows(times(*(size for size in whole if size is not None))):
            continue
        for number, size in zip(wanted, made, strict=True):
            one = unsettled(size)
            half = 2 * number == d.rows and not d.constants.opened
            if one is not None and number > 1 and number % d.rows and not half:
                d.sizes.tie(one, number)


def _is_of_rows(size: Known) -> bool:
    """Whether a number of elements is so many times the rows."""
    return isinstance(size, Poly) and len(size.c) == 2 and size.c[0] == 0


def outermost(d: Dimensions) -> None:
    """Of unknown factors of a number of elements that follows the batch, the first one that can be the rows is."""
    for kind, left, right, _ in d.sizes.pending if d.rows > 1 else ():
        for whole, parts in ((left, right), (right, left)) if kind == "product" else ():
            value = known(whole[0]) if len(whole) == 1 else None
            opened = [p for p in parts if known(p) is None and d.sizes.at(p) > 0]
            fits = [p for p in opened if d.sizes.at(p) % d.rows == 0]
            settled = all(isinstance(known(p), int) for p in parts if p not in opened)
            if not isinstance(value, Poly) or value.c[0] or len(value.c) != 2 or not fits or not settled:
                continue
            for part in opened:
                d.sizes.tie(part, Poly((0, d.sizes.at(part) // d.rows)) if part is fits[0] else d.sizes.at(part))
            break


def left_open(d: Dimensions) -> None:
    """The dimension that a reshape of rows leaves open holds the rows, where no other one does.

    So it does where as many times the rows are taken apart, as time in front of the rows is.
    """
    if not d.ones:
        return
    for node in d.of_type(ops.RESHAPES):
        wanted, made = fixed(node.inputs[1]), d.dims(node.out())
        if not wanted or -1 not in wanted or made is None or len(made) != len(wanted) or any(map(follows_batch, made)):
            continue
        size, before, front = made[wanted.index(-1)], d.dims(node.inputs[0]) or (), made[: wanted.index(-1)]
        if not unsettled(size) or d.sizes.at(size) != 1:
            continue
        rows = [s for s in before if follows_batch(s) and d.sizes.at(s) == 1]
        if len(rows) == 1:
            if any(unsettled(s) and d.sizes.at(s) == 1 for s in front):
                d.untold.reshapes[node] = None
            d.sizes.tie(size, rows[0])
        elif not rows and _taken_apart(d, before, front):
            d.sizes.tie(size, ROWS)
            d.sizes.product(before[:1], [*front, size])


def _taken_apart(d: Dimensions, before: Dims, front: Dims) -> bool:
    """Whether the first of some dimensions, as many rows each so many times, is as large as those that a reshape puts in front."""
    whole = known(before[0]) if before else None
    return isinstance(whole, Poly) and d.sizes.at(before[0]) == math.prod(map(d.sizes.at, front)) > 1

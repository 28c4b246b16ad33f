"""Evidence of reshapes that leave one dimension open, beside numbers that may be of the rows or of the model."""

from __future__ import annotations

from collections.abc import Container

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import root, unsettled
from tpugraph.analysis.sizes import ROWS, Known, Poly, Size, known, times


def views_taken_apart(d: Dimensions) -> None:
    """Batches that were put one behind the other are taken apart to a number of the model, each with the rows that are left open.

    Rows that were laid out with another dimension are taken apart as they were put together.
    """
    _taken_apart(d, {root(made[0]) for parts, made in d.regrouped if len(made) == 1 < len(parts)})


def left_open_of_several(d: Dimensions) -> None:
    """Where several dimensions may be the rows, and nothing says how they were put together, the one that is left open is."""
    _taken_apart(d, set())


def _taken_apart(d: Dimensions, put_together: Container[Size]) -> None:
    for node in d.of_type(ops.RESHAPES) if d.rows > 1 else ():
        wanted, before, made = fixed(node.inputs[1]), d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
        if not before or wanted is None or len(made) < 2 or len(wanted) != len(made) or -1 not in wanted[:2]:
            continue
        left, number = made[wanted.index(-1)], unsettled(made[1 - wanted.index(-1)])
        whole = known(before[0])
        if (
            number is None
            or whole is None
            or whole == ROWS
            or not _is_of_rows(whole)
            or root(before[0]) in put_together
        ):
            continue
        parted = d.sizes.at(left) * number.value == d.sizes.at(whole)
        if parted and number.value > 1 and d.sizes.at(left) % d.rows == 0 == number.value % d.rows:
            d.sizes.tie(number, number.value)


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

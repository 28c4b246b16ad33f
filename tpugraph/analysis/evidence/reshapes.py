"""Evidence of reshapes, of slices that follow one another, and of what sizes are computed from."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator

from tpugraph import ops
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import final, leading_to_loss, root, unsettled
from tpugraph.analysis.size_relations import values
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown, divide, follows_batch, known, times


def regrouped(d: Dimensions) -> None:
    """Of the dimensions that one is taken apart into, that one is the batch which keeps the rows apart.

    Dimensions that were put together and are taken apart again as they were are the same ones.
    """
    _as_they_were(d)
    ways = [*d.regrouped, *((after, before) for before, after in d.regrouped)]
    whole = {
        root(made[0]): parts
        for parts, made in [*ways, *(_in_front(d, ways) if d.ones else ())]
        if len(made) == 1 and _parted(parts) and known(made[0]) not in map(known, parts)
    }  # what is all of it, with a 1 beside it, was not put together
    alone = [(a[0], b) for a, b in d.regrouped if len(a) == 1] + [(b[0], a) for a, b in d.regrouped if len(b) == 1]
    alone += [(flat[0], parts) for parts, flat in _in_front(d, ways)] if d.ones else []
    for flat, parts in alone:
        if not any(unsettled(p) for p in parts) or not follows_batch(flat):
            continue
        made = whole.get(root(flat))
        if made is None:
            made = _of_value(d, known(flat), whole)
        if made is None:
            continue
        values = [d.sizes.at(p) for p in parts]
        if values == [d.sizes.at(p) for p in made]:
            if values.count(1) < 2:  # one row is in front in one of them, and behind in another
                d.tie(parts, made)
            continue
        outer, start = 1, 1
        for size in made:
            if follows_batch(size):
                break
            outer *= d.sizes.at(size)
        for part, value in zip(parts, values, strict=True):
            one = unsettled(part)
            if start == outer and one is not None and value % d.rows == 0 and value > 1:
                d.sizes.tie(one, Poly((0, value // d.rows)))
                break
            start *= value


def _in_front(d: Dimensions, ways: list[tuple[Dims, Dims]]) -> Iterator[tuple[Dims, Dims]]:
    """Dimensions in front of others that are put together, or taken apart, where one row may be a 1 in front of these others."""
    for parts, made in ways:
        kept = len(made) - 1
        if 0 < kept < len(parts) - 1 and values(made[1:], d.sizes) == values(parts[-kept:], d.sizes):
            yield parts[:-kept], made[:1]


def computed_shapes(d: Dimensions) -> None:
    """A reshape to numbers that are computed holds as many elements as before."""
    postponed, d.postponed[:] = [*d.postponed], []
    for regroup in postponed:
        regroup()


def kept_apart(d: Dimensions) -> None:
    """Of the dimensions that others become, that one holds the rows in which each row stays as it lies, apart from the others."""
    layouts: dict[object, tuple[int, int]] = {}
    for before, after in d.regrouped if not d.ones else ():
        rows = [place for place, size in enumerate(before) if follows_batch(size)]
        if len(rows) != 1:
            continue
        size = known(before[rows[0]])
        outer, inner = (1, 1) if size == ROWS else layouts.get(root(before[rows[0]]), (0, 0))
        if not outer:
            continue
        outer *= math.prod(map(d.sizes.at, before[: rows[0]]))
        inner *= math.prod(map(d.sizes.at, before[rows[0] + 1 :]))
        found = _places_of_rows(d, after, outer, inner)
        if len(found) != 1:
            continue
        place, layout = found.popitem()
        layouts.setdefault(root(after[place]), layout)
        if unsettled(after[place]):
            d.sizes.tie(after[place], Poly((0, math.prod(layout))))


def _places_of_rows(d: Dimensions, after: Dims, outer: int, inner: int) -> dict[int, tuple[int, int]]:
    """Which dimensions may hold rows of ``inner`` elements, ``outer`` batches one after the other, and how they lie there."""
    found: dict[int, tuple[int, int]] = {}
    for place, size in enumerate(after):
        first = math.prod(map(d.sizes.at, after[:place]))
        last = math.prod(map(d.sizes.at, after[place + 1 :]))
        whole = first and last and not outer % first and not inner % last
        if (
            whole
            and not isinstance(known(size), int)
            and d.sizes.at(size) == d.rows * (outer // first) * (inner // last)
        ):
            found[place] = (outer // first, inner // last)
    return found


def _as_they_were(d: Dimensions) -> None:
    """Several dimensions that were made of several others, and are given their sizes again, as in a gradient."""
    several = [pair for pair in d.regrouped if min(map(len, pair)) > 1]
    ways = [*several, *((after, before) for before, after in several)]
    made_of: dict[tuple[object, ...], list[Dims]] = {}
    for before, after in ways:
        if _parted(before) and _parted(after):
            made_of.setdefault((*map(known, after), *values(before, d.sizes)), []).append(before)
    for before, after in ways:
        if _parted(before) and any(unsettled(size) for size in after):
            found = made_of.get((*map(known, before), *values(after, d.sizes)), [])
            if len({tuple(map(known, dims)) for dims in found}) == 1:
                d.tie(after, found[0])


def _parted(parts: Dims) -> bool:
    """Whether all parts are known, and one of them follows the batch."""
    return all(known(p) is not None for p in parts) and any(follows_batch(p) for p in parts)


def _of_value(d: Dimensions, flat: Size | None, whole: dict[Size, Dims]) -> Dims | None:
    """The one way in which dimensions were put together to a size of that many rows; None where there are several."""
    found = {
        tuple(known(p) for p in parts)
        for parts in whole.values()
        if _parted(parts) and times(*(final(d, p) for p in parts)) == flat
    }
    return found.pop() if len(found) == 1 else None  # type: ignore[return-value]


def adjacent(d: Dimensions) -> None:
    """A list that is taken apart: where the first slice of it ends, the next one begins."""
    for node in d.order:
        begin, dims = (d.elements(node.inputs[1]), d.dims(node.out())) if node.op in ops.PLAIN_SLICES else (None, None)
        if begin is None or dims is None or len(begin) != len(dims):
            continue
        for use in node.inputs[0].node.uses(node.inputs[0].port):
            after = d.elements(use.node.inputs[1]) if use.node.op in ops.PLAIN_SLICES and use.node is not node else None
            for axis, start in enumerate(after or ()):
                ends_there = begin[axis] == 0 and start is not None and d.sizes.at(start) == d.sizes.at(dims[axis])
                if ends_there and unsettled(start) is not None and follows_batch(dims[axis]):
                    d.sizes.tie(start, dims[axis])  # type: ignore[arg-type]


def unpadded(d: Dimensions) -> None:
    """A batch that a pad adds nothing to at two rows and more is one whatever its rows.

    The gradient of a slice computes what it pads from two shapes; where both hold the batch, their difference is 0.
    """
    if d.ones:
        return
    for node in d.order:
        amounts, dims = (d.elements(node.inputs[1]), d.dims(node.inputs[0])) if node.op in ops.PADS else (None, None)
        if amounts is None or dims is None or len(amounts) != 2 * len(dims):
            continue
        for amount, size in zip(amounts, (s for s in dims for _ in range(2)), strict=True):
            if follows_batch(size) and unsettled(amount) and d.sizes.at(amount) == 0:  # type: ignore[arg-type]
                d.sizes.tie(amount, 0)  # type: ignore[arg-type]


def taken_to_end(d: Dimensions) -> None:
    """A slice that ends where its operand ends takes what is left of it, where one of its two numbers follows the batch."""
    for node in d.order:
        if node.op not in ops.PLAIN_SLICES:
            continue
        numbers = [d.elements(t) for t in node.inputs[1:3]]
        for whole, *bounds in zip(d.dims(node.inputs[0]) or (), *(n or () for n in numbers), strict=False):
            left = [b for b in bounds if b is not None and unsettled(b)]
            if None in bounds or len(left) != 1 or not any(follows_batch(b) for b in bounds):
                continue
            if known(whole) is not None and sum(map(d.sizes.at, bounds)) == d.sizes.at(whole):
                d.sizes.sum([whole], bounds)


def taken_whole(d: Dimensions) -> None:
    """A slice up to a number that is as large as a dimension of the batch takes all of it, where nothing else says."""
    for _, bound, whole in d.untold.ends:
        one = unsettled(bound)
        if one is not None and known(whole) is not None:
            if follows_batch(whole):
                d.untold.read_as_all[one] = None
            d.sizes.tie(one, whole)


def taken_apart_again(d: Dimensions) -> None:
    """A gradient that is taken apart is that of parts which were stacked: there are as many of any batch."""
    forward = leading_to_loss(d)
    for node in d.order:
        dims = d.dims(node.inputs[0]) if node.op in ops.UNPACKS and node not in forward else None
        one = unsettled(dims[int(node.attr("axis", 0)) % len(dims)]) if dims else None
        if one is not None and one.value == len(node.outputs or ()):
            d.sizes.tie(one, one.value)


def joined_batches(d: Dimensions) -> None:
    """Parts of as many rows as the batch has that make up as many batches as there are parts are a batch each."""
    _even_parts(d)


def even_parts(d: Dimensions) -> None:
    """Parts of one size that make up a number of rows together hold as many of them each, where the loss is made of both numbers.

    What a slice leaves is no part that is written, but in its gradient: what it begins behind may be a number of the model.
    """
    forward = leading_to_loss(d)
    constants = (t for t in d._elements if t.node.op in ops.CONSTANTS and (t.node in forward or not forward))
    _even_parts(d, among={root(size) for t in constants for size in d._elements[t] or () if size is not None})


def _even_parts(d: Dimensions, among: Container[Size] | None = None) -> None:
    """Unknown addends of one value that make up a size of the batch are equal parts of it.

    Args:
        d: the dimensions.
        among: those that may be; if None, only where each part is a whole batch, of as many rows as the addends say.
    """
    for kind, left, right, _ in d.sizes.pending:
        for whole, parts in ((left, right), (right, left)) if kind == "sum" else ():
            value = known(whole[0]) if len(whole) == 1 else None
            if not isinstance(value, Poly) or len(parts) < 2 or any(known(p) is not None for p in parts):
                continue
            share = divide(value, len(parts))
            if among is None and (share != ROWS or d.sizes.at(parts[0]) != d.rows):
                continue
            if among is not None and any(isinstance(p, Unknown) and p.root() not in among for p in parts):
                continue
            if len({d.sizes.at(p) for p in parts}) == 1 and isinstance(share, Poly):
                for part in parts:
                    d.sizes.tie(part, share)

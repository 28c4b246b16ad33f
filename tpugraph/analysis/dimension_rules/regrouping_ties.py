"""What a reshape ties together: neighbouring dimensions that hold as many elements, whichever of them holds the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TypeGuard

from tpugraph import ops
from tpugraph.analysis.dimension_facts import Dims, Doubt, Elements
from tpugraph.analysis.dimension_rules.size_arithmetic import product
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size, Unknown, follows_batch, known, times
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of


@rule("Reshape")
def _reshape(d: Dimensions, node: Node) -> None:
    source, target, out = *node.inputs[:2], node.out()
    dims, wanted = d.dims(source), d.elements(target)
    made = _opened(d, dims, wanted, d.fresh(out))
    if made is None:
        return
    if wanted is not None and len(wanted) == len(made):
        made = tuple(asked if _is_asked(asked, size, d) else size for asked, size in zip(wanted, made, strict=True))
    if d.rows > 1 and d.constants.choice(source_of(target).node.name) is not None:
        made = _left_open(d, made, wanted)
    d._dims[out] = made
    computed = d.rows > 1 and len(made) > 1 and _waits(d, dims, wanted)
    if wanted is not None and len(wanted) == len(made):
        for asked, size in zip(wanted, made, strict=True):
            if asked is not None and (isinstance(asked, Unknown) or asked != -1):
                d.sizes.tie(asked, size)
    if d.ones and source.node.op in ops.TOP_K and source.port and dims and wanted and len(wanted) == 2:
        _tie_places(d, dims, wanted)
    if dims is not None:
        numbers = [None if w is None else d.sizes.at(w) for w in wanted or ()]
        certain = -1 in numbers or not out.dtype.floating or not (d.sums_left_out or source.node.op in ops.SUMS)
        left_open = made[numbers.index(-1)] if numbers.count(-1) == 1 and len(numbers) == len(made) else None
        certain = certain or (
            source.node.op in ops.SUMS and source.node.made_by is not None
        )  # it was put back, over the row
        summed = not certain and source.node.op in ops.SUMS
        regroup = partial(_regroup, d, dims, made, certain=certain, summed=summed, left_open=left_open)
        if computed:
            d.postponed.append(regroup)
            d.waiting += [size for size in made if isinstance(size, Unknown)]
        else:
            regroup()
    d.set_level(out, d.level(source))
    d.set_elements(out, d.elements(source))


def _left_open(d: Dimensions, made: Dims, wanted: Elements | None) -> Dims:
    """The dimensions of a reshape of which a flag says what it holds.

    Of two rows that are put in groups of two the number of groups is left open, and is 1: of more rows there are more groups.
    """
    numbers = [None if one is None else d.sizes.at(one) for one in wanted or ()]
    if len(numbers) != len(made) or -1 not in numbers or made[numbers.index(-1)] != 1:
        return made
    place = numbers.index(-1)
    return (*made[:place], Unknown(1), *made[place + 1 :])


def _waits(d: Dimensions, dims: Dims | None, wanted: Elements | None) -> bool:
    """Whether a number is computed of others that say first what it is, as the rows of a shape times a number of the model.

    What has such dimensions is given its old shape again in a gradient.
    """
    if dims is None or len(dims) < 2:
        return False  # it holds all of what is made, however that is parted
    opened = [size.root() for size in (*dims, *(wanted or ())) if isinstance(size, Unknown) and known(size) is None]
    if any(isinstance(size, Unknown) and size.root() in opened and size.root().origin is None for size in wanted or ()):
        return True
    return bool(d.waiting and opened) and not {size.root() for size in d.waiting}.isdisjoint(opened)


def _is_asked(asked: Size | None, size: Size, d: Dimensions) -> TypeGuard[Size]:
    """Whether a dimension is what is asked for: a 1 or a 0 may follow the batch, which that of a static shape does not say of itself.

    Of what is only known when a step runs a static shape says nothing, or what TensorFlow found of the rows of one core.
    """
    if asked is None or asked == -1:
        return False
    return d.sizes.at(size) < 0 or (not isinstance(asked, int) and d.sizes.at(asked) in (-1, 0, 1))


def _tie_places(d: Dimensions, dims: Dims, wanted: Elements) -> None:
    """The places of the largest elements as a matrix, as the gradient of top_k takes them: as many a row as before."""
    many = wanted[1]
    if many is not None and d.sizes.at(many) == d.sizes.at(dims[-1]):
        d.sizes.tie(many, dims[-1])


def _opened(d: Dimensions, dims: Dims | None, wanted: Elements | None, made: Dims | None) -> Dims | None:
    """The dimensions of a reshape where TensorFlow leaves some open: from the number of elements."""
    if made is None and wanted is not None:
        made = tuple(Unknown(-1) for _ in wanted)
    if made is None or dims is None or all(d.sizes.at(s) >= 0 for s in made):
        return made
    if any(d.sizes.at(s) < 0 for s in dims):
        return _beside_told(d, dims, wanted, made)
    values = [d.sizes.at(s) for s in made]
    if wanted is not None and len(wanted) == len(made):
        asked = [-1 if w is None else d.sizes.at(w) for w in wanted]
        values = [a if v < 0 else v for v, a in zip(values, asked, strict=True)]
    if values.count(-1) == 1:
        whole, rest = 1, 1
        for s in dims:
            whole *= d.sizes.at(s)
        for v in values:
            rest *= v if v >= 0 else 1
        values[values.index(-1)] = whole // max(rest, 1)
    return tuple(Unknown(v) if d.sizes.at(s) < 0 else s for v, s in zip(values, made, strict=True))


def _beside_told(d: Dimensions, dims: Dims, wanted: Elements | None, made: Dims) -> Dims:
    """The dimensions of a reshape that takes sizes that data tell, and asks for them again: what is left open holds the rest."""
    if wanted is None or len(wanted) != len(made) or None in wanted or wanted.count(-1) != 1:
        return made
    place = wanted.index(-1)
    rest, more = _but_for_common(dims, [s for s in wanted if s is not None and s != -1])
    numbers = [[s for s in side if isinstance(s, int)] for side in (rest, more)]
    whole, by = map(math.prod, numbers)
    if d.ones and not all(isinstance(s, int) for s in rest):
        return made  # where the row is, what it meets tells
    if d.sizes.at(made[place]) >= 0 or len(numbers[1]) < len(more) or not by or whole % by:
        return made
    return (*made[:place], product(d, [whole // by, *(s for s in rest if not isinstance(s, int))]), *made[place + 1 :])


def _but_for_common(before: Sequence[Size], after: Sequence[Size]) -> tuple[Dims, Dims]:
    """The dimensions of both sides but for those that both have."""
    rest, more = [_one(s) for s in before], list[Size]()
    for size in map(_one, after):
        if size in rest:
            rest.remove(size)
        else:
            more.append(size)
    return tuple(rest), tuple(more)


def _one(size: Size) -> Size:
    """What stands for all sizes that are tied to one."""
    found = known(size)
    return found if found is not None else size.root() if isinstance(size, Unknown) else size


def _regroup(d: Dimensions, before: Dims, after: Dims, *, certain: bool, summed: bool, left_open: Size | None) -> None:
    """The dimensions of both sides in the smallest groups that hold as many elements.

    Of a batch of one row TensorFlow leaves out the sum that a gradient takes over it, and what looks like a reshape drops
    the dimension of the batch; ``certain`` says that it is a reshape. Of such a batch it also takes sums that do nothing, and
    what is ``summed`` may have the batch again.
    """
    if any(d.sizes.at(s) < 0 for s in (*before, *after)):
        _regroup_told(d, before, after, certain=certain, left_open=left_open)
        return
    if d.ones and summed and _broadcast_before(d, before, after):
        return
    groups, left_over = _groups(d, before, after)
    rows = [s for side in left_over for s in side if not isinstance(known(s), int)]
    may_be_rows = d.ones and rows and not (left_over[0] and summed)  # any of these
    computed = not d.ones and any(known(s) is None for s in rows)  # a 1, as half of three rows is
    if groups and (may_be_rows or computed):
        if may_be_rows and not certain:
            several = all(d.sizes.at(s) > 1 for s in groups[-1][0][-1:])  # these and the row, or they beside it
            d.doubtful.append(Doubt(*groups[-1], among=after, left_open=left_open, beside_one=several))
        groups[-1] = (groups[-1][0] + left_over[0], groups[-1][1] + left_over[1])
        left_over = ((), ())
    if d.ones and [d.sizes.at(s) for s in before] != [d.sizes.at(s) for s in after]:
        joined = _with_rows_between(d, groups)
        apart = [group for group in groups if group not in joined]
        d.doubtful += [Doubt(*group, among=after, left_open=left_open, beside_one=True) for group in apart]
        groups = joined
    if d.ones and left_open is not None:
        groups = _with_ones_in_front(d, groups, left_open)
    for left, right in groups:
        if len(left) == len(right) == 1:
            if not d.ones or certain or d.sizes.at(left[0]) != 1:
                d.sizes.tie(left[0], right[0])
            else:
                d.doubtful.append(Doubt(left, right))
            continue
        d.regrouped.append((left, right))
        summable = d.ones and any(d.sizes.at(s) == 1 for s in left)  # a sum that was left out was over one row
        if certain or not summable:
            d.sizes.product(left, right)
        else:
            d.doubtful.append(Doubt(left, right, summed))
    for side in left_over:
        if d.ones and side:
            d.doubtful.append(Doubt(side, (), summed))
            continue
        for size in side:
            if not follows_batch(size):
                d.sizes.tie(size, 1)


def _regroup_told(d: Dimensions, before: Dims, after: Dims, *, certain: bool, left_open: Size | None) -> None:
    """Dimensions of both sides of which data tell some: those are as they were, or what else there is holds as many elements."""
    if isinstance(left_open, Unknown):
        d.sizes.left_open[left_open.root()] = before
    if len(before) == len(after) and [d.sizes.at(s) for s in before] == [d.sizes.at(s) for s in after]:
        d.tie(before, after)
        return
    rest = _but_for_common(before, after)
    if certain and all(d.sizes.at(s) >= 0 for side in rest for s in side):
        d.sizes.product(*rest)


def _broadcast_before(d: Dimensions, before: Dims, after: Dims) -> bool:
    """Whether a gradient goes back to what was broadcast: to fewer dimensions, those in front having been summed over."""
    kept = before[len(before) - len(after) :]
    if len(after) >= len(before) or [d.sizes.at(s) for s in kept] != [d.sizes.at(s) for s in after]:
        return False
    if any(d.sizes.at(s) != 1 for s in before[: len(before) - len(after)]):
        return False
    for size, made in zip(kept, after, strict=True):
        if d.sizes.at(size) != 1 or isinstance(known(size), int):
            d.sizes.tie(size, made)
        else:
            d.doubtful.append(Doubt((size,), (made,)))
    return True


def _with_rows_between(d: Dimensions, groups: list[tuple[Dims, Dims]]) -> list[tuple[Dims, Dims]]:
    """Groups of dimensions, where one row that stands between two of them may belong to either: both are one then."""
    joined: list[tuple[Dims, Dims]] = []
    for left, right in groups:
        rows = any(not isinstance(known(side[0]), int) and d.sizes.at(side[0]) == 1 for side in (left, right))
        if joined and rows and len(left) + len(right) > 2:
            joined[-1] = (joined[-1][0] + left, joined[-1][1] + right)
        else:
            joined.append((left, right))
    return joined


def _with_ones_in_front(d: Dimensions, groups: list[tuple[Dims, Dims]], left_open: Size) -> list[tuple[Dims, Dims]]:
    """Groups of dimensions, where one row may be in one that is left open or in a 1 written in front of it: both are one then."""
    joined: list[tuple[Dims, Dims]] = []
    for left, right in groups:
        before = joined[-1] if joined else ((), ())
        alone = right == (left_open,) and {d.sizes.at(s) for side in (*before, left, right) for s in side} == {1}
        if alone and any(isinstance(s, Unknown) and known(s) is None for s in before[1]):
            joined[-1] = (before[0] + left, before[1] + right)
        else:
            joined.append((left, right))
    return joined


def _groups(d: Dimensions, before: Dims, after: Dims) -> tuple[list[tuple[Dims, Dims]], tuple[Dims, Dims]]:
    """Neighbouring dimensions of both sides that hold as many elements, and those of size 1 behind the last of them."""
    groups: list[tuple[Dims, Dims]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        first, second, a, b = i, j, d.sizes.at(before[i]), d.sizes.at(after[j])
        i, j = i + 1, j + 1
        while a != b or _differ(before[first:i], after[second:j]):
            if a == b and i < len(before) and j < len(after):
                a, b = a * d.sizes.at(before[i]), b * d.sizes.at(after[j])
                i, j = i + 1, j + 1
            elif (a < b or (a == 1 == b and j == len(after))) and i < len(before):
                a *= d.sizes.at(before[i])
                i += 1
            elif (b < a or a == 1 == b) and j < len(after):
                b *= d.sizes.at(after[j])
                j += 1
            elif d.ones and a == b and groups:  # the row is where the group before it has a number that is not settled
                left, right = groups.pop()
                first, second = first - len(left), second - len(right)
                a, b = (math.prod(map(d.sizes.at, side)) for side in (before[first:i], after[second:j]))
            else:
                return groups, ((), ())
        groups.append((before[first:i], after[second:j]))
    return groups, (before[i:], after[j:])


def _differ(left: Dims, right: Dims) -> bool:
    """Whether it is known that two products agree for this number of rows alone."""
    found = [[known(size) for size in side] for side in (left, right)]
    if any(None in side for side in found):
        return False
    one, other = (times(*(size for size in side if size is not None)) for side in found)
    return one != other

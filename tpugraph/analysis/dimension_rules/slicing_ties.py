"""What ops that take parts of values tie together."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimension_rules.arithmetic_ties import same_rows
from tpugraph.analysis.dimension_rules.padding_ties import part_of_matrix
from tpugraph.analysis.dimension_rules.reshaping_ties import shaped_by
from tpugraph.analysis.dimension_rules.size_arithmetic import difference, total
from tpugraph.analysis.dimension_rules.slice_ends import end_of, up_to, whole_or_bound
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Poly, Size, Unknown, depends_on_data, follows_batch, known
from tpugraph.ir import Node, Tensor


@rule("Slice")
def _slice(d: Dimensions, node: Node) -> None:
    source, out = node.inputs[0], node.out()
    dims, begin, size = d.dims(source), d.elements(node.inputs[1]), d.elements(node.inputs[2])
    made = d.fresh(out)
    if dims is None:
        return
    made = tuple(made or (Unknown(-1) for _ in dims))
    if size and None not in size and len(size) == len(dims):
        made = tuple(
            Unknown(d.sizes.at(asked)) if d.sizes.at(one) < 0 <= d.sizes.at(asked) else one  # type: ignore[arg-type]
            for one, asked in zip(made, size, strict=True)
        )
    d._dims[out] = made
    for axis, whole in enumerate(dims):
        asked = size[axis] if size and len(size) == len(dims) else None
        start = begin[axis] if begin and len(begin) == len(dims) else None
        as_many = d.sizes.at(made[axis]) == d.sizes.at(whole)
        if as_many and start == 0 and (not isinstance(asked, int) or asked == -1):
            d.sizes.tie(made[axis], up_to(d, node, whole, asked))
        if asked is not None and d.sizes.at(asked) != -1:
            d.sizes.tie(made[axis], asked)
            if start is not None and _is_last_part(node):
                d.sizes.sum([whole], [made[axis], start])
        elif asked is not None and start is not None and d.sizes.at(whole) >= 0:
            d.sizes.sum([whole], [made[axis], start])
    elements = d.elements(source)
    if elements is not None and begin and size and isinstance(begin[0], int) and len(dims) == 1:
        count = d.sizes.at(size[0]) if size[0] is not None else -1
        d.set_elements(out, elements[begin[0] : begin[0] + count if count >= 0 else None])
    elif begin and size:
        d.set_elements(out, part_of_matrix(d, source, begin, size))


def _is_last_part(node: Node) -> bool:
    """Whether a slice takes the last of the parts that a tensor was joined of, as the gradient of a concatenation does."""
    offsets = node.inputs[1]
    return offsets.node.op in ops.CONCAT_OFFSETS and offsets.port == len(offsets.node.inputs) - 2


@rule("StridedSlice")
def _strided_slice(d: Dimensions, node: Node) -> None:
    source, out = node.inputs[0], node.out()
    dims = d.dims(source)
    if dims is None:
        d.fresh(out)
        return
    d.set(out, strided(d, node, dims, out))
    same_rows(d, node)
    elements = d.elements(source)
    if elements is None:
        d.set_level(out, d.level(source))
        return
    if hands_all_on(node) and set(fixed(node.inputs[3]) or ()) <= {1}:  # in a new dimension, perhaps
        d.set_elements(out, elements)
        return
    begin, end, step = (d.numbers(t) for t in node.inputs[1:4])
    masks = {k: int(node.attr(f"{k}_mask", 0)) for k in ("begin", "end", "shrink_axis", "new_axis", "ellipsis")}
    if begin is None or end is None or step is None or masks["new_axis"] or masks["ellipsis"] or len(begin) != 1:
        return
    if masks["shrink_axis"] & 1:
        if -len(elements) <= begin[0] < len(elements):
            d.set_elements(out, [elements[begin[0]]])
        return
    first = None if masks["begin"] & 1 else begin[0]
    last = None if masks["end"] & 1 else end[0]
    d.set_elements(out, elements[first : last : step[0]])


def places(node: Node, rank: int) -> list[tuple[int | None, int | None, int]]:
    """What becomes of each dimension: (dimension of the operand, dimension of the result, place in begin and end).

    None for the operand is a new dimension, None for the result a dimension that goes; a place of -1 is a whole one.
    """
    lengths = (len(fixed(t) or []) or int((t.shape or (0,))[0] or 0) for t in node.inputs[1:4])
    count = next((length for length in lengths if length), 0)  # in a loop not every operand may say
    masks = {k: int(node.attr(f"{k}_mask", 0)) for k in ("shrink_axis", "new_axis", "ellipsis")}
    used = sum(1 for i in range(count) if not (masks["new_axis"] >> i & 1) and not (masks["ellipsis"] >> i & 1))
    found: list[tuple[int | None, int | None, int]] = []
    axis = target = 0
    for place in range(count):
        if masks["ellipsis"] >> place & 1:
            for _ in range(rank - used):
                found.append((axis, target, -1))
                axis, target = axis + 1, target + 1
        elif masks["new_axis"] >> place & 1:
            found.append((None, target, place))
            target += 1
        elif masks["shrink_axis"] >> place & 1:
            found.append((axis, None, place))
            axis += 1
        else:
            found.append((axis, target, place))
            axis, target = axis + 1, target + 1
    while axis < rank:
        found.append((axis, target, -1))
        axis, target = axis + 1, target + 1
    return found


def takes_whole(d: Dimensions, node: Node, place: int, size: Size) -> bool:
    """Whether a slice takes a dimension from its beginning to its end."""
    if place < 0:
        return True
    begin, end, step = (d.numbers(t) for t in node.inputs[1:4])
    from_start = bool(int(node.attr("begin_mask", 0)) >> place & 1) or (begin is not None and begin[place] == 0)
    to_end = bool(int(node.attr("end_mask", 0)) >> place & 1)
    bound = end_of(d, node, place)
    if not to_end and end is not None and end[place] >= 0 and end[place] == d.sizes.at(size):
        to_end = bound is None or d.sizes.may_be_one(bound, size)
    if not to_end and bound is not None and not isinstance(size, int):
        to_end = d.sizes.may_be_one(bound, size)
    return from_start and to_end and step is not None and step[place] == 1


def hands_all_on(node: Node) -> bool:
    """Whether a slice takes all that its operand holds, and adds dimensions of one place at most."""
    rank = len(node.inputs[0].shape) if node.inputs[0].shape is not None else None
    steps, whole = fixed(node.inputs[3]), int(node.attr("begin_mask", 0)) & int(node.attr("end_mask", 0))
    if rank is None or steps is None:
        return False
    kept = (place for axis, _, place in places(node, rank) if axis is not None and place >= 0)
    return all(whole >> place & 1 and abs(steps[place]) == 1 for place in kept)


def turned_round(node: Node, place: int) -> bool:
    """Whether a slice takes a whole dimension from its end to its beginning."""
    step = fixed(node.inputs[3])
    open_ends = int(node.attr("begin_mask", 0)) & int(node.attr("end_mask", 0))
    return place >= 0 and step is not None and step[place] == -1 and bool(open_ends >> place & 1)


def strided(d: Dimensions, node: Node, dims: Dims, out: Tensor) -> Dims | None:
    """The dimensions of a strided slice of a tensor with some dimensions."""
    static = out.shape
    made: dict[int, Size] = {}
    for axis, target, place in ((a, t, p) for a, t, p in places(node, len(dims)) if t is not None):
        if axis is None or turned_round(node, place):
            made[target] = 1 if axis is None else dims[axis]
            continue
        if takes_whole(d, node, place, whole := dims[axis]):
            made[target] = whole_or_bound(d, node, place, whole)
            continue
        value = static[target] if static is not None and target < len(static) else None
        if value is None and d.sizes.at(whole) >= 0:
            value = _counted(d, node, place, d.sizes.at(whole))
        if value is None or (isinstance(whole, int) and not bounded_by_sizes(d, node, place)):
            made[target] = Unknown(-1) if value is None else int(value)
            continue
        made[target] = part_of(d, node, place, whole, int(value))
    return tuple(made[i] for i in range(len(made)))


def bounded_by_sizes(d: Dimensions, node: Node, place: int) -> bool:
    """Whether a bound of a slice may follow the batch; one counted from the end may be the rows, or what they leave.

    Of one row, any 1 might: one that is written as a number is taken for one of the model.
    """
    written = d.ones and fixed(node.inputs[1]) is not None and fixed(node.inputs[2]) is not None
    for name, operand in (("begin", 1), ("end", 2)):
        bounds = d.elements(node.inputs[operand])
        bound = bounds[place] if bounds and not int(node.attr(f"{name}_mask", 0)) >> place & 1 else None
        may_follow = isinstance(bound, Poly) or not written  # but for what flags say
        if may_follow and bound is not None and (not isinstance(bound, int) or bound < 0):
            return True
    return False


def _counted(d: Dimensions, node: Node, place: int, whole: int) -> int | None:
    """How many of so many places a slice takes by bounds that are known, where the graph has a shape; None of others."""
    told = [None if numbers is None else numbers[place] for numbers in map(d.elements, node.inputs[1:4])]
    bounds = [None if number is None or depends_on_data(number) else d.sizes.at(number) for number in told]
    masked = [bool(int(node.attr(f"{name}_mask", 0)) >> place & 1) for name in ("begin", "end")]
    if bounds[2] is None or any(not free and bound is None for free, bound in zip(masked, bounds, strict=False)):
        return None
    begin, end = (None if free else bound for free, bound in zip(masked, bounds, strict=False))
    return len(range(*slice(begin, end, bounds[2]).indices(whole)))


def part_of(d: Dimensions, node: Node, place: int, whole: Size, value: int) -> Size:
    """How many a slice takes of a dimension that may follow the batch."""
    begin, end, step = d.elements(node.inputs[1]), d.elements(node.inputs[2]), d.numbers(node.inputs[3])
    out = Unknown(value)
    masks = {k: int(node.attr(f"{k}_mask", 0)) >> place & 1 for k in ("begin", "end")}
    if step is not None and step[place] > 1 and masks["end"]:
        skipped = 0 if masks["begin"] else begin[place] if begin else None
        if isinstance(skipped, Unknown) and known(skipped) is None and 0 <= skipped.value < step[place]:
            d.sizes.tie(skipped, skipped.value)  # where every so many begin is no part of the rows
            skipped = skipped.value
        if isinstance(skipped, int) and skipped >= 0:  # every so many to the end
            by: Size = step_of_pairs(d, node, place, whole) or step[place]
            d.sizes.quotient(out, total(d, [whole, difference(d, by, 1 + skipped)]), by)
        return out
    if step is not None and step[place] < -1 and masks["begin"] and masks["end"]:  # every so many from the last one on
        d.sizes.quotient(out, total(d, [whole, -step[place] - 1]), -step[place])
    first = 0 if masks["begin"] else begin[place] if begin else None
    last = whole if masks["end"] else end[place] if end else None
    if isinstance(whole, int) and last is not None and d.sizes.at(last) == whole:
        last = whole  # up to the end, which is no number of rows
    if step is None or step[place] != 1 or first is None or last is None:
        return out
    if first == 0 and d.sizes.at(last) > d.sizes.at(whole) >= 0 and (d.rows == 1 or d.sizes.at(last) % d.rows):
        d.sizes.tie(last, d.sizes.at(last))  # no number of rows: of more rows it may be less than all
        d.sizes.computed(out, [whole, last], min)
        return out
    if isinstance(whole, int) and any(isinstance(bound, int) and bound < 0 for bound in (first, last)):
        return out  # a number below zero is no size: it may be what the rows leave of the whole
    from_end = [[whole] if d.sizes.at(bound) < 0 else [] for bound in (first, last)]
    d.sizes.sum([*from_end[1], last], [out, *from_end[0], first])
    return out


def step_of_pairs(d: Dimensions, node: Node, place: int, whole: Size) -> Unknown | None:
    """The step of a slice through a list of pairs of rows, from row to row of them or to the next pair there; None of others."""
    found, numbers = known(whole), fixed(node.inputs[3])
    if numbers is None or numbers[place] not in (d.rows, d.rows + 1) or d.sizes.at(whole) % d.rows**2:
        return None
    if found is not None and not (isinstance(found, Poly) and len(found.c) > 2):
        return None
    elements = d.elements(node.inputs[3])
    step = elements[place] if elements else None
    return step if isinstance(step, Unknown) else None


@rule("StridedSliceGrad")
def _strided_slice_grad(d: Dimensions, node: Node) -> None:
    shaped_by(d, node, 0)
    dims, grad = d.dims(node.out()), d.dims(node.inputs[4])
    if dims is None or grad is None:
        return
    for axis, target, place in places(node, len(dims)):
        if axis is None or target is None or target >= len(grad):
            continue
        if _grad_whole(d, node, place, dims[axis]):
            d.sizes.tie(whole_or_bound(d, node, place, dims[axis]), grad[target])
        elif follows_batch(grad[target]) and not follows_batch(dims[axis]) and counts_from_end(node, place):
            continue  # the number may be what the rows leave of the whole
        elif d.rows > 1 and isinstance(grad[target], int) and grad[target] == 1 and bounded_by_sizes(d, node, place):
            continue  # the one may be a part of the rows, as half of two
        elif not isinstance(dims[axis], int) or bounded_by_sizes(d, node, place):
            d.sizes.tie(part_of(d, node, place, dims[axis], d.sizes.at(grad[target])), grad[target])


def counts_from_end(node: Node, place: int) -> bool:
    """Whether a bound of a slice is a number that counts from the end."""
    masks = [int(node.attr(f"{name}_mask", 0)) >> place & 1 for name in ("begin", "end")]
    bounds = [fixed(bound) for bound, mask in zip(node.inputs[1:3], masks, strict=True) if not mask]
    return any(numbers is not None and numbers[place] < 0 for numbers in bounds)


def _grad_whole(d: Dimensions, node: Node, place: int, size: Size) -> bool:
    """Whether the slice that a gradient belongs to took a whole dimension."""
    if place < 0:
        return True
    begin, step, bound = d.elements(node.inputs[1]), d.numbers(node.inputs[3]), end_of(d, node, place)
    from_start = bool(int(node.attr("begin_mask", 0)) >> place & 1) or bool(begin and begin[place] == 0)
    to_end = bool(int(node.attr("end_mask", 0)) >> place & 1) or (bound is not None and d.sizes.may_be_one(bound, size))
    return from_start and to_end and bool(step and step[place] == 1)

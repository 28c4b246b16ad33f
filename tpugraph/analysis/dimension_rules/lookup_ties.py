"""What lookups, and entries of sparse rows, tie together."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimension_rules.reshaping_ties import shaped_by
from tpugraph.analysis.dimension_rules.size_arithmetic import difference, product, total
from tpugraph.analysis.dimension_rules.slicing_ties import hands_all_on
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size, Unknown, depends_on_data, follows_batch, known
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of, variable_of

# --------------------------------------------------------------------------- looking up


@rule("GatherV2 Gather ResourceGather")
def _gather(d: Dimensions, node: Node) -> None:
    indices, out = node.inputs[1], node.out()
    handle, named = node.op in ops.GATHERS, ops.record(node.op).axis
    table = handle_dims(node.inputs[0]) if handle else d.dims(node.inputs[0])
    numbers = d.dims(indices)
    axis = [0] if named is None else d.numbers(node.inputs[named])
    spread = int(node.attr("batch_dims", 0))
    if table is None or numbers is None or not axis:
        d.fresh(out)
        return
    place = axis[0] % max(len(table), 1)
    spread %= max(len(numbers), 1) if spread < 0 else spread + 1
    for i in range(spread):
        d.sizes.tie(table[i], numbers[i])
    d.set(out, (*table[:place], *numbers[spread:], *table[place + 1 :]))
    elements, picked = None if handle else d.elements(node.inputs[0]), d.numbers(indices)
    if elements is not None and len(table) == 1 and picked is not None and all(0 <= p < len(elements) for p in picked):
        d.set_elements(out, [elements[p] for p in picked])


def handle_dims(handle: Tensor) -> Dims | None:
    """The dimensions of the variable that a handle is of."""
    variable = variable_of(handle)
    shape = variable.attr("shape") if variable is not None and variable.has_attr("shape") else None
    return None if shape is None or None in shape else tuple(int(s) for s in shape)


@rule("ReadVariableOp")
def _read(d: Dimensions, node: Node) -> None:
    shape = node.out().shape
    d.set(node.out(), None if shape is None or None in shape else [int(s or 0) for s in shape])


@rule(" ".join(sorted(ops.UNIQUE)) + " UniqueWithCounts UniqueWithCountsV2")
def _unique(d: Dimensions, node: Node) -> None:
    """Each value has a number, which says where among the distinct ones it is."""
    dims, along = d.dims(node.inputs[0]), fixed(node.inputs[1]) if len(node.inputs) > 1 else None
    for port in range(len(node.outputs or ())):
        if port == 1 and dims is not None and (along or len(dims) == 1):
            d.set(node.out(port), [dims[along[0] if along else 0]])
        else:
            d.fresh(node.out(port))


@rule("ListDiff")
def _list_diff(d: Dimensions, node: Node) -> None:
    """Of known numbers it is known which are left, and where they were."""
    for port in range(len(node.outputs or ())):
        d.fresh(node.out(port))
    numbers, gone = map(d.numbers, node.inputs)
    if numbers is not None and gone is not None:
        left = [place for place, number in enumerate(numbers) if number not in gone]
        d.set_elements(node.out(), [numbers[place] for place in left])
        d.set_elements(node.out(1), [*left])


@rule("OneHot")
def _one_hot(d: Dimensions, node: Node) -> None:
    dims, out = d.dims(node.inputs[0]), node.out()
    depth = d.elements(node.inputs[1])
    if dims is None or not depth or depth[0] is None:
        d.fresh(out)
        return
    axis = int(node.attr("axis", -1))
    place = len(dims) if axis == -1 else axis
    d.set(out, (*dims[:place], depth[0], *dims[place:]))


@rule("Range")
def _range(d: Dimensions, node: Node) -> None:
    start, limit, delta = (d.elements(t) for t in node.inputs)
    out = node.out()
    ends = [e[0] if e else None for e in (start, limit, delta)]
    if any(map(depends_on_data, ends)):
        one_by_one = ends[2] == 1 or (ends[2] is not None and d.sizes.at(ends[2]) == 1 and _is_beside_rows(d, ends[1]))
        d.set(out, [ends[1]] if ends[0] == 0 and one_by_one and ends[1] is not None else None)
        return
    first, last, step = (d.sizes.at(e) for e in ends)  # type: ignore[arg-type]
    if step == 1 and (not d.ones or isinstance(known(ends[2]), int)):  # type: ignore[arg-type]
        d.set(out, [difference(d, ends[1], ends[0])])  # type: ignore[arg-type]
    else:
        static = None if out.shape is None else out.shape[0]
        if static is None and step and first >= 0 <= last:  # TensorFlow does not know all of the ends
            d.set(out, [Unknown(len(range(first, last, step)), out)])
        made = d.fresh(out)
        if made and first == 0 and step > 1 and node.inputs[2].node.op in ops.CONSTANTS:
            d.sizes.quotient(made[0], total(d, [ends[1], step - 1]), step)  # type: ignore[list-item]
        elif made and first == 0 and d.sizes.at(made[0]) * step == last:
            d.sizes.product([made[0], ends[2]], [ends[1]])  # type: ignore[list-item]
    if step and not any(follows_batch(e) for e in ends) and len(range(first, last, step)) <= LONGEST:  # type: ignore[arg-type]
        steps = [product(d, [i, ends[2]]) if i else 0 for i in range(len(range(first, last, step)))]  # type: ignore[list-item]
        d.set_elements(out, [total(d, [ends[0], s]) if s else ends[0] for s in steps])  # type: ignore[list-item]


def _is_beside_rows(d: Dimensions, size: Size | None) -> bool:
    """Whether a size that data tell is another dimension than the rows of a batch: it holds none of them, nor steps of as many."""
    one = size.root() if isinstance(size, Unknown) else None
    return one is not None and any(
        dims and any(map(follows_batch, dims)) and any(isinstance(s, Unknown) and s.root() is one for s in dims)
        for dims in d._dims.values()
    )


LONGEST = 16


@rule("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd")
def _unsorted_segment(d: Dimensions, node: Node) -> None:
    data, ids = d.dims(node.inputs[0]), d.dims(node.inputs[1])
    count = d.elements(node.inputs[2])
    if data is None or ids is None:
        d.fresh(node.out())
        return
    d.tie(data[: len(ids)], ids)
    first = count[0] if count and count[0] is not None else None
    if first is None:
        shape = node.out().shape
        first = d.constants.may_follow(shape[0] if shape else None, node)
    d.set(node.out(), (first, *data[len(ids) :]))


@rule("ScatterNd")
def _scatter_nd(d: Dimensions, node: Node) -> None:
    shaped_by(d, node, 2)
    numbers, updates = d.dims(node.inputs[0]), d.dims(node.inputs[1])
    if numbers and updates is not None:
        d.tie(numbers[:-1], updates[: len(numbers) - 1])
    largest = _places_of_largest(node.inputs[0]) if d.ones else None
    made, taken = d.elements(node.inputs[2]), None if largest is None else d.dims(largest.inputs[0])
    if made and taken is not None and None not in made:
        d.sizes.product(made, taken)  # type: ignore[arg-type]


_ON_THE_WAY = ops.IDENTITIES | ops.SHAPED_ANEW | ops.CASTS | ops.computing(np.add)


def _places_of_largest(tensor: Tensor) -> Node | None:
    """The op that takes the largest elements, where numbers are their places: these are places among what it takes from."""
    while tensor.node.op in _ON_THE_WAY:
        tensor = tensor.node.inputs[0]
    return tensor.node if tensor.node.op in ops.TOP_K and tensor.port == 1 else None


@rule("GatherNd ResourceGatherNd")
def _gather_nd(d: Dimensions, node: Node) -> None:
    table = handle_dims(node.inputs[0]) if node.op in ops.GATHERS else d.dims(node.inputs[0])
    numbers = d.dims(node.inputs[1])
    if table is None or numbers is None or not numbers or not isinstance(numbers[-1], int) or numbers[-1] < 0:
        if numbers and isinstance(numbers[-1], Unknown) and table is not None and numbers[-1].value > 0:
            d.set(node.out(), (*numbers[:-1], *table[numbers[-1].value :]))
            return
        d.fresh(node.out())
        return
    d.set(node.out(), (*numbers[:-1], *table[numbers[-1] :]))


# --------------------------------------------------------------------------- entries of sparse rows


@rule("SparseReshape")
def _sparse_reshape(d: Dimensions, node: Node) -> None:
    for port in range(2):
        d.fresh(node.out(port))
    wanted = d.elements(node.inputs[2])
    d.set_elements(node.out(1), wanted if wanted is not None else d.elements(node.inputs[1]))


@rule("SparseFillEmptyRows")
def _sparse_fill(d: Dimensions, node: Node) -> None:
    shape = d.elements(node.inputs[2])
    for port in (0, 1, 3):
        d.fresh(node.out(port))
    if shape and shape[0] is not None and d.sizes.at(shape[0]) >= 0:
        d.set(node.out(2), (shape[0],))
        d.rows_of_entries[node.out(0)] = shape[0]
    else:
        d.fresh(node.out(2))


@rule("""SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN SegmentSum SegmentMean SegmentMax SegmentMin
    SegmentProd""")
def _segments(d: Dimensions, node: Node) -> None:
    data, numbers = d.dims(node.inputs[0]), node.inputs[-1]
    d.tie((d.dims(node.inputs[-2]) or ())[:1], d.dims(numbers))
    rows = d.rows_of_entries.get(numbers)
    rows = _as_many_as_numbers(d, numbers) if rows is None else rows
    if data is None or rows is None:
        d.fresh(node.out())
        return
    d.set(node.out(), (rows, *data[1:]))


_EACH_AT_LEAST_ONCE = ops.IDENTITIES | ops.CASTS | ops.SHAPED_ANEW | ops.TRANSPOSES | ops.TILES | ops.BROADCASTS


def _as_many_as_numbers(d: Dimensions, numbers: Tensor) -> Size | None:
    """How many segments there are, where each number from 0 on is that of some elements; None where data choose the numbers."""
    dims = d.dims(numbers)
    if dims is None or not all(d.sizes.at(size) > 0 for size in dims):
        return None  # none may be left
    made = source_of(
        numbers,
        _EACH_AT_LEAST_ONCE | ops.SLICES,
        where=lambda node: node.op not in ops.SLICES or (node.has_attr("new_axis_mask") and hands_all_on(node)),
    ).node
    if made.op not in ops.RANGES or d.elements(made.inputs[0]) != [0] or d.elements(made.inputs[2]) != [1]:
        return None
    limit = d.elements(made.inputs[1])
    return limit[0] if limit else None


@rule("DynamicPartition")
def _dynamic_partition(d: Dimensions, node: Node) -> None:
    data, which = d.dims(node.inputs[0]), d.dims(node.inputs[1])
    if data is not None and which is not None:
        d.tie(data[: len(which)], which)
    for port in range(len(node.outputs or ())):
        d.set(node.out(port), None if data is None or which is None else (Unknown(-1), *data[len(which) :]))


@rule("DynamicStitch ParallelDynamicStitch")
def _dynamic_stitch(d: Dimensions, node: Node) -> None:
    """What was taken apart by numbers of places is put together again as it was."""
    half = len(node.inputs) // 2
    source, data = node.inputs[0].node, d.dims(node.inputs[half])
    numbers = d.dims(node.inputs[0])
    if (
        source.op in ops.PARTITIONS
        and data is not None
        and numbers is not None
        and source.inputs[0].node.op in ops.RANGES
    ):
        which = d.dims(source.inputs[1])
        if which is not None:
            d.set(node.out(), (*which, *data[len(numbers) :]))
            return
    d.fresh(node.out())
    _stitch_numbers(d, node)


def _stitch_numbers(d: Dimensions, node: Node) -> None:
    """A small vector that is put together of others, as the shape of a mean's gradient is."""
    half = len(node.inputs) // 2
    found: dict[int, Size | None] = {}
    for places, values in zip(node.inputs[:half], node.inputs[half:], strict=True):
        d.tie(d.dims(places), d.dims(values))
        numbers, elements = d.numbers(places), d.elements(values)
        if numbers is None or elements is None or len(numbers) != len(elements):
            return
        found.update(zip(numbers, elements, strict=True))
    if found and sorted(found) == list(range(len(found))):
        d.set_elements(node.out(), [found[place] for place in range(len(found))])

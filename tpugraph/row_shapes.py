"""How ops that change, make or ask for shapes treat the rows of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpugraph.ir import Node, Tensor
from tpugraph.row_states import MIXED, UNIFORM, Batch, Rows, Sizes, State, is_level, rank_of, rule, value_of

# --------------------------------------------------------------------------- dimensions go or come


def along(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """Works along some dimensions, which must not be that of the rows."""
    state = inputs[0]
    axes = value_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if isinstance(state, Sizes):
        return [_product_of(state, node)]
    if not isinstance(state, Rows) or axes is None:
        return [MIXED]
    rank = rank_of(node.inputs[0])
    gone = {axis % rank for axis in axes}
    if state.axis in gone:
        return [MIXED]
    if rank_of(node.out()) == rank:
        return [state]
    return [Rows(state.axis - sum(axis < state.axis for axis in gone), state.outer, state.inner)]


def _product_of(state: Sizes, node: Node) -> State:
    """The product of sizes, at most one of which grows with the batch; the others are known."""
    source = node.inputs[0].node
    growing = [t for t in state.times if t is not None]
    if node.op != "Prod" or len(growing) != 1 or node.out().shape not in ((), (1,)):
        return MIXED
    others = _fixed_elements(source, state)
    return MIXED if others is None else Sizes((growing[0] * math.prod(others),))


def _fixed_elements(source: Node, state: Sizes) -> list[int] | None:
    if source.op != "Shape":
        return [] if len(state.times) == 1 else None
    shape = source.inputs[0].shape or ()
    return [int(d or 0) for d, t in zip(shape, state.times, strict=True) if t is None]


@rule("ExpandDims")
def _expand(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, axes = inputs[0], value_of(node.inputs[1])
    if isinstance(state, Sizes):
        return [state]
    if not isinstance(state, Rows) or axes is None:
        return [MIXED]
    at = axes[0] % (rank_of(node.inputs[0]) + 1)
    return [Rows(state.axis + (at <= state.axis), state.outer, state.inner)]


@rule("Squeeze")
def _squeeze(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, shape = inputs[0], node.inputs[0].shape or ()
    if isinstance(state, Sizes):
        return [state]
    asked = [int(a) % len(shape) for a in node.attr("squeeze_dims") or []]
    gone = set(asked) or {axis for axis, dim in enumerate(shape) if dim == 1}
    if not isinstance(state, Rows) or state.axis in gone:
        return [MIXED]
    return [Rows(state.axis - sum(axis < state.axis for axis in gone), state.outer, state.inner)]


@rule("Transpose")
def _transpose(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, order = inputs[0], value_of(node.inputs[1])
    if not isinstance(state, Rows) or order is None:
        return [MIXED]
    return [Rows(order.index(state.axis), state.outer, state.inner)]


@rule("Reshape")
def _reshape(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """Row-major order stays: the rows begin after as many entries, and a row has as many."""
    state, out = inputs[0], node.out().shape
    source = node.inputs[0].shape
    if isinstance(state, Sizes):
        return [state]
    if not isinstance(state, Rows) or out is None or source is None or None in out or None in source:
        return [MIXED]
    dims = [int(d or 0) for d in source]
    before = math.prod(dims[: state.axis]) * state.outer
    start = 1
    for axis, dim in enumerate(int(d or 0) for d in out):
        outer, odd = divmod(before, start)
        inner, rest = divmod(dim, outer * batch.rows) if outer else (0, 1)
        if not odd and not rest and inner and _follows(node.inputs[1], inputs[1], axis, batch):
            return [Rows(axis, outer, inner)]
        start *= dim
    return [MIXED]


def _follows(target: Tensor, state: State, axis: int, batch: Batch) -> bool:
    """Whether a dimension that an operand asks for is one that the number of rows decides."""
    value = value_of(target)
    if isinstance(state, Sizes):
        return state.times[axis] is not None or (value is not None and value[axis] < 0)
    may_hold = batch.baked and target.node.name not in batch.settled
    return value is not None and (value[axis] < 0 or may_hold)


@rule("Pack")
def _pack(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    if node.out().shape is not None and rank_of(node.out()) == 1 and not any(isinstance(s, Rows) for s in inputs):
        return [_joined(inputs, [1] * len(inputs))]
    state = next((s for s in inputs if isinstance(s, Rows)), None)
    at = node.attr("axis", 0) % max(rank_of(node.out()), 1)
    if state is None or any(s != state for s in inputs):
        return [MIXED]
    return [Rows(state.axis + (at <= state.axis), state.outer, state.inner)]


def _joined(inputs: Sequence[State], lengths: Sequence[int]) -> State:
    times: list[int | None] = []
    for state, length in zip(inputs, lengths, strict=True):
        times.extend(state.times if isinstance(state, Sizes) else [None] * length)
    return Sizes(tuple(times))


@rule("ConcatV2")
def _concat(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    parts, axes = inputs[:-1], value_of(node.inputs[-1])
    if not any(isinstance(s, Rows) for s in parts):
        return [_joined(parts, [int((t.shape or (1,))[0] or 0) for t in node.inputs[:-1]])]
    state = next(s for s in parts if isinstance(s, Rows))
    rank = rank_of(node.out())
    if axes is None or axes[0] % rank == state.axis:
        return [MIXED]
    for tensor, part in zip(node.inputs, parts, strict=False):
        if part != state and not (part == UNIFORM and is_level(tensor, state.axis - rank)):
            return [MIXED]
    return [state]


@rule("Unpack", "Split", "SplitV")
def _split(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    operand = 1 if node.op == "Split" else 0
    state = inputs[operand]
    if not isinstance(state, Rows):
        return [MIXED] * len(node.outputs or ())
    rank = rank_of(node.inputs[operand])
    if node.op == "Unpack":
        at: int | None = node.attr("axis", 0) % rank
    else:
        axes = value_of(node.inputs[0 if node.op == "Split" else 2])
        at = None if axes is None else axes[0] % rank
    if at is None or at == state.axis:
        return [MIXED] * len(node.outputs or ())
    kept = state.axis - (node.op == "Unpack" and at < state.axis)
    return [Rows(kept, state.outer, state.inner)] * len(node.outputs or ())


@rule("Slice")
def _slice(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, begin = inputs[0], value_of(node.inputs[1])
    if isinstance(state, Sizes):
        size = value_of(node.inputs[2])
        return [MIXED if begin is None or size is None else Sizes(_cut(state.times, begin[0], size[0]))]
    whole = isinstance(state, Rows) and (node.out().shape or ())[state.axis] == (node.inputs[0].shape or ())[state.axis]
    if not isinstance(state, Rows) or not whole or begin is None or begin[state.axis] != 0:
        return [MIXED]
    return [state if _follows(node.inputs[2], inputs[2], state.axis, batch) else MIXED]


def _cut(times: tuple[int | None, ...], begin: int, size: int) -> tuple[int | None, ...]:
    return times[begin:] if size < 0 else times[begin : begin + size]


@rule("StridedSlice")
def _strided_slice(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """The dimension of the rows is taken whole: nothing is said of it, or its begin and end are masked."""
    state = inputs[0]
    begin, end, strides = (value_of(t) for t in node.inputs[1:4])
    specs = next((t.shape[0] for t in node.inputs[1:4] if t.shape), None)  # in a loop begin and end may not say
    if specs is None or node.attr("ellipsis_mask", 0):
        return [MIXED]
    if isinstance(state, Sizes):
        known = begin is not None and end is not None and strides is not None
        return [_sizes_slice(node, state, begin, end, strides) if known else MIXED]  # type: ignore[arg-type]
    if not isinstance(state, Rows) or any(other != UNIFORM for other in inputs[1:]):
        return [MIXED]
    masks = {name: node.attr(f"{name}_mask", 0) for name in ("begin", "end", "new_axis", "shrink_axis")}
    source, out = 0, 0
    for spec in range(specs):
        if masks["new_axis"] >> spec & 1:
            out += 1
            continue
        if source == state.axis:
            taken = masks["begin"] >> spec & masks["end"] >> spec & 1 and strides is not None and strides[spec] == 1
            whole = taken and not masks["shrink_axis"] >> spec & 1
            return [Rows(out, state.outer, state.inner) if whole else MIXED]
        source += 1
        out += not masks["shrink_axis"] >> spec & 1
    return [Rows(state.axis - source + out, state.outer, state.inner)]


def _sizes_slice(node: Node, state: Sizes, begin: list[int], end: list[int], strides: list[int]) -> State:
    if len(begin) != 1 or node.attr("new_axis_mask", 0):
        return MIXED
    first = None if node.attr("begin_mask", 0) & 1 else begin[0]
    if node.attr("shrink_axis_mask", 0) & 1:
        return Sizes((state.times[begin[0]],))
    return Sizes(state.times[first : None if node.attr("end_mask", 0) & 1 else end[0] : strides[0]])


@rule("Tile")
def _tile(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, times = inputs[0], inputs[1]
    if state == UNIFORM and isinstance(times, Sizes):
        return [_grown(node, times)]
    value = value_of(node.inputs[1])
    if isinstance(state, Rows) and value is not None and value[state.axis] == 1:
        return [state]
    return [MIXED]


def _grown(node: Node, sizes: Sizes) -> State:
    """A uniform value that is made as long as the batch: every row is the same."""
    growing = [(axis, times) for axis, times in enumerate(sizes.times) if times is not None]
    if len(growing) != 1:
        return MIXED
    axis, times = growing[0]
    shape = node.inputs[0].shape
    if node.op == "Tile" and (shape is None or shape[axis] != 1):
        return MIXED
    return Rows(axis, 1, times)


@rule("Fill")
def _fill(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [_grown(node, inputs[0]) if isinstance(inputs[0], Sizes) and inputs[1] == UNIFORM else MIXED]


@rule("Pad", "PadV2", "MirrorPad")
def _pad(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, amounts = inputs[0], value_of(node.inputs[1])
    if isinstance(state, Rows) and amounts is not None and not any(amounts[2 * state.axis : 2 * state.axis + 2]):
        return [state]
    return [MIXED]


@rule("OneHot")
def _one_hot(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state = inputs[0]
    if not isinstance(state, Rows) or set(inputs[1:]) > {UNIFORM}:
        return [MIXED]
    at = node.attr("axis", -1) % rank_of(node.out())
    return [Rows(state.axis + (at <= state.axis), state.outer, state.inner)]


@rule("GatherV2", "Gather", "ResourceGather", "GatherNd")
def _gather(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """Rows of a uniform table, or of a size vector its elements."""
    params, indices = inputs[0], inputs[1]
    axis = value_of(node.inputs[2]) if node.op == "GatherV2" else [0]
    batched = node.attr("batch_dims", 0)
    if params == UNIFORM and isinstance(indices, Rows) and axis is not None and not batched:
        if node.op == "GatherNd" and indices.axis == rank_of(node.inputs[1]) - 1:
            return [MIXED]
        return [Rows(indices.axis + axis[0], indices.outer, indices.inner)]
    if isinstance(params, Rows) and indices == UNIFORM and axis and axis[0] % rank_of(node.inputs[0]) > params.axis:
        return [params if node.op == "GatherV2" and not batched else MIXED]
    chosen = value_of(node.inputs[1])
    if isinstance(params, Sizes) and chosen is not None:
        return [Sizes(tuple(params.times[i] for i in chosen))]
    return [MIXED]


# --------------------------------------------------------------------------- shapes


@rule("Shape", "ShapeN", "Rank")
def _shape(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    if node.op == "Rank":
        return [UNIFORM]
    found: list[State] = []
    for tensor, state in zip(node.inputs, inputs, strict=True):
        if not isinstance(state, Rows):
            found.append(UNIFORM)
            continue
        grows = state.outer * state.inner
        found.append(Sizes(tuple(grows if axis == state.axis else None for axis in range(rank_of(tensor)))))
    return found


@rule("Size")
def _size(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, shape = inputs[0], node.inputs[0].shape
    if not isinstance(state, Rows) or shape is None or None in shape:
        return [MIXED]
    return [Sizes((math.prod(int(d or 0) for d in shape) // batch.rows,))]

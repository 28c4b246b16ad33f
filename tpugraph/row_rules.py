"""How each op treats the rows of a batch: the rules behind :mod:`tpugraph.rows`.

A rule gets the states of a node's inputs, at least one of which depends on the batch and none of which is mixed, and
gives the states of its outputs. An op without a rule mixes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tpugraph import ops
from tpugraph.constants import known_value
from tpugraph.ir import Node, Tensor


@dataclass(frozen=True)
class Rows:
    """Rows are kept apart: dimension ``axis`` has ``outer * batch * inner`` entries, row-major."""

    axis: int
    outer: int = 1
    inner: int = 1


@dataclass(frozen=True)
class Sizes:
    """Whole numbers made of shapes: of each element how many times the number of rows it is, None where it is not."""

    times: tuple[int | None, ...]


@dataclass(frozen=True)
class Batch:
    """The batch of one core: its rows, and whether constants of the graph may hold that number (a static batch)."""

    rows: int
    baked: bool = False


UNIFORM = "uniform"
MIXED = "mixed"
State = Rows | Sizes | str

Rule = Callable[[Node, Sequence[State], Batch], list[State]]
_RULES: dict[str, Rule] = {}


def apply(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """The states of a node's outputs."""
    count = len(node.outputs or ())
    rule = _RULES.get(node.op) or _general(node.op)
    if rule is None:
        return [MIXED] * count
    found = rule(node, inputs, batch)
    if len(found) == 1:
        found = found * count
    return [_checked(node.out(port), state, batch.rows) for port, state in enumerate(found[:count])]


def reason(node: Node, inputs: Sequence[State]) -> str:
    """Why a node mixes rows, in words."""
    if any(isinstance(state, Sizes) for state in inputs) and not any(isinstance(state, Rows) for state in inputs):
        return "computes with the number of rows"
    if node.op in _RULES or _general(node.op) is not None:
        return "combines rows of the batch"
    return "may combine rows of the batch (nothing is known of this op)"


def join(before: State, now: State) -> State:
    """Two values that meet in a loop."""
    if before in (UNIFORM, now):
        return now
    return before if now == UNIFORM else MIXED


def _checked(tensor: Tensor, state: State, batch: int) -> State:
    """The state, or MIXED where the shape does not bear it out."""
    if isinstance(state, Rows) and tensor.dtype.name != "resource" and not _is_flow(tensor):
        shape = tensor.shape
        if shape is None:
            return state if tensor.node.op in ops.CONTROL_FLOW | ops.IDENTITIES else MIXED
        if state.axis >= len(shape) or shape[state.axis] not in (None, state.outer * batch * state.inner):
            return MIXED
    if isinstance(state, Sizes) and not any(state.times):
        return UNIFORM
    return state


def _is_flow(tensor: Tensor) -> bool:
    """Whether the tensor orders the accesses to a TensorArray; its state is that of an element."""
    return tensor.shape == () and tensor.dtype.name == "float32"


def _general(op: str) -> Rule | None:
    if op in ops.ELEMENTWISE or op == "SelectV2":
        return _elementwise
    if op in ops.IDENTITIES | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION | ops.PRINTS:
        return _same
    if op in ops.REDUCTIONS or op in ("ArgMax", "ArgMin", "Cumsum", "Cumprod", "ReverseV2"):
        return _along
    if op in ops.SWITCH:
        return _switch
    if op in ops.MERGE:
        return _merge
    if op in ops.ROW_BY_ROW:
        return _row_by_row
    if op in ops.LAST_DIMENSION:
        return _last_dimension
    if op in ops.IMAGES:
        return _image
    return None


def _rule(*types: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(types, rule))
        return rule

    return register


def _value(tensor: Tensor) -> list[int] | None:
    value = known_value(tensor)
    return None if value is None or value.dtype.kind not in "iu" else [int(v) for v in value.ravel()]


def _rank(tensor: Tensor) -> int:
    return len(tensor.shape or ())


# --------------------------------------------------------------------------- shape stays


def _same(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return list(inputs) if len(inputs) == len(node.outputs or ()) else [inputs[0]]


def _elementwise(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """Operands are aligned at their last dimensions; a uniform one must not differ between rows."""
    if not any(isinstance(state, Rows) for state in inputs):
        return [_arithmetic(node, inputs)]
    rank = _rank(node.out())
    found: State = UNIFORM
    for tensor, state in zip(node.inputs, inputs, strict=True):
        if isinstance(state, Sizes):
            return [MIXED]
        if isinstance(state, Rows):
            at = state.axis if node.op == "Select" and _rank(tensor) < rank else rank - _rank(tensor) + state.axis
            moved = Rows(at, state.outer, state.inner)
            if found not in (UNIFORM, moved):
                return [MIXED]
            found = moved
    for tensor, state in zip(node.inputs, inputs, strict=True):
        if state == UNIFORM and isinstance(found, Rows) and not _level(tensor, found.axis - rank):
            return [MIXED]
    return [found]


def _level(tensor: Tensor, axis: int) -> bool:
    """Whether a uniform tensor has one value for all rows; ``axis`` counts from the end."""
    shape = tensor.shape
    if shape is None or -axis > len(shape) or shape[axis] == 1:
        return shape is not None
    if tensor.node.op == "Fill":
        return True
    value = tensor.node.attr("value") if tensor.node.op == "Const" else None
    return value is not None and bool((value == value.take([0], axis)).all())


def _arithmetic(node: Node, inputs: Sequence[State]) -> State:
    """Sizes times numbers that are no sizes."""
    if node.op == "Cast":
        return MIXED if node.attr("DstT").floating else inputs[0]
    if node.op != "Mul":
        return MIXED
    sizes = next((s for s in inputs if isinstance(s, Sizes)), None)
    other = next((t for t, s in zip(node.inputs, inputs, strict=True) if s == UNIFORM), None)
    factor = None if other is None else _value(other)
    if sizes is None or factor is None or len(factor) != 1 or node.out().shape not in ((), (len(sizes.times),)):
        return MIXED
    return Sizes(tuple(None if t is None else t * factor[0] for t in sizes.times))


def _row_by_row(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    if "MatMul" in node.op:
        return [_product(node, inputs)]
    if node.op.startswith("LookupTable"):
        return [inputs[1] if inputs[2] == UNIFORM else MIXED]
    return _elementwise(node, inputs, batch)


def _product(node: Node, inputs: Sequence[State]) -> State:
    left, right = inputs
    turned = bool(node.attr("transpose_a", node.attr("adj_x", False)))
    rank = _rank(node.inputs[0])
    if isinstance(left, Rows) and right == UNIFORM:
        kept = rank - 1 if turned else rank - 2  # the dimension of the result that is not contracted
        if left.axis == kept and _rank(node.out()) == rank:
            return Rows(rank - 2, left.outer, left.inner)
        return left if left.axis < rank - 2 and _rank(node.inputs[1]) <= rank and _level_batches(node, left) else MIXED
    if isinstance(left, Rows) and left == right and left.axis < rank - 2 and _rank(node.inputs[1]) == rank:
        return left
    return MIXED


def _level_batches(node: Node, rows: Rows) -> bool:
    shape = node.inputs[1].shape or ()
    return len(shape) == 2 or (len(shape) == _rank(node.out()) and shape[rows.axis] == 1)


def _last_dimension(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state = inputs[0]
    apart = isinstance(state, Rows) and state.axis < _rank(node.inputs[0]) - 1 and set(inputs[1:]) <= {UNIFORM}
    return [state if apart else MIXED]


def _image(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    apart = inputs[0] == Rows(0) and set(inputs[1:]) <= {UNIFORM} and not (
        node.op.startswith("FusedBatchNorm") and node.attr("is_training", True))  # fmt: skip
    more: list[State] = [UNIFORM if apart else MIXED] * (len(node.outputs or ()) - 1)
    return [Rows(0) if apart else MIXED, *more]


@_rule("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")
def _cross_entropy(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [Rows(0) if tuple(inputs) == (Rows(0), Rows(0)) else MIXED]


@_rule("InTopK", "InTopKV2")
def _in_top_k(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [Rows(0) if tuple(inputs[:2]) == (Rows(0), Rows(0)) else MIXED]


# --------------------------------------------------------------------------- dimensions go or come


def _along(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """Works along some dimensions, which must not be that of the rows."""
    state = inputs[0]
    axes = _value(node.inputs[1]) if len(node.inputs) > 1 else None
    if isinstance(state, Sizes):
        return [_product_of(state, node)]
    if not isinstance(state, Rows) or axes is None:
        return [MIXED]
    rank = _rank(node.inputs[0])
    gone = {axis % rank for axis in axes}
    if state.axis in gone:
        return [MIXED]
    if _rank(node.out()) == rank:
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


@_rule("ExpandDims")
def _expand(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, axes = inputs[0], _value(node.inputs[1])
    if isinstance(state, Sizes):
        return [state]
    if not isinstance(state, Rows) or axes is None:
        return [MIXED]
    at = axes[0] % (_rank(node.inputs[0]) + 1)
    return [Rows(state.axis + (at <= state.axis), state.outer, state.inner)]


@_rule("Squeeze")
def _squeeze(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, shape = inputs[0], node.inputs[0].shape or ()
    if isinstance(state, Sizes):
        return [state]
    asked = [int(a) % len(shape) for a in node.attr("squeeze_dims") or []]
    gone = set(asked) or {axis for axis, dim in enumerate(shape) if dim == 1}
    if not isinstance(state, Rows) or state.axis in gone:
        return [MIXED]
    return [Rows(state.axis - sum(axis < state.axis for axis in gone), state.outer, state.inner)]


@_rule("Transpose")
def _transpose(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, order = inputs[0], _value(node.inputs[1])
    if not isinstance(state, Rows) or order is None:
        return [MIXED]
    return [Rows(order.index(state.axis), state.outer, state.inner)]


@_rule("Reshape")
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
    value = _value(target)
    if isinstance(state, Sizes):
        return state.times[axis] is not None or (value is not None and value[axis] < 0)
    return value is not None and (value[axis] < 0 or batch.baked)


@_rule("Pack")
def _pack(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    if node.out().shape is not None and _rank(node.out()) == 1 and not any(isinstance(s, Rows) for s in inputs):
        return [_joined(inputs, [1] * len(inputs))]
    state = next((s for s in inputs if isinstance(s, Rows)), None)
    at = node.attr("axis", 0) % max(_rank(node.out()), 1)
    if state is None or any(s != state for s in inputs):
        return [MIXED]
    return [Rows(state.axis + (at <= state.axis), state.outer, state.inner)]


def _joined(inputs: Sequence[State], lengths: Sequence[int]) -> State:
    times: list[int | None] = []
    for state, length in zip(inputs, lengths, strict=True):
        times.extend(state.times if isinstance(state, Sizes) else [None] * length)
    return Sizes(tuple(times))


@_rule("ConcatV2")
def _concat(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    parts, axes = inputs[:-1], _value(node.inputs[-1])
    if not any(isinstance(s, Rows) for s in parts):
        return [_joined(parts, [int((t.shape or (1,))[0] or 0) for t in node.inputs[:-1]])]
    state = next(s for s in parts if isinstance(s, Rows))
    rank = _rank(node.out())
    if axes is None or axes[0] % rank == state.axis:
        return [MIXED]
    for tensor, part in zip(node.inputs, parts, strict=False):
        if part != state and not (part == UNIFORM and _level(tensor, state.axis - rank)):
            return [MIXED]
    return [state]


@_rule("Unpack", "Split", "SplitV")
def _split(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    operand = 1 if node.op == "Split" else 0
    state = inputs[operand]
    if not isinstance(state, Rows):
        return [MIXED] * len(node.outputs or ())
    rank = _rank(node.inputs[operand])
    if node.op == "Unpack":
        at: int | None = node.attr("axis", 0) % rank
    else:
        axes = _value(node.inputs[0 if node.op == "Split" else 2])
        at = None if axes is None else axes[0] % rank
    if at is None or at == state.axis:
        return [MIXED] * len(node.outputs or ())
    kept = state.axis - (node.op == "Unpack" and at < state.axis)
    return [Rows(kept, state.outer, state.inner)] * len(node.outputs or ())


@_rule("Slice")
def _slice(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, begin = inputs[0], _value(node.inputs[1])
    if isinstance(state, Sizes):
        size = _value(node.inputs[2])
        return [MIXED if begin is None or size is None else Sizes(_cut(state.times, begin[0], size[0]))]
    whole = isinstance(state, Rows) and (node.out().shape or ())[state.axis] == (node.inputs[0].shape or ())[state.axis]
    if not isinstance(state, Rows) or not whole or begin is None or begin[state.axis] != 0:
        return [MIXED]
    return [state if _follows(node.inputs[2], inputs[2], state.axis, batch) else MIXED]


def _cut(times: tuple[int | None, ...], begin: int, size: int) -> tuple[int | None, ...]:
    return times[begin:] if size < 0 else times[begin : begin + size]


@_rule("StridedSlice")
def _strided_slice(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """The dimension of the rows is taken whole: nothing is said of it, or its begin and end are masked."""
    state = inputs[0]
    begin, end, strides = (_value(t) for t in node.inputs[1:4])
    if begin is None or end is None or strides is None or node.attr("ellipsis_mask", 0):
        return [MIXED]
    if isinstance(state, Sizes):
        return [_sizes_slice(node, state, begin, end, strides)]
    if not isinstance(state, Rows):
        return [MIXED]
    masks = {name: node.attr(f"{name}_mask", 0) for name in ("begin", "end", "new_axis", "shrink_axis")}
    source, out = 0, 0
    for spec in range(len(begin)):
        if masks["new_axis"] >> spec & 1:
            out += 1
            continue
        if source == state.axis:
            taken = masks["begin"] >> spec & masks["end"] >> spec & 1 and strides[spec] == 1
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


@_rule("Tile")
def _tile(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, times = inputs[0], inputs[1]
    if state == UNIFORM and isinstance(times, Sizes):
        return [_grown(node, times)]
    value = _value(node.inputs[1])
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


@_rule("Fill")
def _fill(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [_grown(node, inputs[0]) if isinstance(inputs[0], Sizes) and inputs[1] == UNIFORM else MIXED]


@_rule("Pad", "PadV2", "MirrorPad")
def _pad(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, amounts = inputs[0], _value(node.inputs[1])
    if isinstance(state, Rows) and amounts is not None and not any(amounts[2 * state.axis : 2 * state.axis + 2]):
        return [state]
    return [MIXED]


@_rule("OneHot")
def _one_hot(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state = inputs[0]
    if not isinstance(state, Rows) or set(inputs[1:]) > {UNIFORM}:
        return [MIXED]
    at = node.attr("axis", -1) % _rank(node.out())
    return [Rows(state.axis + (at <= state.axis), state.outer, state.inner)]


@_rule("GatherV2", "Gather", "ResourceGather", "GatherNd")
def _gather(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """Rows of a uniform table, or of a size vector its elements."""
    params, indices = inputs[0], inputs[1]
    axis = _value(node.inputs[2]) if node.op == "GatherV2" else [0]
    batched = node.attr("batch_dims", 0)
    if params == UNIFORM and isinstance(indices, Rows) and axis is not None and not batched:
        if node.op == "GatherNd" and indices.axis == _rank(node.inputs[1]) - 1:
            return [MIXED]
        return [Rows(indices.axis + axis[0], indices.outer, indices.inner)]
    if isinstance(params, Rows) and indices == UNIFORM and axis and axis[0] % _rank(node.inputs[0]) > params.axis:
        return [params if node.op == "GatherV2" and not batched else MIXED]
    chosen = _value(node.inputs[1])
    if isinstance(params, Sizes) and chosen is not None:
        return [Sizes(tuple(params.times[i] for i in chosen))]
    return [MIXED]


# --------------------------------------------------------------------------- shapes


@_rule("Shape", "ShapeN", "Rank")
def _shape(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    if node.op == "Rank":
        return [UNIFORM]
    found: list[State] = []
    for tensor, state in zip(node.inputs, inputs, strict=True):
        if not isinstance(state, Rows):
            found.append(UNIFORM)
            continue
        grows = state.outer * state.inner
        found.append(Sizes(tuple(grows if axis == state.axis else None for axis in range(_rank(tensor)))))
    return found


@_rule("Size")
def _size(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state, shape = inputs[0], node.inputs[0].shape
    if not isinstance(state, Rows) or shape is None or None in shape:
        return [MIXED]
    return [Sizes((math.prod(int(d or 0) for d in shape) // batch.rows,))]


# --------------------------------------------------------------------------- control flow, TensorArrays


def _switch(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [inputs[0] if inputs[1] == UNIFORM else MIXED]


def _merge(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """What meets must be alike; a uniform value may meet rows where all rows of it are the same."""
    states = [state for state in inputs if state != UNIFORM]
    if any(state != states[0] for state in states):
        return [MIXED, UNIFORM]
    state = states[0]
    for tensor, other in zip(node.inputs, inputs, strict=True):
        bears = other != UNIFORM or tensor.node.op in ops.NEXT_ITERATION or _is_flow(tensor)
        if not bears and not (isinstance(state, Rows) and _level(_behind(tensor), state.axis - _rank(tensor))):
            return [MIXED, UNIFORM]
    return [state, UNIFORM]


def _behind(tensor: Tensor) -> Tensor:
    while tensor.node.op in ops.ENTER | ops.IDENTITIES:
        tensor = tensor.node.inputs[0]
    return tensor


@_rule("TensorArrayScatterV3", "TensorArrayWriteV3")
def _put(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    value, flow = inputs[2], inputs[3]
    if isinstance(value, Rows) and node.op == "TensorArrayScatterV3":
        value = Rows(value.axis - 1, value.outer, value.inner) if value.axis else MIXED
    return [value if flow in (UNIFORM, value) else flow if value == UNIFORM else MIXED]


@_rule("TensorArrayReadV3")
def _read(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [inputs[2]]


@_rule("TensorArrayGatherV3")
def _take(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state: Any = inputs[2]
    return [Rows(state.axis + 1, state.outer, state.inner) if isinstance(state, Rows) else state]


@_rule("TensorArraySizeV3")
def _length(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [UNIFORM]

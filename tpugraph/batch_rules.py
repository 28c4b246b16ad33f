"""What each op ties together: an element-wise op the dimensions of its operands, a Shape those it names, and so on."""

from __future__ import annotations

from collections.abc import Callable

from tpugraph import joined, ops
from tpugraph.batch_ties import FIXED, Ties, is_vector, length, vector_value
from tpugraph.ir import Node, Tensor

_SAME_SHAPE = (
    ops.IDENTITIES
    | ops.ENTER
    | ops.EXIT
    | ops.NEXT_ITERATION
    | {"Softmax", "LogSoftmax", "ZerosLike", "OnesLike", "LRN", "Dropout", "Cumsum", "StackPushV2", "FusedBatchNormV3"}
)
_ROWS_AND_CHANNELS = frozenset({"MaxPool", "AvgPool", "MaxPoolGrad", "FusedBatchNormGradV3", "FusedBatchNormGrad"})


def _elementwise(ties: Ties, node: Node) -> None:
    out = node.out()
    rank = len(out.shape or ())
    for tensor in node.inputs:
        own = len(tensor.shape or ())
        if node.op == "Select" and own == 1 and rank > 1:  # a vector condition picks rows
            ties.dims(tensor, 0, out, 0)
            continue
        for back in range(1, own + 1):
            if back <= rank:
                ties.dims(tensor, own - back, out, rank - back)
    if node.op == "Cast":
        ties.values(node.inputs[0], out)


def _broadcast_args(ties: Ties, node: Node) -> None:
    a, b = node.inputs
    x, y = vector_value(a), vector_value(b)
    if x is None or y is None:
        return
    for back in range(1, min(len(x), len(y)) + 1):
        if x[-back] == y[-back] and x[-back] != 1:
            ties.unite(("v", a, len(x) - back), ("v", b, len(y) - back))


def _control(ties: Ties, node: Node) -> None:
    inputs = node.inputs if node.op in ops.MERGE else node.inputs[:1]
    outputs = [node.out()] if node.op in ops.MERGE else [node.out(0), node.out(1)]
    for tensor in inputs:
        for out in outputs:
            ties.same(tensor, out)


def _reduction(ties: Ties, node: Node) -> None:
    source, out = node.inputs[0], node.out()
    axes = vector_value(node.inputs[1])
    if axes is None or source.shape is None or out.shape is None:
        return
    rank = len(source.shape)
    gone = {axis % rank for axis in axes} if rank else set()
    kept = [axis for axis in range(rank) if axis not in gone]
    targets = kept if len(out.shape) == rank else range(len(kept))
    for axis, target in zip(kept, targets, strict=True):
        ties.dims(source, axis, out, target)


def _matmul(ties: Ties, node: Node) -> None:
    a, b, out = node.inputs[0], node.inputs[1], node.out()
    ta, tb = int(node.attr("transpose_a", False)), int(node.attr("transpose_b", False))
    ties.dims(a, ta, out, 0)
    ties.dims(b, 1 - tb, out, 1)
    ties.dims(a, 1 - ta, b, tb)


def _bias_add(ties: Ties, node: Node) -> None:
    ties.same(node.inputs[0], node.out())
    ties.dims(node.inputs[1], 0, node.out(), -1)


def _bias_add_grad(ties: Ties, node: Node) -> None:
    ties.dims(node.inputs[0], -1, node.out(), 0)


def _conv2d(ties: Ties, node: Node) -> None:
    image, kernel = node.inputs
    ties.dims(image, 0, node.out(), 0)
    ties.dims(kernel, 3, node.out(), 3)
    ties.dims(image, 3, kernel, 2)


def _conv2d_backprop_input(ties: Ties, node: Node) -> None:
    sizes, _, gradient = node.inputs
    ties.dims(gradient, 0, node.out(), 0)
    ties.named_dims(sizes, node.out())
    for axis in (1, 2, 3):
        ties.unite(("d", node.out(), axis), FIXED)


def _conv2d_backprop_filter(ties: Ties, node: Node) -> None:
    image, sizes, gradient = node.inputs
    ties.dims(image, 0, gradient, 0)
    ties.named_dims(sizes, node.out())
    for axis in range(4):
        ties.unite(("d", node.out(), axis), FIXED)


def _shape(ties: Ties, node: Node) -> None:
    ties.named_dims(node.out(), node.inputs[0])


def _shape_n(ties: Ties, node: Node) -> None:
    for port, tensor in enumerate(node.inputs):
        ties.named_dims(node.out(port), tensor)


def _fill(ties: Ties, node: Node) -> None:
    ties.named_dims(node.inputs[0], node.out())


def _broadcast_to(ties: Ties, node: Node) -> None:
    ties.named_dims(node.inputs[1], node.out())


def _tile(ties: Ties, node: Node) -> None:
    source, multiples, out = node.inputs[0], node.inputs[1], node.out()
    for axis, dim in enumerate(source.shape or ()):
        if dim == 1 and out.shape is not None:
            ties.unite(("v", multiples, axis), ("d", out, axis))
        else:
            ties.dims(source, axis, out, axis)


def _const(ties: Ties, node: Node) -> None:
    out = node.out()
    if out.dtype.floating or len(out.shape or ()) != 1:
        return
    # The values of a vector of sizes say nothing of its own length.
    if is_vector(out):
        ties.unite(("d", out, 0), FIXED)


def _expand_dims(ties: Ties, node: Node) -> None:
    source, out = node.inputs[0], node.out()
    axes = vector_value(node.inputs[1])
    if axes is None or source.shape is None:
        return
    at = axes[0] % (len(source.shape) + 1)
    for axis in range(len(source.shape)):
        ties.dims(source, axis, out, axis + (axis >= at))
    if source.shape == ():
        ties.unite(("v", source, 0), ("v", out, 0))


def _squeeze(ties: Ties, node: Node) -> None:
    source, out = node.inputs[0], node.out()
    kept = [axis for axis, dim in enumerate(source.shape or ()) if dim != 1]
    if len(kept) == len(out.shape or ()):
        for target, axis in enumerate(kept):
            ties.dims(source, axis, out, target)


def _pack(ties: Ties, node: Node) -> None:
    out = node.out()
    for index, tensor in enumerate(node.inputs):
        if tensor.shape == ():
            ties.unite(("v", tensor, 0), ("v", out, index))
        elif node.attr("axis", 0) == 0:
            for axis in range(len(tensor.shape or ())):
                ties.dims(tensor, axis, out, axis + 1)


def _concat(ties: Ties, node: Node) -> None:
    *parts, axis_tensor = node.inputs
    axes, out = vector_value(axis_tensor), node.out()
    if axes is None:
        return
    if is_vector(out):
        offset = 0
        for part in parts:
            for index in range(length(part)):
                ties.unite(("v", part, index), ("v", out, offset + index))
            offset += length(part)
        return
    rank = len(out.shape or ())
    for part in parts:
        for axis in range(rank):
            if axis != axes[0] % rank:
                ties.dims(part, axis, out, axis)


def _concat_offset(ties: Ties, node: Node) -> None:
    axes = vector_value(node.inputs[0])
    first = node.inputs[1]
    for part in node.inputs[2:]:
        for index in range(length(part)):
            if axes is not None and index != axes[0] % length(part):
                ties.unite(("v", first, index), ("v", part, index))


def _slice(ties: Ties, node: Node) -> None:
    source, _, sizes = node.inputs
    out = node.out()
    taken = _tie_part(ties, node)
    for axis in range(len(out.shape or ())):
        ties.unite(("v", sizes, axis), ("d", out, axis))
        ties.dims(source, axis, out, axis)
        if axis == 0 and taken:
            continue
        whole = (source.shape or ())[axis]
        if whole is not None and whole % ties.batch:  # a piece of what is not the batch is not the batch
            ties.unite(("d", out, axis), FIXED)


def _tie_part(ties: Ties, node: Node) -> bool:
    """Tie the rows of a slice to the part of a concatenation that it takes whole; returns whether it does."""
    taken = joined.part(node)
    if taken is None:
        return False
    ties.dims(taken.part, 0, node.out(), 0)
    if len(taken.before) == 1:
        ties.unite(("v", node.inputs[1], 0), ("d", taken.before[0], 0))
    return True


def _strided_slice(ties: Ties, node: Node) -> None:
    source, out = node.inputs[0], node.out()
    if not is_vector(source):
        _tie_part(ties, node)
    begin, end = vector_value(node.inputs[1]), vector_value(node.inputs[2])
    if begin is None or end is None:
        return
    if not is_vector(source) or len(begin) != 1:
        _sliced(ties, node, len(begin))
        return
    size = length(source)
    start = 0 if node.attr("begin_mask", 0) & 1 else begin[0] % (size + (begin[0] == size))
    if out.shape == ():
        ties.unite(("v", source, start), ("v", out, 0))
        return
    for index in range(length(out)):
        ties.unite(("v", source, start + index), ("v", out, index))


def _sliced(ties: Ties, node: Node, count: int) -> None:
    """Of the places of a slice, one makes a new axis, one takes an axis away, and the others keep theirs."""
    source, out = node.inputs[0], node.out()
    masks = {name: int(node.attr(f"{name}_axis_mask", 0)) for name in ("new", "shrink")}
    if node.attr("ellipsis_mask", 0):
        if not any(masks.values()):
            ties.same(source, out)
        return
    axis = target = 0
    for place in range(max(count, len(source.shape or ()) + masks["new"].bit_count())):
        if masks["new"] >> place & 1:
            target += 1
        elif masks["shrink"] >> place & 1:
            axis += 1
        else:
            if axis < len(source.shape or ()) and target < len(out.shape or ()):
                ties.dims(source, axis, out, target)
            axis, target = axis + 1, target + 1


def _transpose(ties: Ties, node: Node) -> None:
    order = vector_value(node.inputs[1])
    for target, axis in enumerate(order or ()):
        ties.dims(node.inputs[0], axis, node.out(), target)


def _gather(ties: Ties, node: Node) -> None:
    params, indices, axis = node.inputs
    if vector_value(axis) != [0]:
        return
    rank = len(indices.shape or ())
    for i in range(rank):
        ties.dims(indices, i, node.out(), i)
    for i in range(1, len(params.shape or ())):
        ties.dims(params, i, node.out(), rank + i - 1)


def _unsorted_segment_sum(ties: Ties, node: Node) -> None:
    data, ids, _ = node.inputs
    rank = len(ids.shape or ())
    for i in range(rank):
        ties.dims(data, i, ids, i)
    for i in range(rank, len(data.shape or ())):
        ties.dims(data, i, node.out(), i - rank + 1)


def _sparse_cross_entropy(ties: Ties, node: Node) -> None:
    logits, labels = node.inputs
    ties.dims(logits, 0, labels, 0)
    ties.dims(logits, 0, node.out(0), 0)
    ties.same(logits, node.out(1))


def _cross_entropy(ties: Ties, node: Node) -> None:
    ties.same(node.inputs[0], node.inputs[1])
    ties.dims(node.inputs[0], 0, node.out(0), 0)
    ties.same(node.inputs[0], node.out(1))


def _one_hot(ties: Ties, node: Node) -> None:
    for axis in range(len(node.inputs[0].shape or ())):
        ties.dims(node.inputs[0], axis, node.out(), axis)


def _split(ties: Ties, node: Node) -> None:
    axes = vector_value(node.inputs[0])
    for port in range(len(node.outputs or ())):
        for axis in range(len(node.inputs[1].shape or ())):
            if axes is not None and axis != axes[0] % len(node.inputs[1].shape or ()):
                ties.dims(node.inputs[1], axis, node.out(port), axis)


def _tensor_array_scatter(ties: Ties, node: Node) -> None:
    """What is scattered into a TensorArray is what is read from it."""
    value = node.inputs[2]
    for reader in _array_users(node.inputs[0]):
        if reader.op == "TensorArrayReadV3" and reader.outputs:
            for axis in range(1, len(value.shape or ())):
                ties.dims(value, axis, reader.out(), axis - 1)


def _array_users(handle: Tensor) -> list[Node]:
    found: dict[Node, None] = {}
    stack = [handle.node]
    while stack:
        for use in stack.pop().uses(0):
            if use.node not in found:
                found[use.node] = None
                if use.node.op in ops.HANDLE_ALIASES:
                    stack.append(use.node)
    return list(found)


RULES: dict[str, Callable[[Ties, Node], None]] = {
    "MatMul": _matmul,
    "BiasAdd": _bias_add,
    "BiasAddGrad": _bias_add_grad,
    "Conv2D": _conv2d,
    "Conv2DBackpropInput": _conv2d_backprop_input,
    "Conv2DBackpropFilter": _conv2d_backprop_filter,
    "Shape": _shape,
    "ShapeN": _shape_n,
    "Fill": _fill,
    **dict.fromkeys(("RandomUniform", "RandomStandardNormal", "TruncatedNormal"), _fill),
    "BroadcastTo": _broadcast_to,
    "Tile": _tile,
    "Const": _const,
    "ExpandDims": _expand_dims,
    "Squeeze": _squeeze,
    "Pack": _pack,
    "ConcatV2": _concat,
    "ConcatOffset": _concat_offset,
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "Transpose": _transpose,
    "GatherV2": _gather,
    "UnsortedSegmentSum": _unsorted_segment_sum,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "OneHot": _one_hot,
    "Split": _split,
    "TensorArrayScatterV3": _tensor_array_scatter,
    "BroadcastGradientArgs": _broadcast_args,
}
"""What an op ties together, by its type."""


def tie(ties: Ties, node: Node) -> None:
    """Tie together what one node has alike."""
    if node.outputs is None:
        return
    for tensor in node.inputs:
        if tensor.node.op in ops.READS:
            for axis in range(len(tensor.shape or ())):
                ties.unite(("d", tensor, axis), FIXED)
    rule = RULES.get(node.op)
    if rule is not None:
        rule(ties, node)
    elif node.op in ops.ELEMENTWISE or node.op in ops.SELECTS:
        _elementwise(ties, node)
    elif node.op in _SAME_SHAPE:
        ties.same(node.inputs[0], node.out())
        ties.values(node.inputs[0], node.out())
    elif node.op in ops.MERGE or node.op in ops.SWITCH:
        _control(ties, node)
    elif node.op in _ROWS_AND_CHANNELS:
        for tensor in node.inputs:
            if len(tensor.shape or ()) == len(node.out().shape or ()):
                ties.dims(tensor, 0, node.out(), 0)
    elif node.op in ops.REDUCTIONS and len(node.inputs) > 1:
        _reduction(ties, node)

"""Which dimensions, and which elements of shape constants, are the batch.

Each dimension of each tensor, and each element of each small integer vector, is either batch (it scales when the batch
does) or not. Ops tie them together: an element-wise op has the dimensions of its operands, a Reshape those its operand
names. What follows from the input and from the variables is certain; what does not is not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tpugraph import ops
from tpugraph.analysis import in_cluster
from tpugraph.attrs import Shape
from tpugraph.ir import Graph, Node, Tensor

_Key = tuple[str, Tensor, int]  # ("d", tensor, axis) or ("v", tensor, index)
_TRUE: Any = ("batch",)
_FALSE: Any = ("fixed",)

_SAME_SHAPE = (
    ops.IDENTITIES
    | ops.ENTER
    | ops.EXIT
    | ops.NEXT_ITERATION
    | {"Softmax", "LogSoftmax", "ZerosLike", "OnesLike", "LRN", "Dropout", "Cumsum", "StackPushV2", "FusedBatchNormV3"}
)
_ROWS_AND_CHANNELS = frozenset({"MaxPool", "AvgPool", "MaxPoolGrad", "FusedBatchNormGradV3", "FusedBatchNormGrad"})
_LONGEST_VECTOR = 16


class BatchDims:
    """The analysis.

    Args:
        graph: the graph, with shapes.
        nodes: the nodes to analyse.
        batch: the batch size that is written into the graph.
        seeds: tensors whose dimension 0 is the batch.
        fixed: tensors none of whose dimensions is the batch.
    """

    def __init__(
        self, graph: Graph, nodes: Iterable[Node], batch: int, seeds: Iterable[Tensor], fixed: Iterable[Tensor] = ()
    ) -> None:
        self.graph = graph
        self.nodes = list(nodes)
        self.batch = batch
        self.conflicts: list[Node] = []
        self._parent: dict[Any, Any] = {}
        self._where: Node | None = None
        for tensor in seeds:
            for axis in range(len(tensor.shape or ())):
                self._unite(("d", tensor, axis), _TRUE if axis == 0 else _FALSE)
        for tensor in fixed:
            for axis in range(len(tensor.shape or ())):
                self._unite(("d", tensor, axis), _FALSE)
        for node in self.nodes:
            self._where = node
            self._tie(node)
        self._settle_reshapes()

    def dim(self, tensor: Tensor, axis: int) -> bool | None:
        """Whether a dimension is the batch; None where nothing decides."""
        return self._known(("d", tensor, axis), (tensor.shape or ())[axis])

    def certain(self, tensor: Tensor, axis: int) -> bool:
        """Whether a dimension is certainly the batch."""
        return bool(self._find(("d", tensor, axis)) == _TRUE)

    def element(self, tensor: Tensor, index: int, value: int) -> bool | None:
        """Whether an element of a shape constant is the batch; None where nothing decides."""
        return self._known(("v", tensor, index), value)

    # ------------------------------------------------------------------ union-find

    def _find(self, key: Any) -> Any:
        root = key
        while (up := self._parent.get(root, root)) is not root:
            root = up
        while (up := self._parent.get(key, key)) is not root and key is not root:
            self._parent[key] = root
            key = up
        return root

    def _unite(self, a: Any, b: Any) -> None:
        x, y = self._find(a), self._find(b)
        if x is y or x == y:
            return
        if x in (_TRUE, _FALSE):
            x, y = y, x
        if x in (_TRUE, _FALSE):
            if self._where is not None:
                self.conflicts.append(self._where)
            return
        self._parent[x] = y

    def _known(self, key: _Key, value: int | None) -> bool | None:
        root = self._find(key)
        if root == _TRUE:
            return True
        if root == _FALSE or value is None or value % self.batch or value == 0:
            return False
        return None

    # ------------------------------------------------------------------ ties of one node

    def _tie(self, node: Node) -> None:
        if node.outputs is None:
            return
        for tensor in node.inputs:
            if tensor.node.op in ops.READS | ops.GATHERS:
                self._fix(tensor)
        method = getattr(self, f"_tie_{node.op.lower()}", None)
        if method is not None:
            method(node)
        elif node.op in ops.ELEMENTWISE or node.op in ("Select", "SelectV2", "BroadcastGradientArgs"):
            self._tie_elementwise(node)
        elif node.op in _SAME_SHAPE:
            self._tie_same(node.inputs[0], node.out())
            self._tie_values(node.inputs[0], node.out())
        elif node.op in ops.MERGE or node.op in ops.SWITCH:
            self._tie_control(node)
        elif node.op in _ROWS_AND_CHANNELS:
            for tensor in node.inputs:
                if len(tensor.shape or ()) == len(node.out().shape or ()):
                    self._dims(tensor, 0, node.out(), 0)
        elif node.op in ops.REDUCTIONS and len(node.inputs) > 1:
            self._tie_reduction(node)

    def _fix(self, tensor: Tensor) -> None:
        if tensor.node.op in ops.READS:
            for axis in range(len(tensor.shape or ())):
                self._unite(("d", tensor, axis), _FALSE)

    def _dims(self, a: Tensor, i: int, b: Tensor, j: int) -> None:
        x, y = a.shape, b.shape
        if x is None or y is None:
            return
        i, j = i % max(len(x), 1), j % max(len(y), 1)
        if i < len(x) and j < len(y) and x[i] == y[j] and x[i] != 1:
            self._unite(("d", a, i), ("d", b, j))

    def _tie_same(self, a: Tensor, b: Tensor) -> None:
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            for axis in range(len(a.shape)):
                self._dims(a, axis, b, axis)

    def _tie_values(self, a: Tensor, b: Tensor) -> None:
        if _is_vector(a) and _is_vector(b):
            for index in range(min(_length(a), _length(b))):
                self._unite(("v", a, index), ("v", b, index))

    def _tie_elementwise(self, node: Node) -> None:
        if node.op == "BroadcastGradientArgs":
            self._tie_broadcast_args(node)
            return
        out = node.out()
        rank = len(out.shape or ())
        for tensor in node.inputs:
            own = len(tensor.shape or ())
            if node.op == "Select" and own == 1 and rank > 1:  # a vector condition picks rows
                self._dims(tensor, 0, out, 0)
                continue
            for back in range(1, own + 1):
                if back <= rank:
                    self._dims(tensor, own - back, out, rank - back)
        if node.op == "Cast":
            self._tie_values(node.inputs[0], out)

    def _tie_broadcast_args(self, node: Node) -> None:
        a, b = node.inputs
        x, y = _vector_value(a), _vector_value(b)
        if x is None or y is None:
            return
        for back in range(1, min(len(x), len(y)) + 1):
            if x[-back] == y[-back] and x[-back] != 1:
                self._unite(("v", a, len(x) - back), ("v", b, len(y) - back))

    def _tie_control(self, node: Node) -> None:
        inputs = node.inputs if node.op in ops.MERGE else node.inputs[:1]
        outputs = [node.out()] if node.op in ops.MERGE else [node.out(0), node.out(1)]
        for tensor in inputs:
            for out in outputs:
                self._tie_same(tensor, out)

    def _tie_reduction(self, node: Node) -> None:
        source, out = node.inputs[0], node.out()
        axes = _vector_value(node.inputs[1])
        if axes is None or source.shape is None or out.shape is None:
            return
        rank = len(source.shape)
        gone = {axis % rank for axis in axes} if rank else set()
        kept = [axis for axis in range(rank) if axis not in gone]
        targets = kept if len(out.shape) == rank else range(len(kept))
        for axis, target in zip(kept, targets, strict=True):
            self._dims(source, axis, out, target)

    def _tie_matmul(self, node: Node) -> None:
        a, b, out = node.inputs[0], node.inputs[1], node.out()
        ta, tb = int(node.attr("transpose_a", False)), int(node.attr("transpose_b", False))
        self._dims(a, ta, out, 0)
        self._dims(b, 1 - tb, out, 1)
        self._dims(a, 1 - ta, b, tb)

    def _tie_biasadd(self, node: Node) -> None:
        self._tie_same(node.inputs[0], node.out())
        self._dims(node.inputs[1], 0, node.out(), -1)

    def _tie_biasaddgrad(self, node: Node) -> None:
        self._dims(node.inputs[0], -1, node.out(), 0)

    def _tie_conv2d(self, node: Node) -> None:
        image, kernel = node.inputs
        self._dims(image, 0, node.out(), 0)
        self._dims(kernel, 3, node.out(), 3)
        self._dims(image, 3, kernel, 2)

    def _tie_conv2dbackpropinput(self, node: Node) -> None:
        sizes, _, gradient = node.inputs
        self._dims(gradient, 0, node.out(), 0)
        self._named_dims(sizes, node.out())
        for axis in (1, 2, 3):
            self._unite(("d", node.out(), axis), _FALSE)

    def _tie_conv2dbackpropfilter(self, node: Node) -> None:
        image, sizes, gradient = node.inputs
        self._dims(image, 0, gradient, 0)
        self._named_dims(sizes, node.out())
        for axis in range(4):
            self._unite(("d", node.out(), axis), _FALSE)

    def _named_dims(self, sizes: Tensor, out: Tensor) -> None:
        """The operand holds the dimensions of the output."""
        for axis in range(len(out.shape or ())):
            self._unite(("v", sizes, axis), ("d", out, axis))

    def _tie_shape(self, node: Node) -> None:
        self._named_dims(node.out(), node.inputs[0])

    def _tie_shapen(self, node: Node) -> None:
        for port, tensor in enumerate(node.inputs):
            self._named_dims(node.out(port), tensor)

    def _tie_fill(self, node: Node) -> None:
        self._named_dims(node.inputs[0], node.out())

    def _tie_random(self, node: Node) -> None:
        self._named_dims(node.inputs[0], node.out())

    _tie_randomuniform = _tie_randomstandardnormal = _tie_truncatednormal = _tie_random

    def _tie_broadcastto(self, node: Node) -> None:
        self._named_dims(node.inputs[1], node.out())

    def _tie_tile(self, node: Node) -> None:
        source, multiples, out = node.inputs[0], node.inputs[1], node.out()
        for axis, dim in enumerate(source.shape or ()):
            if dim == 1 and out.shape is not None:
                self._unite(("v", multiples, axis), ("d", out, axis))
            else:
                self._dims(source, axis, out, axis)

    def _tie_const(self, node: Node) -> None:
        out = node.out()
        if out.dtype.floating or len(out.shape or ()) != 1:
            return
        # The values of a vector of sizes say nothing of its own length.
        if _is_vector(out):
            self._unite(("d", out, 0), _FALSE)

    def _tie_expanddims(self, node: Node) -> None:
        source, out = node.inputs[0], node.out()
        axes = _vector_value(node.inputs[1])
        if axes is None or source.shape is None:
            return
        at = axes[0] % (len(source.shape) + 1)
        for axis in range(len(source.shape)):
            self._dims(source, axis, out, axis + (axis >= at))
        if source.shape == ():
            self._unite(("v", source, 0), ("v", out, 0))

    def _tie_squeeze(self, node: Node) -> None:
        source, out = node.inputs[0], node.out()
        kept = [axis for axis, dim in enumerate(source.shape or ()) if dim != 1]
        if len(kept) == len(out.shape or ()):
            for target, axis in enumerate(kept):
                self._dims(source, axis, out, target)

    def _tie_pack(self, node: Node) -> None:
        out = node.out()
        for index, tensor in enumerate(node.inputs):
            if tensor.shape == ():
                self._unite(("v", tensor, 0), ("v", out, index))
            elif node.attr("axis", 0) == 0:
                for axis in range(len(tensor.shape or ())):
                    self._dims(tensor, axis, out, axis + 1)

    def _tie_concatv2(self, node: Node) -> None:
        *parts, axis_tensor = node.inputs
        axes, out = _vector_value(axis_tensor), node.out()
        if axes is None:
            return
        if _is_vector(out):
            offset = 0
            for part in parts:
                for index in range(_length(part)):
                    self._unite(("v", part, index), ("v", out, offset + index))
                offset += _length(part)
            return
        rank = len(out.shape or ())
        for part in parts:
            for axis in range(rank):
                if axis != axes[0] % rank:
                    self._dims(part, axis, out, axis)

    def _tie_concatoffset(self, node: Node) -> None:
        axes = _vector_value(node.inputs[0])
        first = node.inputs[1]
        for part in node.inputs[2:]:
            for index in range(_length(part)):
                if axes is not None and index != axes[0] % _length(part):
                    self._unite(("v", first, index), ("v", part, index))

    def _tie_slice(self, node: Node) -> None:
        source, _, sizes = node.inputs
        out = node.out()
        for axis in range(len(out.shape or ())):
            self._unite(("v", sizes, axis), ("d", out, axis))
            self._dims(source, axis, out, axis)
            whole = (source.shape or ())[axis]
            if whole is not None and whole % self.batch:  # a piece of what is not the batch is not the batch
                self._unite(("d", out, axis), _FALSE)

    def _tie_stridedslice(self, node: Node) -> None:
        source, out = node.inputs[0], node.out()
        begin, end = _vector_value(node.inputs[1]), _vector_value(node.inputs[2])
        if begin is None or end is None:
            return
        if not _is_vector(source) or len(begin) != 1:
            self._tie_sliced(node, len(begin))
            return
        length = _length(source)
        start = 0 if node.attr("begin_mask", 0) & 1 else begin[0] % (length + (begin[0] == length))
        if out.shape == ():
            self._unite(("v", source, start), ("v", out, 0))
            return
        for index in range(_length(out)):
            self._unite(("v", source, start + index), ("v", out, index))

    def _tie_sliced(self, node: Node, count: int) -> None:
        """Of the places of a slice, one makes a new axis, one takes an axis away, and the others keep theirs."""
        source, out = node.inputs[0], node.out()
        masks = {name: int(node.attr(f"{name}_axis_mask", 0)) for name in ("new", "shrink")}
        if node.attr("ellipsis_mask", 0):
            if not any(masks.values()):
                self._tie_same(source, out)
            return
        axis = target = 0
        for place in range(max(count, len(source.shape or ()) + masks["new"].bit_count())):
            if masks["new"] >> place & 1:
                target += 1
            elif masks["shrink"] >> place & 1:
                axis += 1
            else:
                if axis < len(source.shape or ()) and target < len(out.shape or ()):
                    self._dims(source, axis, out, target)
                axis, target = axis + 1, target + 1

    def _tie_transpose(self, node: Node) -> None:
        order = _vector_value(node.inputs[1])
        for target, axis in enumerate(order or ()):
            self._dims(node.inputs[0], axis, node.out(), target)

    def _tie_gatherv2(self, node: Node) -> None:
        params, indices, axis = node.inputs
        if _vector_value(axis) != [0]:
            return
        rank = len(indices.shape or ())
        for i in range(rank):
            self._dims(indices, i, node.out(), i)
        for i in range(1, len(params.shape or ())):
            self._dims(params, i, node.out(), rank + i - 1)

    def _tie_unsortedsegmentsum(self, node: Node) -> None:
        data, ids, _ = node.inputs
        rank = len(ids.shape or ())
        for i in range(rank):
            self._dims(data, i, ids, i)
        for i in range(rank, len(data.shape or ())):
            self._dims(data, i, node.out(), i - rank + 1)

    def _tie_sparsesoftmaxcrossentropywithlogits(self, node: Node) -> None:
        logits, labels = node.inputs
        self._dims(logits, 0, labels, 0)
        self._dims(logits, 0, node.out(0), 0)
        self._tie_same(logits, node.out(1))

    def _tie_softmaxcrossentropywithlogits(self, node: Node) -> None:
        self._tie_same(node.inputs[0], node.inputs[1])
        self._dims(node.inputs[0], 0, node.out(0), 0)
        self._tie_same(node.inputs[0], node.out(1))

    def _tie_onehot(self, node: Node) -> None:
        for axis in range(len(node.inputs[0].shape or ())):
            self._dims(node.inputs[0], axis, node.out(), axis)

    def _tie_split(self, node: Node) -> None:
        axes = _vector_value(node.inputs[0])
        for port in range(len(node.outputs or ())):
            for axis in range(len(node.inputs[1].shape or ())):
                if axes is not None and axis != axes[0] % len(node.inputs[1].shape or ()):
                    self._dims(node.inputs[1], axis, node.out(port), axis)

    def _tie_tensorarrayscatterv3(self, node: Node) -> None:
        """What is scattered into a TensorArray is what is read from it."""
        value = node.inputs[2]
        for reader in _array_users(node.inputs[0]):
            if reader.op == "TensorArrayReadV3" and reader.outputs:
                for axis in range(1, len(value.shape or ())):
                    self._dims(value, axis, reader.out(), axis - 1)

    # ------------------------------------------------------------------ reshapes

    def _settle_reshapes(self) -> None:
        pending = [node for node in self.nodes if node.op == "Reshape"]
        while pending:
            left = [node for node in pending if not self._settle(node)]
            if len(left) == len(pending):
                return
            pending = left

    def _settle(self, node: Node) -> bool:
        self._where = node
        source, target, out = node.inputs[0], node.inputs[1], node.out()
        done = self._carry(source, out)
        if not done:
            done = self._carry(out, source)
        value = _vector_value(target)
        for axis in range(len(out.shape or ())):
            if value is None or value[axis] >= 0:
                self._unite(("v", target, axis), ("d", out, axis))
        return done

    def _carry(self, a: Tensor, b: Tensor) -> bool:
        if a.shape is None or b.shape is None or None in a.shape or None in b.shape:
            return False
        tags = [self.dim(a, axis) for axis in range(len(a.shape))]
        if None in tags or sum(map(bool, tags)) > 1:
            return False
        axis = tags.index(True) if True in tags else None
        found = None if axis is None else _axis_after_reshape(a.shape, axis, b.shape, self.batch)
        if axis is not None and found is None:
            return False
        for other in range(len(b.shape)):
            self._unite(("d", b, other), _TRUE if other == found else _FALSE)
        return True


def of_batch(graph: Graph, nodes: Iterable[Node], batch: int) -> BatchDims:
    """The analysis of nodes of the device, where every tensor from the host with as many rows brings the batch."""
    device = [node for node in nodes if in_cluster(node)]
    crossing = {t: None for n in device for t in n.inputs if not in_cluster(t.node)}
    seeds = [t for t in crossing if t.shape and t.shape[0] == batch]
    return BatchDims(graph, graph.topological_order(device), batch, seeds)


def _axis_after_reshape(a: Shape, axis: int, b: Shape, batch: int) -> int | None:
    """Where the batch axis of a row-major array is after a reshape, or None where that is not certain."""
    before = [int(d or 0) for d in a or ()]
    after = [int(d or 0) for d in b or ()]
    prefix, size = math.prod(before[:axis]), before[axis]
    holding = []
    for i, dim in enumerate(after):
        start = math.prod(after[:i])
        if dim % batch == 0 and dim > 0 and start <= prefix * size and start * dim > prefix:
            holding.append((i, start, dim))
    exact = [i for i, start, dim in holding if start == prefix and dim == size]
    if exact:
        return exact[0]
    if size == batch:  # the whole batch is one axis: the axis that starts at or before it and ends at or behind it
        holding = [h for h in holding if h[1] <= prefix and h[1] * h[2] >= prefix * size]
    return holding[0][0] if len(holding) == 1 else None


def _is_vector(tensor: Tensor) -> bool:
    shape = tensor.shape
    whole = tensor.dtype.name in ("int32", "int64")
    return whole and shape is not None and len(shape) <= 1 and _length(tensor) <= _LONGEST_VECTOR


def _length(tensor: Tensor) -> int:
    return int((tensor.shape or (1,))[0] or 0)


def _vector_value(tensor: Tensor) -> list[int] | None:
    return [int(v) for v in tensor.node.attr("value").ravel()] if tensor.node.op == "Const" else None


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

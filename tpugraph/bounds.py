"""Upper bounds of open dimensions: how many rows a tensor can have at most."""

from __future__ import annotations

import math

from tpugraph import ops, shapes
from tpugraph.attrs import Shape
from tpugraph.ir import Node, Tensor

_SAME_AS_FIRST = ops.ELEMENTWISE | ops.IDENTITIES | {"SparseReshape", "Bucketize", "StringToHashBucketFast", "AsString"}
_LONGEST_WALK = 60
_ROWS_OPERAND = {
    "SparseSegmentMeanGrad": 3,
    "SparseSegmentSumGrad": 3,
    "SparseSegmentSqrtNGrad": 3,
    "UnsortedSegmentSum": 2,
}
"""Ops with an operand that says how many rows they make."""


def bounded_shape(tensor: Tensor, depth: int = 0) -> Shape:
    """The shape with each open dimension replaced by its upper bound, where one is known.

    The bound follows from the op that opened the dimension: ``Where`` finds at most as many rows as its input has
    elements, ``Unique`` keeps at most all of them, a gather has as many rows as indices.
    """
    shape = tensor.shape
    if shape is None or None not in shape or depth > _LONGEST_WALK:
        return shape
    first = None
    if shape[1:].count(None) == 0 and tensor.node.inputs:
        first = _bound_rows(tensor, depth + 1)
    return shape if first is None else (first, *shape[1:])


def _bound_rows(tensor: Tensor, depth: int) -> int | None:
    """The most rows (dimension 0) that the tensor can have."""
    node, port = tensor.node, tensor.port
    if node.op == "Where":
        return shapes.element_count(bounded_shape(node.inputs[0], depth))
    if node.op in ("Unique", "UniqueV2"):
        return _rows(node.inputs[0], depth)
    if node.op in ("GatherV2", "Gather", "ResourceGather"):
        return _rows(node.inputs[1], depth)
    if node.op == "GatherNd":
        return _rows(node.inputs[1], depth)
    if node.op in ("LookupTableFindV2", "LookupTableFind"):
        return _rows(node.inputs[1], depth)
    if node.op == "Reshape":
        count = shapes.element_count(bounded_shape(node.inputs[0], depth))
        rest = shapes.element_count((tensor.shape or ())[1:])
        return None if count is None or not rest else count // rest
    if node.op == "SparseFillEmptyRows" and port in (0, 1):
        rows = _rows(node.inputs[1], depth)
        dense = _dense_rows(node.inputs[2])
        return None if rows is None or dense is None else rows + dense
    if node.op in ops.SEGMENT_GRADS:
        return _rows(node.inputs[1], depth)
    if node.op in _ROWS_OPERAND:
        return _extent(node.inputs[_ROWS_OPERAND[node.op]], depth)
    if node.op == "SparseCross" and port in (0, 1):
        crossed = _crossed(node)
        return None if crossed is None else crossed[0] * crossed[1]
    if node.op in ("StridedSlice", "Slice"):
        return None if node.attr("shrink_axis_mask", 0) & 1 else _rows(node.inputs[0], depth)
    if node.op in _SAME_AS_FIRST:
        candidates = [_rows(t, depth) for t in node.inputs if t.shape and len(t.shape) == len(tensor.shape or ())]
        known = [c for c in candidates if c is not None]
        return max(known, default=None) if len(known) == len(candidates) else None
    if node.op in ("XlaSetDynamicDimensionSize", "DynamicPartition"):
        return _rows(node.inputs[0], depth)
    if node.op == "ConcatV2" and _scalar(node.inputs[-1]) == 0:
        parts = [_rows(t, depth) for t in node.inputs[:-1]]
        return None if None in parts else sum(part or 0 for part in parts)
    if node.op == "Range" and [_scalar(node.inputs[0]), _scalar(node.inputs[2])] == [0, 1]:
        return _extent(node.inputs[1], depth)
    if node.op in ops.DYNAMIC_STITCHES:
        return _rows_put_together(node, depth)
    return None


def _rows_put_together(stitch: Node, depth: int) -> int | None:
    """The rows of what a lookup in several pieces of a table puts together: as many as were numbered and parted."""
    parted = {t.node.inputs[0] for t in stitch.inputs[: len(stitch.inputs) // 2] if t.node.op == "DynamicPartition"}
    numbers = next(iter(parted)) if len(parted) == 1 else None
    every = all(t.node.op == "DynamicPartition" for t in stitch.inputs[: len(stitch.inputs) // 2])
    return _rows(numbers, depth) if every and numbers is not None and numbers.node.op == "Range" else None


def _extent(tensor: Tensor, depth: int) -> int | None:
    """The largest value of a scalar that is the number of rows of something."""
    node = tensor.node
    if node.op in ("Cast", "Identity"):
        return _extent(node.inputs[0], depth)
    if node.op == "Size":
        return shapes.element_count(bounded_shape(node.inputs[0], depth))
    if node.op == "StridedSlice" and node.inputs[0].node.op == "Cast":
        source = node.inputs[0].node.inputs[0].node
    else:
        source = node.inputs[0].node if node.op == "StridedSlice" else node
    if node.op == "StridedSlice" and source.op == "Shape" and (_vector(node.inputs[1]) or [1])[0] == 0:
        return _rows(source.inputs[0], depth)
    return _scalar(tensor)


def _rows(tensor: Tensor, depth: int) -> int | None:
    shape = bounded_shape(tensor, depth)
    return shape[0] if shape else None


def _dense_rows(dense_shape: Tensor) -> int | None:
    """The number of rows of a sparse tensor, from its dense shape where that is made of constants."""
    values = _vector(dense_shape)
    return values[0] if values else None


def _crossed(node: Node) -> list[int] | None:
    """The most that the dense shape of SparseCross is: the batch, and one value for each combination."""
    columns = node.attr("N", 0)
    values = len(node.attr("sparse_types", ()))
    sparse, dense = node.inputs[columns + values : 2 * columns + values], node.inputs[2 * columns + values :]
    shapes_of = [_vector(t) for t in sparse] + [_static(t.shape) for t in dense]
    if not shapes_of or any(s is None or len(s) != 2 for s in shapes_of):
        return None
    known = [s for s in shapes_of if s is not None]
    return [known[0][0], math.prod(s[1] for s in known)]


def _static(shape: Shape) -> list[int] | None:
    return None if shape is None or None in shape else [int(d or 0) for d in shape]


def _scalar(tensor: Tensor) -> int | None:
    """A small integer made of constants by the ops that shape arithmetic uses."""
    node = tensor.node
    if node.op == "Const":
        return int(node.attr("value").flat[0])
    if node.op in ("Cast", "Identity"):
        return _scalar(node.inputs[0])
    if node.op in ("StridedSlice", "GatherV2"):
        source, begin = _vector(node.inputs[0]), _vector(node.inputs[1])
        return None if source is None or begin is None or begin[0] >= len(source) else source[begin[0]]
    if node.op == "Prod":
        values = _vector(node.inputs[0])
        return None if values is None else math.prod(values)
    return None


def _vector(tensor: Tensor) -> list[int] | None:
    node = tensor.node
    if node.op == "Const":
        return [int(v) for v in node.attr("value").flat]
    if node.op in ("Cast", "Identity"):
        return _vector(node.inputs[0])
    if node.op == "Shape":
        return _static(node.inputs[0].shape)
    if node.op == "SparseReshape":
        return _vector(node.inputs[2])
    if node.op == "SparseCross":
        return _crossed(node)
    if node.op == "Pack":
        parts = [_scalar(t) for t in node.inputs]
        return None if None in parts else [int(p or 0) for p in parts]
    if node.op == "Slice":
        source, begin, size = (_vector(t) for t in node.inputs)
        if source is None or begin is None or size is None:
            return None
        return source[begin[0] : begin[0] + size[0]] if size[0] >= 0 else source[begin[0] :]
    return None


def bounded_bytes(tensor: Tensor) -> int | None:
    """Bytes of a tensor at its upper bound, or None where no bound is known."""
    count, size = shapes.element_count(bounded_shape(tensor)), tensor.dtype.size
    return None if count is None or size is None else count * size

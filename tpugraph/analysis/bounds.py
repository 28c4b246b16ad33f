"""Upper bounds of open dimensions: how many rows a tensor can have at most."""

from __future__ import annotations

import math
from typing import Any

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.questions import Answer, Question, ask
from tpugraph.ir import Node, Tensor
from tpugraph.ir.attrs import Shape

_SAME_AS_FIRST = ops.ELEMENTWISE | ops.IDENTITIES | {"SparseReshape", "Bucketize", "StringToHashBucketFast", "AsString"}
Known = dict[Question, Any]
_ROWS_OF = {
    **dict.fromkeys(("Unique", "UniqueV2", "XlaSetDynamicDimensionSize", "DynamicPartition"), 0),
    **dict.fromkeys(("GatherV2", "Gather", "ResourceGather", "GatherNd", "LookupTableFindV2", "LookupTableFind"), 1),
    **dict.fromkeys(ops.SEGMENT_GRADS, 1),
}
"""Ops with as many rows as an operand has."""


def bounded_shape(tensor: Tensor, known: Known | None = None) -> Shape:
    """The shape with each open dimension replaced by its upper bound, where one is known.

    The bound follows from the op that opened the dimension: ``Where`` finds at most as many rows as its input has
    elements, ``Unique`` keeps at most all of them, a gather has as many rows as indices.

    Args:
        tensor: the tensor.
        known: what was found before in the same graph, to be found once only.
    """
    shape = tensor.shape
    if shape is None or None not in shape:
        return shape
    bound: Shape = ask(_shape, tensor, known)
    return bound


def _shape(tensor: Tensor) -> Answer:
    shape = tensor.shape
    if shape is None or None not in shape or None in shape[1:] or not tensor.node.inputs:
        return shape
    first = yield _bound_rows, tensor
    return shape if first is None else (first, *shape[1:])


def _rows(tensor: Tensor) -> Answer:
    shape = yield _shape, tensor
    return shape[0] if shape else None


def _elements(tensor: Tensor) -> Answer:
    return shapes.element_count((yield _shape, tensor))


def _bound_rows(tensor: Tensor) -> Answer:
    """The most rows (dimension 0) that the tensor can have."""
    node, port = tensor.node, tensor.port
    if node.op == "Where":
        return (yield _elements, node.inputs[0])
    if node.op in _ROWS_OF:
        return (yield _rows, node.inputs[_ROWS_OF[node.op]])
    if node.op == "Reshape":
        count = yield _elements, node.inputs[0]
        rest = shapes.element_count((tensor.shape or ())[1:])
        return None if count is None or not rest else count // rest
    if node.op == "SparseFillEmptyRows" and port in (0, 1):
        rows = yield _rows, node.inputs[1]
        dense = yield _vector, node.inputs[2]
        return None if rows is None or not dense else rows + dense[0]
    if node.op in ops.ROWS_OPERAND:
        return (yield _extent, node.inputs[ops.ROWS_OPERAND[node.op]])
    if node.op == "SparseCross" and port in (0, 1):
        crossed = yield _crossed, tensor
        return None if crossed is None else crossed[0] * crossed[1]
    if node.op in ("StridedSlice", "Slice"):
        return None if node.attr("shrink_axis_mask", 0) & 1 else (yield _rows, node.inputs[0])
    if node.op in _SAME_AS_FIRST:
        most = None
        for operand in node.inputs:
            if operand.shape and len(operand.shape) == len(tensor.shape or ()):
                rows = yield _rows, operand
                if rows is None:
                    return None
                most = rows if most is None else max(most, rows)
        return most
    if node.op == "ConcatV2" and (yield _scalar, node.inputs[-1]) == 0:
        total = 0
        for part in node.inputs[:-1]:
            rows = yield _rows, part
            if rows is None:
                return None
            total += rows
        return total
    if node.op == "Range" and (yield _scalar, node.inputs[0]) == 0 and (yield _scalar, node.inputs[2]) == 1:
        return (yield _extent, node.inputs[1])
    if node.op in ops.DYNAMIC_STITCHES:
        numbers = _numbers_put_together(node)
        return None if numbers is None else (yield _rows, numbers)
    return None


def _numbers_put_together(stitch: Node) -> Tensor | None:
    """What a lookup in several pieces of a table puts together: as many rows as were numbered and parted."""
    parts = stitch.inputs[: len(stitch.inputs) // 2]
    if any(t.node.op != "DynamicPartition" for t in parts):
        return None
    parted = {t.node.inputs[0] for t in parts}
    numbers = next(iter(parted)) if len(parted) == 1 else None
    return numbers if numbers is not None and numbers.node.op == "Range" else None


def _extent(tensor: Tensor) -> Answer:
    """The largest value of a scalar that is the number of rows of something."""
    node = tensor.node
    if node.op in ("Cast", "Identity"):
        return (yield _extent, node.inputs[0])
    if node.op == "Size":
        return (yield _elements, node.inputs[0])
    if node.op == "StridedSlice":
        source = node.inputs[0].node
        if source.op == "Cast":
            source = source.inputs[0].node
        if source.op == "Shape" and ((yield _vector, node.inputs[1]) or [1])[0] == 0:
            return (yield _rows, source.inputs[0])
    return (yield _scalar, tensor)


def _crossed(tensor: Tensor) -> Answer:
    """The most that the dense shape of SparseCross is: the batch, and one value for each combination."""
    node = tensor.node
    columns = node.attr("N", 0)
    values = len(node.attr("sparse_types", ()))
    sparse, dense = node.inputs[columns + values : 2 * columns + values], node.inputs[2 * columns + values :]
    shapes_of = [_static(t.shape) for t in dense]
    for shape in reversed(sparse):
        shapes_of.insert(0, (yield _vector, shape))
    if not shapes_of or any(s is None or len(s) != 2 for s in shapes_of):
        return None
    known = [s for s in shapes_of if s is not None]
    return [known[0][0], math.prod(s[1] for s in known)]


def _static(shape: Shape) -> list[int] | None:
    return None if shape is None or None in shape else [int(d or 0) for d in shape]


def _scalar(tensor: Tensor) -> Answer:
    """A small integer made of constants by the ops that shape arithmetic uses."""
    node = tensor.node
    if node.op == "Const":
        return int(node.attr("value").flat[0]) if node.attr("value").size == 1 else None
    if node.op in ("Cast", "Identity"):
        return (yield _scalar, node.inputs[0])
    if node.op in ("StridedSlice", "GatherV2"):
        source = yield _vector, node.inputs[0]
        begin = yield _vector, node.inputs[1]
        return None if source is None or begin is None or begin[0] >= len(source) else source[begin[0]]
    if node.op == "Prod":
        values = yield _vector, node.inputs[0]
        return None if values is None else math.prod(values)
    return None


def _vector(tensor: Tensor) -> Answer:
    node = tensor.node
    if node.op == "Const":
        return [int(v) for v in node.attr("value").flat]
    if node.op in ("Cast", "Identity"):
        return (yield _vector, node.inputs[0])
    if node.op == "Shape":
        return _static(node.inputs[0].shape)
    if node.op == "SparseReshape":
        return (yield _vector, node.inputs[2])
    if node.op == "SparseCross":
        return (yield _crossed, tensor)
    if node.op == "Pack":
        parts = []
        for operand in node.inputs:
            part = yield _scalar, operand
            if part is None:
                return None
            parts.append(part)
        return parts
    if node.op == "Slice":
        source = yield _vector, node.inputs[0]
        begin = yield _vector, node.inputs[1]
        size = yield _vector, node.inputs[2]
        if source is None or begin is None or size is None:
            return None
        return source[begin[0] : begin[0] + size[0]] if size[0] >= 0 else source[begin[0] :]
    return None


def bounded_bytes(tensor: Tensor, known: Known | None = None) -> int | None:
    """Bytes of a tensor at its upper bound, or None where no bound is known."""
    count, size = shapes.element_count(bounded_shape(tensor, known)), tensor.dtype.size
    return None if count is None or size is None else count * size

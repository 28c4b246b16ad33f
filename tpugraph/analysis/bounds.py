"""Upper bounds of open dimensions: how many rows a tensor can have at most."""

from __future__ import annotations

import math
from typing import Any

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.questions import Answer, Question, Rule, ask
from tpugraph.ir import Node, Tensor
from tpugraph.ir.attrs import Shape

Known = dict[Question, Any]


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
    rule = _ROWS.get(tensor.node.op)
    return None if rule is None else (yield from rule(tensor))


def _rows_of_operand(index: int) -> Rule:
    """As many rows as an operand has."""

    def rows(tensor: Tensor) -> Answer:
        return (yield _rows, tensor.node.inputs[index])

    return rows


def _told_rows(tensor: Tensor) -> Answer:
    """As many rows as an operand says."""
    return (yield _extent, tensor.node.inputs[ops.ROWS_OPERAND[tensor.node.op]])


def _rows_of_elements(tensor: Tensor) -> Answer:
    return (yield _elements, tensor.node.inputs[0])


def _rows_of_reshape(tensor: Tensor) -> Answer:
    count = yield _elements, tensor.node.inputs[0]
    rest = shapes.element_count((tensor.shape or ())[1:])
    return None if count is None or not rest else count // rest


def _rows_of_filled(tensor: Tensor) -> Answer:
    """Rows of SparseFillEmptyRows: one more for each row of the dense shape."""
    if tensor.port not in (0, 1):
        return None
    rows = yield _rows, tensor.node.inputs[1]
    dense = yield _vector, tensor.node.inputs[2]
    return None if rows is None or not dense else rows + dense[0]


def _rows_of_cross(tensor: Tensor) -> Answer:
    crossed = (yield _crossed, tensor) if tensor.port in (0, 1) else None
    return None if crossed is None else crossed[0] * crossed[1]


def _rows_of_slice(tensor: Tensor) -> Answer:
    return None if tensor.node.attr("shrink_axis_mask", 0) & 1 else (yield _rows, tensor.node.inputs[0])


def _most_rows(tensor: Tensor) -> Answer:
    """As many rows as the operand of the same rank with the most."""
    most = None
    for operand in tensor.node.inputs:
        if operand.shape and len(operand.shape) == len(tensor.shape or ()):
            rows = yield _rows, operand
            if rows is None:
                return None
            most = rows if most is None else max(most, rows)
    return most


def _all_rows(tensor: Tensor) -> Answer:
    """The rows of all operands that are put one behind the other."""
    *parts, axis = tensor.node.inputs
    if (yield _scalar, axis) != 0:
        return None
    total = 0
    for part in parts:
        rows = yield _rows, part
        if rows is None:
            return None
        total += rows
    return total


def _rows_of_range(tensor: Tensor) -> Answer:
    """As many rows as the limit of a range from 0 by 1."""
    start, limit, step = tensor.node.inputs
    counts = (yield _scalar, start) == 0 and (yield _scalar, step) == 1
    return (yield _extent, limit) if counts else None


def _rows_of_stitch(tensor: Tensor) -> Answer:
    numbers = _numbers_put_together(tensor.node)
    return None if numbers is None else (yield _rows, numbers)


_ROWS: dict[str, Rule] = {
    **dict.fromkeys(ops.DYNAMIC_STITCHES, _rows_of_stitch),
    **dict.fromkeys(ops.ELEMENTWISE | ops.IDENTITIES, _most_rows),
    **dict.fromkeys(("SparseReshape", "Bucketize", "StringToHashBucketFast", "AsString"), _most_rows),
    **dict.fromkeys(ops.ROWS_OPERAND, _told_rows),
    **dict.fromkeys(("Unique", "UniqueV2", "XlaSetDynamicDimensionSize", "DynamicPartition"), _rows_of_operand(0)),
    **dict.fromkeys(("GatherV2", "Gather", "ResourceGather", "GatherNd"), _rows_of_operand(1)),
    **dict.fromkeys(("LookupTableFindV2", "LookupTableFind"), _rows_of_operand(1)),
    **dict.fromkeys(ops.SEGMENT_GRADS, _rows_of_operand(1)),
    "Where": _rows_of_elements,
    "Reshape": _rows_of_reshape,
    "SparseFillEmptyRows": _rows_of_filled,
    "SparseCross": _rows_of_cross,
    "StridedSlice": _rows_of_slice,
    "Slice": _rows_of_slice,
    "ConcatV2": _all_rows,
    "Range": _rows_of_range,
}
"""How many rows an op can make at most, by the op."""


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
    rule = _SCALARS.get(tensor.node.op)
    return None if rule is None else (yield from rule(tensor))


def _element(tensor: Tensor) -> Answer:
    source = yield _vector, tensor.node.inputs[0]
    begin = yield _vector, tensor.node.inputs[1]
    return None if source is None or begin is None or begin[0] >= len(source) else source[begin[0]]


def _product(tensor: Tensor) -> Answer:
    values = yield _vector, tensor.node.inputs[0]
    return None if values is None else math.prod(values)


def _same_scalar(tensor: Tensor) -> Answer:
    return (yield _scalar, tensor.node.inputs[0])


def _constant_scalar(tensor: Tensor) -> Answer:
    yield from ()
    return int(tensor.node.attr("value").flat[0])


_SCALARS: dict[str, Rule] = {
    "Const": _constant_scalar,
    **dict.fromkeys(("Cast", "Identity"), _same_scalar),
    **dict.fromkeys(("StridedSlice", "GatherV2"), _element),
    "Prod": _product,
}


def _vector(tensor: Tensor) -> Answer:
    """Small integers made of constants and static shapes."""
    rule = _VECTORS.get(tensor.node.op)
    return None if rule is None else (yield from rule(tensor))


def _constant_vector(tensor: Tensor) -> Answer:
    yield from ()
    return [int(v) for v in tensor.node.attr("value").flat]


def _vector_of_operand(index: int) -> Rule:
    def vector(tensor: Tensor) -> Answer:
        return (yield _vector, tensor.node.inputs[index])

    return vector


def _shape_vector(tensor: Tensor) -> Answer:
    yield from ()
    return _static(tensor.node.inputs[0].shape)


def _crossed_vector(tensor: Tensor) -> Answer:
    return (yield _crossed, tensor)


def _packed(tensor: Tensor) -> Answer:
    parts = []
    for operand in tensor.node.inputs:
        part = yield _scalar, operand
        if part is None:
            return None
        parts.append(part)
    return parts


def _sliced(tensor: Tensor) -> Answer:
    source = yield _vector, tensor.node.inputs[0]
    begin = yield _vector, tensor.node.inputs[1]
    size = yield _vector, tensor.node.inputs[2]
    if source is None or begin is None or size is None:
        return None
    return source[begin[0] : begin[0] + size[0]] if size[0] >= 0 else source[begin[0] :]


_VECTORS: dict[str, Rule] = {
    "Const": _constant_vector,
    **dict.fromkeys(("Cast", "Identity"), _vector_of_operand(0)),
    "Shape": _shape_vector,
    "SparseReshape": _vector_of_operand(2),
    "SparseCross": _crossed_vector,
    "Pack": _packed,
    "Slice": _sliced,
}


def bounded_bytes(tensor: Tensor, known: Known | None = None) -> int | None:
    """Bytes of a tensor at its upper bound, or None where no bound is known."""
    count, size = shapes.element_count(bounded_shape(tensor, known)), tensor.dtype.size
    return None if count is None or size is None else count * size

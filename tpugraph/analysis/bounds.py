"""Upper bounds of unknown dimensions."""

from __future__ import annotations

from typing import Any

from tpugraph import ops
from tpugraph.analysis import shapes, signatures
from tpugraph.analysis.dataflow import Answer, Question, Rule, ask
from tpugraph.analysis.values import scalar, vector
from tpugraph.ir import Node, Tensor
from tpugraph.ir.attrs import Shape
from tpugraph.ir.walks import source_of

Known = dict[Question, Any]


def bounded_shape(tensor: Tensor, known: Known | None = None) -> Shape:
    """The shape with each unknown dimension replaced by its upper bound, where one is known.

    The bound follows from the op that makes the dimension unknown: ``Where`` has at most as many rows as its input has
    elements, ``Unique`` at most as many as its input, a gather as many as indices.
    """
    shape = tensor.shape
    if shape is None or None not in shape:
        return shape
    bound: Shape = ask(_shape, tensor, known)
    return bound


def bounded_bytes(tensor: Tensor, known: Known | None = None) -> int | None:
    """The bytes of a tensor at its upper bound; None where no bound is known, or where its elements have no size."""
    count, size = shapes.element_count(bounded_shape(tensor, known)), tensor.dtype.size
    return None if count is None or size is None else count * size


def _shape(tensor: Tensor) -> Answer:
    shape = tensor.shape
    if shape is None or None not in shape or None in shape[1:] or not tensor.node.inputs:
        return shape
    first = yield _ROWS.get(tensor.node.op, _rows_of_signature), tensor  # the upper bound
    return shape if first is None else (first, *shape[1:])


def _rows(tensor: Tensor) -> Answer:
    shape = yield _shape, tensor
    return shape[0] if shape else None


def _elements(tensor: Tensor) -> Answer:
    return shapes.element_count((yield _shape, tensor))


def _rows_of_operand(index: int) -> Rule:
    def rows(tensor: Tensor) -> Answer:
        return (yield _rows, tensor.node.inputs[index])

    return rows


def _rows_of_identity(tensor: Tensor) -> Answer:
    return (yield _rows, tensor.node.inputs[tensor.port])


def _rows_of_lookup(tensor: Tensor) -> Answer:
    """Along dimension 0 the number of indices; along the others the table's size."""
    node = tensor.node
    axis = ops.record(node.op).axis
    along = 0 if axis is None else (yield scalar, node.inputs[axis])
    return None if along is None else (yield _rows, node.inputs[0 if along else 1])


def _rows_operand(tensor: Tensor) -> Answer:
    return (yield _extent, tensor.node.inputs[ops.ROWS_OPERAND[tensor.node.op]])


def _rows_of_elements(tensor: Tensor) -> Answer:
    return (yield _elements, tensor.node.inputs[0])


def _rows_of_shape(tensor: Tensor) -> Answer:
    """Dimension 0 of the shape operand, or of the tensor whose shape that operand is."""
    sizes = tensor.node.inputs[ops.SHAPED_BY[tensor.node.op]]
    like = shape_of(sizes)
    if like is not None:
        return (yield _rows, like)
    told = yield vector, sizes
    return told[0] if told else None


def _rows_of_reshape(tensor: Tensor) -> Answer:
    like = shape_of(tensor.node.inputs[1])
    alike = None if like is None else (yield _rows, like)
    if alike is not None:
        return alike
    count = yield _elements, tensor.node.inputs[0]
    rest = shapes.element_count((tensor.shape or ())[1:])
    return None if count is None or not rest else count // rest


def shape_of(sizes: Tensor) -> Tensor | None:
    """The tensor whose shape a size vector is; else None."""
    source = source_of(sizes, ops.SAME_NUMBERS)
    return source.node.inputs[source.port] if source.node.op in ops.SHAPES else None


def _rows_of_filled(tensor: Tensor) -> Answer:
    """Rows of SparseFillEmptyRows: one more per row of the dense shape."""
    if tensor.port not in (0, 1):
        return None
    rows = yield _rows, tensor.node.inputs[1]
    dense = yield vector, tensor.node.inputs[2]
    return None if rows is None or not dense or dense[0] is None else rows + dense[0]


def _rows_of_cross(tensor: Tensor) -> Answer:
    dense = (yield vector, tensor.node.out(2)) if tensor.port in (0, 1) else None
    return None if dense is None or None in dense else dense[0] * dense[1]


def _rows_of_signature(tensor: Tensor) -> Answer:
    """The largest number of rows of the operands that share the output's first factor, as in a matrix product."""
    signature = signatures.of(tensor.node)
    made = None if signature is None or tensor.port >= len(signature.outputs) else signature.outputs[tensor.port]
    if signature is None or not made or made[0] == signatures.WHOLE:
        return None
    most = None
    for operand, factors in zip(tensor.node.inputs, signature.inputs, strict=True):
        if factors and factors[0] == made[0]:
            rows = yield _rows, operand
            if rows is None:
                return None
            most = max(most or 0, rows)
    return most


def _rows_of_squeeze(tensor: Tensor) -> Answer:
    source = tensor.node.inputs[0]
    gone = {axis % max(len(source.shape or ()), 1) for axis in tensor.node.attr("squeeze_dims", ())}
    return None if not gone or 0 in gone else (yield _rows, source)


def _rows_of_slice(tensor: Tensor) -> Answer:
    return None if tensor.node.attr("shrink_axis_mask", 0) & 1 else (yield _rows, tensor.node.inputs[0])


def _all_rows(tensor: Tensor) -> Answer:
    """The sum of the rows of concatenated operands."""
    *parts, axis = tensor.node.inputs
    if (yield scalar, axis) != 0:
        return None
    total = 0
    for part in parts:
        rows = yield _rows, part
        if rows is None:
            return None
        total += rows
    return total


def _rows_of_range(tensor: Tensor) -> Answer:
    """The limit of a range from 0 by 1."""
    start, limit, step = tensor.node.inputs
    counts = (yield scalar, start) == 0 and (yield scalar, step) == 1
    return (yield _extent, limit) if counts else None


def _rows_of_stitch(tensor: Tensor) -> Answer:
    numbers = _stitched_rows(tensor.node)
    return None if numbers is None else (yield _rows, numbers)


_ROWS: dict[str, Rule] = {
    **dict.fromkeys(ops.SHAPED_BY, _rows_of_shape),
    **dict.fromkeys(ops.IDENTITIES, _rows_of_identity),
    **dict.fromkeys(ops.DYNAMIC_STITCHES, _rows_of_stitch),
    **dict.fromkeys(ops.ROWS_OPERAND, _rows_operand),
    **dict.fromkeys(
        (*ops.UNIQUE, *ops.PARTITIONS, *ops.SPARSE_RESHAPES, "XlaSetDynamicDimensionSize"), _rows_of_operand(0)
    ),
    **dict.fromkeys(ops.LOOKUPS, _rows_of_lookup),
    **dict.fromkeys((*ops.SEGMENT_GRADS, "GatherNd"), _rows_of_operand(1)),
    "Where": _rows_of_elements,
    **dict.fromkeys(ops.RESHAPES, _rows_of_reshape),
    "SparseFillEmptyRows": _rows_of_filled,
    "SparseCross": _rows_of_cross,
    **dict.fromkeys(ops.SLICES, _rows_of_slice),
    **dict.fromkeys(ops.SQUEEZES, _rows_of_squeeze),
    "ConcatV2": _all_rows,
    **dict.fromkeys(ops.RANGES, _rows_of_range),
}
"""The upper bound of an op's rows, by op type."""


def _stitched_rows(stitch: Node) -> Tensor | None:
    """The rows of a partitioned lookup's stitch: as many as its partition had indices."""
    parts = stitch.inputs[: len(stitch.inputs) // 2]
    if any(t.node.op not in ops.PARTITIONS for t in parts):
        return None
    parted = {t.node.inputs[0] for t in parts}
    numbers = next(iter(parted)) if len(parted) == 1 else None
    return numbers if numbers is not None and numbers.node.op in ops.RANGES else None


def _extent(tensor: Tensor) -> Answer:
    """The upper bound of a scalar that is a tensor's number of rows."""
    node = tensor.node
    if node.op in ops.SAME_NUMBERS:
        return (yield _extent, node.inputs[0])
    if node.op in ops.SIZES:
        return (yield _elements, node.inputs[0])
    if node.op in ops.STRIDED_SLICES:
        like = shape_of(node.inputs[0])
        if like is not None and ((yield vector, node.inputs[1]) or [1])[0] == 0:
            return (yield _rows, like)
    return (yield scalar, tensor)

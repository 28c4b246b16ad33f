"""Constant propagation through shape arithmetic: small integer tensors from constants and static shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.dataflow import Answer, Rule, ask
from tpugraph.analysis.signatures import ASSUMED_RANK
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import readers, source_of

_LARGEST = 2**20
"""The largest operand in elements: shape arithmetic has few."""

_KINDS = frozenset({"bool", "int32", "int64", "float16", "float32", "float64"})
"""The dtypes that NumPy computes with as TensorFlow does."""


def known_value(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a tensor that follows from constants and static shapes; else None."""
    value: np.ndarray[Any, Any] | None = ask(_value, tensor)
    return value


def partial_value(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """As ``known_value``, with NaN for unknown elements; None where the shape is unknown."""
    value: np.ndarray[Any, Any] | None = ask(_partial_value, tensor)
    return value


def _partial_value(tensor: Tensor) -> Answer:
    node = tensor.node
    known = yield _value, tensor
    if known is not None:
        return known.astype("float64") if known.dtype.kind in "iuf" else None
    if node.op in ops.SHAPES:
        shape = node.inputs[tensor.port].shape
        return None if shape is None else np.asarray([np.nan if size is None else size for size in shape])
    if node.op in _SPARSE_SHAPES:
        sizes = yield _SPARSE_SHAPES[node.op], tensor
        if sizes is not None:
            return np.asarray([np.nan if size is None else size for size in sizes])
    if node.op in ops.STACKS & ops.CONTAINER_READS:
        pushed = pushed_by(node)
        return None if pushed is None else (yield _partial_value, pushed)
    if node.op in _PARTIAL:
        operands = yield from _operands(_partial_value, node)
        if operands is not None and (node.op in ops.COMPUTES or node.op in _PUT_TOGETHER):
            return np.asarray(_PARTIAL[node.op](node, operands), "float64")
        if operands is not None and not any(np.isnan(operand).any() for operand in operands[1:]):
            made = _PARTIAL[node.op](node, [operands[0], *(operand.astype(int) for operand in operands[1:])])
            return None if made is None else np.asarray(made, "float64")
    return np.full(tensor.shape, np.nan) if shapes.is_static(tensor.shape) and len(tensor.shape or ()) < 2 else None


def pushed_by(pop: Node) -> Tensor | None:
    """The value pushed on the stack that a node pops; None where several nodes push."""
    stack = source_of(pop.inputs[0], ops.IDENTITIES | ops.ENTER).node
    users = [node for node in readers(stack, through=ops.IDENTITIES | ops.ENTER) if node.op in ops.STACKS]
    pushed = [node.inputs[held.puts] for node in users if (held := ops.CONTENTS.get(node.op)) and held.puts is not None]
    return pushed[0] if len(pushed) == 1 else None


def _value(tensor: Tensor) -> Answer:
    node = tensor.node
    if node.op in ops.CONSTANTS:
        return np.asarray(node.attr("value"))
    if node.op in ops.SHAPE_OF:
        return _of_shape(node, tensor.port)
    operands = (yield from _operands(_value, node)) if node.op in _COMPUTED else None
    return None if operands is None else _COMPUTED[node.op](node, operands)


def _operands(rule: Rule, node: Node) -> Answer:
    """The values of all operands; None where one is unknown or large."""
    values = []
    for operand in node.inputs:
        value = yield rule, operand
        if value is None or value.size > _LARGEST:
            return None
        values.append(value)
    return values


def _of_shape(node: Node, port: int) -> np.ndarray[Any, Any] | None:
    shape = node.inputs[port].shape
    if node.op in ops.RANK_OPS:
        return None if shape is None else np.asarray(len(shape))
    if not shapes.is_static(shape):
        return None
    return np.asarray(shapes.element_count(shape) if node.op in ops.SIZES else shape)


def _slice(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    source, begin, end, strides = operands
    if len(begin) != 1 or node.attr("new_axis_mask", 0) or node.attr("ellipsis_mask", 0) or source.ndim != 1:
        return None
    if node.attr("shrink_axis_mask", 0) & 1:
        return np.asarray(source[begin[0]])
    first = None if node.attr("begin_mask", 0) & 1 else begin[0]
    last = None if node.attr("end_mask", 0) & 1 else end[0]
    return np.asarray(source[first : last : strides[0]])


def _computed(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    """The result of arithmetic in the node's dtype: integer division truncates."""
    with np.errstate(all="ignore"):
        made = np.asarray(ops.COMPUTES[node.op](*operands))
    if node.outputs is None:  # in the body of a function dtypes are unknown: a fraction may have to be truncated
        return made if made.dtype.kind == operands[0].dtype.kind else None
    kind = node.out().dtype.name
    return made.astype(kind) if kind in _KINDS else None


def _concat(node: Node, operands: list[Any]) -> np.ndarray[Any, Any]:
    record = ops.record(node.op)
    axis = int(operands[record.axis_operand(len(operands)) or 0])
    return np.concatenate([operands[index] for index in record.data_operands(len(operands))], axis)


def _stitch(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    half = len(operands) // 2
    places = [np.ravel(numbers).astype(int) for numbers in operands[:half]]
    values = [np.ravel(numbers) for numbers in operands[half:]]
    if any(len(where) != len(what) for where, what in zip(places, values, strict=True)):
        return None  # rows with several elements
    made = np.zeros(1 + max((int(where.max(initial=-1)) for where in places), default=-1), operands[half].dtype)
    for where, what in zip(places, values, strict=True):
        made[where] = what
    return made


def _reshape(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    sizes = operands[1].ravel()
    fits = (sizes < 0).any() or np.prod(sizes) == operands[0].size
    return operands[0].reshape(sizes) if fits else None


def _plain_slice(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    source, begin, size = operands
    return source[begin[0] :][: None if size[0] < 0 else size[0]] if source.ndim == 1 else None


def _fill(node: Node, operands: list[Any]) -> np.ndarray[Any, Any] | None:
    sizes = operands[0]
    return None if np.isnan(sizes).any() or np.prod(sizes) > _LARGEST else np.full(sizes.astype(int), operands[1])


def _same(node: Node, operands: list[Any]) -> np.ndarray[Any, Any]:
    return np.asarray(operands[0])


_COMPUTED: dict[str, Callable[[Node, list[Any]], np.ndarray[Any, Any] | None]] = {
    **dict.fromkeys(ops.COMPUTES, _computed),
    **dict.fromkeys(ops.IDENTITIES | ops.ENTER, _same),
    **dict.fromkeys(ops.RANGES, lambda node, operands: np.arange(*operands)),
    **dict.fromkeys(ops.CONCATS, _concat),
    **dict.fromkeys(ops.DYNAMIC_STITCHES, _stitch),
    **dict.fromkeys(ops.FILLS, _fill),
    **dict.fromkeys(ops.PLAIN_SLICES, _plain_slice),
    **dict.fromkeys(ops.PACKS, lambda node, operands: np.stack(operands) if node.attr("axis", 0) == 0 else None),
    **dict.fromkeys(ops.STRIDED_SLICES, _slice),
    **dict.fromkeys(ops.EXPANSIONS, lambda node, operands: np.expand_dims(operands[0], int(operands[1]))),
    **dict.fromkeys(
        ops.PICKS, lambda node, operands: np.take(operands[0], operands[1], axis=0) if operands[0].ndim == 1 else None
    ),
    **dict.fromkeys(ops.INVERT_PERMUTATIONS, lambda node, operands: np.argsort(operands[0])),
    **dict.fromkeys(ops.RESHAPES, _reshape),
    **dict.fromkeys(
        ops.reducing("prod"), lambda node, operands: np.asarray(operands[0].prod()) if operands[0].ndim == 1 else None
    ),
}

_PUT_TOGETHER = ops.PACKS | ops.CONCATS | ops.DYNAMIC_STITCHES

_PARTIAL: dict[str, Callable[[Node, list[Any]], Any]] = {
    op: rule for op, rule in _COMPUTED.items() if op not in ops.COMPUTES
} | dict.fromkeys(
    ops.computing(np.add, np.subtract, np.multiply, np.floor_divide, np.maximum, np.minimum, np.asarray),
    lambda node, operands: ops.COMPUTES[node.op](*operands),
)
"""Elementwise ops, whose operands may have unknown elements."""


def constant(node: Node) -> np.ndarray[Any, Any]:
    """The value of a Const; decoded once."""
    return np.asarray(node.attr("value"))


def constant_at(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a constant's output; else None."""
    return constant(tensor.node) if tensor.node.op in ops.CONSTANTS else None


def integers(tensor: Tensor) -> list[int] | None:
    """The integers of a scalar or vector that follows from constants and static shapes; else None."""
    value = known_value(tensor)
    return None if value is None or value.dtype.kind not in "iu" else np.ravel(value).tolist()


def data_dependent(graph: Graph) -> dict[Node, None]:
    """The descendants of inputs and variables; all other nodes depend on constants alone."""
    return graph.remember("made of inputs or variables", lambda graph: graph.descendants(
                          graph.of_type(*ops.INPUTS, *ops.VARIABLES), data_only=True))  # fmt: skip


def known_scalar(tensor: Tensor) -> int | None:
    """An integer scalar that follows from constants and static shapes; else None."""
    found = integers(tensor)
    return found[0] if found is not None and len(found) == 1 else None


def known_vector(tensor: Tensor) -> list[int | None] | None:
    """The elements of a size vector, None for each unknown one; None where its length is unknown."""
    found: list[int | None] | None = ask(vector, tensor)
    return found


def scalar(tensor: Tensor) -> Answer:
    elements = yield vector, tensor
    return elements[0] if elements is not None and len(elements) == 1 else None


def vector(tensor: Tensor) -> Answer:
    value = yield _partial_value, tensor
    return None if value is None else [None if np.isnan(element) else int(element) for element in value.flat]


def _completed_shape(tensor: Tensor) -> Answer:
    """The shape of a reshaped sparse tensor, with -1 replaced."""
    wanted = (yield vector, tensor.node.inputs[2]) if tensor.port == 1 else None
    if wanted is None or -1 not in wanted:
        return wanted
    before = yield vector, tensor.node.inputs[1]
    rest = [size for size in wanted if size != -1]
    known = before is not None and None not in before and None not in rest
    left = math.prod(before) // max(1, math.prod(rest)) if known else None
    return [left if size == -1 else size for size in wanted]


def _deserialized_shape(tensor: Tensor) -> Answer:
    """A sparse tensor of a batch has as many rows as the dense ones."""
    yield from ()
    take = tensor.node.inputs[0].node
    if tensor.port != 2 or take.op not in ops.GET_NEXT:
        return None
    rows = {shape[0] for shape in take.attr("output_shapes") if shape and shape[0] is not None}
    return [rows.pop() if len(rows) == 1 else None, *[None] * (ASSUMED_RANK - 1)]


def _parsed_shape(tensor: Tensor) -> Answer:
    """The number of records or strings is the number of rows."""
    yield from ()
    node = tensor.node
    lists = node.attr("Nsparse", node.attr("num_sparse", 1))
    if tensor.shape != (2,) or tensor.port not in range(2 * lists, 3 * lists):
        return None
    return [(node.inputs[0].shape or (None,))[0], None]


def _crossed_shape(tensor: Tensor) -> Answer:
    """The upper bound of SparseCross's dense shape: the batch, and one value per combination."""
    node = tensor.node
    columns = node.attr("N", 0)
    values = len(node.attr("sparse_types", ()))
    shapes_of = []
    for shape in node.inputs[columns + values : 2 * columns + values]:
        shapes_of.append((yield vector, shape))
    shapes_of += [list(t.shape or ()) for t in node.inputs[2 * columns + values :]]
    if tensor.port != 2 or not shapes_of or any(shape is None or len(shape) < 2 for shape in shapes_of):
        return None
    rows, widths = {shape[0] for shape in shapes_of}, [shape[1] for shape in shapes_of]
    return [rows.pop() if len(rows) == 1 else None, None if None in widths else math.prod(widths)]


_SPARSE_SHAPES: dict[str, Rule] = {
    **dict.fromkeys(ops.SPARSE_RESHAPES, _completed_shape),
    **dict.fromkeys(("ParseExample", "ParseExampleV2", "StringSplit", "StringSplitV2"), _parsed_shape),
    "DeserializeSparse": _deserialized_shape,
    "SparseCross": _crossed_shape,
}
"""The dense shapes of sparse tensors."""

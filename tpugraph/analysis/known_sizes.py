"""Small vectors and scalars of sizes, as far as constants, static shapes and the ops of shape arithmetic tell them."""

from __future__ import annotations

import math

from tpugraph import ops
from tpugraph.analysis.questions import Answer, Rule, ask
from tpugraph.ir import Tensor
from tpugraph.ir.attrs import Shape


def known_scalar(tensor: Tensor) -> int | None:
    """A small whole number that constants and static shapes tell; None where they do not."""
    found: int | None = ask(scalar, tensor)
    return found


def known_vector(tensor: Tensor) -> list[int | None] | None:
    """The elements of a small vector of sizes, each None where it is not known; None where not even their number is."""
    found: list[int | None] | None = ask(vector, tensor)
    return found


def crossed(tensor: Tensor) -> Answer:
    """The most that the dense shape of SparseCross is: the batch, and one value for each combination."""
    node = tensor.node
    columns = node.attr("N", 0)
    values = len(node.attr("sparse_types", ()))
    sparse, dense = node.inputs[columns + values : 2 * columns + values], node.inputs[2 * columns + values :]
    shapes_of = [_static(t.shape) for t in dense]
    for shape in reversed(sparse):
        shapes_of.insert(0, (yield vector, shape))
    known = [s for s in shapes_of if s is not None]
    if not known or len(known) < len(shapes_of) or any(len(s) < 2 for s in known):
        return None
    rows, widths = {s[0] for s in known}, [s[1] for s in known]
    return [rows.pop() if len(rows) == 1 else None, None if None in widths else math.prod(widths)]


def _static(shape: Shape) -> list[int] | None:
    return None if shape is None or None in shape else [int(d or 0) for d in shape]


def scalar(tensor: Tensor) -> Answer:
    """A small integer made of constants by the ops that shape arithmetic uses."""
    rule = _SCALARS.get(tensor.node.op)
    return None if rule is None else (yield from rule(tensor))


def _element(tensor: Tensor) -> Answer:
    source = yield vector, tensor.node.inputs[0]
    begin = yield vector, tensor.node.inputs[1]
    return None if source is None or not begin or begin[0] is None or begin[0] >= len(source) else source[begin[0]]


def _product(tensor: Tensor) -> Answer:
    values = yield vector, tensor.node.inputs[0]
    return None if values is None or None in values else math.prod(values)


def _same_scalar(tensor: Tensor) -> Answer:
    return (yield scalar, tensor.node.inputs[0])


def _constant_scalar(tensor: Tensor) -> Answer:
    yield from ()
    value = tensor.node.attr("value")
    return int(value.flat[0]) if value.size == 1 else None


_SCALARS: dict[str, Rule] = {
    **dict.fromkeys(ops.CONSTANTS, _constant_scalar),
    **dict.fromkeys(ops.SAME_NUMBERS, _same_scalar),
    **dict.fromkeys(ops.STRIDED_SLICES | ops.PICKS, _element),
    **dict.fromkeys(ops.reducing("prod"), _product),
}


def vector(tensor: Tensor) -> Answer:
    """Small integers made of constants and static shapes."""
    rule = _VECTORS.get(tensor.node.op)
    return None if rule is None else (yield from rule(tensor))


def _constant_vector(tensor: Tensor) -> Answer:
    yield from ()
    return [int(v) for v in tensor.node.attr("value").flat]


def _same_vector(tensor: Tensor) -> Answer:
    return (yield vector, tensor.node.inputs[0])


def _shape_vector(tensor: Tensor) -> Answer:
    yield from ()
    return _static(tensor.node.inputs[0].shape)


def _completed(tensor: Tensor) -> Answer:
    """The shape that a sparse tensor gets: a -1 in it is what is left of the elements."""
    wanted = yield vector, tensor.node.inputs[2]
    if wanted is None or -1 not in wanted:
        return wanted
    before = yield vector, tensor.node.inputs[1]
    rest = [size for size in wanted if size != -1]
    left = None
    if before is not None and None not in before and None not in rest:
        left = math.prod(before) // max(1, math.prod(rest))
    return [left if size == -1 else size for size in wanted]


def _deserialized(tensor: Tensor) -> Answer:
    """A sparse part of a batch has as many rows as the dense ones."""
    yield from ()
    take = tensor.node.inputs[0].node
    if tensor.port != 2 or take.op not in ops.GET_NEXT:
        return None
    rows = {shape[0] for shape in take.attr("output_shapes") if shape and shape[0] is not None}
    return [rows.pop() if len(rows) == 1 else None, *[None] * (_MOST_DIMENSIONS - 1)]


_MOST_DIMENSIONS = 8
"""As many as a sparse tensor can have; a graph does not say how many there are."""


def _parsed(tensor: Tensor) -> Answer:
    """The dense shape of what is parsed or split: as many rows as there are records or texts."""
    yield from ()
    return [(tensor.node.inputs[0].shape or (None,))[0], None] if tensor.shape == (2,) else None


def _packed(tensor: Tensor) -> Answer:
    parts = []
    for operand in tensor.node.inputs:
        parts.append((yield scalar, operand))
    return parts


def _sliced(tensor: Tensor) -> Answer:
    source = yield vector, tensor.node.inputs[0]
    begin = yield vector, tensor.node.inputs[1]
    size = yield vector, tensor.node.inputs[2]
    if source is None or not begin or not size or None in (begin[0], size[0]):
        return None
    return source[begin[0] : begin[0] + size[0]] if size[0] >= 0 else source[begin[0] :]


_VECTORS: dict[str, Rule] = {
    **dict.fromkeys(ops.CONSTANTS, _constant_vector),
    **dict.fromkeys(ops.SAME_NUMBERS, _same_vector),
    "Shape": _shape_vector,
    **dict.fromkeys(ops.SPARSE_RESHAPES, _completed),
    "DeserializeSparse": _deserialized,
    **dict.fromkeys(("ParseExample", "ParseExampleV2", "StringSplit", "StringSplitV2"), _parsed),
    "SparseCross": crossed,
    **dict.fromkeys(ops.PACKS, _packed),
    **dict.fromkeys(ops.PLAIN_SLICES, _sliced),
}

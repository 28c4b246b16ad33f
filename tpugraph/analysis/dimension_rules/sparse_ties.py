"""Ties between the shape of a sparse tensor, which is an operand of its own, and the dimensions of what it meets."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant_at, fixed
from tpugraph.analysis.dimension_rules.arithmetic_ties import by_signature
from tpugraph.analysis.dimension_rules.reshaping_ties import shaped_by
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Unknown
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of


@rule("SparseToDense")
def _sparse_to_dense(d: Dimensions, node: Node) -> None:
    shaped_by(d, node, 1)


@rule("SparseTensorDenseAdd")
def _added_to_dense(d: Dimensions, node: Node) -> None:
    """The sum has the dimensions of the dense operand, and of the sparse one."""
    d.set(node.out(), d.dims(node.inputs[3]))
    shape, dims = d.elements(node.inputs[2]), d.dims(node.out())
    for size, made in zip(shape or (), dims or (), strict=False):
        if size is not None:
            d.sizes.tie(size, made)


@rule("SparseReduceSum")
def _sparse_reduce(d: Dimensions, node: Node) -> None:
    """The sums have the dimensions of the sparse tensor, but for those that are reduced: of no axis, all of them."""
    shape, axes, named = d.elements(node.inputs[2]), fixed(node.inputs[3]), d.dims(node.inputs[3])
    if named is not None:  # how many axes there are is no number of rows
        d.tie(named, tuple(map(d.sizes.at, named)))
    if not shape or None in shape or axes is None:
        d.fresh(node.out())
        return
    gone = {axis % len(shape) for axis in axes} or {*range(len(shape))}
    kept = bool(node.attr("keep_dims", False))
    d.set(node.out(), [1 if axis in gone else size for axis, size in enumerate(shape) if kept or axis not in gone])  # type: ignore[misc]


@rule("SparseTensorDenseMatMul")
def _sparse_product(d: Dimensions, node: Node) -> None:
    """The product has the rows of the sparse matrix, and the dense one as many rows as that has columns."""
    by_signature(d, node)
    shape, dense, out = d.elements(node.inputs[2]), d.dims(node.inputs[3]), d.dims(node.out())
    if shape is None or len(shape) != 2 or dense is None or out is None:
        return
    rows, columns = reversed(shape) if node.attr("adjoint_a", False) else shape
    for size, place in ((rows, out[0]), (columns, dense[1 if node.attr("adjoint_b", False) else 0])):
        if size is not None:
            d.sizes.tie(size, place)


@rule("DenseToDenseSetOperation")
def _sets(d: Dimensions, node: Node) -> None:
    """Of each of the sets, which are along the last dimension, data say how many elements it has."""
    first, other = (d.dims(tensor) for tensor in node.inputs)
    for port in range(3):
        d.fresh(node.out(port))
    if first and other and len(first) == len(other):
        d.tie(first[:-1], other[:-1])
        d.set_elements(node.out(2), [*first[:-1], Unknown(-1)])


@rule("SetSize")
def _set_size(d: Dimensions, node: Node) -> None:
    shape = d.elements(node.inputs[2])
    known = shape is not None and None not in shape[:-1]
    d.set(node.out(), shape[:-1] if known else None)  # type: ignore[index,arg-type]


@rule("Where")
def _where(d: Dimensions, node: Node) -> None:
    """There is a place for each element that is not zero: a mask that the graph holds, of zeros and others, says how many."""
    mask, dims = constant_at(source_of(node.inputs[0], ops.IDENTITIES | ops.RESHAPES)), d.dims(node.inputs[0])
    if mask is None or dims is None or d.axes(node.inputs[0]) or not 0 < np.count_nonzero(mask) < mask.size:
        by_signature(d, node)
        return
    d.set(node.out(), (int(np.count_nonzero(mask)), len(dims)))


@rule("CTCGreedyDecoder CTCBeamSearchDecoder")
def _decoder(d: Dimensions, node: Node) -> None:
    """Steps of rows are decoded by the length of each row, to words of which data say how many, and a number for each row."""
    for port in range(len(node.outputs or ())):
        d.fresh(node.out(port))
    steps, lengths, scores = (
        d.dims(node.inputs[0]),
        d.dims(node.inputs[1]),
        d.dims(node.out(len(node.outputs or ()) - 1)),
    )
    for dims in (lengths, scores):
        if steps is not None and dims:
            d.sizes.tie(steps[1], dims[0])

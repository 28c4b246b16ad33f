"""Ties between the shape of a sparse tensor, which is an operand of its own, and the dimensions of what it meets."""

from __future__ import annotations

from tpugraph.analysis.dimension_rules.arithmetic_ties import by_signature
from tpugraph.analysis.dimension_rules.reshaping_ties import shaped_by
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.ir import Node


@rule("SparseToDense")
def _sparse_to_dense(d: Dimensions, node: Node) -> None:
    shaped_by(d, node, 1)


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

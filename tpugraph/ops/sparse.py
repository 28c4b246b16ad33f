"""Ops on sparse tensors: indices, values and shape."""

from __future__ import annotations

from tpugraph.ops.record import Call, page

op = page("sparse")

_INSTEAD = "make the values dense in the input function (a fixed number per row, padded), then tf.gather and a masked tf.reduce_sum"


def _product(call: Call) -> str:
    """Each entry adds a multiple of a row (column, if transposed) of the dense matrix to the result."""
    return f"z*, z, -, {'j*' if call.attr('adjoint_b', False) else '*j'} -> *j"


def _times_dense(call: Call) -> str | None:
    """Each entry is combined with one element of the dense operand."""
    rank = call.ranks[3]
    return None if rank is None else f"z*, z, -, {'*' * rank} -> z"


op("SparseTensorDenseMatMul", dims=_product, linear="1,3", instead=_INSTEAD, backward=True)
op("SparseTensorDenseAdd", linear="1+3")
op("SparseDenseCwiseMul", dims=_times_dense, linear="1,3")
op("SparseDenseCwiseDiv", dims=_times_dense, linear="1")
op("SparseDenseCwiseAdd", dims=_times_dense, linear="1+3")
op("SparseToDense", linear="2+3", constants=(1,), shaped_by=1)
op("SparseReduceSum", linear="1", axis=3)
op("SparseReshape", role="sparse_reshape", instead=_INSTEAD, sizes=(1, 2))
op("SparseFillEmptyRows", instead=_INSTEAD, sizes=(2,))
op("SparseConcat SparseSlice", instead=_INSTEAD)
op("SparseFillEmptyRowsGrad SparseReorder SparseSoftmax SparseAdd")
op("SparseCross SparseCrossHashed SparseCrossV2", host_only=True)
op("RaggedTensorToTensor", role="ragged_to_dense", host_only=True)
op("DeserializeSparse", role="unwrap_sparse")

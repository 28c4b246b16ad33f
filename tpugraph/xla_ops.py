"""Facts about op types that a compiler for TPU asks for: what it must know, what it lacks, what to write instead."""

from __future__ import annotations

from typing import Any

from tpugraph import ops

COMPILE_TIME_CONSTANTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys("""Fill Empty Concat DynamicStitch ParallelDynamicStitch Split
        StackV2 TensorArrayV3 AvgPoolGrad AvgPool3DGrad
        Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput RandomUniform RandomUniformInt
        RandomStandardNormal TruncatedNormal StatelessRandomUniform StatelessRandomUniformInt StatelessRandomNormal
        StatelessTruncatedNormal ParameterizedTruncatedNormal""".split(), (0,)),
    **dict.fromkeys("""ArgMax ArgMin Bincount BroadcastTo Conv2DBackpropFilter Conv3DBackpropFilterV2 Cumsum Cumprod
        CumulativeLogsumexp DenseBincount DepthwiseConv2dNativeBackpropFilter ExpandDims IRFFT IRFFT2D IRFFT3D MirrorPad
        MirrorPadGrad Multinomial OneHot Pad PadV2 RFFT RFFT2D RFFT3D Reshape ResizeBilinear ResizeNearestNeighbor
        ReverseV2 TensorListReserve Tile Transpose ConjugateTranspose Sum Mean Prod Max Min All
        Any""".split(), (1,)),
    **dict.fromkeys("""GatherV2 Roll ScatterNd UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin
        UnsortedSegmentProd NonMaxSuppressionV4""".split(), (2,)),
    **dict.fromkeys(("SplitV", "SpaceToBatchND", "BatchToSpaceND"), (1, 2)),
    **dict.fromkeys(("Range", "LinSpace", "MatrixDiagV2", "MatrixDiagV3"), (0, 1, 2)),
    "ConcatV2": (-1,),
    "StridedSliceGrad": (0, 1, 2, 3),
}  # fmt: skip
"""The operands whose value XLA must know when it compiles. Where it takes more or less, its own word counts."""

LISTS = frozenset({"EmptyTensorList", "TensorListReserve", "StackV2"})
"""Ops that make a list that a loop fills; XLA wants to know its size."""

STACKS = frozenset({"StackV2", "StackPushV2", "StackPopV2"})
"""What the gradient of a loop keeps values on."""

TPU_LACKS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        (f"{kind}{rank}" for kind in ("FFT", "IFFT", "RFFT", "IRFFT") for rank in ("", "2D", "3D")),
        frozenset({"float64", "complex128"}),
    ),
    **dict.fromkeys(
        ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"), frozenset({"int64", "uint64"})
    ),
}
"""The dtypes that a TPU has no op for though XLA takes them on a CPU; seen with libtpu 0.0.52."""

XLA_REFUSES: dict[str, tuple[str, Any, str]] = {
    "TensorArrayV3": ("dynamic_size", True, "give TensorArray its size, of constants, and dynamic_size=False"),
}
"""An attribute value that an XLA kernel refuses though its registration takes it, and what to write instead."""

REPLACEMENTS: dict[str, str] = {
    **dict.fromkeys(
        ("SparseReshape", "SparseTensorDenseMatMul", "SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN",
         "SparseFillEmptyRows", "SparseConcat", "SparseSlice"),
        "make the values dense in the input function (a fixed number per row, padded), then tf.gather and a masked tf.reduce_sum",
    ),
    **dict.fromkeys(
        (f"ResourceSparseApply{name}" for name in ("Momentum", "KerasMomentum", "Adadelta", "RMSProp", "CenteredRMSProp",
                                                   "AdagradDA", "Ftrl", "FtrlV2", "ProximalAdagrad")),
        "Adagrad or plain gradient descent, whose sparse steps have dense ones that do the same; or read the table with "
        "tf.matmul(tf.one_hot(rows, n), table), whose gradient is dense",
    ),
    **dict.fromkeys(("CTCLoss", "CTCLossV2"), "tf.nn.ctc_loss with dense labels (labels of shape [batch, length], logit_length)"),
    **dict.fromkeys(ops.CANDIDATE_SAMPLERS, "draw the candidates in the input function, or take the full softmax"),
    **dict.fromkeys(("CropAndResize", "ResizeBicubic", "ResizeArea", "ExtractGlimpse"),
                    "tf.image.resize with method bilinear or nearest, or resize in the input function"),
    **dict.fromkeys(("RandomGamma", "RandomPoisson", "RandomPoissonV2"),
                    "draw in the input function, or from tf.random.normal or tf.random.uniform"),
    **dict.fromkeys(("FractionalMaxPool", "FractionalAvgPool"), "tf.nn.max_pool2d or tf.nn.avg_pool2d"),
    **dict.fromkeys((f"Segment{name}" for name in ("Sum", "Mean", "Prod", "Min", "Max")),
                    "tf.math.unsorted_segment_sum and its kin, with num_segments a constant"),
    "ResizeNearestNeighborGrad": "tf.image.resize with method bilinear; or tf.repeat, whose gradient XLA has, for whole factors",
    "HistogramFixedWidth": "tf.math.bincount of the bucket numbers with minlength and maxlength",
    "MatrixSquareRoot": "tf.linalg.eigh and the square roots of the eigenvalues",
}  # fmt: skip
"""What to write instead of an op that XLA has no kernel for."""


def instead_of(op: str) -> str:
    """What to do about an op that XLA has no kernel for."""
    return REPLACEMENTS.get(op, "write it with other ops, or compute it in the input function")

"""Sets of op types that go with their readers: the roles, padded text, and the constants of a batch that is split.

Delete this module when nothing reads it any more. New code asks the records.
"""

from __future__ import annotations

APART = {
    **dict.fromkeys(
        ("AccumulatorTakeGradient", "SparseAccumulatorTakeGradient", "ResourceAccumulatorTakeGradient"),
        ("gradients pass through an accumulator, as with SyncReplicasOptimizer",
         "train with the optimizer that it wraps: the cores' gradients are summed here"),
    ),
    **dict.fromkeys(
        ("Unstage", "MapUnstage", "OrderedMapUnstage"),
        ("batches pass through a staging area", "read the iterator directly: the infeed stages the batches"),
    ),
    **dict.fromkeys(
        ("BoostedTreesUpdateEnsemble", "BoostedTreesUpdateEnsembleV2"),
        ("boosted trees are grown, not trained by gradients", "a TPU has no kernels for them: train them on a CPU"),
    ),
}  # fmt: skip
"""Ops that hide the way from the input to the variables: what they do, and what to do about it."""

ROW_BY_ROW = frozenset(
    """AsString DecodeBase64 EncodeBase64 LookupTableFindV2 LookupTableFind RegexFullMatch RegexReplace
    StaticRegexFullMatch StaticRegexReplace StringJoin StringLength StringLower StringStrip StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeScript Bucketize
    MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3""".split()
)
"""Ops that compute each row from the same rows of their operands (of a product: of the left one)."""

FUNCTIONAL = frozenset({"While", "StatelessWhile", "If", "StatelessIf"})

MULTILINEAR = frozenset(
    """Mul MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum Conv2D Conv3D DepthwiseConv2dNative Select SelectV2
    MulNoNan""".split()
)
"""Ops that are linear in each operand while the others are the same on every core."""

TAKES_SIZES = {"Reshape": 1, "Tile": 1, "BroadcastTo": 1, "Slice": 2, "Conv2DBackpropInput": 0, "Fill": 0}
"""Ops that one of their operands tells the sizes of the result, and which it is."""

HANDS_ON_SIZES = frozenset({"Pack", "ConcatV2", "Cast", "Identity", "ExpandDims"})
"""Ops that vectors of sizes are put together with."""

BACKPROPAGATION = frozenset(
    """ReluGrad Relu6Grad EluGrad SeluGrad SigmoidGrad TanhGrad SoftplusGrad SoftsignGrad SqrtGrad RsqrtGrad
    ReciprocalGrad InvGrad LeakyReluGrad BiasAdd BiasAddGrad Conv2DBackpropFilter Conv2DBackpropInput
    Conv3DBackpropFilterV2 Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropFilter
    DepthwiseConv2dNativeBackpropInput Dilation2DBackpropFilter Dilation2DBackpropInput FusedBatchNormGrad
    FusedBatchNormGradV2 FusedBatchNormGradV3 MaxPoolGrad MaxPoolGradWithArgmax AvgPoolGrad MaxPool3DGrad AvgPool3DGrad
    LRNGrad ResizeBilinearGrad ResizeNearestNeighborGrad ResizeBicubicGrad CropAndResizeGradImage SparseSegmentMeanGrad
    SparseSegmentSumGrad SparseSegmentSqrtNGrad SparseSegmentMeanGradV2 SparseSegmentSumGradV2 SparseSegmentSqrtNGradV2
    SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits CTCLoss CudnnRNNBackprop LSTMBlockCellGrad
    BlockLSTMGrad BlockLSTMGradV2 GRUBlockCellGrad StackPopV2 StackPop TensorArrayReadV3 TensorArrayGatherV3
    TensorArrayConcatV3 SymbolicGradient SparseTensorDenseMatMul""".split()
)
"""Ops that backpropagation is made of, and no processing of a gradient: behind one of them begins the raw gradient."""

"""Facts about op types, as data. Passes ask here and never look into op names themselves.

An op that is not listed gets the conservative answer: what TensorFlow's own op registry says of it, and "stateful, not
elementwise, not movable" where that says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

# --------------------------------------------------------------------------- control flow (TF1)

MERGE = frozenset({"Merge", "RefMerge"})
SWITCH = frozenset({"Switch", "RefSwitch", "_SwitchN"})
NEXT_ITERATION = frozenset({"NextIteration", "RefNextIteration"})
ENTER = frozenset({"Enter", "RefEnter"})
EXIT = frozenset({"Exit", "RefExit"})
LOOP_COND = frozenset({"LoopCond"})
CONTROL_FLOW = MERGE | SWITCH | NEXT_ITERATION | ENTER | EXIT | LOOP_COND | {"ControlTrigger"}

# --------------------------------------------------------------------------- variables

REF_VARIABLES = frozenset({"VariableV2", "Variable", "TemporaryVariable"})
RESOURCE_VARIABLES = frozenset({"VarHandleOp"})
VARIABLES = REF_VARIABLES | RESOURCE_VARIABLES
READS = frozenset({"ReadVariableOp"})
"""Reads of a whole resource variable. A ref variable is read by whatever takes its reference."""

GATHERS = frozenset({"ResourceGather", "ResourceGatherNd"})
"""Reads of rows of a resource variable."""

HANDLE_ALIASES = frozenset({"Identity", "RefIdentity", "Enter", "RefEnter", "Switch", "RefSwitch", "ColocateWith"})
"""Ops whose output is the same handle or reference as their first input."""

INITIALIZED = {"IsVariableInitialized": "VarIsInitializedOp"}

_ASSIGNS = {
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
}
_APPLIES = (
    "GradientDescent ProximalGradientDescent Adadelta Adagrad AdagradV2 AdagradDA ProximalAdagrad Ftrl FtrlV2 "
    "Momentum KerasMomentum Adam AdaMax AdamWithAmsgrad RMSProp CenteredRMSProp AddSign PowerSign"
).split()
_SCATTERS = "Add Sub Update Mul Div Min Max NdAdd NdSub NdUpdate NdMin NdMax".split()

TO_RESOURCE: dict[str, str] = {
    **_ASSIGNS,
    **INITIALIZED,
    **{f"Apply{name}": f"ResourceApply{name}" for name in _APPLIES},
    **{f"SparseApply{name}": f"ResourceSparseApply{name}" for name in _APPLIES},
    **{f"Scatter{name}": f"ResourceScatter{name}" for name in _SCATTERS},
    "CountUpTo": "ResourceCountUpTo",
}
"""The op on resource variables that does what an op on ref variables does."""


@dataclass(frozen=True)
class Write:
    """What an op writes.

    Attributes:
        kind: ``assign`` (the value is an operand), ``apply`` (an optimizer step) or ``scatter`` (rows).
        variables: indices of the operands that are written.
        value: index of the operand that carries the new value, the gradient or the rows.
        rows: index of the operand that says which rows, or None.
        additive: whether the result is linear in the value (a zero changes nothing).
    """

    kind: str
    variables: tuple[int, ...]
    value: int
    rows: int | None = None
    additive: bool = False


# (number of written operands, index of the gradient, index of the row numbers in the sparse form)
_APPLY_OPERANDS: dict[str, tuple[int, int, int]] = {
    "GradientDescent": (1, 2, 3),
    "ProximalGradientDescent": (1, 4, 5),
    "Adadelta": (3, 6, 7),
    "Adagrad": (2, 3, 4),
    "AdagradV2": (2, 4, 5),
    "AdagradDA": (3, 3, 4),
    "ProximalAdagrad": (2, 5, 6),
    "Ftrl": (3, 3, 4),
    "FtrlV2": (3, 3, 4),
    "Momentum": (2, 3, 4),
    "KerasMomentum": (2, 3, 4),
    "Adam": (3, 9, 10),
    "AdaMax": (3, 8, 9),
    "AdamWithAmsgrad": (4, 10, 11),
    "RMSProp": (3, 7, 8),
    "CenteredRMSProp": (4, 8, 9),
    "AddSign": (2, 6, 7),
    "PowerSign": (2, 6, 7),
}

SPARSE_ZERO_IS_NOOP = frozenset({"Adagrad", "AdagradV2", "GradientDescent"})
"""Optimizers whose sparse step leaves a row alone when its gradient is zero."""


def _write_table() -> dict[str, Write]:
    table: dict[str, Write] = {}
    for ref, resource in _ASSIGNS.items():
        table[ref] = table[resource] = Write("assign", (0,), 1, additive=ref != "Assign")
    for name, (count, gradient, rows) in _APPLY_OPERANDS.items():
        variables = tuple(range(count))
        for prefix in ("", "Resource"):
            table[f"{prefix}Apply{name}"] = Write("apply", variables, gradient)
            table[f"{prefix}SparseApply{name}"] = Write(
                "apply", variables, gradient, rows, additive=name in SPARSE_ZERO_IS_NOOP
            )
    for name in _SCATTERS:
        fact = Write("scatter", (0,), 2, 1, additive=name in ("Add", "Sub", "NdAdd", "NdSub"))
        table[f"Scatter{name}"] = table[f"ResourceScatter{name}"] = fact
    return table


WRITES: dict[str, Write] = _write_table()
"""What each variable-writing op writes."""

# --------------------------------------------------------------------------- input and host

ITERATORS = frozenset({"IteratorV2", "Iterator", "OneShotIterator", "AnonymousIterator", "AnonymousIteratorV2"})
GET_NEXT = frozenset({"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"})
MAKE_ITERATOR = frozenset({"MakeIterator"})
QUEUES = frozenset(
    {"FIFOQueueV2", "FIFOQueue", "RandomShuffleQueueV2", "RandomShuffleQueue", "PaddingFIFOQueueV2", "PaddingFIFOQueue",
     "PriorityQueueV2", "PriorityQueue"}
)  # fmt: skip
DEQUEUES = frozenset({"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2", "QueueDequeue", "QueueDequeueMany"})
ENQUEUES = frozenset({"QueueEnqueueV2", "QueueEnqueueManyV2", "QueueEnqueue", "QueueEnqueueMany"})
QUEUE_CLOSES = frozenset({"QueueCloseV2", "QueueClose"})
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
INPUTS = GET_NEXT | DEQUEUES | PLACEHOLDERS
"""Ops that bring data of a batch into the step."""

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

PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""Ops that call into the Python process that built the graph; a file cannot carry them."""

SUMMARIES = frozenset(
    {"ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary", "AudioSummaryV2", "TensorSummary",
     "TensorSummaryV2", "MergeSummary"}
)  # fmt: skip
SUMMARY_WRITERS = frozenset(
    {"WriteScalarSummary", "WriteHistogramSummary", "WriteSummary", "WriteImageSummary", "WriteAudioSummary",
     "WriteGraphSummary", "FlushSummaryWriter", "CreateSummaryFileWriter", "CloseSummaryWriter"}
)  # fmt: skip
PRINTS = frozenset({"Print", "PrintV2"})
ASSERTS = frozenset({"Assert"})
CHECKS = ASSERTS | {"CheckNumerics", "CheckNumericsV2"}
SAVES = frozenset({"SaveV2", "SaveSlices", "Save", "MergeV2Checkpoints", "ShardedFilename"})
RESTORES = frozenset({"RestoreV2", "Restore", "RestoreSlice"})

TABLES = frozenset(
    {"HashTableV2", "HashTable", "MutableHashTableV2", "MutableHashTable", "MutableDenseHashTableV2",
     "MutableHashTableOfTensorsV2"}
)  # fmt: skip
TABLE_INITIALIZERS = frozenset(
    {"InitializeTableV2", "InitializeTable", "InitializeTableFromTextFileV2", "InitializeTableFromTextFile",
     "LookupTableImportV2", "LookupTableImport"}
)  # fmt: skip

_HOST_PREFIXES = ("Decode", "Parse", "QueueDequeue", "QueueEnqueue", "QueueSize", "Reader", "LookupTable", "Iterator")
"""Families of TensorFlow's own op types that run on a host only, by the family's documented prefix."""

HOST_ONLY = (
    ITERATORS | GET_NEXT | MAKE_ITERATOR | QUEUES | DEQUEUES | ENQUEUES | QUEUE_CLOSES | PYTHON | SUMMARIES
    | SUMMARY_WRITERS | PRINTS | SAVES | RESTORES | TABLES | TABLE_INITIALIZERS | PLACEHOLDERS
    | {"ReadFile", "WriteFile", "MatchingFiles", "SparseCross", "SparseCrossHashed", "SparseCrossV2", "Timestamp",
       "EncodeJpeg", "EncodePng", "GenerateVocabRemapping", "SummaryWriter"}
)  # fmt: skip

FILE_OPERANDS: dict[str, int] = {
    "TFRecordDataset": 0,
    "TFRecordDatasetV2": 0,
    "TextLineDataset": 0,
    "FixedLengthRecordDataset": 0,
    "FixedLengthRecordDatasetV2": 0,
    "InitializeTableFromTextFileV2": 1,
    "ReadFile": 0,
    "MatchingFiles": 0,
    "MatchingFilesDataset": 0,
}
"""Ops that open files, and which operand names them."""

# --------------------------------------------------------------------------- randomness, shape, arithmetic

CANDIDATE_SAMPLERS = frozenset(
    {"LogUniformCandidateSampler", "UniformCandidateSampler", "LearnedUnigramCandidateSampler",
     "FixedUnigramCandidateSampler", "AllCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"}
)  # fmt: skip
"""Ops that draw classes whatever the labels are; of the labels they say how often each is expected."""

RANDOM = CANDIDATE_SAMPLERS | frozenset(
    {"RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle", "Multinomial",
     "RandomGamma", "RandomPoisson", "RandomPoissonV2", "ParameterizedTruncatedNormal", "StatelessMultinomial",
     "RandomCrop", "StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniformInt"}
)  # fmt: skip
"""Ops that draw from a stateful random stream; ``seed`` and ``seed2`` name the stream."""

CONTAINERS = frozenset({"StackV2", "Stack", "TensorArrayV3", "TensorArrayV2", "Barrier", "ConditionalAccumulator"})
"""Ops that make a mutable container of one step: each replica that writes varying values needs its own."""

SHAPE_OF = frozenset({"Shape", "ShapeN", "Size", "Rank"})
"""Ops that read only the shape of their input."""

FILLED_LIKE = frozenset({"ZerosLike", "OnesLike"})
"""Ops whose elements are the same number whatever their input's are."""

IDENTITIES = frozenset({"Identity", "IdentityN", "Snapshot", "StopGradient", "PreventGradient", "EnsureShape"})

SHARES_MEMORY = (
    IDENTITIES | CONTROL_FLOW | {"Reshape", "Squeeze", "ExpandDims", "Bitcast", "CheckNumerics", "RefIdentity"}
)
"""Ops whose output may be the memory of their first input: of a ref variable they hand on no value but the variable."""

ELEMENTWISE = frozenset(
    """Abs Acos Acosh Add AddN AddV2 And Asin Asinh Atan Atan2 Atanh BiasAdd Cast Ceil CheckNumerics ClipByValue Conj
    Cos Cosh Div DivNoNan Elu EluGrad EnsureShape Equal Erf Erfc Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual
    Identity Imag Inv InvGrad IsFinite IsInf IsNan LeakyRelu LeakyReluGrad Less LessEqual Log Log1p LogicalAnd
    LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Neg NextAfter NotEqual OnesLike Pow PreventGradient Real
    RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Rint Round Rsqrt RsqrtGrad Select SelectV2 Selu
    SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Snapshot Softplus SoftplusGrad Softsign SoftsignGrad Sqrt SqrtGrad Square
    SquaredDifference StopGradient Sub Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlogy ZerosLike Digamma
    Lgamma""".split()
)
"""Ops that work element by element (with broadcasting)."""

ROW_BY_ROW = frozenset(
    """AsString Base64 DecodeBase64 EncodeBase64 LookupTableFindV2 LookupTableFind RegexFullMatch RegexReplace
    StaticRegexFullMatch StaticRegexReplace StringJoin StringLength StringLower StringStrip StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeScript Bucketize
    MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3""".split()
)
"""Ops that compute each row from the same rows of their operands (of a product: of the left one)."""

LAST_DIMENSION = frozenset({"Softmax", "LogSoftmax", "TopK", "TopKV2", "LRN"})
"""Ops that work along the last dimension and keep the others apart."""

IMAGES = frozenset(
    {"Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool", "MaxPoolV2", "AvgPool", "MaxPool3D", "AvgPool3D",
     "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "ResizeBilinear", "ResizeNearestNeighbor",
     "ResizeBicubic", "SpaceToDepth", "DepthToSpace", "Dilation2D", "QuantizedConv2D"}
)  # fmt: skip
"""Ops on batches of images: dimension 0 is the image (a FusedBatchNorm in training mode mixes them all the same)."""

REDUCTIONS = frozenset({"Sum", "Mean", "Prod", "Max", "Min", "All", "Any", "L2Loss", "EuclideanNorm"})

SPREADS = frozenset({"Tile", "BroadcastTo", "Fill"})
"""Ops that repeat what they are given along new or longer dimensions."""

SUMS = frozenset({"Add", "AddV2", "AddN", "Sub"})
PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative"})
FUNCTIONAL = frozenset({"While", "StatelessWhile", "If", "StatelessIf"})
SELECTS = frozenset({"Select", "SelectV2"})
DIVISIONS = frozenset({"RealDiv", "Div", "DivNoNan"})
BATCH_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})

ALONG_LAST_AXIS = frozenset(
    """Softmax LogSoftmax TopK TopKV2 SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits InTopK InTopKV2
    NthElement""".split()
)
"""Ops that combine the elements along the last axis of their first operand."""

PICKS = frozenset({"GatherV2", "Gather", "GatherNd"})
"""Ops that pick rows of their first operand at the numbers in the second."""

LOOKS_UP_ROWS = frozenset({"Gather", "GatherV2", "ResourceGather"})
"""Ops that give one row of their first operand for each number of the second."""

ALONG_AXES: dict[str, int] = {"Cumsum": 1, "Cumprod": 1, "CumulativeLogsumexp": 1, "ReverseV2": 1, "Roll": 2}
"""Ops that combine or move the elements along axes of their first operand, and the operand that names the axes."""

LINEAR_IN_ALL = (
    IDENTITIES
    | MERGE
    | ENTER
    | EXIT
    | NEXT_ITERATION
    | frozenset(
        """Add AddN AddV2 Sub Neg Cast CheckNumerics Pack ConcatV2 Conj Real Imag ZerosLike OnesLike Shape ShapeN Size Rank
    AccumulateNV2 Stack StackV2 SparseTensorDenseAdd""".split()
    )
)
"""Ops that are linear in all their operands together: what they make of a sum over cores is the sum of what they make."""

SCATTERED_SUMS: dict[str, int] = {
    "ScatterNd": 0,
    "SparseTensorDenseAdd": 0,
    "UnsortedSegmentSum": 1,
    "Bincount": 0,
    "DenseBincount": 0,
}
"""Ops that add numbers up at places, and the operand that holds the places."""

DYNAMIC_STITCHES = frozenset({"DynamicStitch", "ParallelDynamicStitch"})
"""Ops that put rows together, each at the place that its number says; the numbers are the first half of the operands."""

AFFINE = frozenset({"Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Div"})
"""Arithmetic that takes a sum apart into what differs between cores and what does not."""

LINEAR_OPERAND: dict[str, int] = {
    **dict.fromkeys(
        """Reshape Squeeze ExpandDims Transpose Sum Mean Slice StridedSlice Pad PadV2 GatherV2 Gather GatherNd Tile
        BroadcastTo Switch RefSwitch SplitV Unpack ReverseV2 Roll Cumsum MatrixDiag MatrixDiagV3 MatrixDiagPart
        MatrixDiagPartV3 MatrixBandPart Diag DiagPart UnsortedSegmentSum SegmentSum SparseSegmentSum SparseSegmentMean
        RealDiv Div DivNoNan BiasAddGrad DynamicStitch SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace FFT FFT2D
        IFFT IFFT2D RFFT IRFFT AvgPool MatrixTranspose InvertPermutation""".split(),
        0,
    ),
    **dict.fromkeys("Split AvgPoolGrad ScatterNd Fill".split(), 1),
    **dict.fromkeys("Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput".split(), 2),
    "StridedSliceGrad": 4,
}
"""Ops that are linear in one operand while the others are the same on every core, and which operand that is."""

MULTILINEAR = frozenset(
    """Mul MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum Conv2D Conv3D DepthwiseConv2dNative Select SelectV2
    Xdivy MulNoNan TensorScatterAdd""".split()
)
"""Ops that are linear in each operand while the others are the same on every core."""

NOT_LINEAR = frozenset(
    """ClipByValue Erf Exp L2Loss Log Log1p Maximum Minimum Pow Rsqrt Sigmoid Sign Softmax Sqrt Square Tanh""".split()
)
"""Ops whose result for twice an operand is not twice the result."""

NO_GRADIENT = frozenset(
    """ArgMax ArgMin Bucketize Ceil Equal Floor FloorDiv Greater GreaterEqual InTopK InTopKV2 IsFinite IsInf IsNan Less
    LessEqual LogicalAnd LogicalNot LogicalOr NotEqual OneHot OnesLike Rank Rint Round Shape ShapeN Sign Size
    StopGradient ZerosLike""".split()
)
"""Ops through which no gradient flows."""

TAKES_SIZES = {"Reshape": 1, "Tile": 1, "BroadcastTo": 1, "Slice": 2, "Conv2DBackpropInput": 0, "Fill": 0}
"""Ops that one of their operands tells the sizes of the result, and which it is."""

HANDS_ON_SIZES = frozenset({"Pack", "ConcatV2", "Cast", "Identity", "ExpandDims"})
"""Ops that vectors of sizes are put together with."""

TAKES_OUT = frozenset(
    {"StackPopV2", "TensorArrayReadV3", "TensorArrayGatherV3", "TensorListPopBack", "TensorListGetItem"}
)
"""Ops that give back what was put into a container before."""

SEGMENT_GRADS = frozenset({"SparseSegmentMeanGradV2", "SparseSegmentSumGradV2", "SparseSegmentSqrtNGradV2"})
"""Gradients of sparse segment ops: rows, and the indices that they belong to."""

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

INFEED_DTYPES = frozenset({"bool", "int32", "int64", "uint32", "bfloat16", "float32", "complex64", "uint8", "int8"})
"""What a TPU takes over its infeed (read from TensorFlow 2.15; 1.15 lacks uint8 and int8)."""

REDUCE_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64", "int32", "uint32"})
"""What CrossReplicaSum takes, by its op definition."""

TPU_SYSTEM = frozenset(
    {"ConfigureDistributedTPU", "ShutdownDistributedTPU", "TPUReplicateMetadata", "TPUReplicatedInput",
     "TPUReplicatedOutput", "TPUCompilationResult", "CrossReplicaSum", "InfeedEnqueueTuple", "InfeedDequeueTuple",
     "OutfeedEnqueueTuple", "OutfeedDequeueTuple", "XlaSetDynamicDimensionSize"}
)  # fmt: skip
"""Ops that make a graph a TPU graph; no CPU kernel runs them."""

UNBOUNDED = frozenset({"TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3", "StackPopV2", "Merge"})
"""Ops whose shape TensorFlow's inference leaves open though a compiler knows it from the producer."""


@cache
def op_def(op: str) -> Any:
    """TensorFlow's definition of an op type, or None where this TensorFlow does not know it."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op)


@cache
def required_attrs(op: str) -> frozenset[str]:
    """The attributes of an op type that have no default; none are known of an unknown op."""
    definition = op_def(op)
    attributes = () if definition is None else definition.attr
    return frozenset(a.name for a in attributes if not a.HasField("default_value"))


@cache
def is_stateful(op: str) -> bool:
    """Whether running the op has effects or depends on state; True for an unknown op."""
    definition = op_def(op)
    return True if definition is None else bool(definition.is_stateful)


@cache
def is_dataset(op: str) -> bool:
    """Whether the op makes a tf.data dataset (its output is a variant that describes one)."""
    return op.endswith(("Dataset", "DatasetV2", "DatasetV3", "DatasetV4")) and op_def(op) is not None


@cache
def is_host_only(op: str) -> bool:
    """Whether the op can run on a host only, whatever its dtypes."""
    return op in HOST_ONLY or is_dataset(op) or op.startswith(_HOST_PREFIXES)

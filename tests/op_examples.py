"""An example of each op type, with which the claims of its record are held against TensorFlow."""

import ast
import functools
import inspect
import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import graphdef
from tpugraph.ops.record import WORDS, Call, Op, Signature
from tpugraph.spmd import factors

EXAMPLES = """
# Op types, a colon, the operands, and the attributes behind a semicolon. Another line, or "|", begins another example.
# An operand is
#   a4c  random numbers of that shape: a letter has the size that `size` gives it, a digit is a size; "_" is a scalar;
#        behind it: <3 whole numbers below 3, + positive, % between 0 and 1, ^ above 1, # sorted whole numbers,
#        @ positive definite matrices, ~ text
#   [a4] the vector of these sizes;  =0.5 =[1,2]  just that
# What is not listed gets random numbers of the shapes in its signature, with "*" as 3 and "..." as pq.

AddN: pq, pq, pq
Acos Asin Atanh Erfinv Ndtri Log Log1p Sqrt Rsqrt Inv Reciprocal Digamma Lgamma Spence: pq%
BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Expint: pq+
Acosh: pq^
SqrtGrad RsqrtGrad InvGrad ReciprocalGrad: pq+, pq
Pow Igamma Igammac IgammaGradA RandomGammaGrad: pq+, pq+
Zeta: pq^, pq+
Polygamma: =2.0, pq+
Betainc: pq+, pq+, pq% | pq%, pq%, pq%
Xdivy Xlogy Xlog1py: pq, pq+
NextAfter: pq, pq | pq, q
Conj Real Imag ComplexAbs Angle: pq; T=tf.complex64
Cast: pq; DstT=tf.float64 | pq; DstT=tf.int32 | pq<9; DstT=tf.float32 | pq<9; DstT=tf.int64 | pq<2; DstT=tf.bool
Bitcast: pq; type=tf.int32
EnsureShape: pq; shape=[None, None]
CheckNumerics CheckNumericsV2: pq; message='m'
Select: pq<2, pq, pq | p<2, pq, pq | p<2, p, p
SelectV2: pq<2, pq, pq | pq<2, q, p1
LogicalAnd LogicalOr: pq<2, pq<2 | pq<2, q<2
LogicalNot: pq<2
BitwiseAnd BitwiseOr BitwiseXor: pq<9, pq<9 | pq<9, q<9
LeftShift RightShift: pq<9, pq<3
Invert PopulationCount: pq<9
Bucketize: pq; boundaries=[-1.0, 0.0, 1.0]
ApproximateEqual: pq, pq; tolerance=0.5
FakeQuantWithMinMaxArgsGradient: pq, pq; min=-0.5, max=0.5
FakeQuantWithMinMaxVars: pq, =-1.0, =1.0
FakeQuantWithMinMaxVarsGradient: pq, pq, =-1.0, =1.0
FakeQuantWithMinMaxVarsPerChannel: pqc, c, c^
FakeQuantWithMinMaxVarsPerChannelGradient: pqc, pqc, c, c^
LeakyRelu: pq; alpha=0.2
Identity PlaceholderWithDefault: pq
IdentityN: pq, ab; T=[tf.float32, tf.float32]

MatMul SparseMatMul: ik, kj | ki, kj; transpose_a=True | ik, jk; transpose_b=True | ki, jk; transpose_a=True, transpose_b=True
BatchMatMul: pqik, pqkj | pki, pkj; adj_x=True | pik, pjk; adj_y=True
BatchMatMulV2: pqik, pqkj | pki, kj; adj_x=True | pik, qpjk; adj_y=True
BatchMatMulV3: pqik, pqkj; Tout=tf.float32 | pki, kj; adj_x=True, Tout=tf.float32
Einsum: ij, jk; equation='ij,jk->ik' | pij, jk; equation='...ij,jk->...ik' | 33, 3; equation='ii,i->i' | ij, kj; equation='ij,kj->'
Cross: pq3, pq3
BiasAdd: pqc, c | nc54, c; data_format='NCHW'
BiasAddGrad: pqc | nc54; data_format='NCHW'
MatrixBandPart: pq33, =1, =1; Tindex=tf.int32
MatrixDiagV2 MatrixDiagV3: pq3, =1, =-1, =-1, _
MatrixDiagPartV2 MatrixDiagPartV3: pq33, =1, _
MatrixSetDiagV2 MatrixSetDiagV3: pq33, pq2, =1
Diag: 23
DiagPart: 2323
Cholesky MatrixInverse MatrixSquareRoot Lu Qr Svd MatrixDeterminant LogMatrixDeterminant SelfAdjointEigV2: pq33@
Eig: pq33@; Tout=tf.complex64
MatrixLogarithm: pq33@; T=tf.complex64
CholeskyGrad: pq33@, pq33
MatrixSolve MatrixTriangularSolve: pq33@, pq3k
BandedTriangularSolve: pq23^, pq3k
TridiagonalSolve: pq35^, pq5k
MatrixSolveLs: pq53, pq5k, =0.5; T=tf.float64
TridiagonalMatMul: pq14, pq14, pq14, pq4k
FFT IFFT: pq5; T=tf.complex64
FFT2D IFFT2D: pq54; T=tf.complex64
FFT3D IFFT3D: pq542; T=tf.complex64
RFFT: pq6, =[6]
RFFT2D: pq56, =[5,6]
RFFT3D: pq256, =[2,5,6]
IRFFT: pq4, =[6]; T=tf.complex64
IRFFT2D: pq54, =[5,6]; T=tf.complex64
IRFFT3D: pq254, =[2,5,6]; T=tf.complex64
GRUBlockCell: b5, b3, 86, 83, 6, 3
GRUBlockCellGrad: b5, b3, 86, 83, 6, 3, b3, b3, b3, b3
LSTMBlockCell: b5, b2, b2, 78, 2, 2, 2, 8; use_peephole=True
LSTMBlockCellGrad: b5, b2, b2, 78, 2, 2, 2, 8, b2, b2, b2, b2, b2, b2, b2, b2; use_peephole=True
BlockLSTM BlockLSTMV2: =4, 4b5, b2, b2, 78, 2, 2, 2, 8; use_peephole=True
BlockLSTMGrad BlockLSTMGradV2: =4, 4b5, b2, b2, 78, 2, 2, 2, 8, 4b2, 4b2, 4b2, 4b2, 4b2, 4b2, 4b2, 4b2, 4b2; use_peephole=True

Conv2D: n54c, 32co; strides=[1,1,1,1], padding='VALID'
Conv2DBackpropInput: [n54c], 32co, n54o; strides=[1,1,1,1], padding='SAME'
Conv2DBackpropFilter: n54c, [32co], n54o; strides=[1,1,1,1], padding='SAME'
Conv2D: nc54, 32co; strides=[1,1,1,1], padding='VALID', data_format='NCHW'
Conv2DBackpropInput: [nc54], 32co, no54; strides=[1,1,1,1], padding='SAME', data_format='NCHW'
Conv2DBackpropFilter: nc54, [32co], no54; strides=[1,1,1,1], padding='SAME', data_format='NCHW'
Conv3D: n543c, 322co; strides=[1,1,1,1,1], padding='VALID'
Conv3DBackpropInputV2: [n543c], 322co, n543o; strides=[1,1,1,1,1], padding='SAME'
Conv3DBackpropFilterV2: n543c, [322co], n543o; strides=[1,1,1,1,1], padding='SAME'
DepthwiseConv2dNative: n543, 3232; strides=[1,1,1,1], padding='SAME'
DepthwiseConv2dNativeBackpropInput: [n543], 3232, n546; strides=[1,1,1,1], padding='SAME'
DepthwiseConv2dNativeBackpropFilter: n543, [3232], n546; strides=[1,1,1,1], padding='SAME'
Dilation2D: n54c, 32c; strides=[1,1,1,1], rates=[1,1,1,1], padding='SAME'
Dilation2DBackpropInput Dilation2DBackpropFilter: n54c, 32c, n54c; strides=[1,1,1,1], rates=[1,1,1,1], padding='SAME'
MaxPool AvgPool: n54c; ksize=[1,2,2,1], strides=[1,2,2,1], padding='SAME'
MaxPool: nc54; ksize=[1,1,2,2], strides=[1,1,2,2], padding='SAME', data_format='NCHW'
MaxPoolGrad MaxPoolGradGrad: n64c<2, n64c<2, n64c; T=tf.float32, ksize=[1,2,2,1], strides=[1,1,1,1], padding='SAME'
MaxPoolV2: n54c, =[1,2,2,1], =[1,2,2,1]; padding='SAME'
MaxPoolGradV2 MaxPoolGradGradV2: n64c<2, n64c<2, n64c, =[1,2,2,1], =[1,1,1,1]; T=tf.float32, padding='SAME'
AvgPoolGrad: [n54c], n32c; ksize=[1,2,2,1], strides=[1,2,2,1], padding='SAME'
MaxPool3D AvgPool3D: n543c; ksize=[1,2,2,2,1], strides=[1,2,2,2,1], padding='SAME'
MaxPool3DGrad: n543c<2, n543c<2, n543c; T=tf.float32, TInput=tf.float32, ksize=[1,2,2,2,1], strides=5*[1], padding='SAME'
MaxPool3DGradGrad: n543c<2, n543c<2, n543c; T=tf.float32, ksize=[1,2,2,2,1], strides=5*[1], padding='SAME'
AvgPool3DGrad: [n543c], n322c; ksize=[1,2,2,2,1], strides=[1,2,2,2,1], padding='SAME'
MaxPoolWithArgmax: n543; ksize=[1,2,2,1], strides=[1,1,1,1], padding='SAME'
MaxPoolWithArgmax: 2543; ksize=[1,2,2,1], strides=[1,1,1,1], padding='SAME', include_batch_in_index=True
MaxPoolGradWithArgmax: n543, n323, n323<9; Targmax=tf.int64, ksize=[1,2,2,1], strides=[1,2,2,1], padding='SAME'
ExtractImagePatches: n543; ksizes=[1,2,2,1], strides=[1,1,1,1], rates=[1,1,1,1], padding='SAME'
ExtractVolumePatches: n5433; ksizes=[1,2,2,2,1], strides=[1,1,1,1,1], padding='SAME'
SpaceToDepth: n643; block_size=2
DepthToSpace: n234; block_size=2
SpaceToBatch: 264c, =[[0,0],[0,0]]; block_size=2
BatchToSpace: 432c, =[[0,0],[0,0]]; block_size=2
SpaceToBatchND: 2643, =[2,2], =[[0,0],[0,0]]
BatchToSpaceND: 4323, =[2,2], =[[0,0],[0,0]]
ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea: n54c, =[7,3]
ResizeBilinearGrad ResizeBicubicGrad: n73c, n54c
ResizeNearestNeighborGrad: n73c, =[5,4]
ScaleAndTranslate: n54c, =[7,3], =[1.5,0.7], =[0.2,0.1]
ScaleAndTranslateGrad: n73c, n54c, =[1.5,0.7], =[0.2,0.1]
CropAndResize: 354c, b4%, b<3, =[3,2]
CropAndResizeGradImage: b32c, b4%, b<3, [354c]; T=tf.float32
CropAndResizeGradBoxes: b32c, 354c, b4%, b<3
ImageProjectiveTransformV2: p54c, p8%, =[3,2]; interpolation='BILINEAR' | p54c, 18%, =[3,2]; interpolation='BILINEAR'
ImageProjectiveTransformV3: p54c, p8, =[3,2], =0.5; interpolation='BILINEAR' | p54c, 18, =[3,2], =0.5; interpolation='NEAREST'
DrawBoundingBoxes: n543, nb4%
DrawBoundingBoxesV2: n543, nb4%, 33%
AdjustContrastv2: pq54c, =2.0
AdjustHue AdjustSaturation: pq3%, =0.3
RGBToHSV HSVToRGB: pq3%

Sum Mean Prod Max Min EuclideanNorm: abc, =[1] | abc, =[0,2]; keep_dims=True
All Any: abc<2, =[1] | abc<2, =[0,2]; keep_dims=True
ArgMax ArgMin: abc, =1 | abc, =0
L2Loss: pq
UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd: abc, a<5, =5 | abc, ab<5, =5
SegmentSum SegmentMean SegmentProd SegmentMin SegmentMax: 5bc, 5#
SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN: 5bc, 4<5, 4#
SparseSegmentSumWithNumSegments: 5bc, z<5, z#, =7
SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments: 5bc, 4<5, =[0,0,1,3], =7
SparseSegmentSumGrad: 5bc, z<6, z#, =6
SparseSegmentMeanGrad SparseSegmentSqrtNGrad: 5bc, 4<6, =[0,0,1,3], =6
SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2: 5bc, 4<6, 4#, =6
TopKV2 NthElement: pq5, =2
InTopK: n5, n<5; k=2
InTopKV2: n5, n<5, =2
LowerBound UpperBound: n5, nm
Cumsum Cumprod CumulativeLogsumexp: abc, =1
Softmax LogSoftmax: n3
FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3: n54c, c, c, c, c+; exponential_avg_factor=0.9 | n54c, c, c, c, c+; is_training=False
FusedBatchNormV3: nc54, c, c, c, c+; is_training=False, data_format='NCHW'
FusedBatchNormGrad FusedBatchNormGradV2: n54c, n54c, c, c, c+ | n54c, n54c, c, c, c+; is_training=False
FusedBatchNormGradV3: n54c, n54c, c, c, c+, c | n54c, n54c, c, c, c+, c; is_training=False
SparseSoftmaxCrossEntropyWithLogits: n5, n<5
CTCLoss: 525, =[[0,0],[1,0]], 2<3, =[5,5]

Reshape: 64, =[4,6]
ExpandDims: ab, =1 | ab, =-1
Transpose ConjugateTranspose: abc, =[1,2,0]
Slice: a4, =[0,1], [a2]
StridedSlice: a4, =[0,1], =[0,3], =[1,1]; begin_mask=1, end_mask=1 | ab4, =[0,1], =[0,2], =[1,1]; ellipsis_mask=1, shrink_axis_mask=2
StridedSlice: a4, =[0,0,1], =[0,0,3], =[1,1,1]; new_axis_mask=1, begin_mask=2, end_mask=2
StridedSliceGrad: [a4], =[0,1], =[0,3], =[1,1], a2; begin_mask=1, end_mask=1
StridedSliceGrad: [ab4], =[0,1], =[0,2], =[1,1], ab; ellipsis_mask=1, shrink_axis_mask=2
Pad: a4, =[[0,0],[1,2]]
MirrorPad: a4, =[[0,0],[1,2]]; mode='REFLECT'
MirrorPadGrad: a7, =[[0,0],[1,2]]; mode='REFLECT'
PadV2: a4, =[[0,0],[1,2]], _
Tile: a4, =[1,2]
BroadcastTo: a4, [2a4] | a1, [a3]
Fill: =[2,3], _
ReverseV2: ab, =[1]
Reverse: 64, =[True,False]
Roll: ab, =[1], =[1]
ReverseSequence: abc, a<4; seq_dim=1
Squeeze: a1b; squeeze_dims=[1]
Pack: ab, ab, ab | ab, ab; axis=1 | ab, ab; axis=-1
Unpack: 3ab; num=3 | ab3; num=3, axis=-1
ConcatV2: a4, a5, =1
Concat: =1, a4, a5
Split: =1, a4; num_split=2
SplitV: a4, =[1,3], =1; num_split=2
OneHot: ab<3, =3, _, _ | ab<3, =3, _, _; axis=0
InvertPermutation: =[1,2,0]
UnravelIndex: p<6, =[2,3] | _<6, =[2,3]
Range: =0, =5, =1
LinSpace: =0.0, =5.0, =4
BroadcastArgs BroadcastGradientArgs: =[2,3], =[3]
ConcatOffset: =0, =[2,3], =[4,3]
Empty RandomUniform RandomStandardNormal TruncatedNormal: =[2,3]; dtype=tf.float32
StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal: =[2,3], =[1,2]; dtype=tf.float32
StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2: =[2,3], =[1], =[1,2], =1; dtype=tf.float32
StatelessRandomUniformIntV2: =[2,3], =[1], =[1,2], =1, =1, =9
RandomUniformInt: =[2,3], =1, =9
StatelessRandomUniformInt: =[2,3], =[1,2], =1, =9
ParameterizedTruncatedNormal: =[2,3], =0.0, =1.0, =-1.0, =1.0
Multinomial: 23, =4
Bincount: 5<4, =4, 5
DenseBincount: 5<4, =4, 5 | n5<4, =4, n5 | n5<4, =4, 0
NonMaxSuppressionV4: 54, 5, =3, =0.5, =0.5; pad_to_max_output_size=True
StackV2: =3; elem_type=tf.float32
TensorArrayV3: =3; dtype=tf.float32
TensorListReserve: =[2], =3; element_dtype=tf.float32

Gather: 5bc, ij<5
GatherV2: 5bc, ij<5, =0
GatherNd: 55c, i2<5
ScatterNd: i1<5, i3, =[5,3]
TensorScatterAdd TensorScatterSub TensorScatterUpdate: 53, =[[0],[3]], 23
DynamicStitch ParallelDynamicStitch: =[0,2], =[1], 23, 13
DynamicPartition: 53, 5<2; num_partitions=2

SparseTensorDenseMatMul: z2<3, z, =[3,3], 3j | z2<3, z, =[3,3], j3; adjoint_b=True
SparseTensorDenseAdd: 52<3, 5, =[3,3], 33; Tindices=tf.int64
SparseDenseCwiseMul SparseDenseCwiseDiv SparseDenseCwiseAdd: z2<3, z, =[3,3], 33
SparseToDense: =[[0,1],[2,0]], =[3,3], 2, _
SparseReduceSum: =[[0,1],[2,0]], 2, =[3,3], =[1]

Substr: pq~, pq<2, pq<2
StringToHashBucket StringToHashBucketFast: pq~; num_buckets=7
StringToHashBucketStrong: pq~; num_buckets=7, key=[1,2]
StaticRegexFullMatch: pq~; pattern='1.*'
StaticRegexReplace: pq~; pattern='1', rewrite='x'
RegexFullMatch: pq~, ='1.*'
RegexReplace: pq~, ='1', ='x'
StringJoin: pq~, pq~
"""


@dataclass(frozen=True)
class Case:
    """One example of an op type: its operands as text, and its attributes."""

    record: Op
    operands: tuple[str, ...]
    attrs: dict[str, Any]
    round: int = 0

    @functools.cached_property
    def definition(self) -> Any:
        return ops.op_def(self.record.name)

    @functools.cached_property
    def places(self) -> list[Any]:
        """The definition of each operand; those of a list share one."""
        lists = [bool(arg.number_attr or arg.type_list_attr) for arg in self.definition.input_arg]
        length = (len(self.operands) - lists.count(False)) // max(lists.count(True), 1)
        return [
            arg
            for arg, many in zip(self.definition.input_arg, lists, strict=True)
            for _ in range(length if many else 1)
        ]

    @functools.cached_property
    def call(self) -> Call:
        """What rules are told of the example."""
        values = {
            attr.name: _python(attr.default_value) for attr in self.definition.attr if attr.HasField("default_value")
        }
        values |= {arg.type_attr: tf.as_dtype(self.dtype(i)) for i, arg in enumerate(self.places) if arg.type_attr}
        values |= self.attrs
        return Call(
            lambda name, default: values.get(name, default), tuple(self.value(i).ndim for i in range(len(self.places)))
        )

    def signature(self) -> Signature | None:
        """The signature of the record for this example, of words too; leading dimensions are upper-case letters."""
        if self.record.dims in WORDS:
            return self._signature_by_values()
        found = self.record.signature(self.call)
        if found is not None:
            found = Signature(*(tuple(re.sub("[A-Z]", "*", dims) for dims in side) for side in found))
        if found is None:
            return None
        extra = [
            rank - len(dims.replace("...", ""))
            for rank, dims in zip(self.call.ranks, found.operands, strict=True)
            if "..." in dims
        ]
        names = "STUVWXYZ"

        def expanded(dims: str, count: int) -> str:
            return dims.replace("...", names[len(names) - count :])

        operands = iter(extra)
        return Signature(
            tuple(expanded(dims, next(operands)) if "..." in dims else dims for dims in found.operands),
            tuple(expanded(dims, max(extra, default=0)) for dims in found.outputs),
        )

    def _signature_by_values(self) -> Signature | None:
        """The signature that the values of operands and the shapes tell, in the letters of the example."""
        with tf.Graph().as_default() as made:
            self.apply([tf.constant(value) for value in self.values()])
        graph = graphdef.from_graph_def(made.as_graph_def())
        shapes.infer(graph)
        (node,) = graph.of_type(self.record.name)
        found = factors.signature(node)
        if found is None:
            return None
        kept = {factor for named in found.outputs for factor in named or ()}
        letters = {
            factor: letter if factor in kept or found.reduce_op else "*"
            for index, named in enumerate(found.inputs)
            for factor, letter in zip(named or (), self.shape(index), strict=bool(named))
        } | {factors.WHOLE: "*"}
        sides = (found.inputs, found.outputs)
        return Signature(*(
            tuple("-" if named is None else "".join(letters[factor] for factor in named) for named in side)
            for side in sides
        ))  # fmt: skip

    # ----------------------------------------------------------------------- operands

    def shape(self, index: int) -> str:
        return re.sub(r"[<+%^#@~].*|_|=.*", "", self.operands[index])

    def dtype(self, index: int) -> Any:
        """The dtype of an operand: the given one, or the first that the op takes and that suits the example."""
        arg, text = self.places[index], self.operands[index]
        given = self.attrs.get(arg.type_attr)
        if given is not None:
            return given.as_numpy_dtype
        if arg.type:
            return tf.as_dtype(arg.type).as_numpy_dtype
        allowed: list[int] = []
        if arg.type_attr:
            (attr,) = (attr for attr in self.definition.attr if attr.name == arg.type_attr)
            allowed = list(attr.allowed_values.list.type)
            same = [i for i, other in enumerate(self.places) if other.type_attr == arg.type_attr]
            text = next((self.operands[i] for i in same if not self.operands[i].startswith("=")), text)
        wished = [tf.float32, tf.float64, tf.complex64]
        if "<" in text or "[" in text or re.fullmatch(r"=[-0-9]+", text) or ("#" in text and index):
            wished = [tf.int32, tf.int64, tf.uint8, tf.bool]
        if "~" in text:
            wished = [tf.string]
        return next(
            d for d in [*wished, tf.int32, tf.int64, tf.bool, tf.string] if not allowed or int(d) in allowed
        ).as_numpy_dtype

    def value(self, index: int, sizes: dict[str, int] | None = None) -> np.ndarray[Any, Any]:
        """An operand; ``sizes`` matters for those that are vectors of sizes."""
        text, dtype = self.operands[index], self.dtype(index)
        if text.startswith("["):
            return np.asarray([(sizes or {}).get(c, size(c, self.round)) for c in text[1:-1]], dtype)
        if text.startswith("="):
            return np.asarray(ast.literal_eval(text[1:]), dtype)
        return self.random(index, 0)

    def random(self, index: int, seed: int) -> np.ndarray[Any, Any]:
        """Numbers that are the same whenever they are asked for."""
        text, dtype, shape = (
            self.operands[index],
            np.dtype(self.dtype(index)),
            tuple(size(c, self.round) for c in self.shape(index)),
        )
        rng = np.random.default_rng([zlib.crc32(self.record.name.encode()), index, seed])
        if dtype.kind == "O":
            return rng.integers(1000, 9999, shape).astype("S4").astype(object)
        if "<" in text:
            return rng.integers(0, int(text.partition("<")[2]), shape).astype(dtype)
        if "#" in text:
            return np.sort(rng.integers(0, shape[0], shape), 0).astype(dtype)
        if dtype.kind in "biu":
            return rng.integers(0, 2 if dtype.kind == "b" else 5, shape).astype(dtype)
        made = rng.normal(size=shape)
        if "+" in text or "^" in text:
            made = np.abs(made) + (0.2 if "+" in text else 1.2)
        if "%" in text:
            made = rng.uniform(0.1, 0.9, shape)
        if "@" in text:
            made = made @ np.swapaxes(made, -1, -2) + np.eye(shape[-1])
        return np.asarray(made + 1j * rng.normal(size=shape) if dtype.kind == "c" and "@" not in text else made).astype(
            dtype
        )

    def values(self) -> list[np.ndarray[Any, Any]]:
        return [self.value(i) for i in range(len(self.places))]

    # ----------------------------------------------------------------------- running

    def run(self, operands: list[Any]) -> list[Any]:
        return [np.asarray(t) for t in tf.nest.flatten(self.apply(operands))]

    @property
    def compiled(self) -> bool:
        """Whether only XLA has the op: with channels first."""
        return self.attrs.get("data_format") == "NCHW"

    def apply(self, operands: list[Any]) -> Any:
        if self.compiled and not tf.inside_function():
            return tf.function(lambda: self.apply(operands), jit_compile=True)()
        function = getattr(tf.raw_ops, self.record.name)
        names = inspect.signature(function).parameters
        arguments: dict[str, Any] = {}
        for arg, value in zip(self.places, operands, strict=True):
            if arg.number_attr or arg.type_list_attr:
                arguments.setdefault(arg.name, []).append(value)
            else:
                arguments[arg.name] = value
        for attr in self.definition.attr:
            if attr.name in self.attrs or not attr.HasField("default_value"):
                arguments[attr.name] = self.attrs.get(attr.name, _UNSET.get(attr.type))
        for arg in self.places:
            for inferred in (arg.type_attr, arg.number_attr, arg.type_list_attr):
                arguments.pop(inferred, None)
        unsaid = [a.name for a in self.definition.attr if arguments.get(a.name, "") is None and a.type not in _UNSET]
        assert not unsaid, (
            f"{self.record.name} has no default of '{unsaid[0]}': a line in tests/op_examples.py gives one"
        )
        others = iter([name for name in names if name not in arguments and name != "name"])  # renamed, in order
        return function(**{name if name in names else next(others): value for name, value in arguments.items()})


_UNSET = {"type": tf.float32, "shape": None}
"""Values of attributes that an example leaves open though they have no default."""


def size(character: str, number: int) -> int:
    """The size of a dimension: a digit says it; a letter has another size in each round."""
    return int(character) if character.isdigit() else (4, 2, 6)[(ord(character) + number) % 3]


def cases(name: str) -> list[Case]:
    """The examples of an op type; where none is written, one made of its signature."""
    record = ops.record(name)
    if name in _written():
        return [
            Case(record, tuple(_split(text.partition(";")[0], ",")), _attributes(text.partition(";")[2]))
            for text in _written()[name]
        ]
    if not isinstance(record.dims, str) or "-" in record.dims.replace("->", ""):
        return []
    count = len(ops.op_def(name).input_arg)
    dims = ",".join(["..."] * count) if record.dims == "elementwise" else record.dims.partition("->")[0]
    dims = re.sub("[A-Z]", lambda capital: "34"[ord(capital[0]) % 2], dims.replace("...", "pq").replace("*", "3"))
    return [Case(record, tuple(part.strip() for part in dims.split(",")), {})]


@functools.cache
def _written() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in EXAMPLES.splitlines():
        if line and line[0] not in " #":
            names, _, examples = line.partition(": ")
            for name in names.split():
                found[name] = [*found.get(name, ()), *_split(examples, "|")]
    return found


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no brackets and no quotes."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == "'"
        depth += (character in "[(") - (character in "])")
        if character == separator and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _attributes(text: str) -> dict[str, Any]:
    return eval(f"dict({text})", {"tf": tf})  # an example of ours


def _python(value: Any) -> Any:
    """The default value of an attribute as Python has it."""
    kind = value.WhichOneof("value")
    if kind == "list":
        return next((list(getattr(value.list, field.name)) for field, _ in value.list.ListFields()), [])
    found = getattr(value, kind)
    return {"s": lambda: found.decode(), "type": lambda: tf.as_dtype(found)}.get(kind, lambda: found)()

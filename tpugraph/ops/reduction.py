"""Reductions, segments, and ops along one dimension."""

from __future__ import annotations

from collections.abc import Callable

from tpugraph.ops.record import Call, floating, letters, page

op = page("reduction")

# --------------------------------------------------------------------------- reductions

reduction = page("reduction", dims="reduce", role="reduction", axis=1, constants=(1,))
for _reduce_op in ("prod", "max", "min", "all", "any"):
    reduction(_reduce_op.capitalize(), reduce_op=_reduce_op)
reduction("Sum", linear="0")
reduction("Mean", linear=floating("0"), reduce_op="mean")
reduction("EuclideanNorm", reduce_op="norm", constants=(), instead="the root of tf.reduce_sum of squares")
reduction("ArgMax ArgMin", reduce_op=None, role=None, differentiable=False, fused=True)
op("L2Loss", dims="... -> ", role="reduction")
op(
    "BiasAddGrad",
    dims=lambda call: "*c... -> c" if call.attr("data_format", "") == "NCHW" else "...c -> c",
    linear="all",
    backward=True,
    fused=True,
)

# --------------------------------------------------------------------------- segments


def _segments(call: Call) -> str | None:
    """Each element goes to the segment that its number says; what an element holds beyond its number stays together."""
    data, numbers = letters(call.ranks[0]), call.ranks[1]
    return None if data is None or numbers is None else f"{data}, {data[:numbers]}, - -> *{data[numbers:]}"


def _rows(operands: str) -> Callable[[Call], str | None]:
    """Rows are put together by number; the columns are independent."""

    def dims(call: Call) -> str | None:
        columns = letters(None if call.ranks[0] is None else call.ranks[0] - 1)
        return None if columns is None else operands.replace("+", columns)

    return dims


_UNSORTED = "tf.math.unsorted_segment_sum and its kin, with num_segments a constant"
_GATHER = "make the values dense in the input function (a fixed number per row, padded), then tf.gather and a masked tf.reduce_sum"
unsorted_segment = page("reduction", role="unsorted_segments", dims=_segments, rows_operand=2, constants=(2,))
unsorted_segment("UnsortedSegmentSum", linear="0")
for _reduce_op in ("max", "min", "prod"):
    unsorted_segment(f"UnsortedSegment{_reduce_op.capitalize()}", reduce_op=_reduce_op)
op("SegmentSum SegmentMean", role="segments", dims=_rows("*+, * -> *+"), linear="0", instead=_UNSORTED)
op("SegmentProd SegmentMin SegmentMax", role="segments", dims=_rows("*+, * -> *+"), instead=_UNSORTED)
op(
    "SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN",
    role="sparse_segments",
    dims=_rows("*+, *, * -> *+"),
    linear="0",
    instead=_GATHER,
)
op("SparseSegmentSumWithNumSegments", dims=_rows("*+, z, z, - -> *+"), linear="0")
op("SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments", dims=_rows("*+, *, *, - -> *+"), linear="0")
dense_gradient = page("reduction", role="row_segment_gradient", linear="0", rows_operand=3, backward=True)
dense_gradient("SparseSegmentSumGrad", dims=_rows("*+, z, z, - -> *+"))
dense_gradient("SparseSegmentMeanGrad SparseSegmentSqrtNGrad", dims=_rows("*+, *, *, - -> *+"))
op(
    "SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2",
    role="segment_gradient",
    dims=_rows("*+, *, *, - -> *+, -"),
    linear="0",
    sizes=(3,),
    backward=True,
)

# --------------------------------------------------------------------------- along one dimension

op("TopK", dims="...* -> ...K, ...K")
op("TopKV2", dims="...*, - -> ...K, ...K")
op("NthElement", dims="...*, - -> ...")
op("InTopK", dims="n*, n -> n", differentiable=False)
op("InTopKV2", dims="n*, n, - -> n", differentiable=False)
op("LowerBound UpperBound", dims="n*, nm -> nm")
op("Cumsum", dims="along", linear="0", axis=1, constants=(1,))
op("Cumprod CumulativeLogsumexp", dims="along", axis=1, constants=(1,))


def _counted(call: Call) -> str | None:
    """What is counted in each row stays apart, and is added up; a vector is counted as a whole. Weights without elements are none."""
    if call.ranks[0] != 2:
        return None
    return "nm, -, nm -> nK" if call.ranks[2] == 2 else "nm, -, - -> nK"


def _weighed(call: Call) -> str | None:
    return None if call.ranks[0] == 2 and call.ranks[2] != 2 else "2"


op("Bincount", linear="2", constants=(1,))
op("DenseBincount", dims=_counted, linear=_weighed, constants=(1,))
op("HistogramFixedWidth", instead="tf.math.bincount of the bucket numbers with minlength and maxlength")

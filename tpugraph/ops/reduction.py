"""Reductions, segments, and ops along one dimension."""

from __future__ import annotations

from collections.abc import Callable

from tpugraph.ops.record import Call, floating, letters, page

op = page("reduction")

# --------------------------------------------------------------------------- reductions

for _name, _reduce_op in (("Prod", "prod"), ("Max", "max"), ("Min", "min"), ("All", "all"), ("Any", "any")):
    op(_name, dims="reduce", reduce_op=_reduce_op, role="reduction", axis=1, constants=(1,))
op("Sum", dims="reduce", linear="0", role="reduction", axis=1, constants=(1,))
op("Mean", dims="reduce", linear=floating("0"), reduce_op="mean", role="reduction", axis=1, constants=(1,))
op(
    "EuclideanNorm",
    dims="reduce",
    reduce_op="norm",
    role="reduction",
    axis=1,
    instead="the root of tf.reduce_sum of squares",
)
op(
    "ArgMax ArgMin",
    dims="reduce",
    reduce_op=None,
    axis=1,
    differentiable=False,
    constants=(1,),
    fused=True,
)
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
op("UnsortedSegmentSum", role="unsorted_segments", dims=_segments, linear="0", rows_operand=2, constants=(2,))
for _name in ("Max", "Min", "Prod"):
    op(
        f"UnsortedSegment{_name}",
        role="unsorted_segments",
        dims=_segments,
        reduce_op=_name.lower(),
        constants=(2,),
        rows_operand=2,
    )
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
op(
    "SparseSegmentSumGrad",
    role="row_segment_gradient",
    dims=_rows("*+, z, z, - -> *+"),
    linear="0",
    rows_operand=3,
    backward=True,
)
op(
    "SparseSegmentMeanGrad SparseSegmentSqrtNGrad",
    role="row_segment_gradient",
    dims=_rows("*+, *, *, - -> *+"),
    linear="0",
    rows_operand=3,
    backward=True,
)
op(
    "SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2",
    dims=_rows("*+, *, *, - -> *+, -"),
    linear="0",
    role="segment_gradient",
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

"""Gathers, scatters and searches."""

from __future__ import annotations

from tpugraph.ops.facts import Rank, Trusted
from tpugraph.ops.record import Call, letters, page

op = page("gather")


def _gather(call: Call) -> str | None:
    """A row of operand 0 for each index in operand 1."""
    params, indices = call.ranks[:2]
    columns = letters(None if params is None else params - 1)
    numbers = letters(indices, len(columns or ""))
    return None if columns is None or numbers is None else f"*{columns}, {numbers} -> {numbers}{columns}"


def _stitched(call: Call) -> str:
    """The first half of the operands are the indices of the rows in the second half."""
    count = len(call.ranks) // 2
    return "+".join(str(i) for i in range(count, 2 * count))


op("Gather", role="pick", dims=_gather, linear="0")
op("GatherV2", role="pick", linear="0", axis=2, constants=(2,),
   trusted=Trusted(ranks=(Rank(1, "batch_dims", exact=False),), most=(("batch_dims", 254),)))  # fmt: skip
op("GatherNd", linear="0")
op("ScatterNd", linear="1", constants=(2,), shaped_by=2)
op("TensorScatterAdd TensorScatterSub TensorScatterUpdate", linear="0+2")
op("TensorScatterMax TensorScatterMin")
op("DynamicStitch ParallelDynamicStitch", role="stitch", linear=_stitched, constants=lambda count: range(count // 2))
op("DynamicPartition", role="partition", linear="0")
op("Unique", role="unique")
op("UniqueV2", role="unique", axis=1)
op("UniqueWithCountsV2", axis=1)
op("UniqueWithCounts")
op("Where", role="true_places")
op("ListDiff")

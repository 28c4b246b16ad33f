"""Evidence of batches of one row, where every 1 might be the batch."""

from __future__ import annotations

from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.shared import SPREADS, root, unsettled
from tpugraph.analysis.sizes import follows_batch


def spread_rows(d: Dimensions) -> None:
    """What is spread to one row, to meet the one row of a batch, is spread to the rows of the batch."""
    if d.rows > 1:
        return
    for node in d.order:
        dims, before = (d.dims(node.out()), d.dims(node.inputs[0])) if node.op == "Tile" else (None, None)
        if dims and before and [d.sizes.at(s) for s in dims] != [d.sizes.at(s) for s in before]:
            continue  # it has another dimension to spread
        for out, size in zip(dims or (), before or (), strict=False):
            if follows_batch(out) and unsettled(size):
                d.sizes.tie(size, 1)  # a tile by 1 would do nothing
    made = {root(s) for n in d.order if n.op in SPREADS for s in d.dims(n.out()) or () if unsettled(s)}
    for parts in d.sizes.ones:
        rows = next((p for p in parts if follows_batch(p)), None)
        for part in parts if rows is not None else ():
            if root(part) in made and unsettled(part):
                d.sizes.tie(part, rows)  # type: ignore[arg-type]


def flattened(d: Dimensions) -> None:
    """A reshape of one row holds the row, where nothing says that TensorFlow left out a sum over it.

    What a gradient summed over other dimensions, and loses dimensions of size 1 then, was to be summed over the row too.
    """
    for left, right, summed in d.doubtful:
        if not any(unsettled(s) for s in (*left, *right)):
            continue
        gone = [s for s in left if summed and follows_batch(s) and d.sizes.at(s) == 1]
        d.sizes.product([s for s in left if s not in gone], right)
    d.doubtful.clear()

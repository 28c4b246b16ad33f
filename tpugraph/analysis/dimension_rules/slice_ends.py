"""The number that a slice ends at: all of a dimension, or as many as it says."""

from __future__ import annotations

from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sizes import Poly, Size, is_made_of_others, is_written, known
from tpugraph.ir import Node, Tensor


def end_of(d: Dimensions, node: Node, place: int) -> Size | None:
    """The number that a slice ends at, where one is known."""
    bounds = d.elements(node.inputs[2])
    return bounds[place] if bounds and place >= 0 and not int(node.attr("end_mask", 0)) >> place & 1 else None


def whole_or_bound(d: Dimensions, node: Node, place: int, whole: Size) -> Size:
    """How many a slice takes that takes a whole dimension; what it ends at is as many, where it takes all of any batch."""
    if (taken := up_to(d, node, whole, bound := end_of(d, node, place))) is whole and bound is not None:
        d.sizes.tie(bound, whole)
    return taken


def up_to(d: Dimensions, node: Node, whole: Size, bound: Size | None) -> Size:
    """How many a slice takes of a dimension from its beginning up to a number that is as large, if one is written there.

    It may be so many rows of any batch: what the slice meets tells, or else it is read as all of them.
    """
    if isinstance(whole, int) or bound is None:
        return whole
    if isinstance(known(bound), Poly) or (d.rows > 1 and is_made_of_others(bound)):
        return bound  # half of two rows, and one, is two
    if is_written(bound) and isinstance(bound.origin, tuple) and not isinstance(bound.origin, Tensor):  # in a constant
        d.untold.ends.append((node, bound, whole))
        if d.rows > 1:
            return bound
        d.untold.read_as_all[bound.root()] = None  # it is the row, or the first row of any batch
    if d.rows == 1:
        return whole
    return bound if isinstance(known(bound), int) and d.sizes.at(bound) == d.sizes.at(whole) else whole

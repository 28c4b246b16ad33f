"""What speaks for a constant being the size of the batch, where no dimension is tied to it.

TensorFlow computes with a static shape when it builds a graph, and writes the results as constants. Evidence is about
the constant, whoever reads it, and must see the batch itself: a dimension that follows it appear or vanish, or a whole
shape that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.counters import (
    Picked,
    behind_batches,
    counted_by_shapes,
    counts_of_rows,
    picked_rows,
    picks_of_sorted,
    placed_rows,
    reading_of_place,
    row_numbers,
)
from tpugraph.analysis.evidence.cut_gradients import cut_from_end
from tpugraph.analysis.evidence.divisors import (
    divided,
    divided_before_sums,
    divided_by_sums,
    divided_counts,
    divided_safely,
    multiplied_before_means,
    open_divisors,
)
from tpugraph.analysis.evidence.factored_pairs import factored
from tpugraph.analysis.evidence.loops_over_rows import counted_down, loop_limits
from tpugraph.analysis.evidence.pairs_of_rows import columns_of_pairs, crossed, picked_by_number, tables_by_place
from tpugraph.analysis.evidence.presumed import literal_factors
from tpugraph.analysis.evidence.reciprocals import (
    Factor,
    MadeNumber,
    factors,
    one_less,
    root_divisors,
    root_factors,
    shares_of_classes,
)
from tpugraph.analysis.evidence.reshapes import (
    adjacent,
    computed_shapes,
    even_parts,
    joined_batches,
    kept_apart,
    regrouped,
    taken_apart_again,
    taken_to_end,
    taken_whole,
    unpadded,
)
from tpugraph.analysis.evidence.single_rows import (
    beside_extremes,
    flattened,
    flattened_before_tiles,
    met_by_rows,
    numbered_rows,
    parts_of_tables,
    reshaped,
    spread_rows,
    summed_and_met_by_rows,
    summed_beside,
    written,
)
from tpugraph.analysis.evidence.summed import unsettled
from tpugraph.analysis.evidence.taken_apart import (
    beside_left_open,
    left_open,
    left_open_of_several,
    open_beside_rows,
    outermost,
    views_taken_apart,
)
from tpugraph.analysis.evidence.tiled_gradients import tiled_rows
from tpugraph.analysis.evidence.undone_layouts import joined_parts, reshaped_back
from tpugraph.analysis.evidence.whole_shapes import (
    counted_by_either,
    shapes_taken_apart,
    whole_shapes,
    whole_shapes_of_one_row,
)
from tpugraph.analysis.sizes import Unknown, known


def weigh(d: Dimensions, *, divisors: bool = True) -> None:
    """Settle what evidence speaks for, strongest first; what is left after that is a number of the model.

    Args:
        d: the dimensions.
        divisors: whether what divides a sum over the batch by exactly as many elements counts as their number, as it does in
            gradients: TensorFlow computes the factor of a mean's gradient when it builds a graph. Otherwise only what divides
            guarded against zero does.
    """
    by_number = divided if divisors else divided_safely
    by_sums = (divided_by_sums,) if divisors else ()
    again = (by_number,) if d.ones else ()  # only the reshapes told what a tile in front of a division begins with
    strong = (placed_rows, tables_by_place, picked_by_number, crossed, columns_of_pairs, factored,
              joined_batches, beside_extremes, spread_rows, tiled_rows, parts_of_tables, whole_shapes_of_one_row,
              summed_and_met_by_rows,
              flattened, views_taken_apart, beside_left_open, regrouped, adjacent, unpadded, joined_batches, loop_limits,
              taken_apart_again,
              joined_parts, reshaped_back,
              shapes_taken_apart, literal_factors, whole_shapes, literal_factors, whole_shapes, computed_shapes, whole_shapes,
              kept_apart, spread_rows,
              tiled_rows, by_number, loop_limits, counted_down, taken_to_end,
              open_beside_rows, left_open_of_several, beside_left_open,
              numbered_rows, counts_of_rows, counted_by_shapes, divided_counts, even_parts, behind_batches, row_numbers,
              placed_rows, tables_by_place, picked_by_number, crossed, left_open, met_by_rows, summed_beside, numbered_rows,
              tiled_rows, by_number, *by_sums, flattened_before_tiles)  # fmt: skip
    for kinds in (
        strong,
        (taken_whole,),
        (written,),
        (reshaped,),
        (cut_from_end,),
        (*again, outermost),
        (counted_by_either,),
    ):
        settled = _settled(d, kinds)
        while settled and (d.ones or taken_whole in kinds):
            settled = _settled(d, strong)  # what a weaker kind settled may be what a stronger one waited for
    d.sizes.place = "nothing speaks for it being a number of rows"
    _rest(d, open_divisors(d) if divisors else [])


def _settled(d: Dimensions, kinds: Iterable[Callable[[Dimensions], None]]) -> bool:
    """Settle what some kinds of evidence speak for, each as long as it finds something; returns whether any did."""
    first = d.sizes.settled
    for settle in kinds:
        while True:
            before = d.sizes.settled
            d.sizes.place = " ".join((settle.__doc__ or "").split("\n\n")[0].split()).rstrip(".")
            settle(d)
            d.sizes.propagate()
            if d.sizes.settled == before:
                break
    return d.sizes.settled != first


def _rest(d: Dimensions, divisors: list[Unknown]) -> None:
    """What nothing speaks for is a number of the model, small ones first: what is computed from them follows.

    A divisor may be the number of elements of a shape that is known only then.
    """
    settled = d.sizes.settled
    of_value: dict[int, dict[Unknown, None]] = {}
    for sizes in (*d._elements.values(), *d._dims.values()):
        for size in sizes or ():
            one = unsettled(size)
            if one is not None and isinstance(size, Unknown) and size.origin is not None and one.value >= 0:
                of_value.setdefault(one.value, {})[one] = None
    for value in sorted(of_value):
        if d.sizes.settled != settled and any(unsettled(size) for size in divisors):
            divided(d)
            d.sizes.propagate()
        settled = d.sizes.settled
        for one in of_value[value]:
            if known(one) is None:
                d.defaulted[one.root()] = None
                d.sizes.tie(one, value)
        d.sizes.propagate()


__all__ = [
    "Factor",
    "MadeNumber",
    "Picked",
    "divided_before_sums",
    "factors",
    "multiplied_before_means",
    "one_less",
    "picked_rows",
    "picks_of_sorted",
    "reading_of_place",
    "root_divisors",
    "root_factors",
    "shares_of_classes",
    "weigh",
]

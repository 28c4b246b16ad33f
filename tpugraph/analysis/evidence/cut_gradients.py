"""Evidence of gradients of slices, which say how large the whole was that a slice was taken of."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.dimension_rules.slicing_ties import counts_from_end, part_of, places
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import unsettled
from tpugraph.analysis.sizes import follows_batch


def cut_from_end(d: Dimensions) -> None:
    """What a slice left rows of that ends so many before the last has so many more than these."""
    for node in d.of_type(ops.SLICE_GRADIENTS):
        dims, grad = d.dims(node.out()), d.dims(node.inputs[4])
        for axis, target, place in places(node, len(dims)) if dims and grad else ():
            if axis is None or target is None or dims is None or grad is None or target >= len(grad):
                continue
            if unsettled(dims[axis]) and follows_batch(grad[target]) and counts_from_end(node, place):
                d.sizes.tie(part_of(d, node, place, dims[axis], d.sizes.at(grad[target])), grad[target])

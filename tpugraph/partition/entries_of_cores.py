"""Counts of entries of all cores, and places among those, made of what a core has."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis.placement_rules.entry_placements import OWN, in_columns, places_per_row
from tpugraph.analysis.placements import Entries
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Node, Tensor
from tpugraph.partition.collectives import Collectives

_OF_COUNTS = ops.SAME_NUMBERS | ops.SHAPED_ANEW | ops.SLICES | ops.PICKS | ops.reducing("prod")
"""Ops that make a number of entries of the shape of a tensor that holds them."""

_PUT_TOGETHER = (
    ops.PACKS | ops.CONCATS | ops.CONCAT_OFFSETS | ops.SLICES | ops.PICKS | ops.SHAPED_ANEW | ops.TRANSPOSES | ops.RANGES
    | ops.reducing("prod", "min", "max", "all", "any")
)  # fmt: skip
"""Ops that make shapes of numbers, numbers and conditions of shapes, and numbers up to them."""


def is_computed_anew(placing: Placing, node: Node) -> bool:
    """Whether a node computes numbers, or puts them together, so that it does the same with those of all cores."""
    signature = placing.d.signature(node)
    return (signature is not None and signature.elementwise) or node.op in _PUT_TOGETHER


def counts_entries(placing: Placing, tensor: Tensor) -> bool:
    """Whether a number counts entries, or as many things for each: that of all cores is the sum of theirs.

    Of a vector, whether it is the shape of a tensor that holds them.
    """
    node = tensor.node
    if tensor.shape != () or placing.read(tensor) != Entries("shape"):
        return node.op in ops.SHAPES
    while node.op in _OF_COUNTS:
        counts = [t.node for t in node.inputs if placing.read(t) == Entries("shape")]
        if len(counts) > 1:
            return False  # a count by another one
        node = counts[0] if counts else node.inputs[0].node
    return node.op in ops.SHAPES | ops.SIZES


def places_of_all(placing: Placing, collectives: Collectives, tensor: Tensor, source: Tensor) -> Tensor | None:
    """Places on this core as those of all cores, where the graph tells how many a core has; None of anything else.

    Of columns the first says the row.

    Args:
        placing: the analysis.
        collectives: makes the nodes.
        tensor: the places, as they stand in the graph.
        source: what is read instead of them.
    """
    per_row = places_per_row(placing, tensor) if placing.read(tensor) == OWN else None
    if not per_row:
        return None
    columns = np.arange((tensor.shape or (1,))[-1] or 1) == 0 if in_columns(placing, tensor) else np.asarray(True)
    return collectives.numbered(source, per_row * placing.d.rows * columns.astype(int))

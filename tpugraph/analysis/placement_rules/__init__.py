"""How each op is partitioned over the cores."""

from tpugraph.analysis.placement_rules import (
    block_placements,
    box_placements,
    container_placements,
    factor_placements,
    handed_on_placements,
    joining_placements,
    lookup_placements,
    reduction_placements,
    reshaping_placements,
    segment_placements,
    size_placements,
    slicing_placements,
    sparse_placements,
)

__all__ = [
    "block_placements",
    "box_placements",
    "container_placements",
    "factor_placements",
    "handed_on_placements",
    "joining_placements",
    "lookup_placements",
    "reduction_placements",
    "reshaping_placements",
    "segment_placements",
    "size_placements",
    "slicing_placements",
    "sparse_placements",
]

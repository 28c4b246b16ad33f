"""What each op ties together: dimensions of its operands and outputs, elements of small vectors made of sizes."""

from tpugraph.analysis.dimension_rules import (
    arithmetic_ties,
    block_ties,
    broadcast_ties,
    container_ties,
    handed_on_ties,
    lookup_ties,
    matrix_ties,
    padding_ties,
    regrouping_ties,
    reshaping_ties,
    slicing_ties,
    sparse_ties,
    state_ties,
    window_ties,
)

__all__ = [
    "arithmetic_ties",
    "block_ties",
    "broadcast_ties",
    "container_ties",
    "handed_on_ties",
    "lookup_ties",
    "matrix_ties",
    "padding_ties",
    "regrouping_ties",
    "reshaping_ties",
    "slicing_ties",
    "sparse_ties",
    "state_ties",
    "window_ties",
]

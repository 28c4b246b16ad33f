"""What each op ties together: dimensions of its operands and outputs, elements of small vectors made of sizes."""

from tpugraph.analysis.dimension_rules import (
    arithmetic,
    containers,
    handed_on,
    lookups,
    regrouping,
    reshaping,
    slicing,
    state,
)

__all__ = ["arithmetic", "containers", "handed_on", "lookups", "regrouping", "reshaping", "slicing", "state"]

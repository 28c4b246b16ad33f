"""How each op is partitioned over the cores."""

from tpugraph.analysis.placement_rules import containers, factors, handed_on, lookups, reductions, reshaping, slicing

__all__ = ["containers", "factors", "handed_on", "lookups", "reductions", "reshaping", "slicing"]

"""Partition rules of op types: by signature, or a rule of their own."""

from tpugraph.spmd.rules import (  # noqa: F401, their rules are registered
    batch_norm,
    containers,
    control_flow,
    gather,
    ragged,
    random,
    reshape,
    signature,
    slicing,
)

"""How each op type is partitioned: by its signature, or by a rule of its own."""

from tpugraph.spmd.rules import (
    batch_norm,
    containers,
    control_flow,
    gather,
    ragged,
    random,
    reshape,
    signature,
    sizes,
    slicing,
)

__all__ = [
    "batch_norm",
    "containers",
    "control_flow",
    "gather",
    "ragged",
    "random",
    "reshape",
    "signature",
    "sizes",
    "slicing",
]

"""How each op type is partitioned: by its signature, or by a rule of its own."""

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

"""Placements: how a value of the step is distributed over the cores.

``G`` is a value of the plain step on the global batch, ``L_r`` its local value on core ``r``. The terms are those of Shardy,
GSPMD and DTensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Replicate:
    """Every core holds the whole value."""

    def __str__(self) -> str:
        return "replicated"


@dataclass(frozen=True)
class Shard:
    """Along ``axis`` core ``r`` holds the r-th piece of the batch; ``outer`` batches are concatenated along it."""

    axis: int
    outer: int = 1

    def __str__(self) -> str:
        return f"sharded along dimension {self.axis}"

    def at(self, axis: int) -> Shard:
        """The same rows along another dimension."""
        return self if axis == self.axis else _shard(axis, self.outer)


_shard = cache(Shard)


@dataclass(frozen=True)
class Entries:
    """Ragged rows: any number of entries per row of this core, along dimension 0, as in a sparse tensor."""

    # ``values``; ``local`` (indices that are valid on this core only); ``shape`` (sizes of such tensors)
    role: str = "values"
    of: str = ""  # for ``local`` indices, the tensor that they point into

    def __str__(self) -> str:
        return {"values": "ragged rows", "local": "ragged rows, places among those of the core"}.get(
            self.role, "a number of ragged rows of the core"
        )


@dataclass(frozen=True)
class Partial:
    """The whole value is the sum (or maximum, minimum) of the local values."""

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return {"sum": "partial sum", "max": "partial maximum"}.get(self.reduce_op, "partial minimum")


@dataclass(frozen=True)
class PerCore:
    """Differs between cores and is no value of the plain step, by a ``policy`` that the user chose."""

    policy: str

    def __str__(self) -> str:
        return f"each core's own ({self.policy})"


@dataclass(frozen=True)
class Held:
    """A handle of the container ``key``: a TensorArray, stack or list; for gradients, those of the container ``of``."""

    key: str
    of: str | None = None

    def __str__(self) -> str:
        return f"the container '{self.key}'"


@dataclass(frozen=True)
class Share:
    """Needed of a replicated addend of a partial sum: each core's share of it. No tensor of the plain graph has it."""

    def __str__(self) -> str:
        return "this core's share of a replicated addend"


Placement = Replicate | Shard | Entries | Partial | PerCore | Held | Share

REPLICATE = Replicate()
SUM = Partial("sum")
SHARE = Share()

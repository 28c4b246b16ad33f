"""Placements: where over the cores a value of the step lives.

``G`` is a value in the plain step on the whole batch, ``L_r`` is what core ``r`` holds of it. The words are those of
Shardy, GSPMD and DTensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Replicate:
    """Every core holds the whole value."""

    def __str__(self) -> str:
        return "the same on every core"


@dataclass(frozen=True)
class Shard:
    """Along ``axis`` core ``r`` holds the r-th piece of the batch; ``outer`` whole batches lie one after the other."""

    axis: int
    outer: int = 1

    def __str__(self) -> str:
        layout = "" if self.outer == 1 else f" (of {self.outer} batches)"
        return f"rows of this core along dimension {self.axis}{layout}"

    def at(self, axis: int) -> Shard:
        """The same rows along another dimension."""
        return self if axis == self.axis else _shard(axis, self.outer)


_shard = cache(Shard)


@dataclass(frozen=True)
class Entries:
    """Any number of entries for each row of this core, along dimension 0, as of a sparse tensor."""

    # ``values``; ``local`` (numbers that mean places on this core alone); ``shape`` (sizes of such tensors)
    role: str = "values"
    of: str = ""  # of ``local`` places, the tensor that they are places of

    def __str__(self) -> str:
        return f"entries of this core's rows ({self.role})"


@dataclass(frozen=True)
class Partial:
    """The whole value is the sum (or the largest, the smallest) of what the cores hold."""

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return {"sum": "a part of a sum over the cores", "max": "a candidate for the maximum over the cores"}.get(
            self.reduce_op, "a candidate for the minimum over the cores"
        )


@dataclass(frozen=True)
class PerCore:
    """Differs between cores and is no value of the plain step: ``policy``, a flag of the user, gives exactness up."""

    policy: str

    def __str__(self) -> str:
        return f"each core's own ({self.policy})"


@dataclass(frozen=True)
class Held:
    """A handle of the container ``key``: a TensorArray, a stack, a list; of gradients, of the container ``of``."""

    key: str
    of: str | None = None

    def __str__(self) -> str:
        return f"the container '{self.key}'"


@dataclass(frozen=True)
class Share:
    """Wanted of a replicated addend of a partial sum: one core's share of it. No tensor of the plain graph lives so."""

    def __str__(self) -> str:
        return "this core's share of a replicated addend"


Placement = Replicate | Shard | Entries | Partial | PerCore | Held | Share

REPLICATE = Replicate()
SUM = Partial("sum")
SHARE = Share()

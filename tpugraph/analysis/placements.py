"""Placements: where over the cores a value of the step lives.

``G`` is a value in the plain step on the whole batch, ``L_r`` is what core ``r`` holds of it. The words are those of
Shardy, GSPMD and DTensor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Replicate:
    """Every core holds the whole value."""

    def __str__(self) -> str:
        return "the same on every core"


@dataclass(frozen=True)
class Shard:
    """Along ``axis``, which counts ``outer * batch * inner`` elements row by row, core ``r`` holds the r-th piece of the batch.

    Attributes:
        axis: the dimension that holds the rows.
        outer: how many whole batches lie one after the other.
        inner: how many elements a row has along the dimension.
        shift: the values are numbers of rows (of places): that of the whole batch is larger by ``r * rows * shift`` on
            core ``r``. A tuple has one for each place along the dimension ``along``.
        along: the dimension along which shifts differ, or -1.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    shift: int | tuple[int, ...] = 0
    along: int = -1

    def __str__(self) -> str:
        layout = "" if (self.outer, self.inner) == (1, 1) else f" ({self.outer} x rows x {self.inner})"
        return f"rows of this core along dimension {self.axis}{layout}"

    def at(self, axis: int) -> Shard:
        """The same rows along another dimension."""
        return self if axis == self.axis else replace(self, axis=axis)

    def plain(self) -> Shard:
        """The same rows holding values that mean the same on every core."""
        return replace(self, shift=0, along=-1) if self.shift else self


@dataclass(frozen=True)
class Entries:
    """Any number of entries for each row of this core, along dimension 0, as of a sparse tensor.

    Attributes:
        role: ``values``; ``distinct`` (values, each once on a core); ``by_id`` (what belongs to distinct values, one for
            each: another core may have the same); ``local`` (numbers that mean places on this core alone); ``shape`` (sizes
            of such tensors).
        of: of ``local`` places, the tensor that they are places of.
    """

    role: str = "values"
    of: str = ""

    def __str__(self) -> str:
        return f"entries of this core's rows ({self.role})"


@dataclass(frozen=True)
class Partial:
    """The whole value is the sum (or the largest, the smallest) of what the cores hold.

    Attributes:
        reduce_op: ``sum``, ``max`` or ``min``.
    """

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return {"sum": "a part of a sum over the cores", "max": "a candidate for the maximum over the cores"}.get(
            self.reduce_op, "a candidate for the minimum over the cores"
        )


@dataclass(frozen=True)
class Sized:
    """A number, or a small vector of numbers, made of shapes that follow the batch; known when the graph is converted."""

    def __str__(self) -> str:
        return "made of sizes that follow the batch"


@dataclass(frozen=True)
class PerCore:
    """Differs between cores and is no value of the plain step: a policy that the user chose gives exactness up.

    Attributes:
        policy: the flag that says so.
    """

    policy: str

    def __str__(self) -> str:
        return f"each core's own ({self.policy})"


@dataclass(frozen=True)
class Held:
    """A handle of a container: a TensorArray, a stack, a list.

    Attributes:
        key: names the container.
        of: of a container of gradients, the container that they are gradients of.
    """

    key: str
    of: str | None = None

    def __str__(self) -> str:
        return f"the container '{self.key}'"


@dataclass(frozen=True)
class Share:
    """Wanted of a replicated addend of a partial sum: one core's share of it. No tensor of the plain graph lives so."""

    def __str__(self) -> str:
        return "this core's share of a replicated addend"


Placement = Replicate | Shard | Entries | Partial | Sized | PerCore | Held | Share

REPLICATE = Replicate()
SUM = Partial("sum")
SIZED = Sized()
SHARE = Share()
ONCE = ("distinct", "by_id")
"""The roles of entries that stand once on each core for all places that name them: those of two cores are not those of both."""


def holds_entries(placement: Placement | None) -> bool:
    """Whether the first dimension has entries of this core's rows; sizes and places of entries have none."""
    return isinstance(placement, Entries) and placement.role in ("values", *ONCE)


def is_size(placement: Placement | None) -> bool:
    """Whether numbers are sizes, of rows or of entries."""
    return isinstance(placement, Sized) or placement == Entries("shape")


def join_two(a: Placement, b: Placement) -> Placement | None:
    """What holds values of both placements; None where only a replicated one does."""
    if a == b:
        return a
    if isinstance(a, Replicate):
        a, b = b, a
    if isinstance(b, Replicate) and isinstance(a, Shard | Partial):
        # numbers that are the same everywhere mean rows of the whole batch
        return a.plain() if isinstance(a, Shard) else a
    if isinstance(a, Shard) and isinstance(b, Shard) and a.plain() == b.plain():
        return a.plain()
    return REPLICATE

"""Tensors that differ between engines: what a comparison of a step's tensors found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs.

    Attributes:
        tensor: its name.
        op: the op type that makes it.
        step: in which step, from 1.
        cores: of how many cores.
        core: on which of them; None where the value of all together differs.
        engine: which engine has it otherwise than the first one.
        difference: by how much, relative to the largest element.
        lives: where over the cores it lives.
        how: how the values of the cores were put together.
        because: why it lives so.
        reads: what it is made of that was compared too and is the same.
        unseen: what it is made of that could not be compared.
    """

    tensor: str
    op: str
    step: int
    cores: int
    core: int | None
    engine: str
    difference: float
    lives: str
    how: str
    because: str
    reads: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(repr=False)
class TensorComparison:
    """What :func:`compare` found.

    Attributes:
        source: the file of the graph.
        engines: what was compared, the reference first.
        compared: how many tensors were, by number of cores.
        differences: those that differ in the first step in which any does, in topological order, by number of cores.
        notes: what could not be compared, and why.
    """

    source: str
    engines: tuple[str, ...]
    compared: dict[int, int] = field(default_factory=dict)
    differences: list[TensorDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<TensorComparison of {self.source}: {len(self.differences):,} tensors differ>"

    @property
    def first(self) -> TensorDifference | None:
        """The first tensor in topological order that differs, on the fewest cores that show it; None where none does."""
        return self.differences[0] if self.differences else None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists (JSON)."""
        return asdict(self) | {"ok": not self.differences}

"""Tensors that differ between engines: what a comparison of a step's tensors found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs.

    Attributes:
        tensor: its name; of a variable the name of that, as it is after the step.
        op: the op type that makes it.
        step: in which step, from 1.
        core: on which core; None where the value of all together differs.
        engine: which engine has it otherwise than the first one.
        difference: by how much, relative to the largest element.
        lives: where over the cores it lives.
        how: how the values of the cores were put together.
        because: why it lives so.
        reader: the node that reads it so; "" where it is compared as it is made.
        reads: what it is made of that was compared too and is the same.
        unseen: what it is made of that could not be compared.
    """

    tensor: str
    op: str
    step: int
    core: int | None
    engine: str
    difference: float
    lives: str
    how: str
    because: str
    reader: str = ""
    reads: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(repr=False)
class TensorComparison:
    """What :func:`compare` found.

    Attributes:
        source: the file of the graph.
        engines: what was compared, the reference first.
        cores: on how many cores.
        tolerance: the largest difference that is none.
        notes: what was changed so that they can be compared, and what rounding makes of them.
        compared: the tensors that were compared, in topological order, then the loss and the variables.
        differences: those that differ in the first step in which any does, in the same order.
    """

    source: str
    engines: tuple[str, ...]
    cores: int
    tolerance: float
    notes: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    differences: list[TensorDifference] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<TensorComparison of {self.source}: {len(self.differences):,} tensors differ>"

    @property
    def first(self) -> TensorDifference | None:
        """The first tensor in topological order that differs; None where none does."""
        return self.differences[0] if self.differences else None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists (JSON)."""
        return asdict(self) | {"ok": not self.differences}

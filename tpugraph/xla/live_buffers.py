"""The buffers of a compiled module as it runs: pieces of memory, some of which turn out to be the same piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpugraph.xla.memory_layouts import Placed


@dataclass
class Buffer:
    """A piece of memory, or one that another stands for.

    Attributes:
        tensor: what lies in it.
        start: the instruction that makes it.
        end: the last one that reads it.
        same: the buffer that this one turned out to be the same as.
    """

    tensor: Placed
    start: int
    end: int
    same: Buffer | None = None

    def find(self) -> Buffer:
        """The buffer that stands for it."""
        found = self
        while found.same is not None:
            found = found.same
        return found

    def join(self, other: Buffer) -> None:
        """Both are one piece of memory."""
        mine, theirs = self.find(), other.find()
        if mine is theirs:
            return
        theirs.same = mine
        mine.start, mine.end = min(mine.start, theirs.start), max(mine.end, theirs.end)


Value = Buffer | None | list["Value"]
"""What an instruction gives, in the form of its shape."""


def leaves(value: Value) -> Iterator[Buffer]:
    """The buffers of a value, from left to right."""
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif value is not None:
        yield value


def join_all(left: Value, right: Value) -> None:
    """Two values that are one piece of memory, leaf by leaf; a constant is in none."""
    if isinstance(left, list) and isinstance(right, list):
        for one, other in zip(left, right, strict=True):
            join_all(one, other)
    elif isinstance(left, Buffer) and isinstance(right, Buffer):
        left.join(right)

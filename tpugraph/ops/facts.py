"""Structured facts of an op's record: writes, batching, effects on containers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Write:
    """The variables that an op writes, and the operands that determine the new value."""

    kind: str  # ``assign``, ``apply`` (an optimizer step) or ``scatter`` (rows)
    variables: tuple[int, ...]  # indices of the written operands
    value: int  # index of the operand with the new value, gradient or rows
    rows: int | None = None  # index of the operand with the row indices, or None
    additive: bool = False  # whether zeros in the value leave the variable unchanged
    adds: bool = False  # whether the value is added to the variable
    # whether ``rows`` holds element coordinates along its last dimension, not row indices
    places: bool = False
    idempotent: bool = False  # whether writing the same rows again changes nothing


class Batching(NamedTuple):
    """The operands of a batching dataset: batch size and drop_remainder."""

    size: int
    drop_remainder: int | None


class Ordering(NamedTuple):
    """A comparison: the index of the smaller operand, of the larger one, and 1 for "or equal", else 0."""

    smaller: int
    larger: int
    equal: int


class Refusal(NamedTuple):
    """An attribute value that an XLA kernel refuses though its registration accepts it, and the replacement."""

    attribute: str
    value: Any
    instead: str


@dataclass(frozen=True)
class Contents:
    """The effect of an op on a stack, TensorArray or list, which is its first operand or its output."""

    length: int | None = None  # the operand with the number of elements
    shape: int | None = None  # the operand with the element shape of a new, empty container
    # for other list ops, the operand with the shape of the accessed elements
    element_shape: int | None = None
    puts: int | None = None  # the operand that is written as an element
    index: int | None = None  # the operand with the element's index
    takes: int | None = None  # the output that is an element that was read
    grows: bool = False  # whether the op pushes or pops
    # whether all elements are accessed at once, as slices of a tensor along dimension 0
    stacked: bool = False
    # whether all elements are accessed at once, concatenated along dimension 0
    joined: bool = False
    lengths: int | None = None  # for a split into elements, the operand with their lengths
    # whether the container is a TensorList, a value: writes and pops output the new list
    value: bool = False


class Rank(NamedTuple):
    """The rank that an operand must have."""

    operand: int | slice  # index of the operand, or a slice of operands
    number: int | str  # the rank, or the attribute with it
    exact: bool = True  # exactly this rank, else at least
    more: int = 0  # added to the number


@dataclass(frozen=True)
class Trusted:
    """Preconditions that TensorFlow's shape function of an op type does not check: it aborts where they fail."""

    ranks: tuple[Rank, ...] = ()  # the ranks of operands
    most: tuple[tuple[str, int], ...] = ()  # int attributes, each with its largest absolute value
    never: tuple[tuple[str, str], ...] = ()  # dtype attributes, each with an excluded dtype
    alike: tuple[str, ...] = ()  # list attributes of equal length

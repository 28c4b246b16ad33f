"""Facts of an op's record that have parts of their own: what it writes, how it batches, what it does to a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Write:
    """What an op writes."""

    kind: str  # ``assign`` (the value is an operand), ``apply`` (an optimizer step) or ``scatter`` (rows)
    variables: tuple[int, ...]  # indices of the operands that are written
    value: int  # index of the operand that carries the new value, the gradient or the rows
    rows: int | None = None  # index of the operand that says which rows, or None
    additive: bool = False  # whether a zero in the value changes nothing
    adds: bool = False  # whether what is written is the sum of what was there and the value
    # whether ``rows`` has the coordinates of each place, along its last dimension, and no numbers of rows
    places: bool = False
    idempotent: bool = False  # whether the same rows written once more change nothing


class Batching(NamedTuple):
    """The operands of a dataset op that hold the size of its batches and whether a smaller last one is dropped."""

    size: int
    drop_remainder: int | None


class Ordering(NamedTuple):
    """A comparison: the operand that is the smaller one, the larger one, and 1 if they may be equal, else 0."""

    smaller: int
    larger: int
    equal: int


class Refusal(NamedTuple):
    """An attribute value that an XLA kernel refuses though its registration takes it, and what to write instead."""

    attribute: str
    value: Any
    instead: str


@dataclass(frozen=True)
class Contents:
    """What an op does to a stack, an array or a list of tensors, which is its first operand, or which it makes."""

    length: int | None = None  # the operand that says how many elements a container is made for
    shape: int | None = None  # the operand that says the shape of the elements of a container that is made empty
    # of other ops on lists, the operand that says the shape of the elements that are put in or taken out
    element_shape: int | None = None
    puts: int | None = None  # the operand that is put in as an element
    index: int | None = None  # the operand that says which element is put in or taken out
    takes: int | None = None  # the output that is an element
    grows: bool = False  # whether elements are put behind the last one, or the last one is taken
    # whether all elements are put in or taken out at once, as the slices of a tensor along its first dimension
    stacked: bool = False
    # whether all are taken out at once, one behind the other along the first dimension of a tensor
    joined: bool = False
    lengths: int | None = None  # where all are put in so, the operand that says how long each of them is
    # whether the container is a list, which is a value: what puts an element in or takes the last one hands it on
    value: bool = False


class Rank(NamedTuple):
    """The rank that an operand has."""

    operand: int | slice  # the index of the operand, or a slice of them
    number: int | str  # the rank, or the attribute that holds it
    exact: bool = True  # whether it is this rank; else this one or more
    more: int = 0  # how much to add to the number


@dataclass(frozen=True)
class Trusted:
    """What is taken for granted of one op type."""

    ranks: tuple[Rank, ...] = ()  # the ranks of operands
    most: tuple[tuple[str, int], ...] = ()  # attributes of the type int, and the largest absolute value that each has
    never: tuple[tuple[str, str], ...] = ()  # attributes that are dtypes, and a dtype that each is not
    alike: tuple[str, ...] = ()  # attributes that are lists of one length

"""What TensorFlow's shape function of an op takes for granted: it ends the process, or waits for ever, where that is not so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Rank(NamedTuple):
    """The rank that an operand has.

    Attributes:
        operand: the index of the operand, or a slice of them.
        number: the rank, or the attribute that holds it.
        exact: whether it is this rank; else this one or more.
        more: how much to add to the number.
    """

    operand: int | slice
    number: int | str
    exact: bool = True
    more: int = 0


@dataclass(frozen=True)
class Trusted:
    """What is taken for granted of one op type.

    Attributes:
        ranks: the ranks of operands.
        most: attributes of the type int, and the largest absolute value that each has.
        never: attributes that are dtypes, and a dtype that each is not.
        alike: attributes that are lists of one length.
    """

    ranks: tuple[Rank, ...] = ()
    most: tuple[tuple[str, int], ...] = ()
    never: tuple[tuple[str, str], ...] = ()
    alike: tuple[str, ...] = ()

"""What the analysis of dimensions says of tensors and containers beside their dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpugraph.analysis.sizes import Size, Unknown
from tpugraph.ir import Node

Dims = tuple[Size, ...]
"""The dimensions of a tensor."""

Elements = list[Size | None]
"""The elements of a vector (or the one of a scalar) that is made of sizes; None is an element nothing is known of."""

LONGEST = 16
"""The most elements that are kept of a vector."""


@dataclass
class Untold:
    """What nothing tells of: where the rows are, and what numbers count.

    Attributes:
        tiles: of a batch of one row, the tiles of gradients that may spread over the row, or not.
        reshapes: reshapes of one row that may put it in a dimension that is left open, or in one that is written as 1.
        shapes: vectors that may be the shape of a tensor with a batch, and of one without, and are read as the former.
        alike: sizes of vectors that are taken for the shape of a tensor with a batch, as they are as large.
        divisions: divisions of a sum over the batch by a number that is read as that of what is summed, as it equals it.
        parted: reshapes of several times the rows to a dimension that is left open, and to a number, each of which may be the rows.
        ends: slices, the number that each ends at, and the dimension, as large, of which it takes all or so many.
        read_as_all: those numbers that were taken for all of a batch as nothing speaks for another reading.
    """

    tiles: dict[Node, None] = field(default_factory=dict)
    reshapes: dict[Node, None] = field(default_factory=dict)
    shapes: dict[Node, None] = field(default_factory=dict)
    alike: dict[Unknown, None] = field(default_factory=dict)
    divisions: dict[Node, None] = field(default_factory=dict)
    parted: dict[Node, None] = field(default_factory=dict)
    ends: list[tuple[Node, Unknown, Size]] = field(default_factory=list)
    read_as_all: dict[Unknown, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Doubt:
    """Dimensions that a reshape makes of others, if it is what it looks like.

    Attributes:
        left: what it takes.
        right: what it makes of them.
        summed: whether sums over other dimensions are reshaped: one over the batch may have been left out beside them.
        among: all that it makes, where dimensions beside these hold rows or may.
        left_open: the dimension that is as large as the elements make it.
        beside_one: whether a 1 beside them may be the row, which they do not hold then.
    """

    left: Dims
    right: Dims
    summed: bool = False
    among: Dims = ()
    left_open: Size | None = None
    beside_one: bool = False


@dataclass(frozen=True)
class Formula:
    """How a graph computes a number of sizes.

    Attributes:
        sizes: the sizes.
        computation: gives the number of their values, in the dtype of the tensor.
        depth: how many ops it is made of, one behind the other.
    """

    sizes: tuple[Size, ...]
    computation: Callable[[Sequence[int]], Any]
    depth: int = 0


class Container:
    """What a TensorArray, a stack or a list of one step holds.

    Attributes:
        dims: the dimensions of an element, or None as long as none was seen.
        length: the number of elements, or None.
        elements: the numbers that each element holds, where all hold the same sizes.
        pushes: how many ops put elements in.
        fixed: whether it has as many elements as it is made for; an array that grows has those that are put into it.
    """

    def __init__(self) -> None:
        self.elements: Elements | None = None
        self.pushes = 0
        self.fixed = True
        self.dims: Dims | None = None
        self.length: Size | None = None

"""What the analysis of dimensions says of tensors and containers beside their dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tpugraph.analysis.sizes import Size

Dims = tuple[Size, ...]
"""The dimensions of a tensor."""

Elements = list[Size | None]
"""The elements of a vector (or the one of a scalar) that is made of sizes; None is an element nothing is known of."""

LONGEST = 16
"""The most elements that are kept of a vector."""


@dataclass(frozen=True)
class Doubt:
    """Dimensions that a reshape makes of others, if it is what it looks like.

    Attributes:
        left: what it takes.
        right: what it makes of them.
        summed: whether sums over other dimensions are reshaped: one over the batch may have been left out beside them.
        among: all that it makes, where dimensions beside these hold rows or may.
        left_open: the dimension that is as large as the elements make it.
    """

    left: Dims
    right: Dims
    summed: bool = False
    among: Dims = ()
    left_open: Size | None = None


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
    """

    def __init__(self) -> None:
        self.elements: Elements | None = None
        self.pushes = 0
        self.dims: Dims | None = None
        self.length: Size | None = None

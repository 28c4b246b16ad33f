"""The sizes that constants hold: which of their numbers may be the size of a batch, and which are settled."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimension_facts import LONGEST, Dims, Elements
from tpugraph.analysis.sizes import Poly, Size, Unknown, divide
from tpugraph.ir import Node

_NUMBERS = frozenset({"int32", "int64", "float32", "float64", "float16", "bfloat16"})


class ConstantSizes:
    """The numbers of constants, as sizes.

    Args:
        rows: the number of rows that the graph was traced with.
        ones: whether a 1 may be a number of rows.
        opened: whether the batch was open when the graph was built: a 1 that is written in it is no part of the rows then.
        shape_of: constants that a shape was folded into, by name, with the tensor whose shape it is.
        chosen: constants that are settled: by name, whether they hold the size of the batch.
        only: the constants that may hold it at all; None where any may.
        numbering: constants, by name, that number elements of containers: a small number may be that of the last one.

    Attributes:
        shares: numbers that are no multiple of the rows and that ``chosen`` says to follow the batch, with their constants.
    """

    def __init__(
        self,
        rows: int,
        *,
        ones: bool,
        opened: bool = False,
        shape_of: Mapping[str, str] | None = None,
        chosen: Mapping[str, bool] | None = None,
        only: Collection[str] | None = None,
        numbering: Collection[str] = (),
    ) -> None:
        self.shape_of = dict(shape_of or {})
        self.shares: dict[int, str] = {}
        self._rows = rows
        self._ones = ones
        self.opened = opened
        self._chosen = dict(chosen or {})
        self._only = only
        self._numbering = numbering

    def choice(self, name: str) -> bool | None:
        """Whether the constant of that name holds the size of the batch, where that is settled."""
        return False if self._only is not None and name not in self._only else self._chosen.get(name)

    def is_named(self, name: str) -> bool:
        """Whether flags say of the constant of that name what it holds."""
        return name in self._chosen

    def may_follow(self, size: int | None, origin: object) -> Size:
        """A size that may follow the batch; of more than one row, one is no number of rows, unless rows are divided."""
        if size is None:
            return Unknown(-1, origin)
        return Unknown(size, origin) if size > 1 or (size == 1 and self._ones) else size

    def dims(self, node: Node) -> Dims | None:
        """The dimensions of a constant; None where its shape is not known."""
        shape = node.out().shape
        if shape is None:
            return None
        if self.choice(node.name) is False or node.name in self.shape_of:
            return tuple(int(d or 0) for d in shape)
        of_rows = self._row_axis(node) if self.choice(node.name) else None
        return tuple(
            self.may_follow(d, node.out()) if axis != of_rows else divide(Poly((0, d or 0)), self._rows) or -1
            for axis, d in enumerate(shape)
        )

    def _row_axis(self, node: Node) -> int | None:
        """Which dimension of a constant that is said to follow the rows does so: the outermost, where its numbers say nothing.

        Of one row the vector of one real number is what is like the row, as a shape is of whole numbers.
        """
        value = constant(node)
        if value.size == 1 and value.ndim and self._rows == 1 and value.dtype.kind == "f":
            return 0
        alike = value.ndim > 0 and value.size > 1 and (value == value.flat[0]).all()
        real = value.dtype.kind in "iufb"  # no complex number, and no string, is a multiple of the rows
        if not alike or (real and value.ndim == 1 and value.flat[0] % self._rows == 0):
            return None
        return next((axis for axis, size in enumerate(value.shape) if size % self._rows == 0), None)

    def elements(self, node: Node) -> Elements | None:
        """The elements of a small constant of whole numbers; None of any other constant."""
        value = constant(node)
        if value.ndim > 1 or value.size > LONGEST or value.dtype.name not in _NUMBERS:
            return None
        numbers = value.ravel().tolist()
        if not all(np.isfinite(number) and number == int(number) for number in numbers):
            return None
        if self.choice(node.name) and value.size == 1 and self._row_axis(node) is not None:
            return [int(numbers[0])]
        multiples = any(number > 0 and number % self._rows == 0 for number in numbers)
        if self.choice(node.name) and self._rows in numbers and value.ndim:
            return self._beside_rows(node, [int(number) for number in numbers])
        return [
            self._element(node, index, int(number), beside_multiples=multiples) for index, number in enumerate(numbers)
        ]

    def _beside_rows(self, node: Node, numbers: list[int]) -> Elements:
        """A vector that is said to follow the rows and holds their number: its multiples beside it may be numbers of the model.

        Of one row every number is a multiple, and every 1 may be the row: the outermost is.
        """
        first = numbers.index(self._rows)
        return [
            Poly((0, 1))
            if number == self._rows and (index == first or self._rows > 1)
            else self.may_follow(number, (node.out(), index))
            if number > 0
            else number
            for index, number in enumerate(numbers)
        ]

    def paddings(self, node: Node) -> Elements:
        """The numbers that a constant pads dimensions by; those that are no multiples of the rows follow no batch."""
        numbers = [int(number) for number in constant(node).ravel().tolist()]
        multiples = [self._rows > 1 and number > 0 and not number % self._rows for number in numbers]
        return [
            self._element(node, index, number, beside_multiples=True) if multiple else number
            for index, (number, multiple) in enumerate(zip(numbers, multiples, strict=True))
        ]

    def _element(self, node: Node, index: int, size: int, *, beside_multiples: bool) -> Size | None:
        """One number; beside multiples of the rows, one that is no multiple follows no batch unless nothing is settled."""
        chosen = self.choice(node.name)
        if not chosen or size <= 0 or (beside_multiples and size % self._rows):
            if chosen is not False and node.name in self._numbering:
                return Unknown(size, (node.out(), index))
            if chosen is not False and size in (0, 1) and node.name in self.shape_of:
                return Unknown(size, (node.out(), index))
            if chosen is not False and size == 1 and self.opened:
                return size
            return size if chosen is False else self.may_follow(size, (node.out(), index))
        if size % self._rows:
            self.shares[size] = node.name
        return divide(Poly((0, size)), self._rows)

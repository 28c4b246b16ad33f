"""Builds the nodes of rewritten lookups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph.ir import Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.ir.builder import Builder


class LookupNodes(Builder):
    """Builds nodes that replace a node of a lookup; shape inference visits them later."""

    def const(self, value: Any) -> Tensor:
        """A constant with the dtype of a NumPy value; object arrays are strings."""
        return self.constant(value, attrs.dtype("string") if value.dtype == object else None, name="Const")

    def as_shape(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape; -1 stands for the remaining elements."""
        return self.add("Reshape", [tensor, self.const(np.asarray(shape, np.int32))])

    def first_column(self, matrix: Tensor, *, shrink_axis_mask: int) -> Tensor:
        """The first column of a matrix: a vector where ``shrink_axis_mask`` is 2, a matrix where it is 0."""
        ends = [self.const(np.asarray(value, np.int32)) for value in ([0, 0], [0, 1], [1, 1])]
        return self.add("StridedSlice", [matrix, *ends], begin_mask=1, end_mask=1, ellipsis_mask=0, new_axis_mask=0,
                        shrink_axis_mask=shrink_axis_mask)  # fmt: skip

    def as_dtype(self, tensor: Tensor, kind: DType) -> Tensor:
        """Cast, where the dtype differs."""
        return tensor if tensor.dtype == kind else self.add("Cast", [tensor], DstT=kind, Truncate=False)

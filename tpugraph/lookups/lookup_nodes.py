"""Makes nodes in the place of a lookup's, and remembers which constants were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.ir.builder import Builder
from tpugraph.ir.node import Node


class LookupNodes:
    """Makes nodes beside those of a lookup, on its device's side of the graph; their shapes are to be inferred."""

    def __init__(self, graph: Graph, scope: str) -> None:
        self._graph = graph
        self._scope = scope

    def node(self, source: Node, op: str, inputs: Sequence[Tensor], **attributes: Any) -> Node:
        """A node for the sake of ``source``; what its operands do not decide is said by attributes."""
        return Builder(self._graph, f"{source.name}/{self._scope}", source=source).node(op, inputs, **attributes)

    def add(self, source: Node, op: str, inputs: Sequence[Tensor], **attributes: Any) -> Tensor:
        """The first output of such a node."""
        return self.node(source, op, inputs, **attributes).out()

    def const(self, source: Node, value: Any) -> Tensor:
        """A constant of the dtype of a NumPy value; objects are text."""
        kind = attrs.dtype("string" if value.dtype == object else value.dtype.name)
        made = Builder(self._graph, f"{source.name}/{self._scope}", source=source).constant(value, kind, name="Const")
        return made

    def reshape(self, source: Node, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor in another shape; -1 is what is left of the elements."""
        return self.add(source, "Reshape", [tensor, self.const(source, np.asarray(shape, np.int32))])

    def cast(self, source: Node, tensor: Tensor, kind: DType) -> Tensor:
        """A tensor in another dtype, or itself where it has that."""
        return tensor if tensor.dtype == kind else self.add(source, "Cast", [tensor], DstT=kind, Truncate=False)

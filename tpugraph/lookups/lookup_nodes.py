"""Builds the nodes that replace a lookup's, with shared constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.ir.builder import Builder
from tpugraph.ir.node import Node


class LookupNodes:
    """Builds nodes next to those of a lookup, with its placement; their shapes are inferred later."""

    def __init__(self, graph: Graph, scope: str) -> None:
        self._graph = graph
        self._scope = scope

    def node(self, source: Node, op: str, inputs: Sequence[Tensor], **attributes: Any) -> Node:
        """A node on behalf of ``source``; attributes that the operands do not determine are given."""
        return Builder(self._graph, f"{source.name}/{self._scope}", source=source).node(op, inputs, **attributes)

    def add(self, source: Node, op: str, inputs: Sequence[Tensor], **attributes: Any) -> Tensor:
        """The first output of :meth:`node`."""
        return self.node(source, op, inputs, **attributes).out()

    def const(self, source: Node, value: Any) -> Tensor:
        """A constant with the dtype of a NumPy value; object arrays are strings."""
        kind = attrs.dtype("string" if value.dtype == object else value.dtype.name)
        made = Builder(self._graph, f"{source.name}/{self._scope}", source=source).constant(value, kind, name="Const")
        return made

    def reshape(self, source: Node, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape; -1 stands for the remaining elements."""
        return self.add(source, "Reshape", [tensor, self.const(source, np.asarray(shape, np.int32))])

    def cast(self, source: Node, tensor: Tensor, kind: DType) -> Tensor:
        """Cast, where the dtype differs."""
        return tensor if tensor.dtype == kind else self.add(source, "Cast", [tensor], DstT=kind, Truncate=False)

"""Sizes that the host behind the device reads, made from the true number of rows of all cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.sizes import Known, Poly
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.frames import frames_around
from tpugraph.tpu.own_rows import OwnRows

COPIED = "/tail"
"""What the name of a loop ends with that both sides run."""

_INT32 = attrs.dtype("int32")


class TailSizes:
    """Makes the sizes.

    Args:
        graph: the graph.
        placed: what each core makes of its own rows.
        tail: what the host runs because it reads the rows of all cores; it computes its own sizes.
        made: the nodes that are made are added here.
    """

    def __init__(self, graph: Graph, placed: OwnRows, tail: NodeSet, made: NodeSet) -> None:
        self.graph = graph
        self.placed = placed
        self.tail = tail
        self.made = made
        self._frame_of = analysis.frames(graph)
        self._outer = frames_around(graph)
        self._known: dict[Tensor, Tensor] = {}

    def replaces(self, tensor: Tensor) -> bool:
        """Whether the tail makes the tensor from the number of rows: a size, or a constant with as many rows."""
        node = tensor.node
        if node in self.tail or self.placed.sizes(tensor) is None:
            return node not in self.tail and self.placed.level_rows(tensor) is not None
        return node.op in ops.CONSTANTS | ops.SHAPE_OF or any(self.placed.only_here(t) for t in node.inputs)

    def of(self, tensor: Tensor, total: Tensor, copies: Mapping[Node, Node]) -> Tensor:
        """What is read instead of a tensor.

        Args:
            tensor: the tensor, one that :meth:`replaces` names.
            total: the number of rows of all cores.
            copies: the host's copies of nodes that the device needs too.
        """
        if tensor not in self._known:
            self._known[tensor] = self._at_its_place(self._value(tensor, total), tensor, total, copies)
        return self._known[tensor]

    def _value(self, tensor: Tensor, total: Tensor) -> Tensor:
        """A size, or a constant with rows, as it is for the rows of all cores."""
        node, kind = tensor.node, tensor.dtype
        sizes = self.placed.sizes(tensor)
        if sizes is None:
            shape = self._vector(node, self.placed.level_rows(tensor) or [], total, _INT32)
            one = self.constant_of(node, constant(node).flat[0], kind)
            return self.add(node, "Fill", "rows", [shape, one], {"T": kind, "index_type": _INT32})
        return (
            self._element(node, sizes[0], total, kind) if tensor.shape == () else self._vector(node, sizes, total, kind)
        )

    def _at_its_place(self, made: Tensor, tensor: Tensor, total: Tensor, copies: Mapping[Node, Node]) -> Tensor:
        """A size in the loop, and in the branch, of the tensor that is read no more."""
        node, kind = tensor.node, tensor.dtype
        chain: list[str] = []
        frame = self._frame_of.get(node, "")
        while frame:
            chain.append(frame)
            frame = self._outer.get(frame, "")
        again = {enter.attr("frame_name") for enter in copies if enter.op in ops.ENTER}
        for frame in reversed(chain):
            name = f"{frame}{COPIED}" if frame in again else frame
            attributes = {"T": kind, "frame_name": name, "is_constant": True, "parallel_iterations": 10}
            made = self.add(node, "Enter", "enter", [made], attributes)
        alive = [copies.get(c, c) for c in node.controls if c in self.tail or c in copies]
        if alive and (chain or made == total):
            made = self.add(node, "Identity", "alive", [made], {"T": kind})
        for control in alive:
            self.graph.add_control(made.node, control)
        return made

    def _vector(self, near: Node, sizes: Sequence[Known], total: Tensor, kind: attrs.DType) -> Tensor:
        parts = [self._element(near, size, total, kind) for size in sizes]
        return self.add(near, "Pack", "shape", parts, {"T": kind, "N": len(parts), "axis": 0})

    def _element(self, near: Node, size: Known, total: Tensor, kind: attrs.DType) -> Tensor:
        """A size: a number of the model, or made of the number of rows (by Horner's rule)."""
        if not isinstance(size, Poly):
            return self.constant_of(near, size, kind)
        if kind != _INT32:
            total = self.add(near, "Cast", "rows", [total], {"SrcT": _INT32, "DstT": kind, "Truncate": False})
        *rest, highest = size.c
        made = total if highest == 1 else self._times(near, total, self.constant_of(near, highest, kind), kind)
        for power, factor in reversed(list(enumerate(rest))):
            if factor:
                made = self.add(near, "Add", "plus", [made, self.constant_of(near, factor, kind)], {"T": kind})
            if power:
                made = self._times(near, made, total, kind)
        return made

    def _times(self, near: Node, a: Tensor, b: Tensor, kind: attrs.DType) -> Tensor:
        return self.add(near, "Mul", "times", [a, b], {"T": kind})

    def constant_of(self, near: Node, value: Any, kind: attrs.DType) -> Tensor:
        """A constant of the host."""
        array = np.asarray(value, object if kind.name == "string" else kind.name)
        return self.add(near, "Const", "size", [], {"dtype": kind, "value": array})

    def add(self, near: Node, op: str, name: str, inputs: list[Tensor], attributes: dict[str, object]) -> Tensor:
        """A node of the host, made for another one."""
        node = self.graph.add(op, f"{near.name}/{name}", inputs, attrs=attributes, source=near)
        self.made[node] = None
        return node.out()

"""Builds nodes of the cluster near a tensor, in its loop and branch, with constants and the core's index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, REPLICATED_ATTR
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import DType, Shape
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import frames_around

_INT32 = attrs.dtype("int32")
_FLOAT = attrs.dtype("float32")
_REPLICA_ID = "tpugraph/replica_id"
_MARKS = {CLUSTER_ATTR: CLUSTER}

REPLICATED: dict[str, Any] = {REPLICATED_ATTR: True}
"""Marks a node whose value is replicated though its operands are not."""


class StepNodes:
    """Builds nodes of a step; ``flat`` is a step without loops and branches."""

    def __init__(self, graph: Graph, count: int, *, flat: bool = False) -> None:
        self.graph = graph
        self.count = count
        self._frame_of = {} if flat else analysis.frames(graph)
        self._conditional = {} if flat else analysis.conditional(graph)
        self._outer = {} if flat else frames_around(graph)
        self._id: Tensor | None = None
        self._entered: dict[tuple[Tensor, str], Tensor] = {}
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], Tensor] = {}

    def add(self, near: Tensor, op: str, name: str, inputs: Sequence[Tensor], shape: Shape = None, *,
            scope: str | None = None, **attributes: Any) -> Tensor:  # fmt: skip
        """A node of the cluster in the loop and branch of ``near``; named below ``near``'s node, or in ``scope``."""
        make = Builder(self.graph, near.node.name if scope is None else scope, marks=_MARKS, source=near.node)
        made = make.add(op, inputs, shape, name=name, **attributes)
        self._frame_of[made.node] = self._frame(near)
        if near.node in self._conditional or near.node.op in ops.SWITCH:
            self._conditional[made.node] = None
        return made

    def instead(self, tensor: Tensor, value: Any, *, name: str) -> Tensor:
        """A constant that replaces a tensor, with the control inputs of the tensor's node."""
        made = self.constant(value, tensor.dtype, tensor, name=name, alone=True)
        if tensor.node.op not in ops.CONSTANTS or tensor.node.controls:
            self.graph.add_control(made.node, tensor.node)
        return made

    def constant(self, value: Any, kind: DType, near: Tensor, *, name: str = "", alone: bool = False) -> Tensor:
        """A constant near a tensor; outside of loops and branches equal ones are shared, unless ``alone``."""
        array = np.asarray(value)
        if kind.name == "bfloat16":
            return self.cast(self.constant(array.astype("float32"), _FLOAT, near), kind)
        array = array.astype(kind.name)
        inside = bool(self._frame(near)) or near.node in self._conditional or near.node.op in ops.SWITCH
        key = (kind.name, array.tobytes(), array.shape)
        if not inside and not alone and key in self._constants:
            return self._constants[key]
        controls = [near.node] if inside else []
        make = Builder(self.graph, marks=_MARKS, source=near.node)
        made = make.constant(array, kind, name=name or f"{near.node.name}/const", controls=controls)
        self._frame_of[made.node] = self._frame(near)
        if not inside:
            if not alone:
                self._constants[key] = made
        elif near.node in self._conditional or near.node.op in ops.SWITCH:
            self._conditional[made.node] = None
        return made

    def cast(self, tensor: Tensor, kind: DType) -> Tensor:
        if tensor.dtype == kind:
            return tensor
        return self.add(tensor, "Cast", kind.name, [tensor], tensor.shape, DstT=kind, Truncate=False)

    def shape(self, tensor: Tensor) -> Tensor:
        """The shape of a tensor at run time."""
        rank = None if tensor.shape is None else len(tensor.shape)
        return self.add(tensor, "Shape", "shape", [tensor], (rank,), out_type=_INT32)

    def reshape(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape; -1 stands for the remaining elements."""
        if tensor.shape == tuple(shape):
            return tensor
        target = self.constant(np.asarray(shape, "int32"), _INT32, tensor)
        form = tuple(_left(tensor, shape) if d < 0 else d for d in shape)
        return self.add(tensor, "Reshape", "reshaped", [tensor, target], form)

    def transpose(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        shape = tuple((tensor.shape or ())[a] for a in order)
        target = self.constant(np.asarray(order, "int32"), _INT32, tensor)
        return self.add(tensor, "Transpose", "transposed", [tensor, target], shape)

    def own_id(self, near: Tensor) -> Tensor:
        """This core's index, in the loop of a tensor."""
        if self._id is None:
            self._id = self._make_id(near)
        chain: list[str] = []
        frame = self._frame(near)
        while frame:
            chain.append(frame)
            frame = self._outer.get(frame, "")
        found = self._id
        for frame in reversed(chain):
            key = (self._id, frame)
            if key not in self._entered:
                make = Builder(self.graph, self._id.node.name, marks=_MARKS, source=near.node)
                self._entered[key] = make.add("Enter", [found], (), name="enter", frame_name=frame, is_constant=True,
                                              parallel_iterations=10)  # fmt: skip
                self._frame_of[self._entered[key].node] = frame
            found = self._entered[key]
        return found

    def _frame(self, near: Tensor) -> str:
        frame = self._frame_of.get(near.node, "")
        return self._outer.get(frame, "") if near.node.op in ops.EXIT else frame

    def _make_id(self, near: Tensor) -> Tensor:
        """The core's index as an argument of the cluster, as TPUEstimator passes it."""
        make = Builder(self.graph, source=near.node)
        ids = [make.constant(np.int32(r), name=f"{_REPLICA_ID}/{r}") for r in range(self.count)]
        return core_argument(make, ids, _REPLICA_ID, "replica/id")


def core_argument(make: Builder, values: Sequence[Tensor], name: str, own: str) -> Tensor:
    """An argument of the cluster with one value, or one handle, per core; ``own`` names the core's own one."""
    given = make.add("TPUReplicatedInput", values, (), name=name)
    return replace(make, marks=_MARKS).add("Identity", [given], (), name=own, _tpu_input_identity=True)


def _left(tensor: Tensor, shape: Sequence[int]) -> int | None:
    """The size of the -1 dimension of a shape; None where it is unknown."""
    if tensor.shape is None or None in tensor.shape:
        return None
    return math.prod(d or 0 for d in tensor.shape) // max(-math.prod(shape), 1)


def ends_of(nodes: Iterable[Node]) -> frozenset[Node]:
    """The nodes without data or control users, collected before a rewrite: they exist for their effect."""
    return frozenset(node for node in nodes if not node.consumers())


def remove_unread(graph: Graph, nodes: Iterable[Node], *, keep: frozenset[Node] = frozenset()) -> int:
    """Remove the nodes that nothing uses, except ``keep`` and those that roles keep, and then their unused ancestors.

    Returns the number removed.
    """
    kept: set[str] = set() if graph.roles is None else graph.roles.kept
    pending = list(nodes)
    removed = 0
    while pending:
        node = pending.pop()
        if node not in graph or node in keep or node.name in kept or node.consumers() or node.op in ops.WRITES:
            continue
        before = node.producers()
        graph.remove(node)
        removed += 1
        pending += [p for p in before if p.op not in ops.VARIABLES]
    return removed

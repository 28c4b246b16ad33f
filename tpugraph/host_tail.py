"""The part of a step that the host runs behind the device, on the true rows of all cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tpugraph import attrs, ops
from tpugraph.analysis import NodeSet
from tpugraph.errors import ConversionError
from tpugraph.findings import Finding
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.row_entries import is_within
from tpugraph.row_states import Rows, Sizes, State

ALL_ROWS = "PlaceholderWithDefault"
"""What stands for the rows of all cores until they are gathered; its input is the core's own part."""

TIMES = "_tpugraph_rows"
"""Attribute of such a node: how many entries of dimension 0 a row has; 0 for the number of rows itself."""

_INT32 = attrs.dtype("int32")


def _has_entries(node: Node, state: Callable[[Tensor], State]) -> bool:
    return any(is_within(state(node.out(port))) for port in range(len(node.outputs or ())))


def goes_beside(tensor: Tensor) -> bool:
    """Whether the host in front of the device hands a tensor to the host behind it, since no infeed takes it."""
    return tensor.dtype.name not in ops.INFEED_DTYPES


class HostTail:
    """Separates the tail from what the device computes.

    Args:
        graph: the graph.
        cone: the step.
        tail: what mixes rows.
        state: what each tensor of the step is (see :mod:`tpugraph.rows`).
        cut: the tensors whose rows the tail reads.
        baked: constants that hold the number of rows (see :mod:`tpugraph.baked_sizes`).

    Attributes:
        nodes: all nodes that the tail runs.
    """

    def __init__(
        self,
        graph: Graph,
        cone: NodeSet,
        tail: NodeSet,
        state: Callable[[Tensor], State],
        cut: list[Tensor],
        baked: Mapping[Tensor, Sizes | Rows],
    ) -> None:
        self.graph = graph
        self.cone = cone
        self.state = state
        self.cut = dict.fromkeys(cut)
        self.baked = baked
        self.mixing = tail
        self.nodes: NodeSet = dict(tail)
        self._behind_entries = graph.descendants((n for n in cone if _has_entries(n, state)), data_only=True)
        self._sizes: dict[Tensor, Tensor] = {}

    def build(self) -> None:
        """Cut the graph in two: the tail reads the rows of all cores, or makes for itself what is uniform."""
        graph = self.graph
        count = graph[graph.roles.rows].out()
        own = self.own()
        device = self._release([*(t.node for t in self.cut), count.node])
        beside = dict.fromkeys(t for t in self.cut if goes_beside(t))
        ends = [self._cross(count, 0), *(self._cross(t, self._times(t)) for t in self.cut)]
        self.total = ends[0].out()
        arriving = dict(zip(self.cut, (end.out() for end in ends[1:]), strict=True))
        copies = self._copies(own, device)
        for node in [copies.get(n, n) for n in {**self.mixing, **own}]:
            self.nodes[node] = None
            graph.set_attr(node, "_output_shapes", None)  # they speak of one core's padded rows
            for index, tensor in enumerate(node.inputs):
                graph.set_input(node, index, self._reads(tensor, arriving, copies))
        for node in [copies.get(n, n) for n in {**self.mixing, **own}]:
            kept = [copies.get(c, c) for c in node.controls if c in self.mixing or c in own or c in self.nodes]
            graph.set_controls(node, kept)
        names = {tensor: end.inputs[0].node.name for tensor, end in zip([count, *self.cut], ends, strict=True)}
        graph.roles.device_ends = [name for tensor, name in names.items() if tensor not in beside]
        graph.roles.beside = [name for tensor, name in names.items() if tensor in beside]
        self._clear(ends)

    def _times(self, tensor: Tensor) -> int:
        state = self.state(tensor)
        assert isinstance(state, Rows)
        return state.inner

    # ------------------------------------------------------------------ who has what

    def own(self) -> NodeSet:
        """What the tail needs besides what mixes: uniform values, sizes, and rows computed from those that arrive."""
        found: NodeSet = {}
        stack = list(self.mixing)
        while stack:
            node = stack.pop()
            for tensor in node.inputs:
                other = tensor.node
                if tensor in self.cut or other in self.mixing or other in found or other.op in ops.RESOURCE_VARIABLES:
                    continue
                if self._made_of_sizes(tensor):
                    continue
                found[other] = None
                stack.append(other)
        return found

    def _made_of_sizes(self, tensor: Tensor) -> bool:
        """Whether the tensor asks for the shape of rows, which the tail makes from their number."""
        state = self.state(tensor)
        if tensor in self.baked or not isinstance(state, Sizes):
            return tensor in self.baked
        return tensor.node.op in ops.SHAPE_OF or self._only_number(tensor.node, state)

    def _only_number(self, node: Node, state: Sizes) -> bool:
        """Whether the number of rows was read off the dense shape of entries."""
        return node in self._behind_entries and all(t is not None and t > 0 for t in state.times)

    def _release(self, ends: list[Node]) -> NodeSet:
        """What the device needs. It waits for nothing of the tail; checks that it waited for still run there."""
        graph = self.graph
        watches: dict[str, Finding] = {finding.name: finding for finding in graph.roles.updates}
        found = dict.fromkeys(ends)
        stack = list(found)
        while stack:
            node = stack.pop()
            for control in node.controls:
                if control in self.mixing:
                    graph.remove_control(node, control)
                    graph.note(control, f"'{node.name}' waited for it; now it runs on the host behind the device")
                    watches.setdefault(control.name, Finding(control.name, "watches the step"))
            for producer in node.producers():
                if producer not in found:
                    found[producer] = None
                    stack.append(producer)
        graph.roles.updates = list(watches.values())
        return found

    def _copies(self, own: NodeSet, device: NodeSet) -> dict[Node, Node]:
        """Copies for the tail of what the device needs too."""
        shared = [node for node in own if node in device]
        for node in shared:
            if ops.is_stateful(node.op) and node.op not in ops.READS | ops.GATHERS:
                raise ConversionError(
                    "a stateful op is needed on the host and on the device",
                    node=node,
                    fix="split it in two in the model function",
                )
        copies = self.graph.clone_subgraph(shared, lambda name: f"{name}/tail")
        for copy in copies.values():
            if copy.op in ops.ENTER:
                self.graph.set_attr(copy, "frame_name", f"{copy.attr('frame_name')}/tail")
        return copies

    def _clear(self, ends: list[Node]) -> None:
        """Remove what neither side needs any more."""
        graph = self.graph
        roles = graph.roles
        outside = [node for node in graph if node not in self.cone and node not in self.nodes]
        alive = graph.ancestors([*outside, *ends, *(graph[name] for name in roles.roots)])
        graph.remove_all([node for node in self.cone if node not in alive])
        self.nodes = {node: None for node in self.nodes if node in graph}

    # ------------------------------------------------------------------ what crosses

    def _cross(self, tensor: Tensor, times: int) -> Node:
        """The end of a core's part, and behind it what stands for the rows of all cores."""
        graph, kind = self.graph, tensor.dtype
        end = graph.add(
            "Identity",
            f"tpugraph/core/{tensor.node.name}",
            [tensor],
            attrs={"T": kind},
            outputs=[(kind, tensor.shape)],
            source=tensor.node,
        )
        shape = (None, *(tensor.shape or ())[1:]) if times else ()
        return graph.add(
            ALL_ROWS,
            f"tpugraph/all/{tensor.node.name}",
            [end.out()],
            attrs={"dtype": kind, "shape": attrs.encode(shape), TIMES: times},
            outputs=[(kind, shape)],
            source=tensor.node,
        )

    def _reads(self, tensor: Tensor, arriving: dict[Tensor, Tensor], copies: dict[Node, Node]) -> Tensor:
        if tensor in arriving:
            return arriving[tensor]
        if self._made_of_sizes(tensor):
            if tensor not in self._sizes:
                self._sizes[tensor] = self._size(tensor)
            return self._sizes[tensor]
        return Tensor(copies[tensor.node], tensor.port) if tensor.node in copies else tensor

    # ------------------------------------------------------------------ sizes

    def _size(self, tensor: Tensor) -> Tensor:
        """A shape, a number of elements or a constant as it is for the rows of all cores."""
        node, made = tensor.node, self.baked.get(tensor, self.state(tensor))
        kind = tensor.dtype
        if isinstance(made, Rows):
            dims = [made.inner if axis == made.axis else dim for axis, dim in enumerate(tensor.shape or ())]
            times = tuple(made.inner if axis == made.axis else None for axis in range(len(dims)))
            shape = self._vector(node, times, dims, _INT32)
            one = self._constant(node, node.attr("value").flat[0], kind)
            return self._add(node, "Fill", "rows", [shape, one], {"T": kind, "index_type": _INT32})
        assert isinstance(made, Sizes)
        fixed: Sequence[Any] = made.times
        if tensor in self.baked or node.op in ops.SHAPE_OF:
            fixed = node.attr("value").ravel() if tensor in self.baked else node.inputs[tensor.port].shape or ()
        if tensor.shape == ():
            return self._element(node, made.times[0] or 1, kind)
        return self._vector(node, made.times, fixed, kind)

    def _vector(self, near: Node, times: Sequence[int | None], fixed: Sequence[Any], kind: attrs.DType) -> Tensor:
        pairs = zip(times, fixed, strict=True)
        parts = [self._constant(near, v, kind) if t is None else self._element(near, t, kind) for t, v in pairs]
        return self._add(near, "Pack", "shape", parts, {"T": kind, "N": len(parts), "axis": 0})

    def _element(self, near: Node, times: int, kind: attrs.DType) -> Tensor:
        """So many times the number of rows."""
        total = self.total
        if kind != _INT32:
            total = self._add(near, "Cast", "rows", [total], {"SrcT": _INT32, "DstT": kind, "Truncate": False})
        if times == 1:
            return total
        return self._add(near, "Mul", "times", [total, self._constant(near, times, kind)], {"T": kind})

    def _constant(self, near: Node, value: Any, kind: attrs.DType) -> Tensor:
        array = np.asarray(value, object if kind.name == "string" else kind.name)
        return self._add(near, "Const", "size", [], {"dtype": kind, "value": array})

    def _add(self, near: Node, op: str, name: str, inputs: list[Tensor], attributes: dict[str, object]) -> Tensor:
        node = self.graph.add(op, f"{near.name}/{name}", inputs, attrs=attributes, source=near)
        self.nodes[node] = None
        return node.out()

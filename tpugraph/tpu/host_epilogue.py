"""The part of a step that the host runs behind the device, on the plain batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, shapes
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.step import DeviceEnds, PaddedBatches
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.roles.findings import Finding
from tpugraph.support.errors import ConversionError
from tpugraph.tpu.divided_step import DividedStep

ALL_ROWS = "PlaceholderWithDefault"
"""What stands for the value of the plain batch until it is handed over; its input is what the device computes."""

TIMES = "_tpugraph_rows"
"""Attribute of such a node: how many entries of dimension 0 a row has, of which those of padding are cut off; 0 for none."""

_COPIED = "/tail"
"""What the name of a loop ends with that both sides run."""

_INT32 = attrs.dtype("int32")


class HostTail:
    """Separates the tail from what the device computes.

    Args:
        graph: the graph.
        step: the step, divided.

    Attributes:
        nodes: all nodes that the tail runs.
    """

    def __init__(self, graph: Graph, step: DividedStep) -> None:
        self.graph = graph
        self.cone = step.cone
        self.batch = step.batch
        self.placed = step.placed
        self.cut = dict.fromkeys(step.cut())
        self.tail = step.tail
        self.nodes: NodeSet = dict(self.tail)
        self._frame_of = analysis.frames(graph)

    def build(self) -> None:
        """Cut the graph in two: the tail reads what the device sends and the plain batch, and makes the rest for itself."""
        graph = self.graph
        count = graph[graph.result(PaddedBatches).count].out()
        own, beside = self._own()
        device = self._release([*(t.node for t in self.cut), count.node])
        ends = [self._cross(count, 0), *(self._cross(t, self._times(t)) for t in self.cut)]
        passed = [self._cross(t, 0) for t in beside]
        self._total = ends[0].out()
        arriving = {t: end.out() for t, end in zip([*self.cut, *beside], [*ends[1:], *passed], strict=True)}
        copies = self._copies(own, device)
        run = [copies.get(n, n) for n in {**self.tail, **own}]
        for node in run:
            self.nodes[node] = None
            graph.set_attr(node, "_output_shapes", None)
            for index, tensor in enumerate(node.inputs):
                graph.set_input(node, index, self._reads(tensor, arriving, copies))
        for node in run:
            kept = [copies.get(c, c) for c in node.controls if c in self.tail or c in own or c in self.nodes]
            graph.set_controls(node, kept)
        self._cut_predictions()
        graph.keep(DeviceEnds(*(tuple(end.inputs[0].node.name for end in group) for group in (ends, passed))))
        self._clear([*ends, *passed])

    # ------------------------------------------------------------------ who has what

    def _own(self) -> tuple[NodeSet, list[Tensor]]:
        """Nodes that the tail reads and computes for itself, and the tensors of the plain batch that it reads."""
        found: NodeSet = {}
        parts: dict[Tensor, None] = {}
        batch_parts = dict.fromkeys(self.batch.parts.values())
        stack = list(self.tail)
        while stack:
            node = stack.pop()
            for tensor in map(self._plain, node.inputs):
                other = tensor.node
                if tensor in batch_parts:
                    parts[tensor] = None
                elif not (tensor in self.cut or other in self.tail or other in found or other.op in ops.RESOURCE_VARIABLES
                          or self._is_size(tensor)):  # fmt: skip
                    found[other] = None
                    stack.append(other)
        return found, list(parts)

    def _plain(self, tensor: Tensor) -> Tensor:
        """The tensor of the plain batch that corresponds to one of the padded batch."""
        return self.batch.plain.get(tensor, tensor)

    def _release(self, ends: list[Node]) -> NodeSet:
        """The nodes of the device. Their control edges to the tail are cut; asserts among what they waited for run in the tail."""
        graph = self.graph
        watches: dict[str, Finding] = {finding.name: finding for finding in graph.roles.updates}
        found = dict.fromkeys(ends)
        stack = list(found)
        while stack:
            node = stack.pop()
            for control in node.controls:
                if control in self.tail:
                    graph.remove_control(node, control)
                    graph.note(control, f"'{node.name}' waited for it; now it runs on the host behind the device")
                    watches.setdefault(control.name, Finding(control.name, "watches the step"))
            for producer in node.producers():
                if producer not in found:
                    found[producer] = None
                    stack.append(producer)
        graph.roles = replace(graph.roles, updates=tuple(watches.values()))
        return found

    def _copies(self, own: NodeSet, device: NodeSet) -> dict[Node, Node]:
        """Copy for the tail those nodes that the device reads too."""
        shared = [node for node in own if node in device]
        for node in shared:
            if ops.is_stateful(node.op) and node.op not in ops.READS | ops.GATHERS | ops.CHECKS:
                raise ConversionError(
                    "a stateful op is needed on the host and on the device",
                    node=node,
                    fix="split it in two in the model function",
                )
        copies = self.graph.clone_subgraph(shared, lambda name: f"{name}{_COPIED}")
        for copy in copies.values():
            if copy.op in ops.ENTER:
                self.graph.set_attr(copy, "frame_name", f"{copy.attr('frame_name')}{_COPIED}")
        return copies

    def _clear(self, ends: list[Node]) -> None:
        """Remove what neither side needs any more."""
        graph = self.graph
        roles = graph.roles
        outside = [node for node in graph if node not in self.cone and node not in self.nodes]
        alive = graph.ancestors([*outside, *ends, *(graph[name] for name in roles.roots)])
        graph.remove_all([node for node in self.cone if node not in alive])

    # ------------------------------------------------------------------ what crosses

    def _times(self, tensor: Tensor) -> int:
        """Entries of dimension 0 for each padded row; 0 where nothing of the tensor is padding."""
        return 0 if self.batch.whole else (tensor.shape or (0,))[0] // self.batch.rows  # type: ignore[operator]

    def _cross(self, tensor: Tensor, times: int) -> Node:
        """End the device's part at a tensor, and give the tail a placeholder for its unpadded value."""
        graph, kind = self.graph, tensor.dtype
        end = graph.add(
            "Identity",
            f"tpugraph/core/{tensor.node.name}",
            [tensor],
            attrs={"T": kind},
            outputs=[(kind, tensor.shape)],
            source=tensor.node,
        )
        local = times or self.batch.whole
        shape = tensor.shape and (None if local else tensor.shape[0], *tensor.shape[1:])
        return graph.add(
            ALL_ROWS,
            f"tpugraph/all/{tensor.node.name}",
            [end.out()],
            attrs={"dtype": kind, "shape": attrs.encode(shape), TIMES: times},
            outputs=[(kind, shape)],
            source=tensor.node,
        )

    def _reads(self, tensor: Tensor, arriving: dict[Tensor, Tensor], copies: dict[Node, Node]) -> Tensor:
        tensor = self._plain(tensor)
        if tensor in arriving:
            return arriving[tensor]
        if tensor.node not in self.tail and self._is_size(tensor):
            return self._size(tensor)
        return Tensor(copies[tensor.node], tensor.port) if tensor.node in copies else tensor

    def _cut_predictions(self) -> None:
        """Slice predictions to the true rows where the dataset padded its batches itself."""
        for name in self.graph.roles.predictions.values():
            node = self.graph[name]
            shape = node.out().shape
            if self.batch.whole and shape and (shape[0] or 1) % self.batch.rows == 0:
                first = np.arange(len(shape)) == 0
                rows = self._constant(node, first * ((shape[0] or 0) // self.batch.rows), _INT32)
                scaled = self._add(node, "Mul", "times", [self._total, rows], {"T": _INT32})
                size = self._add(
                    node, "AddV2", "size", [scaled, self._constant(node, first - 1, _INT32)], {"T": _INT32}
                )
                begin = self._constant(node, np.zeros(len(shape)), _INT32)
                kept: dict[str, object] = {"T": node.out().dtype, "Index": _INT32}
                self.graph.set_input(
                    node, 0, self._add(node, "Slice", "true_rows", [node.inputs[0], begin, size], kept)
                )

    # ------------------------------------------------------------------ sizes

    def _is_size(self, tensor: Tensor) -> bool:
        """Whether a tensor is a shape of which only the number of rows is open."""
        node = tensor.node
        if node.op not in ops.SHAPE_OF - ops.RANKS_OF or self._frame_of.get(node, "") or self.batch.whole:
            return False
        source = node.inputs[tensor.port]
        return isinstance(self.placed.rows(source), Shard) and shapes.is_static(source.shape)

    def _size(self, tensor: Tensor) -> Tensor:
        """The shape of an unpadded tensor: the rows of the plain batch times the entries of a row, then the static dimensions."""
        node, kind = tensor.node, tensor.dtype
        source = node.inputs[tensor.port]
        shape, rows = np.asarray(source.shape), self.placed.rows(source)
        assert isinstance(rows, Shard)
        total = self._total
        if kind != _INT32:
            total = self._add(node, "Cast", "rows", [total], {"SrcT": _INT32, "DstT": kind, "Truncate": False})
        if node.op in ops.SIZES:
            return self._add(
                node, "Mul", "times", [total, self._constant(node, shape.prod() // self.batch.rows, kind)], {"T": kind}
            )
        along = np.arange(len(shape)) == rows.axis
        scaled = self._add(
            node, "Mul", "times", [total, self._constant(node, along * (shape // self.batch.rows), kind)], {"T": kind}
        )
        return self._add(node, "AddV2", "plus", [scaled, self._constant(node, ~along * shape, kind)], {"T": kind})

    def _constant(self, near: Node, value: object, kind: attrs.DType) -> Tensor:
        return self._add(near, "Const", "size", [], {"dtype": kind, "value": np.asarray(value, kind.name)})

    def _add(self, near: Node, op: str, name: str, inputs: list[Tensor], attributes: dict[str, object]) -> Tensor:
        """A node of the host, made for another one."""
        node = self.graph.add(op, f"{near.name}/{name}", inputs, attrs=attributes, source=near)
        self.nodes[node] = None
        return node.out()

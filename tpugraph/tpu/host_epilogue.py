"""The part of a step that the host runs behind the device, on the true rows of all cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tpugraph import ops
from tpugraph.analysis import NodeSet
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.sizes import Poly
from tpugraph.analysis.step import DeviceEnds, PaddedBatches
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.roles.findings import Finding
from tpugraph.support.errors import ConversionError, ShapeError
from tpugraph.tpu.epilogue_sizes import COPIED, TailSizes
from tpugraph.tpu.own_rows import OwnRows

ALL_ROWS = "PlaceholderWithDefault"
"""What stands for the rows of all cores until they are gathered; its input is the core's own part."""

TIMES = "_tpugraph_rows"
"""Attribute of such a node: how many entries of dimension 0 a row has; 0 for the number of rows itself."""

_INT32 = attrs.dtype("int32")


def goes_beside(tensor: Tensor) -> bool:
    """Whether the host in front of the device hands a tensor to the host behind it, since no infeed takes it."""
    return tensor.dtype.name not in ops.INFEED_DTYPES


def _is_first(rows: Shard) -> bool:
    return rows.axis == 0 and rows.outer == 1


class HostTail:
    """Separates the tail from what the device computes.

    Args:
        graph: the graph.
        cone: the step.
        tail: what reads the rows of all cores.
        placed: what each core makes of its own rows.
        cut: the tensors whose rows the tail reads.

    Attributes:
        nodes: all nodes that the tail runs.
    """

    def __init__(
        self,
        graph: Graph,
        cone: NodeSet,
        tail: NodeSet,
        placed: OwnRows,
        cut: list[Tensor],
    ) -> None:
        self.graph = graph
        self.cone = cone
        self.placed = placed
        self.cut = dict.fromkeys(cut)
        self.mixing = tail
        self.nodes: NodeSet = dict(tail)
        self.sizes = TailSizes(graph, placed, tail, self.nodes)

    def build(self) -> None:
        """Cut the graph in two: the tail reads the rows of all cores, or makes for itself what is replicated."""
        graph = self.graph
        count = graph[graph.result(PaddedBatches).count].out()
        own = self.own()
        device = self._release([*(t.node for t in self.cut), count.node])
        beside = dict.fromkeys(t for t in self.cut if goes_beside(t))
        ends = [self._cross(count, count, 0), *map(self._cross_rows, self.cut)]
        self.total = ends[0].out()
        arriving = {tensor: self._in_place(end.out(), tensor) for tensor, end in zip(self.cut, ends[1:], strict=True)}
        copies = self._copies(own, device)
        for node in [copies.get(n, n) for n in {**self.mixing, **own}]:
            self.nodes[node] = None
            self._open(node)
            for index, tensor in enumerate(node.inputs):
                graph.set_input(node, index, self._reads(tensor, arriving, copies))
        for node in [copies.get(n, n) for n in {**self.mixing, **own}]:
            kept = [copies.get(c, c) for c in node.controls if c in self.mixing or c in own or c in self.nodes]
            graph.set_controls(node, kept)
        names = {tensor: end.inputs[0].node.name for tensor, end in zip([count, *self.cut], ends, strict=True)}
        through = tuple(name for tensor, name in names.items() if tensor not in beside)
        graph.keep(DeviceEnds(through, tuple(name for tensor, name in names.items() if tensor in beside)))
        self._clear(ends)

    def _open(self, node: Node) -> None:
        """Drop what attributes say of one core's padded rows."""
        self.graph.set_attr(node, "_output_shapes", None)
        for name in ("element_shape", "element_shape_except0"):
            held = self.placed.elements_held(node) if node.has_attr(name) else None
            if held is not None and any(isinstance(size, Poly) for size in held):
                shape = tuple(None if isinstance(size, Poly) else size for size in held)
                self.graph.set_attr(node, name, attrs.encode(shape if name == "element_shape" else shape[1:]))

    # ------------------------------------------------------------------ who has what

    def own(self) -> NodeSet:
        """What the tail needs besides what mixes: replicated values, sizes, and rows computed from those that arrive."""
        found: NodeSet = {}
        stack = list(self.mixing)
        while stack:
            node = stack.pop()
            for tensor in node.inputs:
                other = tensor.node
                if tensor in self.cut or other in self.mixing or other in found or other.op in ops.RESOURCE_VARIABLES:
                    continue
                if self.sizes.replaces(tensor):
                    continue
                found[other] = None
                stack.append(other)
        return found

    def refuse(self) -> None:
        """Refuse what the tail reads and cannot be had for the rows of all cores.

        Raises:
            ShapeError: entries of sparse rows, or a constant that may be a number of rows.
        """
        nodes = [*self.mixing, *self.own()]
        for node in nodes:
            found = next((t for t in node.inputs if self.placed.only_here(t)), None)
            if found is not None:
                raise ShapeError(
                    f"'{node.name}' on the host reads '{found}', entries of sparse rows, for all cores together",
                    node=found.node,
                    origin=self.graph.source,
                    fix="make them dense rows first (an indicator or embedding column, sparse.to_dense)",
                )
        for tensor in dict.fromkeys(t for node in nodes for t in node.inputs if t.node.op in ops.CONSTANTS):
            self.placed.refuse_doubt(tensor)
            if self.sizes.replaces(tensor):
                self.graph.note(tensor.node, "follows the true number of rows on the host")

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
        graph.roles = replace(graph.roles, updates=tuple(watches.values()))
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
                self.graph.set_attr(copy, "frame_name", f"{copy.attr('frame_name')}{COPIED}")
        return copies

    def _clear(self, ends: list[Node]) -> None:
        """Remove what neither side needs any more."""
        graph = self.graph
        roles = graph.roles
        outside = [node for node in graph if node not in self.cone and node not in self.nodes]
        alive = graph.ancestors([*outside, *ends, *(graph[name] for name in roles.roots)])
        graph.remove_all([node for node in self.cone if node not in alive])
        for node in [node for node in self.nodes if node not in graph]:
            del self.nodes[node]

    # ------------------------------------------------------------------ what crosses

    def _cross_rows(self, tensor: Tensor) -> Node:
        """Send a core's rows, which come first on the way."""
        rows = self._rows(tensor)
        if _is_first(rows):
            return self._cross(tensor, tensor, rows.inner)
        lead, rest = self._around(tensor, rows)
        apart = (*lead, rows.outer, self.placed.batch.rows, *rest)
        order = [len(lead) + 1, *range(len(lead) + 1), *range(len(lead) + 2, len(apart))]
        split = self._device_op(tensor, "Reshape", "apart", tensor, apart, apart, "Tshape")
        first = tuple(apart[axis] for axis in order)
        return self._cross(tensor, self._device_op(tensor, "Transpose", "rows_first", split, order, first, "Tperm"), 1)

    def _in_place(self, arrived: Tensor, tensor: Tensor) -> Tensor:
        """The rows of all cores at the dimension where they are read."""
        rows = self._rows(tensor)
        if _is_first(rows):
            return arrived
        lead, rest = self._around(tensor, rows)
        order = [*range(1, len(lead) + 2), 0, *range(len(lead) + 2, len(lead) + 2 + len(rest))]
        shape = [*lead, -1, *rest[1:]]
        kind, near = tensor.dtype, tensor.node
        turned = self.sizes.add(near, "Transpose", "in_place", [arrived, self.sizes.constant_of(near, order, _INT32)],
                           {"T": kind, "Tperm": _INT32})  # fmt: skip
        return self.sizes.add(near, "Reshape", "together", [turned, self.sizes.constant_of(near, shape, _INT32)],
                         {"T": kind, "Tshape": _INT32})  # fmt: skip

    def _rows(self, tensor: Tensor) -> Shard:
        rows = self.placed.rows(tensor)
        assert rows is not None
        return rows

    def _around(self, tensor: Tensor, rows: Shard) -> tuple[list[int], list[int]]:
        """The dimensions before that of the rows, and what a row has along it and behind it."""
        dims = [int(d or 0) for d in tensor.shape or ()]
        return dims[: rows.axis], [rows.inner, *dims[rows.axis + 1 :]]

    def _device_op(self, near: Tensor, op: str, name: str, source: Tensor, numbers: Sequence[int],
                   shape: tuple[int, ...], attribute: str) -> Tensor:  # fmt: skip
        operand = self.graph.add("Const", f"{near.node.name}/{name}/numbers", source=near.node, outputs=[(_INT32, (len(numbers),))],
                                 attrs={"dtype": _INT32, "value": np.asarray(numbers, "int32")})  # fmt: skip
        return self.graph.add(op, f"{near.node.name}/{name}", [source, operand.out()], source=near.node,
                              attrs={"T": near.dtype, attribute: _INT32}, outputs=[(near.dtype, shape)]).out()  # fmt: skip

    def _cross(self, tensor: Tensor, sent: Tensor, times: int) -> Node:
        """The end of a core's part, and behind it what stands for the rows of all cores."""
        graph, kind = self.graph, tensor.dtype
        end = graph.add(
            "Identity",
            f"tpugraph/core/{tensor.node.name}",
            [sent],
            attrs={"T": kind},
            outputs=[(kind, sent.shape)],
            source=tensor.node,
        )
        shape = (None, *(sent.shape or ())[1:]) if times else ()
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
        if self.sizes.replaces(tensor):
            return self.sizes.of(tensor, self.total, copies)
        return Tensor(copies[tensor.node], tensor.port) if tensor.node in copies else tensor

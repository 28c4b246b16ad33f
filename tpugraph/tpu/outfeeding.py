"""The host side of the outfeed: combine what the cores sent, and read it in a loop."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.analysis.placements import Entries, Partial, Placement, Replicate, Shard
from tpugraph.analysis.step import EveryStep, Outfed, Partitioned
from tpugraph.control_flow.loops import Loop, add_results
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.support.errors import ConversionError

MADE_BY = "outfeed"
"""Who made the nodes that belong into the reading loop."""

_INT32 = attrs.dtype("int32")
_COMBINED = {
    "sum": ("Sum", "sum over cores"),
    "max": ("Max", "largest over cores"),
    "min": ("Min", "smallest over cores"),
}


class HostSide:
    """Reads one outfeed tuple per core and combines the cores' values.

    Args:
        graph: the graph.
        dequeues: the OutfeedDequeueTuple of each core, in order.
    """

    def __init__(self, graph: Graph, dequeues: list[Node]) -> None:
        self.graph = graph
        self.dequeues = dequeues
        self._make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE, made_by=MADE_BY)

    def rows(self, index: int, axis: int = 0) -> Tensor:
        """The rows of all cores along a dimension, one core after the other."""
        parts = [d.out(index) for d in self.dequeues]
        shape = parts[0].shape or ()
        if len(parts) == 1:
            return parts[0]
        whole = (*shape[:axis], (shape[axis] or 0) * len(parts), *shape[axis + 1 :])
        place = self._make.constant(axis, _INT32)
        return self._make.add("ConcatV2", [*parts, place], whole, name=f"concat/{index}")

    def total(self, index: int, op: str = "Sum") -> Tensor:
        """The sum (or mean) over cores of a scalar that was sent as a vector."""
        axes = [self.rows(index), self._make.constant([0], _INT32)]
        return self._make.add(op, axes, (), name=f"{op.lower()}/{index}", keep_dims=False)

    def deliver(self, index: int, tensor: Tensor, placement: Placement, loss: Tensor) -> str:
        """Let the host readers of ``tensor`` read what the cores sent; returns how it was combined.

        Args:
            index: its place in the tuple.
            tensor: what they read so far.
            placement: how it lives on the cores.
            loss: the loss of the global batch.
        """
        graph = self.graph
        readers = [use for use in tensor.node.uses(tensor.port) if not in_cluster(use.node)]
        if str(tensor) in (graph.roles.loss.name, graph.result(Partitioned).loss_share) and tensor.dtype == loss.dtype:
            value, how = loss, "the loss of the global batch"
        else:
            value, how = self.combined(index, tensor, placement)
        for use in readers:
            graph.set_input(use.node, use.index, value)
        return how

    def combined(self, index: int, tensor: Tensor, placement: Placement) -> tuple[Tensor, str]:
        """The whole value of a tensor that the cores sent, and how it was made.

        Args:
            index: its place in the tuple.
            tensor: what each core sent.
            placement: how it lives on the cores.
        """
        if len(self.dequeues) == 1 or isinstance(placement, Replicate):
            return self._first(index, tensor), "the same on every core"
        if isinstance(placement, Shard | Entries):
            return self.rows(index, placement.axis if isinstance(placement, Shard) else 0), "rows of all cores"
        if isinstance(placement, Partial):
            op, how = _COMBINED[placement.reduce_op]
            return self._combined(index, tensor, op), how
        if tensor.dtype.floating:
            return self._combined(index, tensor, "Mean"), "mean over cores"
        return self._first(index, tensor), "core 0's"

    def _combined(self, index: int, tensor: Tensor, op: str) -> Tensor:
        """The cores' values combined element by element; flags as any or all of them."""
        if tensor.dtype.name == "bool":
            op = {"Max": "Any", "Min": "All"}.get(op, op)
        if tensor.shape == ():
            return self.total(index, op)
        parts, shape = [d.out(index) for d in self.dequeues], tuple(tensor.shape or ())
        every = self._make.add("Pack", parts, (len(parts), *shape), name=f"stack/{index}", axis=0)
        axes = [every, self._make.constant([0], _INT32)]
        return self._make.add(op, axes, shape, name=f"{op.lower()}/{index}", keep_dims=False)

    def _first(self, index: int, tensor: Tensor) -> Tensor:
        first = self.dequeues[0].out(index)
        if tensor.shape != ():
            return first
        scalar = self._make.constant(np.zeros(0), _INT32)
        return self._make.add("Reshape", [first, scalar], (), name=f"scalar/{index}")


def read_in_loop(graph: Graph, limit: Tensor) -> None:
    """Put the reading of the outfeed into its loop.

    Losses are stacked, and what the summaries of :class:`~tpugraph.analysis.step.EveryStep` read; other values leave with
    the last step.
    """
    loss = graph.tensor(graph.result(Outfed).loss)
    dequeues = graph.of_type("OutfeedDequeueTuple")
    body = {n: None for n in graph.descendants(dequeues) if n.made_by == MADE_BY}
    _own_constants(graph, body)
    outside = [n.out(p) for n in body for p in n.used_ports() if any(u.node not in body for u in n.uses(p))]
    make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE)
    size = make.add("ReadVariableOp", [limit], (), name="size", dtype=_INT32)
    readers = {tensor: [u for u in tensor.node.uses(tensor.port) if u.node not in body] for tensor in outside}
    kept = graph.kept(EveryStep)
    wanted = {} if kept is None else {graph[name]: None for name in kept.summaries if name in graph}
    stacked = {tensor: [u for u in uses if u.node in wanted] for tensor, uses in readers.items()}
    losses = _Stack(make, "losses", loss, size)
    stacks = {tensor: _Stack(make, "kept", tensor, size) for tensor, uses in stacked.items() if uses}
    loop = Loop(graph, "tpugraph/outfeed/while", limit, device=HOST_DEVICE)
    for stack in (losses, *stacks.values()):
        stack.carried_by(loop)
    last_index, _ = loop.carry(_zeros(make, loss))
    carried = {tensor: loop.carry(_zeros(make, tensor))[0] for tensor in outside}
    loop.enclose([*body, *(stack.write(loop) for stack in (losses, *stacks.values()))])
    loop.update(last_index, loss)
    for tensor, index in carried.items():
        loop.update(index, tensor)
        for use in readers[tensor]:
            graph.set_input(use.node, use.index, loop._exits[index])
    exits = loop.close()
    for tensor, stack in stacks.items():
        values = stack.read(exits)
        for use in stacked[tensor]:
            graph.set_input(use.node, use.index, values)
    add_results(graph, last_loss=str(exits[last_index]), losses=str(losses.read(exits)))


class _Stack:
    """What a tensor is in each step of the loop."""

    def __init__(self, make: Builder, name: str, tensor: Tensor, size: Tensor) -> None:
        self._make = make
        self._tensor = tensor
        self._array = make.node(
            "TensorArrayV3", [size], name=name, shapes=[(2,), ()], dtype=tensor.dtype, element_shape=tensor.shape,
            dynamic_size=False, clear_after_read=True, identical_element_shapes=True, tensor_array_name="",
        )  # fmt: skip

    def carried_by(self, loop: Loop) -> None:
        """Let the loop hand it from step to step."""
        self._index, self._flow = loop.carry(self._array.out(1))

    def write(self, loop: Loop) -> Node:
        """Write a step's value."""
        held = loop.enter(self._array.out(0))
        written = self._make.add("TensorArrayWriteV3", [held, loop.counter, self._tensor, self._flow], (), name="write")
        loop.update(self._index, written)
        return written.node

    def read(self, exits: list[Tensor]) -> Tensor:
        """Behind the loop: the values of all steps, stacked."""
        return _stacked(self._make, self._array, exits[0], exits[self._index], self._tensor)


def _own_constants(graph: Graph, body: dict[Node, None]) -> None:
    for node in list(body):
        for tensor in node.inputs:
            if tensor.node.op in ops.CONSTANTS and tensor.node.made_by == MADE_BY and not tensor.node.inputs:
                body.setdefault(tensor.node)


def _zeros(make: Builder, tensor: Tensor) -> Tensor:
    kind, shape = tensor.dtype, tensor.shape or ()
    if kind.size is None:
        raise ConversionError(f"'{tensor}' is made in each step and read outside of the steps, and a {kind} cannot be kept",
                              node=tensor.node, origin=make.graph.source, fix="let nothing but the step read it")  # fmt: skip
    zero = make.constant(np.zeros((), kind.name), kind, name="zero")
    if shape == ():
        return zero
    return make.add("Fill", [make.constant(shape, _INT32, name="dims"), zero], shape, name="zeros")


def _stacked(make: Builder, stack: Node, count: Tensor, flow: Tensor, one: Tensor) -> Tensor:
    """All elements of a TensorArray, which are like ``one``."""
    start, delta = (make.constant(value, _INT32, name=name) for name, value in (("start", 0), ("delta", 1)))
    indices = make.add("Range", [start, count, delta], (None,), name="indices")
    shape = None if one.shape is None else (None, *one.shape)
    return make.add("TensorArrayGatherV3", [stack.out(0), indices, flow], shape, name="gather", dtype=one.dtype,
                    element_shape=one.shape)  # fmt: skip

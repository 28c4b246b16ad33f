"""The host side of the outfeed: combine what the cores sent, and read it in a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.analysis.placements import Entries, Partial, Placement, Replicate, Shard
from tpugraph.analysis.step import EveryStep, Outfed, Partitioned
from tpugraph.control_flow.loops import Loop, add_results
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.support.errors import ConversionError

MADE_BY = "outfeed"
"""Who made the nodes that belong into the reading loop."""

_INT32 = attrs.dtype("int32")
_FLOAT = attrs.dtype("float32")
_RESOURCE = attrs.dtype("resource")


class HostSide:
    """Reads one outfeed tuple per core and combines the cores' values.

    Args:
        graph: the graph.
        dequeues: the OutfeedDequeueTuple of each core, in order.
    """

    def __init__(self, graph: Graph, dequeues: list[Node]) -> None:
        self.graph = graph
        self.dequeues = dequeues

    def _add(self, op: str, name: str, inputs: list[Tensor], attributes: dict[str, Any], output: Output) -> Tensor:
        node = self.graph.add(
            op, f"tpugraph/outfeed/{name}", inputs, attrs=attributes, device=HOST_DEVICE, outputs=[output]
        )
        node.made_by = MADE_BY
        return node.out()

    def _constant(self, value: Any, kind: attrs.DType = _INT32) -> Tensor:
        array = np.asarray(value, kind.name)
        return self._add("Const", "const", [], {"dtype": kind, "value": array}, (kind, array.shape))

    def rows(self, index: int, axis: int = 0) -> Tensor:
        """The rows of all cores along a dimension, one core after the other."""
        parts = [d.out(index) for d in self.dequeues]
        kind, shape = parts[0].dtype, parts[0].shape or ()
        if len(parts) == 1:
            return parts[0]
        whole = (*shape[:axis], (shape[axis] or 0) * len(parts), *shape[axis + 1 :])
        return self._add(
            "ConcatV2",
            f"concat/{index}",
            [*parts, self._constant(axis)],
            {"N": len(parts), "T": kind, "Tidx": _INT32},
            (kind, whole),
        )

    def total(self, index: int, op: str = "Sum") -> Tensor:
        """The sum (or mean) over cores of a scalar that was sent as a vector."""
        rows = self.rows(index)
        return self._add(
            op,
            f"{op.lower()}/{index}",
            [rows, self._constant([0])],
            {"Tidx": _INT32, "keep_dims": False} | ({} if op in ("Any", "All") else {"T": rows.dtype}),
            (rows.dtype, ()),
        )

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
        elif len(self.dequeues) == 1 or isinstance(placement, Replicate):
            value, how = self._first(index, tensor), "the same on every core"
        elif isinstance(placement, Shard | Entries):
            axis = placement.axis if isinstance(placement, Shard) else 0
            value, how = self.rows(index, axis), "rows of all cores"
        elif isinstance(placement, Partial):
            names = {
                "sum": ("Sum", "sum over cores"),
                "max": ("Max", "largest over cores"),
                "min": ("Min", "smallest over cores"),
            }
            op, how = names[placement.op]
            value = self._combined(index, tensor, op)
        elif tensor.dtype.floating:
            value, how = self._combined(index, tensor, "Mean"), "mean over cores"
        else:
            value, how = self._first(index, tensor), "core 0's"
        for use in readers:
            graph.set_input(use.node, use.index, value)
        return how

    def _combined(self, index: int, tensor: Tensor, op: str) -> Tensor:
        """The cores' values combined element by element; flags as any or all of them."""
        if tensor.dtype.name == "bool":
            op = {"Max": "Any", "Min": "All"}.get(op, op)
        if tensor.shape == ():
            return self.total(index, op)
        parts = [d.out(index) for d in self.dequeues]
        kind, shape = tensor.dtype, tuple(tensor.shape or ())
        every = self._add(
            "Pack", f"stack/{index}", parts, {"N": len(parts), "T": kind, "axis": 0}, (kind, (len(parts), *shape))
        )
        axes = self._constant([0])
        attributes = {"Tidx": _INT32, "keep_dims": False} | ({} if op in ("Any", "All") else {"T": kind})
        return self._add(op, f"{op.lower()}/{index}", [every, axes], attributes, (kind, shape))

    def _first(self, index: int, tensor: Tensor) -> Tensor:
        first = self.dequeues[0].out(index)
        if tensor.shape != ():
            return first
        return self._add(
            "Reshape",
            f"scalar/{index}",
            [first, self._constant(np.zeros(0))],
            {"T": tensor.dtype, "Tshape": _INT32},
            (tensor.dtype, ()),
        )


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
    size = graph.add("ReadVariableOp", "tpugraph/outfeed/size", [limit], attrs={"dtype": _INT32}, device=HOST_DEVICE,
                     outputs=[(_INT32, ())]).out()  # fmt: skip
    readers = {tensor: [u for u in tensor.node.uses(tensor.port) if u.node not in body] for tensor in outside}
    kept = graph.kept(EveryStep)
    wanted = {} if kept is None else {graph[name]: None for name in kept.summaries if name in graph}
    stacked = {tensor: [u for u in uses if u.node in wanted] for tensor, uses in readers.items()}
    losses = _Stack(graph, "losses", loss, size)
    stacks = {tensor: _Stack(graph, "kept", tensor, size) for tensor, uses in stacked.items() if uses}
    loop = Loop(graph, "tpugraph/outfeed/while", limit, device=HOST_DEVICE)
    for stack in (losses, *stacks.values()):
        stack.carried_by(loop)
    last_index, _ = loop.carry(_zeros(graph, loss))
    carried = {tensor: loop.carry(_zeros(graph, tensor))[0] for tensor in outside}
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

    def __init__(self, graph: Graph, name: str, tensor: Tensor, size: Tensor) -> None:
        self._graph = graph
        self._tensor = tensor
        self._array = graph.add(
            "TensorArrayV3",
            f"tpugraph/outfeed/{name}",
            [size],
            device=HOST_DEVICE,
            attrs={
                "dtype": tensor.dtype,
                "element_shape": attrs.encode(tensor.shape),
                "dynamic_size": False,
                "clear_after_read": True,
                "identical_element_shapes": True,
                "tensor_array_name": "",
            },
            outputs=[(_RESOURCE, (2,)), (_FLOAT, ())],
        )

    def carried_by(self, loop: Loop) -> None:
        """Let the loop hand it from step to step."""
        self._index, self._flow = loop.carry(self._array.out(1))

    def write(self, loop: Loop) -> Node:
        """Write a step's value."""
        written = self._graph.add(
            "TensorArrayWriteV3",
            "tpugraph/outfeed/write",
            [loop.enter(self._array.out(0)), loop.counter, self._tensor, self._flow],
            attrs={"T": self._tensor.dtype},
            device=HOST_DEVICE,
            outputs=[(_FLOAT, ())],
        )
        loop.update(self._index, written.out())
        return written

    def read(self, exits: list[Tensor]) -> Tensor:
        """Behind the loop: the values of all steps, stacked."""
        return _stacked(self._graph, self._array, exits[0], exits[self._index], self._tensor)


def _own_constants(graph: Graph, body: dict[Node, None]) -> None:
    for node in list(body):
        for tensor in node.inputs:
            if tensor.node.op == "Const" and tensor.node.made_by == MADE_BY and not tensor.node.inputs:
                body.setdefault(tensor.node)


def _zeros(graph: Graph, tensor: Tensor) -> Tensor:
    kind, shape = tensor.dtype, tensor.shape or ()
    if kind.size is None:
        raise ConversionError(f"'{tensor}' is made in each step and read outside of the steps, and a {kind} cannot be kept",
                              node=tensor.node, origin=graph.source, fix="let nothing but the step read it")  # fmt: skip
    zero = graph.add(
        "Const",
        "tpugraph/outfeed/zero",
        attrs={"dtype": kind, "value": np.zeros((), kind.name)},
        device=HOST_DEVICE,
        outputs=[(kind, ())],
    )
    if shape == ():
        return zero.out()
    dims = graph.add(
        "Const",
        "tpugraph/outfeed/dims",
        attrs={"dtype": _INT32, "value": np.asarray(shape, "int32")},
        device=HOST_DEVICE,
        outputs=[(_INT32, (len(shape),))],
    )
    return graph.add(
        "Fill",
        "tpugraph/outfeed/zeros",
        [dims.out(), zero.out()],
        attrs={"T": kind, "index_type": _INT32},
        device=HOST_DEVICE,
        outputs=[(kind, shape)],
    ).out()


def _stacked(graph: Graph, stack: Node, count: Tensor, flow: Tensor, one: Tensor) -> Tensor:
    """All elements of a TensorArray, which are like ``one``."""
    ends = [
        graph.add(
            "Const",
            f"tpugraph/outfeed/{n}",
            attrs={"dtype": _INT32, "value": np.int32(v)},
            device=HOST_DEVICE,
            outputs=[(_INT32, ())],
        ).out()
        for n, v in (("start", 0), ("delta", 1))
    ]
    indices = graph.add(
        "Range",
        "tpugraph/outfeed/indices",
        [ends[0], count, ends[1]],
        attrs={"Tidx": _INT32},
        device=HOST_DEVICE,
        outputs=[(_INT32, (None,))],
    )
    return graph.add(
        "TensorArrayGatherV3",
        "tpugraph/outfeed/gather",
        [stack.out(0), indices.out(), flow],
        attrs={"dtype": one.dtype, "element_shape": attrs.encode(one.shape)},
        device=HOST_DEVICE,
        outputs=[(one.dtype, None if one.shape is None else (None, *one.shape))],
    ).out()

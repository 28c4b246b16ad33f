"""Builds both ends of the outfeed, and the host's loop that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, CORE_DEVICE, HOST_DEVICE, NodeSet, in_cluster
from tpugraph.analysis.placements import Entries, Partial, Placement, Replicate, Shard
from tpugraph.analysis.state import written_variables
from tpugraph.analysis.step import EveryStep, Outfed, Partitioned, Results
from tpugraph.control_flow.loops import Loop, add_results, whole_loops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import variable_of
from tpugraph.support.errors import ConversionError

_INT32, _INT64 = attrs.dtype("int32"), attrs.dtype("int64")


def send(graph: Graph, tensors: Iterable[Tensor], *, vector: tuple[str, str], controls: Iterable[Node] = ()) -> Node:
    """The OutfeedEnqueueTuple of a core; it takes no scalars, so these become vectors of one element.

    ``vector`` is the suffix of a scalar's name for the vector and its shape constant.
    """
    sent = list(tensors)
    for index, scalar in enumerate(sent):
        if scalar.shape == ():
            near = Builder(graph, scalar.node.name, marks={CLUSTER_ATTR: CLUSTER}, source=scalar.node)
            sent[index] = near.reshape(scalar, [1], name=vector[1], target=vector[0])
    make = Builder(graph, "tpugraph/outfeed", device=CORE_DEVICE, marks={CLUSTER_ATTR: CLUSTER})
    return make.node("OutfeedEnqueueTuple", sent, name="enqueue", controls=controls)


def receive(graph: Graph, sent: Sequence[Tensor], cores: int) -> list[Node]:
    """The OutfeedDequeueTuple of each core, for the tensors that a core sends."""
    kinds = {"dtypes": [t.dtype for t in sent], "shapes": [tuple(t.shape or ()) for t in sent]}
    encoded = {name: attrs.encode(value) for name, value in kinds.items()}  # shared by all cores
    outputs = [(t.dtype, t.shape) for t in sent]
    return [
        graph.add("OutfeedDequeueTuple", f"tpugraph/outfeed/dequeue/{core}", attrs={**encoded, "device_ordinal": core},
                  device=HOST_DEVICE, outputs=outputs)
        for core in range(cores)
    ]  # fmt: skip


# --------------------------------------------------------------------------- the host's side


MADE_BY = "outfeed"
"""``made_by`` of the nodes that belong to the reading loop."""

_COMBINED = {
    "sum": ("Sum", "sum over cores"),
    "max": ("Max", "largest over cores"),
    "min": ("Min", "smallest over cores"),
}


class HostSide:
    """Combines the values of all cores; ``dequeues`` are their OutfeedDequeueTuples, in order."""

    def __init__(self, graph: Graph, dequeues: list[Node]) -> None:
        self.graph = graph
        self.dequeues = dequeues
        self._make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE, made_by=MADE_BY)

    def rows(self, index: int, axis: int = 0) -> Tensor:
        """The rows of all cores, concatenated along ``axis``."""
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
        """Let the host's readers of ``tensor``, element ``index`` of the tuple, read the whole value; returns how it was combined.

        ``loss`` is the loss of the global batch.
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
        """The whole value of a tensor, element ``index`` of the tuple, and how it was combined."""
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
        """The elementwise reduction over the cores; for booleans any or all."""
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

    Losses are stacked, as are the values for summaries of :class:`~tpugraph.analysis.step.EveryStep`; other values are those of
    the last step.
    """
    loss = graph.tensor(graph.result(Outfed).loss)
    dequeues = graph.of_type("OutfeedDequeueTuple")
    body = {n: None for n in graph.descendants(dequeues) if n.made_by == MADE_BY}
    constants = [t.node for n in body for t in n.inputs if t.node.op in ops.CONSTANTS and t.node.made_by == MADE_BY]
    body |= {node: None for node in constants if not node.inputs}
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
    """A TensorArray with a tensor's values of all steps."""

    def __init__(self, make: Builder, name: str, tensor: Tensor, size: Tensor) -> None:
        self._make = make
        self._tensor = tensor
        self._array = make.node(
            "TensorArrayV3", [size], name=name, shapes=[(2,), ()], dtype=tensor.dtype, element_shape=tensor.shape,
            dynamic_size=False, clear_after_read=True, identical_element_shapes=True, tensor_array_name="",
        )  # fmt: skip

    def carried_by(self, loop: Loop) -> None:
        self._index, self._flow = loop.carry(self._array.out(1))

    def write(self, loop: Loop) -> Node:
        held = loop.enter(self._array.out(0))
        written = self._make.add("TensorArrayWriteV3", [held, loop.counter, self._tensor, self._flow], (), name="write")
        loop.update(self._index, written)
        return written.node

    def read(self, exits: list[Tensor]) -> Tensor:
        """The stacked values of all steps, after the loop."""
        make, one = self._make, self._tensor
        start, delta = (make.constant(value, _INT32, name=name) for name, value in (("start", 0), ("delta", 1)))
        indices = make.add("Range", [start, exits[0], delta], (None,), name="indices")
        shape = None if one.shape is None else (None, *one.shape)
        return make.add("TensorArrayGatherV3", [self._array.out(0), indices, exits[self._index]], shape, name="gather",
                        dtype=one.dtype, element_shape=one.shape)  # fmt: skip


def _zeros(make: Builder, tensor: Tensor) -> Tensor:
    kind, shape = tensor.dtype, tensor.shape or ()
    if kind.size is None:
        raise ConversionError(f"'{tensor}' is computed in each step and read outside of the steps, but a {kind} cannot be kept",
                              node=tensor.node, origin=make.graph.source, fix="read it within the step only")  # fmt: skip
    zero = make.constant(np.zeros((), kind.name), kind, name="zero")
    if shape == ():
        return zero
    return make.add("Fill", [make.constant(shape, _INT32, name="dims"), zero], shape, name="zeros")


# --------------------------------------------------------------------------- evaluation and prediction


def collect_in_loop(graph: Graph, limit: Tensor) -> None:
    """Put the host's part after the outfeed into its loop.

    Adds to :class:`~tpugraph.analysis.step.Results`: ``counts`` (steps and examples of the loop, int64 [2]), ``losses``
    (one per step, where there is a loss) and ``prediction/NAME`` (the rows of all steps).
    """
    roles, results = graph.roles, graph.result(Results)
    rows, some, pivot = graph.tensor(results["rows"]), graph.tensor(results["some"]), graph[results["pivot"]]
    arriving = graph.of_type(*ops.OUTFEEDS)
    body = _body(graph, [rows.node, some.node, pivot, *arriving])
    _free_values(graph, dict.fromkeys(body))
    stacks = _stacks(graph)
    loop = Loop(graph, "tpugraph/outfeed/while", limit, device=HOST_DEVICE)
    make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE)
    step_index, step = loop.carry(make.constant(np.int32(0)))
    seen_index, seen = loop.carry(make.constant(np.int64(0)))
    loop.enclose(body)
    made: list[Node] = []

    def add(op: str, name: str, inputs: list[Tensor], *, after: Iterable[Node] = (), **attributes: Any) -> Tensor:
        several = [(), ()] if op in ops.SWITCH | ops.MERGE else [()]
        made.append(make.node(op, inputs, name=name, shapes=several, controls=after, **attributes))
        return made[-1].out()

    one = add("Cast", "step", [some], DstT=_INT32, Truncate=False)
    more = add("Cast", "examples", [rows], DstT=_INT64, Truncate=False)
    loop.update(seen_index, add("AddV2", "seen", [seen, more]))
    flows = {}
    for name, stack in stacks.items():
        index, flow = loop.carry(stack.array.out(1))
        flows[name] = index
        held = loop.enter(stack.array.out(0))
        written = add("TensorArrayWriteV3", f"{stack.name}/write", [held, step, stack.value, flow], after=[pivot])
        kept = add("Switch", f"{stack.name}/none", [flow, some])
        loop.update(index, add("Merge", f"{stack.name}/flow", [kept, written]))
    updated = add("Identity", "updated", [pivot.out()], after=[graph[f.name] for f in roles.updates])
    none = add("Switch", "none", [rows, some])
    done = add("Merge", "done", [none, updated])
    loop.update(step_index, add("AddV2", "steps", [step, one], after=[done.node, *arriving]))
    loop.enclose(made)
    exits = loop.close()
    counts = make.add("Pack", [make.cast(exits[step_index], _INT64, name="steps/wide"), exits[seen_index]], (2,), name="counts",
                      axis=0)  # fmt: skip
    read = {n: s.read(exits[flows[n]], exits[step_index], joined=n != "losses") for n, s in stacks.items()}
    add_results(graph, counts=str(counts), **{name: str(tensor) for name, tensor in read.items()})


def _stacks(graph: Graph) -> dict[str, _Collected]:
    roles = graph.roles
    stacks: dict[str, _Collected] = {}
    if roles.loss.name:
        stacks["losses"] = _Collected(graph, "losses", _scalar(graph, graph.tensor(roles.loss.name)))
    for name, text in roles.predictions.items():
        node, shape = graph.tensor(text).node, graph.tensor(text).shape
        if shape is None or None in shape[1:]:
            raise ConversionError(f"the prediction '{name}' has an open dimension besides its rows: batches of a loop are joined",
                                  node=node, origin=graph.source, fix="give it a fixed size: reshape, or pad it")  # fmt: skip
        stacks[f"prediction/{name}"] = _Collected(graph, f"predictions/{len(stacks)}", graph.tensor(text))
    return stacks


def _body(graph: Graph, always: list[Node]) -> list[Node]:
    """The host nodes of each step: descendants of the outfeed, of random ops, of written variables and of containers."""
    roles = graph.roles
    cone = graph.ancestors([*(graph[name] for name in roles.roots), *always])
    host = [n for n in cone if not in_cluster(n)]
    written = {v for n in host for v in written_variables(n)}
    starts = [
        n for n in host if n.op in ops.RANDOM | ops.OUTFEEDS | ops.DEQUEUES | ops.CONTAINERS or n.op in ops.WRITES
    ]
    starts += [n for n in host if n.op in ops.READS | ops.GATHERS and variable_of(n.inputs[0]) in written]
    moving = whole_loops(graph, starts, host)
    return [n for n in host if n in moving]


def _free_values(graph: Graph, body: NodeSet) -> None:
    """Copy the nodes that metric values share with the step, since metric values are read after the loop."""
    ends = [graph.tensor(name).node for name in graph.roles.values.values()]
    asked = graph.ancestors(ends, data_only=True)
    shared = [node for node in asked if node in body]
    copies = graph.clone_subgraph(shared, lambda name: f"{name}/behind")
    for copy in copies.values():
        graph.set_controls(copy, [])
    for node in asked:
        for index, tensor in enumerate(node.inputs if node not in body else ()):
            if tensor.node in copies:
                graph.set_input(node, index, copies[tensor.node].out(tensor.port))
    read = {name: graph.tensor(text) for name, text in graph.roles.values.items()}
    behind = {name: copies[t.node].out(t.port) if t.node in copies else t for name, t in read.items()}
    graph.roles = replace(graph.roles, values={name: str(tensor) for name, tensor in behind.items()})


def _scalar(graph: Graph, loss: Tensor) -> Tensor:
    if loss.shape is None:  # its rank is unknown in loops; a loss is a scalar
        graph.set_outputs(loss.node, [(loss.dtype, ())])
    return loss


class _Collected:
    """A dynamically sized TensorArray, for steps that may have no rows."""

    def __init__(self, graph: Graph, name: str, value: Tensor) -> None:
        self.graph = graph
        self.name = name
        self.value = value
        self.shape = (None, *value.shape[1:]) if value.shape else value.shape
        self.make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE)
        self.array = self.make.node(
            "TensorArrayV3", [self.make.constant(np.int32(0))], name=name, shapes=[(2,), ()], dtype=value.dtype,
            element_shape=attrs.encode_shape(self.shape), dynamic_size=True, clear_after_read=True,
            identical_element_shapes=False, tensor_array_name="",
        )  # fmt: skip

    def read(self, flow: Tensor, count: Tensor, *, joined: bool) -> Tensor:
        """The values of all steps, concatenated along dimension 0 or stacked."""
        kind, handle = self.value.dtype, self.array.out(0)
        if joined:
            rest = None if self.shape is None else self.shape[1:]
            joins = self.make.node("TensorArrayConcatV3", [handle, flow], shapes=[self.shape, (None,)], dtype=kind,
                                   name=f"{self.name}/concat", element_shape_except0=attrs.encode_shape(rest))  # fmt: skip
            return joins.out()
        ends = [self.make.constant(np.int32(value)) for value in (0, 1)]
        indices = self.make.add("Range", [ends[0], count, ends[1]], (None,), name=f"{self.name}/indices")
        return self.make.add("TensorArrayGatherV3", [handle, indices, flow], (None,), name=f"{self.name}/gather", dtype=kind,
                             element_shape=attrs.encode(()))  # fmt: skip

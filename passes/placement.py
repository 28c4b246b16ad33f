"""Host and device placement by the minimum cut in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpugraph import analysis, ops, shapes
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE, NodeSet, minimum_cut, must_be_host
from tpugraph.attrs import Shape
from tpugraph.bounds import bounded_bytes
from tpugraph.errors import ConversionError, ShapeError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.pipeline import Pass


@dataclass(frozen=True)
class Placement(Pass):
    """Every node of the step is on the host or on the device, and as few bytes as possible cross between them per step.

    The host keeps what only a host can do and all that leads to it; the device gets what depends on variables. What is
    free goes where the cut is cheapest: an image crosses as uint8 and is cast on the device. Summaries, metrics and
    printing run on the host behind the device.
    """

    requires = ("shapes_known", "resource_variables")
    ensures = ("placed",)

    def run(self, graph: Graph) -> None:
        _detach_prints(graph)
        step = _Step(graph)
        cut = step.minimum_cut()
        device, host = step.split(cut)
        _clone_shared(graph, device, host, cut)
        tail = _Tail(graph, step, device, cut)
        tail.place()
        for node in device:
            graph.set_device(node, "")
            graph.set_attr(node, CLUSTER_ATTR, CLUSTER)
        for node in graph:
            if node not in device and not node.device:
                graph.set_device(node, HOST_DEVICE)
        crossing = {t: bounded_bytes(t) or 0 for t in cut}
        graph.facts[self.name] = {
            "device_nodes": len(device),
            "host_nodes": len(graph) - len(device),
            "infeed_tensors": {str(t): size for t, size in crossing.items()},
            "infeed_bytes": sum(crossing.values()),
            "naive_bytes": _total(shapes.byte_size(t) for t in step.fed),
            "dropped": tail.dropped,
        }


def _total(sizes: Iterable[int | None]) -> int | None:
    """The sum; None where one is open, as of strings, which no infeed takes."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


# --------------------------------------------------------------------------- the step


class _Step:
    """The training step: what the train op and the loss need."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.roots = [graph[name] for name in graph.roles.device_ends or graph.roles.roots]
        self.cone = graph.ancestors(self.roots)
        variables = [node for node in self.cone if node.op in ops.RESOURCE_VARIABLES]
        self.variables = dict.fromkeys(variables)
        self.trained: NodeSet = graph.descendants(variables, data_only=True)
        self._whole_loops()
        self.after_variables: NodeSet = graph.descendants([*variables, *self.trained])
        self.moved: list[Node] = []
        self._move_aside()
        host_only = [n for n in self.cone if must_be_host(n) and n not in self.trained]
        self.upstream = {n: None for n in graph.ancestors(host_only) if n in self.cone and n not in self.variables}
        self.derived: NodeSet = graph.descendants(host_only)
        self.fed = [node.out(port) for node in self.cone if node.op in ops.INPUTS for port in node.used_ports()]

    def _whole_loops(self) -> None:
        """A loop that reads a variable anywhere is on the device as a whole."""
        self.inside = analysis.conditional(self.graph)
        frame_of = analysis.frames(self.graph)
        self.inside.update((n, None) for n in self.cone if frame_of[n])
        while True:
            touched = {frame_of[n] for n in self.trained if frame_of[n]}
            missing = [n for n in self.cone if frame_of[n] in touched and n not in self.trained]
            if not missing:
                return
            self.trained.update(self.graph.descendants(missing, data_only=True))

    def _free(self, node: Node) -> bool:
        """Whether a node comes from the input and does not follow a variable, not even by a control edge."""
        return node in self.derived and node not in self.after_variables

    def _move_aside(self) -> None:
        """Host ops that depend on variables: those that only watch move behind the device, others are an error."""
        for node in [n for n in self.cone if n in self.trained and must_be_host(n)]:
            readers = [use.node for use in node.uses() if use.node in self.cone and not must_be_host(use.node)]
            if readers:
                raise ConversionError(
                    f"the op {node.op} runs on a host only, but is in the middle of the step: "
                    f"'{readers[0].name}' on the device reads it and it depends on variables",
                    node=node,
                    fix="compute it in the input pipeline, replace it by TensorFlow ops, or drop it from the train op",
                )
            for waiting in node.control_uses():
                self.graph.remove_control(waiting, node)
            self.graph.note(node, "only watches the step: runs on the host behind the outfeed")
            self.moved.append(node)
        if self.moved:
            self.cone = self.graph.ancestors(self.roots)

    def minimum_cut(self) -> list[Tensor]:
        """The tensors that cross from host to device."""
        edges: list[tuple[Tensor, Tensor]] = []
        capacity: dict[Tensor, int] = {}
        sources: dict[Tensor, None] = {}
        sinks: dict[Tensor, None] = {}
        for node in self.cone:
            if node not in self.derived or node in self.trained or node in self.variables:
                continue
            if node.op == "NoOp":
                continue
            outputs = [node.out(port) for port in node.used_ports()]
            if node in self.roots:
                outputs.append(node.out())
            for tensor in outputs:
                size = None if self._bound_to_place(node) else bounded_bytes(tensor)
                if tensor.dtype.name in ops.INFEED_DTYPES and size is not None:
                    capacity[tensor] = size
                if node in self.upstream:
                    sources[tensor] = None
                for use in node.uses(tensor.port):
                    if use.node in self.trained and use.node in self.cone:
                        sinks[tensor] = None
                    elif use.node in self.cone and use.node not in self.upstream:
                        edges.extend((tensor, use.node.out(port)) for port in use.node.used_ports())
                        if use.node in self.roots:
                            sinks[tensor] = None
        for node in self.cone:  # what the host makes of constants alone may be the root of all input
            if node in self.upstream and node in self.trained:
                raise ConversionError("a host op depends on what the device computes", node=node)
        if not sinks:
            return []
        found = minimum_cut(edges, capacity, sources, sinks)
        if found is None:
            raise self._uncut_error(sources, sinks, capacity)
        return found[1]

    def _bound_to_place(self, node: Node) -> bool:
        """Whether the node's value cannot leave its side: it may be dead, is in a loop, or goes with a container."""
        return node in self.inside or (
            ops.is_stateful(node.op) and not must_be_host(node) and node.op not in ops.RANDOM
        )

    def _uncut_error(
        self, sources: Iterable[Tensor], sinks: Iterable[Tensor], capacity: dict[Tensor, int]
    ) -> ShapeError:
        for tensor in (*sinks, *sources):
            if tensor in capacity:
                continue
            kind, shape = tensor.dtype, tensor.shape
            if kind.name not in ops.INFEED_DTYPES:
                return ShapeError(
                    f"'{tensor}' of dtype {kind} must cross to the device, and an infeed takes no {kind}",
                    node=tensor.node,
                    origin=self.graph.source,
                    fix="cast it to int32 or float32 in the input pipeline"
                    if kind.size
                    else "keep strings in the input pipeline",
                )
            axis = 0 if shape is None else shape.index(None)
            opened = _opener(tensor)
            return ShapeError(
                f"'{tensor}' must cross to the device, but its shape {_show(shape)} is open in dimension {axis}, "
                f"opened by '{opened}'",
                node=tensor.node,
                origin=self.graph.source,
                fix="batch with drop_remainder=True, or give the dimension a fixed size (padded_batch, set_shape)",
            )
        return ShapeError("the input cannot be cut from the step", origin=self.graph.source)

    def split(self, cut: list[Tensor]) -> tuple[NodeSet, NodeSet]:
        """Device and host nodes of the step; uniform nodes that both need are in both."""
        crossing = set(cut)
        device: NodeSet = {}
        waits: dict[Node, None] = {}
        postponed: list[tuple[Node, Node]] = []
        stack = [
            node
            for node in self.roots
            if not (node in self.derived and node not in self.trained and node.out() in crossing)
        ]
        while stack:
            node = stack.pop()
            if node in device or node in self.variables:
                continue
            device[node] = None
            stack.extend(t.node for t in node.inputs if t not in crossing)
            for control in node.controls:
                if control in self.upstream or self._free(control):
                    postponed.append((node, control))
                else:
                    stack.append(control)
        for node, control in postponed:
            if control in device:
                continue
            waits[control] = None
            self.graph.remove_control(node, control)
            self.graph.note(control, f"'{node.name}' waited for it; now the enqueue of the batch does")
        host = self.graph.ancestors([*(t.node for t in cut), *waits])
        self.graph.facts["host-waits"] = {"nodes": [n.name for n in waits]}
        return device, host


def _opener(tensor: Tensor) -> str:
    """The op furthest up whose output has an open dimension."""
    node = tensor.node
    while True:
        open_inputs = [t for t in node.inputs if t.dtype.size is not None and not shapes.is_static(t.shape)]
        if not open_inputs:
            return str(node)
        node = open_inputs[0].node


def _show(shape: Shape) -> str:
    return "of unknown rank" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def _clone_shared(graph: Graph, device: NodeSet, host: NodeSet, cut: list[Tensor]) -> None:
    """Give the host its own copies of the uniform nodes that both sides need."""
    crossing = {t.node for t in cut}
    shared = [node for node in host if node in device and node not in crossing]
    stateful = next((n for n in shared if ops.is_stateful(n.op) and n.op not in ops.CHECKS), None)
    if stateful is not None:
        raise ConversionError(
            "a stateful op is needed on the host and on the device",
            node=stateful,
            fix="split it in two in the model function",
        )
    copies = graph.clone_subgraph(shared, lambda name: f"{name}/host")
    for node in host:
        if node in device:
            continue
        for index, tensor in enumerate(node.inputs):
            if tensor.node in copies:
                graph.set_input(node, index, copies[tensor.node].out(tensor.port))
        graph.set_controls(node, [copies.get(c, c) for c in node.controls])
    for copy in copies.values():
        host[copy] = None


# --------------------------------------------------------------------------- behind the device


def _detach_prints(graph: Graph) -> None:
    """A Print hands its input on; the step keeps the value, a copy that prints runs behind the device."""
    for node in graph.of_type("Print"):
        graph.replace_uses(node.out(), node.inputs[0])
        graph.replace_control_uses(node, [node.inputs[0].node])
        loss = graph.roles.loss
        if loss.name == node.name:
            graph.roles.loss = type(loss)(str(node.inputs[0]), loss.reason)
        graph.note(node, "prints behind the outfeed, once per loop")


class _Tail:
    """Summaries, metrics and printing: what runs on the host behind the device."""

    def __init__(self, graph: Graph, step: _Step, device: NodeSet, cut: list[Tensor]) -> None:
        self.graph = graph
        self.step = step
        self.device = device
        self.arriving = set(cut)
        self.dropped: dict[str, str] = {}

    def place(self) -> None:
        graph, roles = self.graph, self.graph.roles
        roots = [graph[f.name] for f in roles.summaries if f.name in graph]
        roots += self.step.moved + graph.of_type("Print")
        placed = {**self.step.cone, **self.device}
        tail = {n: None for n in graph.ancestors(roots) if n not in placed}
        own = [n for n in tail if n.op in ops.RESOURCE_VARIABLES]  # metric variables
        host_side = graph.descendants([*own, *(n for n in tail if must_be_host(n))])
        for node in graph.topological_order(tail):
            if node in host_side or node.op in ops.RESOURCE_VARIABLES:
                continue
            if self._can_be_device(node):
                self.device[node] = None
        roles.tail = [n.name for n in tail if n in host_side and n not in self.device]
        for node in [n for n in tail if n not in self.device and n in self.graph]:
            self._feed(node, tail)

    def _can_be_device(self, node: Node) -> bool:
        """Whether a node computes on device values (and constants), so that each core can do it for its own shard."""
        if must_be_host(node) or node.op in ops.CONTROL_FLOW:
            return False
        if not any(p in self.device for p in node.producers()):
            return False
        return all(self._on_device(t) or self._take_along(t.node) for t in node.inputs)

    def _on_device(self, tensor: Tensor) -> bool:
        node = tensor.node
        return node in self.device or node.op in ops.RESOURCE_VARIABLES or tensor in self.arriving

    def _take_along(self, node: Node) -> bool:
        """Uniform nodes without inputs of their own come along to the device."""
        cone = [n for n in self.graph.ancestors([node]) if n not in self.device]
        if len(cone) > 50 or any(ops.is_stateful(n.op) or must_be_host(n) for n in cone):
            return False
        self.device.update(dict.fromkeys(cone))
        return True

    def _feed(self, node: Node, tail: NodeSet) -> None:
        """Let a host node of the tail read what it can: device tensors cross later, uniform ones are copied."""
        for index, tensor in enumerate(node.inputs):
            producer = tensor.node
            if (producer in tail and producer not in self.device) or producer.op in ops.RESOURCE_VARIABLES:
                continue
            uniform = self._uniform_cone(producer)
            if uniform is not None:
                copies = self.graph.clone_subgraph(uniform, lambda name: f"{name}/tail")
                self.graph.set_input(node, index, copies[producer].out(tensor.port))
            elif tensor in self.arriving:
                self.graph.set_input(node, index, self._back_from_device(tensor))
            elif producer not in self.device:
                self._drop(node, f"it needs '{tensor}', which stays on the host in front of the device")
                return
            elif not shapes.is_static(tensor.shape):
                self._drop(node, f"it needs '{tensor}', whose shape is open")
                return
        self.graph.set_controls(node, [c for c in node.controls if c in tail and c not in self.device])

    def _back_from_device(self, tensor: Tensor) -> Tensor:
        """A batch that the host sent to the device comes back with the outfeed, next to what was made of it."""
        copy = self.graph.add(
            "Identity",
            f"{tensor.node.name}/back",
            [tensor],
            attrs={"T": tensor.dtype},
            outputs=[(tensor.dtype, tensor.shape)],
            source=tensor.node,
        )
        self.device[copy] = None
        return copy.out()

    def _uniform_cone(self, node: Node) -> list[Node] | None:
        """The node and its producers if they are constants and plain variable reads, which the host can do itself."""
        cone = list(self.graph.ancestors([node], data_only=True))
        if len(cone) > 50:
            return None
        for n in cone:
            if n.op in ops.RESOURCE_VARIABLES:
                continue
            if n in self.step.derived or (ops.is_stateful(n.op) and n.op not in ops.READS) or must_be_host(n):
                return None
            if n.op in ops.READS and n.controls:
                return None
            if n.op in ops.CONTROL_FLOW:
                return None
        return [n for n in cone if n.op not in ops.RESOURCE_VARIABLES]

    def _drop(self, node: Node, reason: str) -> None:
        """Take a node that cannot be fed out of the merged summary."""
        doomed = self.graph.descendants([node])
        for merge in [n for n in doomed if n.op == "MergeSummary"]:
            kept = [t for t in merge.inputs if t.node not in doomed]
            doomed.pop(merge)
            self.graph.set_inputs(merge, kept)
            self.graph.set_attr(merge, "N", len(kept))
        for gone in doomed:
            self.dropped[gone.name] = reason
            self.graph.note(gone, f"dropped: {reason}")
        self.graph.remove_all(doomed)
        roles = self.graph.roles
        roles.summaries = [f for f in roles.summaries if f.name in self.graph and self.graph[f.name].inputs]
        roles.tail = [name for name in roles.tail if name in self.graph]

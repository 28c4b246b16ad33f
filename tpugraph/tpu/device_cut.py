"""Cuts a step between host and device: the minimum cut in bytes between the nodes that each side must run."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, must_be_host, shapes
from tpugraph.analysis.bounds import Known, bounded_bytes
from tpugraph.analysis.min_cut import minimum_cut
from tpugraph.analysis.step import DeviceEnds
from tpugraph.control_flow.loops import whole_loops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.conditionals import sides
from tpugraph.support.errors import ConversionError, ShapeError


def in_the_middle(node: Node, reader: Node, fix: str) -> ConversionError:
    """The error of a host-only op whose result the device reads."""
    return ConversionError(f"the op {node.op} runs on a host only, but is in the middle of the step: '{reader.name}' on the "
                           "device reads it and it depends on variables", node=node, fix=fix)  # fmt: skip


def refuse_copies(nodes: Iterable[Node]) -> None:
    """Refuse stateful ops among the nodes that host and device need: two copies would have two values."""
    for node in nodes:
        if ops.is_stateful(node.op) and node.op not in ops.WITHOUT_EFFECTS | ops.CHECKS:
            raise ConversionError("a stateful op is needed on the host and on the device", node=node,
                                  fix="split it in two in the model function")  # fmt: skip


class Step:
    """The nodes of a step, by what they depend on and what depends on them, which decides where they can be cut."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ends = ends = graph.kept(DeviceEnds)
        self.roots = [graph[name] for name in (ends.nodes if ends is not None else graph.roles.roots)]
        self.cone = graph.ancestors(self.roots)
        variables = [node for node in self.cone if node.op in ops.RESOURCE_VARIABLES]
        self.variables = dict.fromkeys(variables)
        self.lookups = self._endless_lookups()  # gathers that the host runs before the device
        reads = {use.node: None for node in variables for use in node.uses() if use.node not in self.lookups}
        # descendants of the variables that the device reads
        self.variable_dependents: NodeSet = {**self.variables, **whole_loops(graph, reads, self.cone, data_only=True)}
        frame_of = analysis.frames(graph)
        self.inside = {**analysis.conditional(graph), **dict.fromkeys(sides(graph))}
        self.inside.update((n, None) for n in self.cone if frame_of[n])
        self.after_variables: NodeSet = graph.descendants(
            [n for n in self.variable_dependents if n not in self.variables]
        )
        self.observers: list[Node] = []  # host ops that only observe the step, removed from it
        self._move_aside()
        host_only = [
            n for n in self.cone if n not in self.variable_dependents and (n in self.lookups or must_be_host(n))
        ]
        self.upstream = {n: None for n in graph.ancestors(host_only) if n in self.cone and n not in self.variables}
        self.host_dependents: NodeSet = graph.descendants(host_only)  # descendants of host-only ops
        # outputs of the input
        self.fed = [node.out(port) for node in self.cone if node.op in ops.INPUTS for port in node.used_ports()]

    def _endless_lookups(self) -> NodeSet:
        """Lookups in evaluation and prediction whose indices have no bounded size, such as variable-length lists.

        The infeed cannot take such indices. Nothing writes the variable meanwhile, so the host can look them up.
        """
        if self.ends is None:
            return {}
        found = {n: None for n in self.cone if n.op in ops.GATHERS and n.inputs[0].node in self.variables
                 and bounded_bytes(n.inputs[1]) is None}  # fmt: skip
        for node in found:
            self.graph.note(node, "looks up lists of unbounded length: runs on the host before the device")
        return found

    def _move_aside(self) -> None:
        """Move host ops that only observe variables behind the device; refuse those that the device reads."""
        for node in [n for n in self.cone if n in self.variable_dependents and must_be_host(n)]:
            readers = [use.node for use in node.uses() if use.node in self.cone and not must_be_host(use.node)]
            if readers:
                fix = "compute it in the input pipeline, replace it by TensorFlow ops, or drop it from the train op"
                raise in_the_middle(node, readers[0], fix)
            for waiting in node.control_uses():
                self.graph.remove_control(waiting, node)
            self.graph.note(node, "only observes the step: runs on the host after the outfeed")
            self.observers.append(node)
        if self.observers:
            self.cone = self.graph.ancestors(self.roots)

    def minimum_cut(self, on_device: Container[Node] = ()) -> list[Tensor]:
        """The tensors that cross from host to device in the minimum cut by bytes.

        Of the nodes that may run on either side, those of ``on_device`` run on the device where their operands can cross.
        """
        edges: list[tuple[Tensor, Tensor]] = []
        capacity: dict[Tensor, int] = {}
        sources: dict[Tensor, None] = {}
        sinks: dict[Tensor, None] = {}
        bounds: Known = {}
        on_one_side = self.upstream.keys() | self.variable_dependents.keys() | self.variables.keys()
        movable = [n for n in self.cone if n in on_device and n in self.host_dependents and n not in on_one_side]
        late = {**self.graph.descendants(movable), **self.after_variables}  # nodes that are not before the device
        for node in self.cone:
            if node not in self.host_dependents or node in self.variable_dependents or node in self.variables:
                continue
            for tensor in self._used_outputs(node):
                cannot_cross = self._bound_to_place(node) or (node in late and node not in self.upstream)
                size = None if cannot_cross else bounded_bytes(tensor, bounds)
                if size is not None and tensor.dtype.name in ops.INFEED_DTYPES:
                    capacity[tensor] = size
                if node in self.upstream:
                    sources[tensor] = None
                for reader in self._readers(tensor):
                    if reader in self.variable_dependents and reader in self.cone:
                        sinks[tensor] = None
                    elif reader in self.cone and reader not in self.upstream:
                        edges.extend((tensor, other) for other in self._used_outputs(reader))
                        if reader in self.roots:
                            sinks[tensor] = None
        for node in self.cone:  # nodes computed from constants alone may be a source of the input
            if node in self.upstream and node in self.variable_dependents:
                raise ConversionError("a host op depends on what the device computes", node=node)
        if not sinks:
            return []
        found = minimum_cut(edges, capacity, sources, sinks)
        if found is None and movable:  # their operands cannot cross
            for node in movable:
                self.graph.note(
                    node, "reads several rows, and its operands cannot cross: each core's host gives it its own"
                )
            return self.minimum_cut()
        if found is None:
            raise self._uncut_error(sources, sinks, capacity)
        return found[1]

    def _used_outputs(self, node: Node) -> list[Tensor]:
        """The outputs that are read; also the first output of a root, or of a node with control edges inside its branch."""
        ports = dict.fromkeys(node.used_ports())
        if node in self.roots or (node in self.inside and node.control_uses()):
            ports[0] = None
        return [node.out(port) for port in ports] if node.op not in ops.GROUPS or node in self.inside else []

    def _readers(self, tensor: Tensor) -> list[Node]:
        """The readers of a value, and the nodes with control edges from it inside its branch or loop."""
        node = tensor.node
        readers = [use.node for use in node.uses(tensor.port)]
        return [*readers, *node.control_uses()] if node in self.inside and node not in self.upstream else readers

    def _bound_to_place(self, node: Node) -> bool:
        """Whether the node's value cannot cross: it may be dead, is in a loop, or belongs to a container."""
        return node in self.inside or (
            ops.is_stateful(node.op) and not must_be_host(node) and node.op not in ops.RANDOM
        )

    def _uncut_error(
        self, sources: Iterable[Tensor], sinks: Iterable[Tensor], capacity: dict[Tensor, int]
    ) -> ShapeError:
        uncut = [tensor for tensor in (*sinks, *sources) if tensor not in capacity and tensor.node.op not in ops.GROUPS]
        for tensor in uncut:
            kind, shape = tensor.dtype, tensor.shape
            if self._bound_to_place(tensor.node) and shapes.is_static(shape):
                fault = (
                    f"'{tensor}' must cross to the device, but it is in a branch or a loop, or goes with a container"
                )
                fix = "compute the host's part before it"
            elif kind.name not in ops.INFEED_DTYPES:
                fault = f"'{tensor}' of dtype {kind} must cross to the device, and an infeed takes no {kind}"
                fix = f"{'cast it to int32 or float32' if kind.size else 'keep strings'} in the input pipeline"
            elif shapes.is_static(shape):
                continue  # it could cross, but its operands are on both sides
            else:
                axis = 0 if shape is None else shape.index(None)
                fault = (f"'{tensor}' must cross to the device, but its shape {shapes.shown(shape)} is open in dimension {axis}, "
                         f"opened by '{_opener(tensor).node}'")  # fmt: skip
                last = [other for other in sinks if other in uncut] or uncut  # where these can cross, there is a cut
                opened = [_as_set_shape(_opener(other)) for other in last if not shapes.is_static(other.shape)]
                fix = (f"{' '.join(f'--set_shape={told}' for told in dict.fromkeys(opened))} where all batches have one size, else "
                       "batch with drop_remainder=True and a fixed size (padded_batch, set_shape); look lists of any length up "
                       "with tf.nn.safe_embedding_lookup_sparse")  # fmt: skip
            return ShapeError(fault, node=tensor.node, origin=self.graph.source, fix=fix)
        return ShapeError("no cut separates the input from the step", origin=self.graph.source)

    def split(self, cut: list[Tensor]) -> tuple[NodeSet, NodeSet, list[Node]]:
        """Device nodes, host nodes, and host nodes with control edges to the device; some are in several."""
        crossing = set(cut)
        device: NodeSet = {}
        postponed: NodeSet = {}
        walked: set[int] = set()  # nodes with equal control inputs share a tuple
        of_host = self.host_dependents.keys() - self.variable_dependents.keys()
        stack = [node for node in self.roots if not (node in of_host and node.out() in crossing)]
        while stack:
            node = stack.pop()
            if node in device or node in self.variables:
                continue
            device[node] = None
            stack.extend(t.node for t in node.inputs if t not in crossing)
            if id(node.controls) in walked:
                continue
            walked.add(id(node.controls))
            for control in node.controls:
                if control in device:
                    continue
                of_input_alone = control in self.host_dependents and control not in self.after_variables
                if control in self.upstream or (of_input_alone and control not in self.inside):
                    postponed[control] = None
                else:
                    stack.append(control)
        waits = {control: None for control in postponed if control not in device}
        for control in waits:
            for node in control.control_uses():
                if node in device:
                    self.graph.remove_control(node, control)
                    self.graph.note(control, f"'{node.name}' waited for it; now the enqueue of the batch does")
        host = self.graph.ancestors([*(t.node for t in cut), *waits])
        return device, host, list(waits)


def _opener(tensor: Tensor) -> Tensor:
    """The first tensor on the path to another that has no more unknown dimensions."""
    while above := [t for t in tensor.node.inputs if t.shape is not None and 0 < t.shape.count(None) <= _open(tensor)]:
        tensor = above[0]
    return tensor


def _open(tensor: Tensor) -> int:
    """The number of unknown dimensions; the most where even the rank is unknown."""
    return sys.maxsize if tensor.shape is None else tensor.shape.count(None)


def _as_set_shape(tensor: Tensor) -> str:
    """A tensor with its shape in the form of --set_shape, with a word for each unknown size."""
    dims = "DIMS" if tensor.shape is None else ",".join("SIZE" if d is None else str(d) for d in tensor.shape)
    return f"{tensor.node.name}{f':{tensor.port}' if tensor.port else ''}:{dims}"

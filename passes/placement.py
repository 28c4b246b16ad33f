"""Places nodes on host or device by the minimum cut in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE, NodeSet, shapes
from tpugraph.analysis.bounds import bounded_bytes
from tpugraph.analysis.step import ClosedShapes, Cut, DeviceEnds, EveryStep
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.support.errors import ConversionError
from tpugraph.tpu.device_cut import Step
from tpugraph.tpu.observers import Observers, detach_prints
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class Placement(Pass):
    """Every node of the step is on the host or on the device, with the fewest bytes crossing between them per step.

    Host-only ops and their ancestors are on the host; nodes that depend on variables are on the device. All others go where the
    cut is cheapest: an image crosses as uint8 and is cast on the device. Ops that combine several rows are on the device, where
    the rows of all cores are available. Summaries, metrics and prints run on the host after the device.
    """

    requires = ("shapes_known", "resource_variables")
    ensures = ("placed",)
    reads_if_given = (ClosedShapes, DeviceEnds, EveryStep)
    gives = (Cut,)

    def run(self, graph: Graph) -> None:
        dropped = detach_prints(graph)
        step = Step(graph)
        cut = step.minimum_cut(self._on_device(graph, step.movable()))
        device, host, waits = step.split(cut)
        if step.ends is not None:
            host.update(graph.ancestors(graph[name] for name in step.ends.beside))
        _refuse_shared(host, device, cut)
        in_front = _clone_shared(graph, device, host, cut)
        tail = Observers(graph, step, device, cut, in_front)
        tail.place()
        _clone_for_starts(graph, device)
        graph.set_device(device, "")
        graph.set_attr(device, CLUSTER_ATTR, CLUSTER)
        graph.set_device([node for node in graph if not node.device and node not in device], HOST_DEVICE)
        crossing = {t: bounded_bytes(t) or 0 for t in cut}
        sizes = {str(t): size for t, size in crossing.items()}
        naive = _total(shapes.byte_size(t) for t in step.fed)
        graph.keep(Cut(sizes, naive, {**dropped, **tail.dropped}, tuple(n.name for n in tail.nodes),
                       tuple(n.name for n in waits)))  # fmt: skip

    def _on_device(self, graph: Graph, free: list[Node]) -> NodeSet:
        """The nodes that are kept on the device though they could run on the host."""
        if graph.roles.replica:
            behind = graph.descendants(graph.of_type(*ops.OF_REPLICAS), data_only=True)
            return {node: None for node in free if node in behind}
        return {}


def _total(sizes: Iterable[int | None]) -> int | None:
    """The sum; None where a size is unknown, as for strings."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


def _refuse_shared(host: NodeSet, device: NodeSet, cut: list[Tensor]) -> None:
    """Refuse stateful ops that host and device need: two copies would have two values."""
    crossing = {t.node for t in cut}
    for node in host:
        if node in device and node not in crossing and ops.is_stateful(node.op) and node.op not in ops.CHECKS:
            raise ConversionError("a stateful op is needed on the host and on the device", node=node,
                                  fix="split it in two in the model function")  # fmt: skip


def _clone_shared(graph: Graph, device: NodeSet, host: NodeSet, cut: Iterable[Tensor] = ()) -> NodeSet:
    """Give the host its own copies of replicated nodes that host and device need; returns these."""
    crossing = {t.node for t in cut}
    shared = [node for node in host if node in device and node not in crossing]
    copies = graph.clone_subgraph(shared, lambda name: f"{name}/host")
    host_only = [node for node in host if node not in device]
    for node in host_only:
        for index, tensor in enumerate(node.inputs):
            if tensor.node in copies:
                graph.set_input(node, index, copies[tensor.node].out(tensor.port))
    graph.swap_controls(host_only, lambda control: (copies.get(control, control),))
    made = dict.fromkeys(copies.values())
    host.update(made)
    return made


def _clone_for_starts(graph: Graph, device: NodeSet) -> None:
    """Give nodes that run before the first step, or outside of the steps, their own copies of shared device nodes.

    A constant or random op may feed an initial value and the step. On the device it is in the loop, which nothing that runs
    before the loop may depend on.
    """
    roles = graph.roles
    starts = [variable.initializer for variable in roles.variables.values()]
    starts += [*roles.table_initializers, *roles.iterator_initializers, *roles.enqueues]
    _clone_shared(graph, device, graph.ancestors(graph[name] for name in starts if name is not None and name in graph))

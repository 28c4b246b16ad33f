"""Places nodes on host or device by the minimum cut in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE, NodeSet, shapes
from tpugraph.analysis.bounds import bounded_bytes
from tpugraph.analysis.step import Cut, DeviceEnds, EveryStep
from tpugraph.ir import Graph, Tensor
from tpugraph.tpu.device_cut import Step, refuse_copies
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
    reads_if_given = (DeviceEnds, EveryStep)
    gives = (Cut,)

    def run(self, graph: Graph) -> None:
        dropped = detach_prints(graph)
        step = Step(graph)
        of_replicas = graph.of_type(*ops.OF_REPLICAS) if graph.roles.replica else []
        cut = step.minimum_cut(graph.descendants(of_replicas, data_only=True))
        device, host, waits = step.split(cut)
        if step.ends is not None:
            host.update(graph.ancestors(graph[name] for name in step.ends.beside))
        sent = {tensor.node for tensor in cut}
        refuse_copies(node for node in host if node in device and node not in sent)
        in_front = _clone_shared(graph, device, host, cut)
        tail = Observers(graph, step, device, cut, in_front)
        tail.place()
        _clone_for_starts(graph, device)
        graph.set_device(device, "")
        graph.set_attr(device, CLUSTER_ATTR, CLUSTER)
        graph.set_device([node for node in graph if not node.device and node not in device], HOST_DEVICE)
        crossing = {str(t): bounded_bytes(t) or 0 for t in cut}
        fed = [shapes.byte_size(t) for t in step.fed]  # None for strings and open shapes
        naive = None if None in fed else sum(size or 0 for size in fed)
        graph.keep(Cut(crossing, naive, {**dropped, **tail.dropped}, tuple(n.name for n in tail.nodes),
                       tuple(n.name for n in waits)))  # fmt: skip


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

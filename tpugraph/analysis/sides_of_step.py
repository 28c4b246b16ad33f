"""Device and host side of a graph, and which nodes only a host can run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor

NodeSet = dict[Node, None]
"""An ordered set of nodes."""

CLUSTER_ATTR = "_tpu_replicate"
"""The attribute that marks a node as part of the replicated cluster."""

CLUSTER = "cluster"
"""The name of the cluster in a converted graph."""

HOST_DEVICE = "/job:tpu_worker/task:0/device:CPU:0"
"""Where the host part runs."""

CORE_DEVICE = "/device:TPU_REPLICATED_CORE:0"
"""Where infeed and outfeed ops of the cluster run."""


def in_cluster(node: Node) -> bool:
    """Whether the node is placed on the device."""
    return CLUSTER_ATTR in node._attrs


def cluster_nodes(graph: Graph) -> NodeSet:
    """The nodes on the device, in the order of the graph."""
    return graph.with_attr(CLUSTER_ATTR)


REPLICATED_ATTR = "_tpugraph_replicated"
"""Marks values that the host feeds to every core alike."""


def fed_to_device(graph: Graph) -> list[Tensor]:
    """The host tensors that the device reads, in the order of the graph, without variables and cluster arguments."""
    device = cluster_nodes(graph)
    found = {t for node in device for t in node.inputs if t.node not in device}
    feeding = {t.node for t in found if t.node.op not in ops.RESOURCE_VARIABLES | ops.CLUSTER_INPUTS}
    return [t for node in graph if node in feeding for t in map(node.out, node.used_ports()) if t in found]


def read_by_host(graph: Graph) -> list[Tensor]:
    """The device's tensors that the host reads, in the order of their readers."""
    device = cluster_nodes(graph)
    read = (t for node in graph if node not in device for t in node.inputs if t.node in device)
    return list(dict.fromkeys(read))


def is_tpu_graph(graph: Graph) -> bool:
    return bool(graph.of_type("TPUReplicateMetadata"))


def num_replicas(graph: Graph) -> int:
    """The number of cores that a TPU graph is for."""
    return int(graph.of_type("TPUReplicateMetadata")[0].attr("num_replicas"))


def by_core(nodes: Iterable[Node]) -> list[Node]:
    """Infeed enqueues or outfeed dequeues in the order of the cores: host by host; each host counts its cores from 0."""

    def place(node: Node) -> tuple[int, int]:
        task = _TASK.search(node.device)
        return int(task[1]) if task else 0, node.attr("device_ordinal", 0)

    return sorted(nodes, key=place)


_TASK = re.compile(r"/task:(\d+)")


def must_be_host(node: Node) -> bool:
    """Whether only a host can run the node: by its op, or because it has strings."""
    if ops.is_host_only(node.op):
        return True
    if node.op in ops.ASSERTS:
        return False
    if node.op in ops.CONSTANTS and all(use.node.op in ops.ASSERTS for use in node.uses()):
        return False
    for kind, _ in node.outputs or ():
        if kind.name == "string":
            return True
    return any(producer.output(port)[0].name == "string" for producer, port in node.inputs)

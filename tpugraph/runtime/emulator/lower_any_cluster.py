"""Lowers graphs with any TPU ops to ops that every TensorFlow runs: several clusters, feeds in runs of their own, served calls.

:func:`~tpugraph.runtime.emulator.emulation.lower` takes the one form of a whole training or evaluation, and makes one loop of
it. Here each cluster is lowered by itself, and infeed and outfeed are queues by the number of the core.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis import in_cluster, shapes
from tpugraph.analysis.sides_of_step import CLUSTER_ATTR, NodeSet, cluster_nodes
from tpugraph.analysis.varying_values import varying_on
from tpugraph.control_flow import inlining
from tpugraph.control_flow.lower_functional import replace_call
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
from tpugraph.ir.attrs import DType
from tpugraph.runtime.emulator.copies import (
    Copies,
    copy_per_core,
    lower_boundary,
    lower_dynamic_sizes,
    lower_sums,
    refuse_collectives,
)
from tpugraph.runtime.emulator.device_mesh import topology_of
from tpugraph.runtime.emulator.infeed_outfeed import again, join_by_queue
from tpugraph.runtime.emulator.system import clear_places, lower_system
from tpugraph.support.errors import RunError

_GIVEN: dict[str, Callable[[Node], tuple[list[DType], Sequence[Tensor]]]] = {
    "TPUPartitionedCall": lambda node: (node.attr("Tin"), node.inputs[:-1]),  # without the number of a core
    "BatchFunction": lambda node: ([*node.attr("Tin"), *node.attr("Tcaptured")], node.inputs),
}
"""What the function of such a call is given: the dtypes, and the tensors."""

SERVED = tuple(_GIVEN)
"""Calls of functions that an exported model makes on a TPU, and for batches of requests."""

_TUPLE_OF = {
    "InfeedEnqueue": "InfeedEnqueueTuple", "InfeedDequeue": "InfeedDequeueTuple",
    "OutfeedEnqueue": "OutfeedEnqueueTuple", "OutfeedDequeue": "OutfeedDequeueTuple",
}  # fmt: skip
FEEDS = frozenset({*_TUPLE_OF, *_TUPLE_OF.values()})
"""Ops that put values into the feeds of a core or take them out."""

_QUEUE = {
    "InfeedEnqueueTuple": ("infeed", True, 64), "InfeedDequeueTuple": ("infeed", False, 64),
    "OutfeedEnqueueTuple": ("outfeed", True, -1), "OutfeedDequeueTuple": ("outfeed", False, -1),
}  # fmt: skip
"""The feed that an op uses, whether it puts something in, and how many elements the queue in its place holds."""

_CORE_OF_DEVICE = re.compile(r"TPU:(\d+)")


def tpu_nodes(graph: Graph) -> list[Node]:
    """The nodes that only a TPU runs: of clusters, their ends, the feeds, the system, and calls of functions with such nodes."""
    return [*graph.of_type(*ops.TPU_SYSTEM, *_TUPLE_OF), *cluster_nodes(graph), *_calls_on_tpu(graph)]


def lower_parts(graph: Graph) -> None:
    """Turn the TPU ops of a graph into ops that any TensorFlow runs, in place.

    Raises:
        RunError: a replica of several cores, or a way to combine values of cores that is not emulated.
    """
    _inline_calls(graph)
    shapes.infer(graph)
    refuse_collectives(graph)
    _as_tuples(graph)
    for metadata in graph.of_type("TPUReplicateMetadata"):
        _lower_cluster(graph, metadata)
    for node in graph.of_type("InfeedEnqueueTuple", "OutfeedDequeueTuple"):
        _use_queue(graph, node, _core(node))
    lower_dynamic_sizes(graph)
    mesh = np.asarray(topology_of(1).serialized(), dtype=object)
    for node in graph.of_type("TPUOrdinalSelector"):
        graph.retype(node, "Const", attrs={"dtype": attrs.dtype("int32"), "value": np.zeros(1, "int32")})
    configured = [node.name for node in graph.of_type("ConfigureDistributedTPU")]
    lower_system(graph)
    for name in configured:
        graph.set_attr(graph[name], "value", mesh)
    clear_places(graph)


# --------------------------------------------------------------------------- calls


def _calls_on_tpu(graph: Graph) -> list[Node]:
    """The nodes that call functions with TPU ops in themselves or in what they call."""
    called = graph.of_type(*SERVED, *ops.CALLS, *function_library.functions_named(graph))
    return [node for node in called if _holds_tpu_ops(graph, node)]


def _holds_tpu_ops(graph: Graph, node: Node) -> bool:
    functions = function_library.used_by(graph, [node]).values()
    held = {definition.op for function in functions for definition in function.node_def}
    return not held.isdisjoint(ops.TPU_SYSTEM | FEEDS)


def _inline_calls(graph: Graph) -> None:
    """Put the bodies of those functions in the place of the calls; requests are computed one by one, not in batches."""
    while calls := _calls_on_tpu(graph):
        for node in calls:
            _inline_call(graph, node)


def _inline_call(graph: Graph, node: Node) -> None:
    known, cluster = set(graph), node.attr(CLUSTER_ATTR, None)
    _as_plain_call(graph, node)
    calls = inlining.calls_of(graph, [node])
    reader, replaced = inlining.hold(graph, calls[0]), []
    while calls:
        call = calls.pop()
        calls += replace_call(graph, call)
        replaced.append(call.node)
    inlining.keep_name(graph, node, reader)
    graph.remove_all(replaced[1:])
    for made in [n for n in graph if n not in known]:
        if cluster is not None:
            graph.set_attr(made, CLUSTER_ATTR, cluster)
        elif in_cluster(made):  # each call has a cluster of its own
            graph.set_attr(made, CLUSTER_ATTR, f"{node.name}/{made.attr(CLUSTER_ATTR)}")


def _as_plain_call(graph: Graph, node: Node) -> None:
    """Let one of the SERVED be a call of its function and nothing more; any other node stays."""
    given = _GIVEN.get(node.op)
    if given is None:
        return
    kinds, inputs = given(node)
    attributes = {"Tin": kinds, "Tout": node.attr("Tout"), "f": node.attr("f")}
    graph.retype(node, "StatefulPartitionedCall", inputs=inputs, attrs=attributes)


# --------------------------------------------------------------------------- clusters


def _lower_cluster(graph: Graph, metadata: Node) -> None:
    if metadata.attr("num_cores_per_replica", 1) != 1:
        raise RunError("a replica that spans several cores is not emulated", node=metadata,
                       fix="leave device_assignment and num_cores_per_replica away")  # fmt: skip
    name = metadata.attr(CLUSTER_ATTR)
    cluster: NodeSet = {node: None for node in graph if in_cluster(node) and node.attr(CLUSTER_ATTR) == name}
    inputs = [n for n in graph.of_type("TPUReplicatedInput") if any(reader in cluster for reader in n.consumers())]
    outputs = [node for node in graph.of_type("TPUReplicatedOutput") if node.inputs[0].node in cluster]
    sums = [node for node in graph.of_type("CrossReplicaSum") if node in cluster]
    feeds = [node for node in graph.of_type("InfeedDequeueTuple", "OutfeedEnqueueTuple") if node in cluster]
    copies = copy_per_core(graph, varying_on(graph, cluster), metadata.attr("num_replicas"))
    for node in feeds:
        for core, each in enumerate(_each_core(graph, copies, node)):
            _use_queue(graph, each, core)
    lower_sums(graph, copies, sums)
    lower_boundary(graph, copies, inputs, outputs)


def _each_core(graph: Graph, copies: Copies, node: Node) -> list[Node]:
    """The node of each core; what all cores have alike is sent by each."""
    if copies.varies(node):
        return copies.nodes(node)
    return [node, *(again(graph, node) for _ in range(copies.count - 1))]


# --------------------------------------------------------------------------- infeed and outfeed


def _use_queue(graph: Graph, node: Node, core: int) -> None:
    """Let a node put into the queue of a core's infeed or outfeed, or take out of it; the node has a handle of its own."""
    feed, puts, capacity = _QUEUE[node.op]
    ends = ([node], []) if puts else ([], [node])
    join_by_queue(graph, f"{node.name}/queue", *ends, capacity=capacity, shared_name=f"tpugraph/{feed}/{core}")


def _core(node: Node) -> int:
    """The core whose feed a host's node serves: its number, else that of the device it is put on."""
    told, placed = node.attr("device_ordinal", -1), _CORE_OF_DEVICE.search(node.device)
    return int(told) if told >= 0 else int(placed.group(1)) if placed else 0


def _as_tuples(graph: Graph) -> None:
    """Feeds of one tensor become feeds of a tuple of one."""
    for node in graph.of_type(*_TUPLE_OF):
        given = {"dtypes": [node.attr("dtype")]}
        if node.has_attr("device_ordinal"):
            given["device_ordinal"] = node.attr("device_ordinal")
        graph.retype(node, _TUPLE_OF[node.op], attrs=given)

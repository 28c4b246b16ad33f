"""The cluster of a TPU graph cut out as one function of a core: (count, seed, staged infeed, variables) to results.

The device loop reads each batch of its infeed from a buffer that holds those of all its iterations, and writes what it
sends over its outfeed to row i of another. What the host has to do with it is arguments and results.
"""

from __future__ import annotations

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import in_cluster, shapes
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.ir.loops import counted, why_not_counted
from tpugraph.ir.walks import readers, source_of
from tpugraph.support.errors import RunError
from tpugraph.tables.shards import TABLE, table_of
from tpugraph.xla.cluster_parts import Cluster, DeviceLoop, add, argument, constant, core_number
from tpugraph.xla.step_buffers import give_outfeed, take_infeed

_INT32 = attrs.dtype("int32")


def cut(graph: Graph, *, iterations: int | None = None) -> Cluster:
    """Cut the cluster out of a TPU graph that has its entry points, in place.

    Args:
        graph: the TPU graph; shapes are inferred where they are not known.
        iterations: rows of the buffers; the graph's own iterations_per_loop if not given.

    Raises:
        RunError: no cluster of the documented form.
    """
    _drop_unread(graph)
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    metadata = _one(graph, "TPUReplicateMetadata")
    if metadata.attr("num_cores_per_replica", 1) != 1:
        raise RunError("a replica that spans several cores cannot be compiled", node=metadata)
    rows = iterations or int(graph["tpugraph/iterations_per_loop/Initializer"].attr("value"))
    limit = _variable(graph["tpugraph/iterations_per_loop"].out())
    count = argument(graph, "count", (_INT32, ()))
    loop = _device_loop(graph, limit)
    varying = analysis.replica_varying(graph)
    streams = {node: node in varying for node in graph.of_type(*ops.RANDOM) if in_cluster(node)}
    found = Cluster(graph, metadata.attr("num_replicas"), rows, count, loop.frame, loop.number, streams)
    found.outputs = _outputs(graph)
    _take_count(graph, limit, count)
    take_infeed(found, loop)
    give_outfeed(found, loop)
    _take_values(found)
    _drop_host(found)
    return found


def _drop_unread(graph: Graph) -> None:
    """Remove at once what the cluster has nothing to do with, such as initializers and savers: half of a big graph."""
    wanted = [node for node in graph if in_cluster(node)]
    wanted += graph.of_type("TPUReplicateMetadata", "TPUReplicatedOutput", "OutfeedDequeueTuple")
    wanted += [node for name in _KEPT if (node := graph.get(name)) is not None]
    graph.remove_dead(wanted)


_KEPT = ("tpugraph/iterations_per_loop", "tpugraph/iterations_per_loop/Initializer")


def _one(graph: Graph, op: str) -> Node:
    nodes = graph.of_type(op)
    if len(nodes) != 1:
        raise RunError(f"the graph has {len(nodes)} {op}, not one", origin=graph.source,
                       fix="convert the graph first: tpugraph convert MODEL")  # fmt: skip
    return nodes[0]


def _variable(tensor: Tensor) -> Node:
    """The variable behind a handle."""
    return source_of(tensor, ops.IDENTITIES | ops.ENTER | ops.CLUSTER_INPUTS).node


def _outputs(graph: Graph) -> dict[str, Tensor]:
    """What the cluster returns; one of its cores' values stands for all."""
    found = {}
    for node in graph.of_type("TPUReplicatedOutput"):
        value = node.inputs[0]
        found[str(node.out())] = value
    return found


# --------------------------------------------------------------------------- the device loop


def _device_loop(graph: Graph, limit: Node) -> DeviceLoop:
    for condition in graph.of_type(*ops.LOOP_COND):
        loop = counted(condition) if in_cluster(condition) else None
        if loop is not None and loop.limit is limit and loop.counter.switches:
            frame = loop.counter.enter.attr("frame_name")
            return DeviceLoop(frame, condition, loop.counter.switches[0].out(1))
    raise RunError(f"the cluster has no loop over its number of iterations{_why(graph)}", origin=graph.source,
                   fix="give a training graph that tpugraph or TPUEstimator made")  # fmt: skip


def _why(graph: Graph) -> str:
    """What its loops lack, in brackets."""
    conditions = [node for node in graph.of_type(*ops.LOOP_COND) if in_cluster(node)]
    reason = next(filter(None, map(why_not_counted, conditions)), "")
    return f" ({reason})" if reason else ""


def _take_count(graph: Graph, limit: Node, count: Tensor) -> None:
    """Let the cluster read the number of iterations from the argument instead of the variable."""
    for node in _aliases(limit):
        if node.op in ops.READS:
            graph.retype(node, "Identity", attrs={"T": _INT32}, outputs=[(_INT32, ())])
        elif node.op in ops.ENTER:
            graph.set_attr(node, "T", _INT32)
            graph.set_outputs(node, [(_INT32, ())])
    graph.replace_uses(limit.out(), count, where=lambda use: in_cluster(use.node))


def _aliases(handle: Node) -> list[Node]:
    """What reads a handle in the cluster, through the ops that hand it on."""
    found = readers(handle, through=ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS)
    return [node for node in found if in_cluster(node) or node.op in ops.IDENTITIES | ops.CLUSTER_INPUTS]


# --------------------------------------------------------------------------- everything else from outside


def _take_values(found: Cluster) -> None:
    """Make arguments of the variables and values that the cluster reads from outside; constants go inside."""
    graph = found.graph
    variables = dict.fromkeys(graph.of_type(*ops.RESOURCE_VARIABLES))
    for node in graph.of_type("TPUReplicatedInput"):
        sources = dict.fromkeys(_variable(tensor) for tensor in node.inputs)
        shared = next(iter(sources)).out() if sources.keys() & variables.keys() else node.inputs[0]
        alike = len(sources) == 1 or len(set(node.inputs)) == 1
        if len(sources) > 1 and all(source.has_attr(TABLE) for source in sources):
            alike = True  # the handle of the first core's stands for that of each core
            found.shards[shared.node.name] = table_of(shared.node)
        graph.replace_uses(node.out(), shared if alike else _own_value(graph, node))
    written = _written(graph)
    for tensor in _read_from_outside(found):
        source = tensor.node
        if source.op in ops.RESOURCE_VARIABLES:
            like: Output = (tensor.dtype, ())
            found.variables[source.name] = given = argument(graph, source.name, like)
            given.node.origin = source.name
            if source in written:
                found.written.append(source.name)
        else:
            known: Output = (tensor.dtype, tensor.shape)
            if not shapes.is_static(tensor.shape) or tensor.dtype.size is None:
                raise RunError("the device reads a value of the host whose size is not known", node=source)
            found.host[str(tensor)] = given = argument(graph, f"host/{source.name}", known)
        graph.replace_uses(tensor, given, where=lambda use: in_cluster(use.node))


def _own_value(graph: Graph, node: Node) -> Tensor:
    """The core's own of the constants that the cores are given, such as its number."""
    if any(t.node.op not in ops.CONSTANTS for t in node.inputs):
        raise RunError("each core is given another value of the host, which a compiled step does not take", node=node)
    values = np.stack([t.node.attr("value") for t in node.inputs])
    kind, table, core = node.inputs[0].dtype, constant(graph, None, values), core_number(graph)
    kinds = {"Tparams": kind, "Tindices": _INT32, "Taxis": _INT32, "batch_dims": 0}
    axis = constant(graph, None, np.int32(0))
    return add(graph, "GatherV2", [table, core, axis], (kind, values.shape[1:]), kinds)


def _read_from_outside(found: Cluster) -> list[Tensor]:
    ours = {node for node in found.graph if in_cluster(node)}
    reads = dict.fromkeys(
        t for node in ours for t in node.inputs if t.node not in ours and t.node.op not in ops.CONSTANTS
    )
    order = {node: index for index, node in enumerate(found.graph)}
    return sorted(reads, key=lambda t: (order[t.node], t.port))


def _written(graph: Graph) -> set[Node]:
    """The variables that ops of the cluster write."""
    writes = (node for node in graph.of_type(*ops.WRITES) if in_cluster(node))
    handles = (node.inputs[index] for node in writes for index in ops.WRITES[node.op].variables)
    return {source_of(handle, ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS).node for handle in handles}


def _drop_host(found: Cluster) -> None:
    """Remove everything that is not in the cluster, and the marks of the TPU system."""
    graph = found.graph
    for node in graph.of_type("TPUReplicateMetadata", "TPUCompilationResult"):
        graph.replace_control_uses(node, [])
    keep = {node for node in graph if in_cluster(node)}
    keep |= {t.node for node in keep for t in node.inputs if t.node.op in ops.CONSTANTS}
    keep -= {node for node in keep if node.op in ops.METADATA | ops.COMPILATION_RESULTS}
    for node in keep:
        graph.set_controls(node, [c for c in node.controls if c in keep])
    graph.remove_all(node for node in graph if node not in keep)

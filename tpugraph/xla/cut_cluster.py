"""Extracts the cluster of a TPU graph as the function of one core: (count, seed, staged infeed, variables) to results.

In iteration i the device loop reads row i of a buffer with the batches of all iterations in place of its infeed, and writes row i
of another in place of its outfeed. All other values that cross to or from the host become arguments and results."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, in_cluster, shapes
from tpugraph.control_flow.loops import stack_iterations
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.ir.attrs import DType, Shape
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import Counted, counted, why_not_counted
from tpugraph.ir.walks import readers, source_of
from tpugraph.support.errors import RunError
from tpugraph.tables.sharding import TABLE, table_of

_INT32 = attrs.dtype("int32")
_MARK = {CLUSTER_ATTR: CLUSTER}


@dataclass
class Cluster:
    """The function of one core, as a graph that still has TF1 control flow."""

    graph: Graph  # only the cluster, its arguments as Placeholders
    num_replicas: int  # the number of cores
    iterations: int  # the largest trip count, the rows of all buffers
    count: Tensor  # the argument with the trip count, int32 []
    loop: Counted  # its loop over the steps
    streams: dict[Node, bool]  # its random ops, and whether each core draws its own values
    infeed: list[Tensor] = field(default_factory=list)  # the staged batches, each [iterations, ...] of one core
    variables: dict[str, Tensor] = field(default_factory=dict)  # the handles by the variable's name
    host: dict[str, Tensor] = field(default_factory=dict)  # other values from the host, by name
    # the tensors sent in each step, each [iterations, ...] of one core
    outfeed: list[Tensor] = field(default_factory=list)
    # the results after the loop, by the tensor's name in the TPU graph
    outputs: dict[str, Tensor] = field(default_factory=dict)
    # the names of the variables that it writes, in the order of variables
    written: list[str] = field(default_factory=list)
    # of those variables that each core has one of, by their name, which is that of the first core's: the name that the
    # whole variable has in the plain graph
    shards: dict[str, str] = field(default_factory=dict)


def argument(graph: Graph, name: str, like: Output) -> Tensor:
    return Builder(graph, "tpugraph/argument", marks=_MARK).placeholder(*like, name=name)


def core_number(graph: Graph) -> Tensor:
    """The index of the core that runs the function, int32 []."""
    return _maker(graph).add("XlaReplicaId", [], ())


def _maker(graph: Graph) -> Builder:
    return Builder(graph, "tpugraph/staged", marks=_MARK)


def cut(graph: Graph, *, iterations: int | None = None) -> Cluster:
    """Extract the cluster of a TPU graph with entry points, in place; ``iterations`` are the rows of the buffers."""
    _drop_unread(graph)
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    metadata = only_metadata(graph)
    rows = iterations or int(graph["tpugraph/iterations_per_loop/Initializer"].attr("value"))
    limit = _variable(graph["tpugraph/iterations_per_loop"].out())
    count = argument(graph, "count", (_INT32, ()))
    loop = _device_loop(graph, limit)
    varying = analysis.replica_varying(graph)
    streams = {node: node in varying for node in graph.of_type(*ops.RANDOM) if in_cluster(node)}
    found = Cluster(graph, metadata.attr("num_replicas"), rows, count, loop, streams)
    # one core's value represents all
    found.outputs = {str(node.out()): node.inputs[0] for node in graph.of_type("TPUReplicatedOutput")}
    _take_count(graph, limit, count)
    _take_infeed(found)
    _give_outfeed(found)
    _take_values(found)
    _drop_host(found)
    return found


def _drop_unread(graph: Graph) -> None:
    """First remove the nodes that are unrelated to the cluster, such as initializers and savers: half of a large graph."""
    wanted = [node for node in graph if in_cluster(node)]
    wanted += graph.of_type("TPUReplicateMetadata", "TPUReplicatedOutput", "OutfeedDequeueTuple")
    wanted += [node for name in _KEPT if (node := graph.get(name)) is not None]
    graph.remove_dead(wanted)


_KEPT = ("tpugraph/iterations_per_loop", "tpugraph/iterations_per_loop/Initializer")


def only_metadata(graph: Graph) -> Node:
    """The TPUReplicateMetadata of a graph with one cluster, of one core per replica."""
    nodes = graph.of_type("TPUReplicateMetadata")
    if len(nodes) != 1:
        raise RunError(f"the graph has {len(nodes)} TPU clusters, not one", origin=graph.source,
                       fix="convert the graph first: tpugraph convert MODEL")  # fmt: skip
    if nodes[0].attr("num_cores_per_replica", 1) != 1:
        raise RunError("a replica that spans several cores is neither emulated nor compiled", node=nodes[0])
    return nodes[0]


def _variable(tensor: Tensor) -> Node:
    return source_of(tensor, ops.IDENTITIES | ops.ENTER | ops.CLUSTER_INPUTS).node


# --------------------------------------------------------------------------- the device loop


def _device_loop(graph: Graph, limit: Node) -> Counted:
    for condition in graph.of_type(*ops.LOOP_COND):
        loop = counted(condition) if in_cluster(condition) else None
        if loop is not None and loop.limit is limit and loop.counter.switches:
            return loop
    raise RunError(f"the cluster has no loop over its number of iterations{_why(graph)}", origin=graph.source,
                   fix="give a training graph that tpugraph or TPUEstimator made")  # fmt: skip


def _why(graph: Graph) -> str:
    """What is missing in its loops, in parentheses."""
    conditions = [node for node in graph.of_type(*ops.LOOP_COND) if in_cluster(node)]
    reason = next(filter(None, map(why_not_counted, conditions)), "")
    return f" ({reason})" if reason else ""


def _take_count(graph: Graph, limit: Node, count: Tensor) -> None:
    for node in _aliases(limit):
        if node.op in ops.READS:
            graph.retype(node, "Identity", attrs={"T": _INT32}, outputs=[(_INT32, ())])
        elif node.op in ops.ENTER:
            graph.set_attr(node, "T", _INT32)
            graph.set_outputs(node, [(_INT32, ())])
    graph.replace_uses(limit.out(), count, where=lambda use: in_cluster(use.node))


def _aliases(handle: Node) -> list[Node]:
    """The readers of a handle in the cluster, through the ops that forward it."""
    found = readers(handle, through=ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS)
    return [node for node in found if in_cluster(node) or node.op in ops.IDENTITIES | ops.CLUSTER_INPUTS]


# --------------------------------------------------------------------------- everything else from outside


def _take_values(found: Cluster) -> None:
    """Turn variables and values from outside of the cluster into arguments; constants are copied inside."""
    graph = found.graph
    variables = dict.fromkeys(graph.of_type(*ops.RESOURCE_VARIABLES))
    for node in graph.of_type("TPUReplicatedInput"):
        sources = dict.fromkeys(_variable(tensor) for tensor in node.inputs)
        shared = next(iter(sources)).out() if sources.keys() & variables.keys() else node.inputs[0]
        alike = len(sources) == 1 or len(set(node.inputs)) == 1
        if len(sources) > 1 and all(source.has_attr(TABLE) for source in sources):
            alike = True  # the first core's handle represents those of all cores
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
    """The core's own of the per-core constants, such as its index."""
    if any(t.node.op not in ops.CONSTANTS for t in node.inputs):
        raise RunError("each core is given another value of the host, which a compiled step does not take", node=node)
    values = np.stack([t.node.attr("value") for t in node.inputs])
    make = _maker(graph)
    table, core = make.constant(values, name="Const"), core_number(graph)
    axis = make.constant(np.int32(0), name="Const")
    return make.add("GatherV2", [table, core, axis], values.shape[1:], batch_dims=0)


def _read_from_outside(found: Cluster) -> list[Tensor]:
    ours = {node for node in found.graph if in_cluster(node)}
    reads = dict.fromkeys(
        t for node in ours for t in node.inputs if t.node not in ours and t.node.op not in ops.CONSTANTS
    )
    order = {node: index for index, node in enumerate(found.graph)}
    return sorted(reads, key=lambda t: (order[t.node], t.port))


def _written(graph: Graph) -> set[Node]:
    writes = (node for node in graph.of_type(*ops.WRITES) if in_cluster(node))
    handles = (node.inputs[index] for node in writes for index in ops.WRITES[node.op].variables)
    return {source_of(handle, ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS).node for handle in handles}


def _drop_host(found: Cluster) -> None:
    """Remove everything outside of the cluster, and the attributes of the TPU system."""
    graph = found.graph
    for node in graph.of_type("TPUReplicateMetadata", "TPUCompilationResult"):
        graph.replace_control_uses(node, [])
    keep = {node for node in graph if in_cluster(node)}
    keep |= {t.node for node in keep for t in node.inputs if t.node.op in ops.CONSTANTS}
    keep -= {node for node in keep if node.op in ops.METADATA | ops.COMPILATION_RESULTS}
    for node in keep:
        graph.set_controls(node, [c for c in node.controls if c in keep])
    graph.remove_all(node for node in graph if node not in keep)


def _take_infeed(found: Cluster) -> None:
    """Read the infeed's batches from rows of a buffer that is an argument."""
    graph, make, loop = found.graph, _maker(found.graph), found.loop
    for take in graph.of_type("InfeedDequeueTuple"):
        for port, (kind, shape) in enumerate(take.outputs or ()):
            _check_static(take, kind, shape)
            buffer = argument(graph, f"infeed_{port}", (kind, (found.iterations, *(shape or ()))))
            found.infeed.append(buffer)
            inside = make.identity(loop.number, name="Identity").node
            axis, rows = make.constant(np.int32(0), name="Const", controls=[inside]), make.enter(buffer, loop.frame)
            graph.replace_uses(take.out(port), make.add("GatherV2", [rows, loop.number, axis], shape, batch_dims=0))
        graph.replace_control_uses(take, [loop.number.node])
        graph.remove(take)


def _give_outfeed(found: Cluster) -> None:
    """Write the outfeed's tensors to rows of a buffer that is a result."""
    graph = found.graph
    for give in graph.of_type("OutfeedEnqueueTuple"):
        for tensor in give.inputs:
            known = shapes.element_count(tensor.shape) is not None
            shape = tensor.shape if known else _sent_shape(graph, give, tensor)
            _check_static(give, tensor.dtype, shape)
            stacked = stack_iterations(_maker(graph), tensor, shape or (), found.loop, found.iterations)
            found.outfeed.append(stacked)
        graph.replace_control_uses(give, give.controls)
        graph.remove(give)


def _sent_shape(graph: Graph, give: Node, tensor: Tensor) -> Shape:
    """The shape that the host expects, where inference inside the cluster leaves it unknown."""
    expected = next((d.attr("shapes") for d in graph.of_type("OutfeedDequeueTuple")), None) or []
    index = list(give.inputs).index(tensor)
    return expected[index] if index < len(expected) else None


def _check_static(node: Node, kind: DType, shape: Shape) -> None:
    if not shapes.is_static(shape) or kind.size is None:
        raise RunError(f"a tensor of the infeed or outfeed is {kind}{shape}: its size is not known", node=node)

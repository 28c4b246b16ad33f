"""The emulator: lowers a TPU graph to ordinary TensorFlow ops, so that N cores run on this machine.

What is replicated exists once; what varies between cores exists once per core. CrossReplicaSum becomes a sum over the
copies. Infeed and outfeed become direct dataflow where the loops on both sides have the same trip count, else queues.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, in_cluster, shapes
from tpugraph.analysis.trip_counts import steps_per_loop
from tpugraph.ir import Graph, Node, attrs
from tpugraph.ir.builder import Builder
from tpugraph.runtime.emulator.channels import connect
from tpugraph.runtime.emulator.copies import Copies
from tpugraph.runtime.emulator.dense import compile_step
from tpugraph.runtime.emulator.end_of_data import BESIDE_TRAINING
from tpugraph.runtime.emulator.host_list import Hosts
from tpugraph.runtime.emulator.hosts import spread
from tpugraph.runtime.emulator.joined_products import join_products
from tpugraph.support.errors import RunError

_INT32 = attrs.dtype("int32")
_SEED_STRIDE = 1_000_003  # core k draws from the stream seed2 + k * stride


@dataclass(frozen=True)
class Lowered:
    """A graph that any TensorFlow runs.

    Attributes:
        graph: the lowered graph.
        num_replicas: number of emulated cores.
        fused: whether one Session.run does infeed, step and outfeed.
        uniform_nodes: nodes of the cluster that exist once.
        varying_nodes: nodes of the cluster that exist once per core.
        compiled_nodes: nodes of the step that became one XLA computation.
        staged: whether the whole loop is that computation, on batches that are read before it starts.
    """

    graph: Graph
    num_replicas: int
    fused: bool
    uniform_nodes: int
    varying_nodes: int
    compiled_nodes: int = 0
    staged: bool = False


def lower(graph: Graph, *, queues: bool = False, hosts: Hosts | None = None) -> Lowered:
    """Lower a TPU graph in place.

    Args:
        graph: the TPU graph.
        queues: join host and device by queues instead of direct dataflow: slower, but in three parts as on a TPU.
        hosts: the hosts to spread the cores over; this process when None.

    Raises:
        RunError: no TPU graph, or one with model parallelism or collectives that are not emulated.
    """
    graph.stage = "emulator"
    metadata = graph.of_type("TPUReplicateMetadata")
    if len(metadata) != 1:
        raise RunError(
            f"the graph has {len(metadata)} TPU clusters, not one",
            origin=graph.source,
            fix="convert the graph first: tpugraph convert MODEL",
        )
    if metadata[0].attr("num_cores_per_replica", 1) != 1:
        raise RunError("a replica that spans several cores is not emulated", node=metadata[0])
    count = metadata[0].attr("num_replicas")
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    cluster = [node for node in graph if in_cluster(node)]
    varying = analysis.replica_varying(graph)
    copies = _copy(graph, varying, count)
    fused = connect(graph, copies, queues=queues, hosts=hosts)
    sums = graph.of_type("CrossReplicaSum")
    _lower_collectives(graph, copies, count)
    _lower_boundary(graph, copies)
    lower_system(graph)
    compiled, staged = 0, False
    if hosts is not None:
        _spread(graph, copies, sums, hosts, fused=fused)
    elif fused and not any(name in graph for name in BESIDE_TRAINING):
        compiled, staged = compile_step(graph, copies, steps_per_loop(graph))
    if hosts is None and not compiled:
        join_products(graph, copies, sums)
    clear_places(graph, devices=hosts is None)
    graph.stage = None
    return Lowered(graph, count, fused, len(cluster) - len(varying), len(varying), compiled, staged)


def clear_places(graph: Graph, *, devices: bool = True) -> None:
    """Remove the marks of the cluster, and devices."""
    for node in graph:
        if devices:
            graph.set_device(node, "")
        for name in (
            "_tpu_replicate",
            "_tpu_input_identity",
            "_tpu_output_identity",
            "_tpu_compilation_status",
            "_class",
        ):
            if node.has_attr(name):
                graph.set_attr(node, name, None)


def _spread(graph: Graph, copies: Copies, sums: list[Node], hosts: Hosts, *, fused: bool) -> None:
    if not fused:
        raise RunError("infeed, step and outfeed are no single loop, so that they cannot be shared among hosts",
                       origin=graph.source, fix="convert the graph with tpugraph, and leave queues=True away")  # fmt: skip
    spread(graph, copies, sums, hosts)


def _copy(graph: Graph, varying: NodeSet, count: int) -> Copies:
    copied = [node for node in varying if node.op not in ops.WRITES]  # core 0 alone writes what differs between cores
    loops = _varying_frames(graph, varying)
    of: dict[Node, list[Node]] = {node: [node] for node in copied}
    waiting = {node: [u for u in node.control_uses() if u not in of] for node in copied}
    for core in range(1, count):
        made = graph.clone_subgraph(copied, lambda name, core=core: f"{name}/replica_{core}")  # type: ignore[misc]
        for node, copy in made.items():
            of[node].append(copy)
            if node.op in ops.RANDOM:
                _reseed(graph, copy, core)
            elif node.op in ops.ENTER and node.attr("frame_name") in loops:
                graph.set_attr(copy, "frame_name", f"{node.attr('frame_name')}/replica_{core}")
    for node, nodes in waiting.items():
        for waiter in nodes:
            for copy in of[node][1:]:
                graph.add_control(waiter, copy)
    return Copies(count, of)


def _varying_frames(graph: Graph, varying: NodeSet) -> set[str]:
    """Loops whose trip count varies: each core gets a frame of its own."""
    conditions = [node for node in varying if node.op in ops.LOOP_COND]
    if not conditions:
        return set()
    frame_of = analysis.frames(graph)
    return {frame_of[node] for node in conditions}


def _reseed(graph: Graph, node: Node, core: int) -> None:
    """A stream of its own for each core; a node without seeds is random anyway, and core 0 keeps the plain stream."""
    if not node.has_attr("seed2") or not (node.attr("seed") or node.attr("seed2")):
        return
    graph.set_attr(node, "seed2", node.attr("seed2") + core * _SEED_STRIDE)


# --------------------------------------------------------------------------- collectives


def _lower_collectives(graph: Graph, copies: Copies, count: int) -> None:
    for node in graph.of_type("CrossReplicaSum"):
        _check_one_group(node, count)
        value, kind = node.inputs[0], node.attr("T")
        parts = [copies.tensor(value, core) for core in range(count)]
        if count == 1:
            graph.retype(node, "Identity", inputs=[value], attrs={"T": kind})
        elif copies.varies(value.node):
            graph.retype(node, "AddN", inputs=parts, attrs={"T": kind, "N": count})
        else:
            factor = Builder(graph, node.name, source=node).constant(count, kind, name="cores", controls=[value.node])
            graph.retype(node, "Mul", inputs=[value, factor], attrs={"T": kind})
    for node in graph.of_type("AllToAll", "CollectivePermute"):
        if in_cluster(node):
            raise RunError(f"the collective {node.op} is not emulated", node=node)


def _check_one_group(node: Node, count: int) -> None:
    groups = node.inputs[1].node
    if groups.op in ops.CONSTANTS and groups.attr("value").size not in (0, count):
        raise RunError("a sum over groups of cores is not emulated", node=node)
    if groups.op in ops.CONSTANTS and groups.attr("value").ndim == 2 and groups.attr("value").shape[0] > 1:
        raise RunError("a sum over groups of cores is not emulated", node=node)


# --------------------------------------------------------------------------- cluster boundary


def _lower_boundary(graph: Graph, copies: Copies) -> None:
    for node in graph.of_type("TPUReplicatedInput"):
        for use in node.uses():
            graph.set_input(use.node, use.index, node.inputs[copies.core_of(use.node)])
        graph.remove(node)
    for node in graph.of_type("TPUReplicatedOutput"):
        for core in node.used_ports():
            graph.replace_uses(node.out(core), copies.tensor(node.inputs[0], core))
        graph.remove(node)
    for node in graph.of_type("XlaSetDynamicDimensionSize"):
        _lower_dynamic_size(graph, node)


def _lower_dynamic_size(graph: Graph, node: Node) -> None:
    value, _, size = node.inputs
    kind, rank = node.attr("T"), len(value.shape or ())
    make, waits = Builder(graph, node.name, source=node), [value.node]
    begin = make.constant(np.zeros(rank, "int32"), name="begin", controls=waits)
    rest = [make.constant(-1, _INT32, name=f"all_{axis}", controls=waits) for axis in range(1, rank)]
    sizes = make.add("Pack", [size, *rest], (rank,), name="size", axis=0)
    graph.retype(node, "Slice", inputs=[value, begin, sizes], attrs={"T": kind, "Index": _INT32})


def lower_system(graph: Graph) -> None:
    """Turn the ops of the TPU system into constants and no-ops; infeed and outfeed must be gone."""
    empty = {"dtype": attrs.dtype("string"), "value": np.asarray(b"", dtype=object)}
    for node in graph.of_type("ConfigureDistributedTPU", "TPUCompilationResult"):
        graph.set_controls(node, [])
        graph.retype(node, "Const", inputs=[], attrs=empty)
    for node in graph.of_type("ShutdownDistributedTPU", "TPUReplicateMetadata"):
        graph.retype(node, "NoOp", inputs=[], attrs={})
    for node in graph.of_type("InfeedEnqueueTuple", "OutfeedEnqueueTuple", "InfeedDequeueTuple", "OutfeedDequeueTuple"):
        raise RunError("an infeed or outfeed has no other side", node=node)

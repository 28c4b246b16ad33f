"""The cluster of a TPU graph on ordinary TensorFlow: a copy per core of what varies between cores, and sums over the copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, in_cluster
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import reached
from tpugraph.support.errors import RunError


class Copies:
    """The copies of the replica-varying nodes: one node per core."""

    def __init__(self, count: int, of: dict[Node, list[Node]]) -> None:
        self.count = count
        self._of = of
        self._core = {copy: core for nodes in of.values() for core, copy in enumerate(nodes)}

    def nodes(self, node: Node) -> list[Node]:
        """The node of each core; the same node N times where it is replicated."""
        return self._of.get(node) or [node] * self.count

    def tensor(self, tensor: Tensor, core: int) -> Tensor:
        return Tensor(self.nodes(tensor.node)[core], tensor.port)

    def varies(self, node: Node) -> bool:
        return node in self._of

    def core_of(self, node: Node) -> int:
        """The core that a copy belongs to; 0 for a replicated node."""
        return self._core.get(node, 0)

    def cores(self) -> dict[Node, int]:
        return dict(self._core)


_INT32 = attrs.dtype("int32")
_SEED_STRIDE = 1_000_003  # core k draws from the stream seed2 + k * stride


def copy_per_core(graph: Graph, varying: NodeSet, count: int) -> Copies:
    """Copy what varies between cores, once for each core but the first, which has the nodes themselves."""
    # of a variable that the cores have in common core 0 alone writes what differs between them
    copied = [node for node in varying if node.op not in ops.WRITES or analysis.writes_own(node)]
    # what only waits for nodes of each core: a core waits for its own, as on a TPU, and not for the slowest
    copied = list(reached(copied, lambda n: (u for u in n.control_uses() if u.op in ops.GROUPS and in_cluster(u))))
    loops = _varying_frames(graph, varying)
    of: dict[Node, list[Node]] = {node: [node] for node in copied}
    waiting = {node: [u for u in (*node.control_uses(), *_alone_readers(node, of)) if u not in of] for node in copied}
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


def _alone_readers(node: Node, of: Mapping[Node, object]) -> list[Node]:
    """What reads an infeed where no core has a reader of its own; else the infeeds of the other cores would fill up."""
    readers = [use.node for use in node.uses()] if node.op in ops.INFEEDS else []
    return [] if any(reader in of for reader in readers) else readers


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


def lower_sums(graph: Graph, copies: Copies, sums: Iterable[Node]) -> None:
    """Turn the CrossReplicaSums of a cluster into sums over the copies; other collectives are not emulated."""
    for node in filter(in_cluster, graph.of_type("AllToAll", "CollectivePermute")):
        raise RunError(f"the collective {node.op} is not emulated", node=node)
    count = copies.count
    for node in sums:
        groups = node.inputs[1].node.attr("value") if node.inputs[1].node.op in ops.CONSTANTS else np.zeros(0)
        if groups.size not in (0, count) or (groups.ndim == 2 and groups.shape[0] > 1):
            raise RunError("a sum over groups of cores is not emulated", node=node)
        value, kind = node.inputs[0], node.attr("T")
        parts = [copies.tensor(value, core) for core in range(count)]
        if count == 1:
            graph.retype(node, "Identity", inputs=[value], attrs={"T": kind})
        elif copies.varies(value.node):
            graph.retype(node, "AddN", inputs=parts, attrs={"T": kind, "N": count})
        else:
            factor = Builder(graph, node.name, source=node).constant(count, kind, name="cores", controls=[value.node])
            graph.retype(node, "Mul", inputs=[value, factor], attrs={"T": kind})


# --------------------------------------------------------------------------- cluster boundary


def lower_boundary(graph: Graph, copies: Copies, inputs: Iterable[Node], outputs: Iterable[Node]) -> None:
    """Let each core read its own of the inputs of a cluster, and the host the outputs of each core."""
    for node in inputs:
        for use in node.uses():
            graph.set_input(use.node, use.index, node.inputs[copies.core_of(use.node)])
        graph.remove(node)
    for node in outputs:
        for core in node.used_ports():
            graph.replace_uses(node.out(core), copies.tensor(node.inputs[0], core))
        graph.remove(node)


_MARKS = ("_tpu_replicate", "_tpu_input_identity", "_tpu_output_identity", "_tpu_compilation_status", "_class")


def clear_places(graph: Graph, *, devices: bool = True) -> None:
    for node in graph:
        if devices:
            graph.set_device(node, "")
        for name in _MARKS:
            if node.has_attr(name):
                graph.set_attr(node, name, None)


def lower_system(graph: Graph) -> None:
    """Turn the ops of the TPU system into constants and no-ops, and padded tensors with a number of rows into those rows."""
    for node in graph.of_type("XlaSetDynamicDimensionSize"):
        value, _, size = node.inputs
        kind, rank = node.attr("T"), len(value.shape or ())
        make, waits = Builder(graph, node.name, source=node), [value.node]
        begin = make.constant(np.zeros(rank, "int32"), name="begin", controls=waits)
        rest = [make.constant(-1, _INT32, name=f"all_{axis}", controls=waits) for axis in range(1, rank)]
        sizes = make.add("Pack", [size, *rest], (rank,), name="size", axis=0)
        graph.retype(node, "Slice", inputs=[value, begin, sizes], attrs={"T": kind, "Index": _INT32})
    empty = {"dtype": attrs.dtype("string"), "value": np.asarray(b"", dtype=object)}
    for node in graph.of_type("ConfigureDistributedTPU", "TPUCompilationResult"):
        graph.set_controls(node, [])
        graph.retype(node, "Const", inputs=[], attrs=empty)
    for node in graph.of_type("ShutdownDistributedTPU", "TPUReplicateMetadata"):
        graph.retype(node, "NoOp", inputs=[], attrs={})
    for node in graph.of_type("InfeedEnqueueTuple", "OutfeedEnqueueTuple", "InfeedDequeueTuple", "OutfeedDequeueTuple"):
        raise RunError("an infeed or outfeed has no other side", node=node)

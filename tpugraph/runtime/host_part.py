"""Extracts the host's part of a TPU graph, for an engine that compiles the cluster.

The input loop stages the batches of all its iterations in place of the infeed, and the output loop reads fed values in place of
the outfeed. The cluster is removed; the variables stay, for checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import in_cluster
from tpugraph.analysis.shapes import is_static
from tpugraph.control_flow.loops import loop_of_frame, stack_iterations
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import Counted
from tpugraph.runtime.emulator.copies import clear_places, lower_system
from tpugraph.runtime.emulator.reads import read_together, stop_at_end_of_data
from tpugraph.support.errors import RunError

COUNT = "tpugraph/staged/count"  # the number of staged steps, int32 []
LIMIT = "tpugraph/staged/limit"
"""Placeholder for the number of steps to stage, int32 []: possibly of a later loop than the one whose results are read."""

_INT32 = attrs.dtype("int32")
_VARIANT = attrs.dtype("variant")


@dataclass
class HostPart:
    # for each core the batches of its infeed, each [iterations, ...]
    staged: list[list[Tensor]] = field(default_factory=list)
    # for each core the placeholders for its outfeed, each [iterations, ...]
    outfeed: list[list[Tensor]] = field(default_factory=list)
    # the placeholder for each result of the cluster, by its former tensor name
    outputs: dict[str, Tensor] = field(default_factory=dict)
    # ops that copy the input's position for the next checkpoint
    positions: list[str] = field(default_factory=list)


def take_host_part(graph: Graph, iterations: int, *, folded: bool = False, same: bool = False) -> HostPart:
    """Remove the cluster of a TPU graph with entry points and shapes, in place, and keep the host's part.

    With ``folded`` the values of all cores are one core's, [iterations, cores, ...], all in one run of the graph; outfeed tensors
    that are the ``same`` on all cores have no dimension of cores.
    """
    found = HostPart()
    enqueues = analysis.by_core(graph.of_type("InfeedEnqueueTuple"))
    count: Tensor | None = None
    if enqueues:
        loop = _loop_of(graph, enqueues[0])
        frame_of = analysis.frames(graph)
        reads = [node for node in graph.of_type("IteratorGetNext") if frame_of[node] == loop.frame]
        if reads:
            read_together(graph, reads)  # as the emulator does: positions of the input mean the same to both
        found.staged = _stage_cores(graph, loop, enqueues, iterations, folded=folded)
        leave = Builder(graph, "tpugraph/staged").add("Exit", [loop.counter.switches[0].out(0)], ())
        count = Builder(graph).identity(leave, name=COUNT)
        if not folded:
            _run_to(graph, loop, Builder(graph).placeholder(_INT32, (), name=LIMIT))
        for enqueue in enqueues:
            graph.replace_control_uses(enqueue, [*enqueue.controls, *(t.node for t in enqueue.inputs)])
            graph.remove(enqueue)
        stop_at_end_of_data(graph, loop.condition)
    dequeues = analysis.by_core(graph.of_type("OutfeedDequeueTuple"))
    if dequeues:
        loop = _loop_of(graph, dequeues[0])
        if folded and count is not None:
            _run_to(graph, loop, count)
        found.outfeed = [_read_back(graph, loop, group, iterations, stacked=folded and not same)
                         for group in ([dequeues] if folded else [[dequeue] for dequeue in dequeues])]  # fmt: skip
    for node in graph.of_type("TPUReplicatedOutput"):
        for port in node.used_ports():
            fed = Builder(graph, "tpugraph/staged").placeholder(node.out(port).dtype, ())
            found.outputs[str(node.out(port))] = fed
            graph.replace_uses(node.out(port), fed)
    found.positions = [] if folded else _hold_positions(graph)
    _remove_cluster(graph)
    lower_system(graph)
    clear_places(graph)
    return found


def _remove_cluster(graph: Graph) -> None:
    doomed = {node for node in graph if in_cluster(node)}
    doomed |= set(graph.of_type("TPUReplicatedInput", "TPUReplicatedOutput", "TPUReplicateMetadata"))
    for node in doomed:
        for waiting in node.control_uses():
            if waiting not in doomed:
                graph.remove_control(waiting, node)
    reader = next((u.node for n in doomed for u in n.uses() if u.node not in doomed), None)
    if reader is not None:
        raise RunError("the host reads a value of the cluster that is no output of it", node=reader)
    graph.remove_all(doomed)


# --------------------------------------------------------------------------- loops of the host


def _loop_of(graph: Graph, node: Node) -> Counted:
    frame_of = analysis.frames(graph)
    loop = loop_of_frame(graph, frame_of[node])
    if loop is None:
        raise RunError("the host's side of infeed or outfeed is in no loop over the steps", node=node)
    return loop


def _run_to(graph: Graph, loop: Counted, limit: Tensor) -> None:
    """Set the trip count of one host loop, independent of the variable that both loops read."""
    graph.set_input(loop.condition.inputs[0].node, 1, Builder(graph, "tpugraph/staged").enter(limit, loop.frame))


def _hold_positions(graph: Graph) -> list[str]:
    """Make checkpoints save the last copied position of the input; returns the ops that copy the current one."""
    holds, make = [], Builder(graph)
    for state in graph.of_type("SerializeIterator"):
        name = graph.fresh_name("tpugraph/staged/position")
        held = make.variable(_VARIANT, (None,), name=name).out()
        read = make.add("ReadVariableOp", [held], (None,), name="tpugraph/staged/ReadVariableOp", dtype=_VARIANT)
        graph.replace_uses(state.out(), read)
        holds.append(make.node("AssignVariableOp", [held, state.out()], name=f"{name}/hold").name)
    return holds


# --------------------------------------------------------------------------- infeed


def _stage_cores(
    graph: Graph, loop: Counted, enqueues: Sequence[Node], iterations: int, *, folded: bool
) -> list[list[Tensor]]:
    """The batches of all iterations, zeros for iterations that did not run: per core, or of all cores as one."""
    make = Builder(graph, "tpugraph/staged")
    lists: dict[Tensor, Tensor] = {}

    def staged(tensor: Tensor, shape: attrs.Shape) -> Tensor:
        if tensor not in lists:
            lists[tensor] = stack_iterations(make, tensor, shape or (), loop, iterations)
        return lists[tensor]

    if not folded:
        shapes = enqueues[0].attr("shapes")
        return [[staged(*value) for value in zip(enqueue.inputs, shapes, strict=True)] for enqueue in enqueues]
    batches = []
    for port, shape in enumerate(enqueues[0].attr("shapes")):
        each = [enqueue.inputs[port] for enqueue in enqueues]
        tensor = _divided(each) or make.add("Pack", each, (len(enqueues), *shape), axis=0)
        numbers = row_numbers(tensor)
        if numbers is None:
            whole = staged(tensor, tensor.shape)
        else:  # rows of a constant: their indices are staged, and one gather reads the rows of all steps
            rows, axis = (_outside(tensor.node.inputs[index]) for index in (0, 2))
            stack = staged(numbers, numbers.shape)
            whole = make.add("GatherV2", [rows, stack, axis], (iterations, *(tensor.shape or ())), batch_dims=0)
        batches.append(make.reshape(whole, (iterations, len(enqueues), *shape)))
    return [batches]


def _divided(each: Sequence[Tensor]) -> Tensor | None:
    """The tensor that was split along dimension 0 into the values of all cores; None where it or its shape is unknown."""
    node = each[0].node
    along_rows = node.op in ops.UNPACKS and node.attr("axis", 0) == 0
    if node.op in ops.SPLITS:
        axis = _outside(node.inputs[0]).node
        along_rows = axis.op in ops.CONSTANTS and int(axis.attr("value")) == 0
    if not along_rows or list(each) != [node.out(port) for port in range(len(node.outputs or ()))]:
        return None
    source = node.inputs[-1]
    above = source.node
    single = above.op in ops.UNPACKS and above.attr("num") == 1 and above.attr("axis", 0) == 0
    found = above.inputs[0] if single else source
    return found if is_static(found.shape) else None


def row_numbers(tensor: Tensor) -> Tensor | None:
    """The indices of a gather of a constant's rows; else None."""
    node = tensor.node
    if node.op not in ops.PICKS or ops.record(node.op).axis is None or node.attr("batch_dims", 0):
        return None
    held = [_outside(node.inputs[index]).node for index in (0, 2)]
    if any(constant.op not in ops.CONSTANTS for constant in held):
        return None
    return node.inputs[1] if int(held[1].attr("value")) == 0 else None


def _outside(tensor: Tensor) -> Tensor:
    return tensor.node.inputs[0] if tensor.node.op in ops.ENTER else tensor


# --------------------------------------------------------------------------- outfeed


def _read_back(graph: Graph, loop: Counted, dequeues: list[Node], iterations: int, *, stacked: bool) -> list[Tensor]:
    """Let iteration i of the loop read row i of fed values; returns their placeholders."""
    given, make, cores = [], Builder(graph, "tpugraph/staged"), len(dequeues)
    for port, (kind, shape) in enumerate(dequeues[0].outputs or ()):
        row_shape = (cores, *(shape or ())) if stacked else shape or ()
        given.append(make.placeholder(kind, (iterations, *row_shape)))
        axis = make.constant(np.int32(0), controls=[loop.pivot])
        row = make.add("GatherV2", [make.enter(given[-1], loop.frame), loop.number, axis], row_shape, batch_dims=0)
        pieces = make.node("Unpack", [row], shapes=[shape] * cores, num=cores, axis=0) if stacked else None
        for core, dequeue in enumerate(dequeues):
            graph.replace_uses(dequeue.out(port), row if pieces is None else pieces.out(core))
    for dequeue in dequeues:
        graph.replace_control_uses(dequeue, [loop.pivot])
        graph.remove(dequeue)
    return given

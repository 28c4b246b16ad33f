"""The host's part of a TPU graph, for an engine that runs the cluster by a compiler.

The input loop stages the batches of all its iterations instead of putting them into an infeed, and the output loop reads
what the engine gives it back instead of an outfeed. The cluster is gone; the variables stay, for checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import in_cluster
from tpugraph.analysis.shapes import is_static
from tpugraph.control_flow.loops import stack_iterations
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.runtime.emulator.end_of_data import stop_at_end_of_data
from tpugraph.runtime.emulator.reads import read_together
from tpugraph.runtime.emulator.system import clear_places, lower_system
from tpugraph.support.errors import RunError

COUNT = "tpugraph/staged/count"
"""The number of whole steps that were staged, int32 []."""

LIMIT = "tpugraph/staged/limit"
"""Fed with the number of steps to stage, int32 []: they may be those of a later loop than the one whose results are read."""

_INT32 = attrs.dtype("int32")
_VARIANT = attrs.dtype("variant")


@dataclass
class HostPart:
    """What the engine takes and gives.

    Attributes:
        staged: of each core, the batches for its infeed, each [iterations, ...].
        outfeed: of each core, the placeholders for what it sent, each [iterations, ...].
        outputs: the placeholder for each value that the cluster returned, by the name of the tensor that it was.
        positions: ops that hold the position of the input for the next checkpoint, whatever is read after them.
    """

    staged: list[list[Tensor]] = field(default_factory=list)
    outfeed: list[list[Tensor]] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    positions: list[str] = field(default_factory=list)


def take_host_part(graph: Graph, iterations: int, *, folded: bool = False, same: bool = False) -> HostPart:
    """Cut the cluster out of a TPU graph that has its entry points, and leave the host's part, in place.

    Args:
        graph: the TPU graph, with shapes.
        iterations: the most steps of a loop.
        folded: give and take the values of all cores as one core's, [iterations, cores, ...], all in one run of the graph.
        same: with ``folded``, whether all cores send the same, which has no dimension of cores then.

    Raises:
        RunError: infeed or outfeed are not handled in a loop.
    """
    found = HostPart()
    puts = analysis.by_core(graph.of_type("InfeedEnqueueTuple"))
    count: Tensor | None = None
    if puts:
        loop = _loop_of(graph, puts[0])
        frame_of = analysis.frames(graph)
        takes = [node for node in graph.of_type("IteratorGetNext") if frame_of[node] == loop.frame]
        if takes:
            read_together(graph, takes)  # as the emulator does: positions of the input mean the same to both
        found.staged = _stage_cores(graph, loop, puts, iterations, folded=folded)
        count = _count(graph, loop)
        if not folded:
            _run_to(graph, loop, Builder(graph).placeholder(_INT32, (), name=LIMIT))
        for put in puts:
            graph.replace_control_uses(put, [*put.controls, *(t.node for t in put.inputs)])
            graph.remove(put)
        stop_at_end_of_data(graph, loop.condition)
    gets = analysis.by_core(graph.of_type("OutfeedDequeueTuple"))
    if gets:
        loop = _loop_of(graph, gets[0])
        if folded and count is not None:
            _run_to(graph, loop, count)
        found.outfeed = [_read_back(graph, loop, group, iterations, stacked=folded and not same)
                         for group in ([gets] if folded else [[get] for get in gets])]  # fmt: skip
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


@dataclass(frozen=True)
class _Loop:
    frame: str
    condition: Node
    counter: Node
    number: Tensor
    pivot: Node


def _loop_of(graph: Graph, node: Node) -> _Loop:
    frame_of = analysis.frames(graph)
    frame = frame_of[node]
    condition = next((n for n in graph.of_type(*ops.LOOP_COND) if frame and frame_of[n] == frame), None)
    counter = None if condition is None else condition.inputs[0].node.inputs[0].node
    if condition is None or counter is None or counter.op not in ops.MERGE:
        raise RunError("the host's side of infeed or outfeed is in no loop over the steps", node=node)
    switch = next(u.node for u in counter.uses(0) if u.node.op in ops.SWITCH)
    pivot = Builder(graph, "tpugraph/staged").identity(switch.out(1), name="pivot").node
    return _Loop(frame, condition, switch, switch.out(1), pivot)


def _count(graph: Graph, loop: _Loop) -> Tensor:
    leave = Builder(graph, "tpugraph/staged").add("Exit", [loop.counter.out(0)], ())
    return Builder(graph).identity(leave, name=COUNT)


def _run_to(graph: Graph, loop: _Loop, limit: Tensor) -> None:
    """Let a loop have so many iterations, instead of as many as the variable says that both loops of the host read."""
    graph.set_input(loop.condition.inputs[0].node, 1, Builder(graph, "tpugraph/staged").enter(limit, loop.frame))


def _hold_positions(graph: Graph) -> list[str]:
    """Let checkpoints save the input's position that was held last; returns the ops that hold the one of now."""
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
    graph: Graph, loop: _Loop, puts: Sequence[Node], iterations: int, *, folded: bool
) -> list[list[Tensor]]:
    """The batches of all iterations, zeros where one did not take place: of each core, or of all cores as one."""
    make = Builder(graph, "tpugraph/staged")
    lists: dict[Tensor, Tensor] = {}

    def staged(tensor: Tensor, shape: attrs.Shape) -> Tensor:
        if tensor not in lists:
            lists[tensor] = stack_iterations(make, tensor, shape or (), frame=loop.frame, condition=loop.condition,
                                             number=loop.number, iterations=iterations)  # fmt: skip
        return lists[tensor]

    if not folded:
        return [[staged(*value) for value in zip(put.inputs, put.attr("shapes"), strict=True)] for put in puts]
    batches = []
    for port, shape in enumerate(puts[0].attr("shapes")):
        each = [put.inputs[port] for put in puts]
        tensor = _divided(each) or make.add("Pack", each, (len(puts), *shape), axis=0)
        numbers = row_numbers(tensor)
        if numbers is None:
            whole = staged(tensor, tensor.shape)
        else:  # rows of a constant: their numbers are staged, and one gather takes the rows of all steps
            rows, axis = (_outside(tensor.node.inputs[index]) for index in (0, 2))
            stack = staged(numbers, numbers.shape)
            whole = make.add("GatherV2", [rows, stack, axis], (iterations, *(tensor.shape or ())), batch_dims=0)
        batches.append(make.reshape(whole, (iterations, len(puts), *shape)))
    return [batches]


def _divided(each: Sequence[Tensor]) -> Tensor | None:
    """What the values of all cores were cut out of along dimension 0, in order; None where that is not known, or its shape."""
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
    """The numbers by which rows of a constant are gathered; None of anything else."""
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


def _read_back(graph: Graph, loop: _Loop, gets: Sequence[Node], iterations: int, *, stacked: bool) -> list[Tensor]:
    """Let the loop read row i of what is given in its iteration i; returns the placeholders for it.

    Args:
        graph: the graph.
        loop: the output loop.
        gets: the reads of the outfeeds of several cores.
        iterations: the rows.
        stacked: whether a row holds the values of all these cores; else they are the same.
    """
    given, make = [], Builder(graph, "tpugraph/staged")
    for port, (kind, shape) in enumerate(gets[0].outputs or ()):
        row_shape = (len(gets), *(shape or ())) if stacked else shape or ()
        given.append(make.placeholder(kind, (iterations, *row_shape)))
        axis = make.constant(np.int32(0), controls=[loop.pivot])
        row = make.add("GatherV2", [make.enter(given[-1], loop.frame), loop.number, axis], row_shape, batch_dims=0)
        pieces = make.node("Unpack", [row], shapes=[shape] * len(gets), num=len(gets), axis=0) if stacked else None
        for core, get in enumerate(gets):
            graph.replace_uses(get.out(port), row if pieces is None else pieces.out(core))
    for get in gets:
        graph.replace_control_uses(get, [loop.pivot])
        graph.remove(get)
    return given

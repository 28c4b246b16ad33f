"""The host's part of a TPU graph, for an engine that runs the cluster outside of TensorFlow.

The input loop stages the batches of all its iterations instead of putting them into an infeed, and the output loop reads
what the engine gives it back instead of an outfeed. The cluster is gone; the variables stay, for checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import in_cluster
from tpugraph.control_flow.loop_lists import stack_iterations
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.runtime.emulator.emulation import clear_places, lower_system
from tpugraph.runtime.emulator.end_of_data import stop_at_end_of_data
from tpugraph.runtime.emulator.reads import read_together
from tpugraph.support.errors import RunError

COUNT = "tpugraph/staged/count"
"""The number of whole steps that were staged, int32 []."""

LIMIT = "tpugraph/staged/limit"
"""Fed with the number of steps to stage, int32 []: they may be those of a later loop than the one whose results are read."""

_INT32 = attrs.dtype("int32")
_VARIANT = attrs.dtype("variant")


@dataclass
class HostPart:
    """What to fetch and what to feed, by tensor name.

    Attributes:
        staged: of each core, the batches for its infeed, each [iterations, ...].
        outfeed: of each core, where to feed what it sent, each [iterations, ...].
        outputs: where to feed what the cluster returned, by the name of the tensor that it was.
        positions: ops that hold the position of the input for the next checkpoint, whatever is read after them.
    """

    staged: list[list[str]] = field(default_factory=list)
    outfeed: list[list[str]] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    positions: list[str] = field(default_factory=list)


def take_host_part(graph: Graph, iterations: int) -> HostPart:
    """Cut the cluster out of a TPU graph that has its entry points, and leave the host's part, in place.

    Args:
        graph: the TPU graph, with shapes.
        iterations: the most steps of a loop.

    Raises:
        RunError: infeed or outfeed are not handled in a loop.
    """
    found = HostPart()
    puts = analysis.by_core(graph.of_type("InfeedEnqueueTuple"))
    if puts:
        loop = _loop_of(graph, puts[0])
        found.staged = [
            [
                _stage(graph, loop, tensor, shape, iterations)
                for tensor, shape in zip(put.inputs, put.attr("shapes"), strict=True)
            ]
            for put in puts
        ]
        _count(graph, loop)
        _own_limit(graph, loop)
        for put in puts:
            graph.replace_control_uses(put, [*put.controls, *(t.node for t in put.inputs)])
            graph.remove(put)
        frame_of = analysis.frames(graph)
        takes = [node for node in graph.of_type("IteratorGetNext") if frame_of[node] == loop.frame]
        if takes:
            read_together(graph, takes)  # as the emulator does: positions of the input mean the same to both
        stop_at_end_of_data(graph, loop.condition)
    gets = analysis.by_core(graph.of_type("OutfeedDequeueTuple"))
    if gets:
        loop = _loop_of(graph, gets[0])
        found.outfeed = [_read_back(graph, loop, get, iterations) for get in gets]
    for node in graph.of_type("TPUReplicatedOutput"):
        for port in node.used_ports():
            kind = node.out(port).dtype
            fed = Builder(graph, "tpugraph/staged").placeholder(kind, ())
            found.outputs[str(node.out(port))] = f"{fed.node.name}:0"
            graph.replace_uses(node.out(port), fed)
    found.positions = _hold_positions(graph)
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


def _count(graph: Graph, loop: _Loop) -> None:
    leave = Builder(graph, "tpugraph/staged").add("Exit", [loop.counter.out(0)], ())
    Builder(graph).identity(leave, name=COUNT)


def _own_limit(graph: Graph, loop: _Loop) -> None:
    """Let the loop run to what is fed instead of to the variable that the loop over the outfeed reads as well."""
    limit = Builder(graph).placeholder(_INT32, (), name=LIMIT)
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


def _stage(graph: Graph, loop: _Loop, tensor: Tensor, shape: tuple[int | None, ...], iterations: int) -> str:
    """The name of the tensor with the values of all iterations, zeros where one did not take place."""
    stacked = stack_iterations(Builder(graph, "tpugraph/staged"), tensor, shape, frame=loop.frame, condition=loop.condition,
                               number=loop.number, iterations=iterations)  # fmt: skip
    return f"{stacked.node.name}:0"


def _read_back(graph: Graph, loop: _Loop, get: Node, iterations: int) -> list[str]:
    """Let the loop read row i of what is fed in its iteration i; returns the names to feed."""
    names, make = [], Builder(graph, "tpugraph/staged")
    for port, (kind, shape) in enumerate(get.outputs or ()):
        fed = make.placeholder(kind, (iterations, *(shape or ())))
        names.append(f"{fed.node.name}:0")
        axis = make.constant(np.int32(0), controls=[loop.pivot])
        row = make.add("GatherV2", [make.enter(fed, loop.frame), loop.number, axis], shape, batch_dims=0)
        graph.replace_uses(get.out(port), row)
    graph.replace_control_uses(get, [loop.pivot])
    graph.remove(get)
    return names

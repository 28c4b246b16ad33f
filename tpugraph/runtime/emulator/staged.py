"""The whole training loop as one XLA computation on staged batches, as a TPU runs it.

Where a step is one call of a compiled function, a launch per step costs more than a small step itself. Here the loop of
the graph only reads: it puts the batches of all its steps into lists. Then one launch runs the steps, in a loop inside
the computation, and gives the results of every step, stacked, and those of the last step.

The rule: what a step returns is stacked by TensorArray writes at the loop's counter or carried to the last step, no
value of one step is read in the next, what is left of the graph's loop touches no variable that the step touches, and all
that is stacked has a static shape and is small. Otherwise the graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis.shapes import element_count
from tpugraph.control_flow.loop_lists import stack_iterations
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import Carried
from tpugraph.runtime.emulator.loop_function import loop_function, output_of, results_of, stack_of
from tpugraph.runtime.emulator.step_loop import StepLoop, step_loop

MOST_BYTES = 128 * 2**20
"""The biggest size of all batches and results of a loop."""


def stage_loop(graph: Graph, call: Node, steps: int) -> bool:
    """Move the steps of the loop around ``call`` into one computation; returns whether the rule allows it.

    Args:
        graph: the lowered graph.
        call: the XlaLaunch of one step.
        steps: the most steps that a loop has.
    """
    loop = step_loop(graph, call)
    if loop is None:
        return False
    stacked = [*loop.staged, *results_of(loop)[0]]
    if any(element_count(t.shape) is None for t in stacked) or _bytes(stacked) * steps > MOST_BYTES:
        return False
    name = loop_function(graph, loop, steps)
    lists = _stage_all(graph, loop, steps)
    launch = _launch(graph, loop, name, lists, steps)
    _deliver(graph, loop, launch)
    return True


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum((element_count(t.shape) or 0) * (t.dtype.size or 0) for t in tensors)


# --------------------------------------------------------------------------- around the computation


def _stage_all(graph: Graph, loop: StepLoop, steps: int) -> list[Tensor]:
    """The stacked values of all that is staged; of rows of constants their numbers, and the rows in one go."""
    lists: dict[Tensor, Tensor] = {}
    for tensor in loop.staged:
        numbers = numbers_of(tensor)
        source = tensor if numbers is None else numbers
        if source not in lists:
            lists[source] = _stage(graph, loop, source, steps)
        if numbers is not None:
            lists[tensor] = _gather(graph, tensor, lists[numbers], steps)
    return [lists[tensor] for tensor in loop.staged]


def numbers_of(tensor: Tensor) -> Tensor | None:
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


def _gather(graph: Graph, tensor: Tensor, numbers: Tensor, steps: int) -> Tensor:
    node = tensor.node
    inputs = [_outside(node.inputs[0]), numbers, _outside(node.inputs[2])]
    return graph.add("GatherV2", "tpugraph/stage/rows", inputs, attrs=node.raw_attrs,
                     outputs=[stack_of(tensor, steps)]).out()  # fmt: skip


def _stage(graph: Graph, loop: StepLoop, tensor: Tensor, steps: int) -> Tensor:
    """The values of all iterations, stacked; zeros where an iteration did not take place."""
    return stack_iterations(
        Builder(graph, "tpugraph/stage"), tensor, tensor.shape or (), frame=loop.frame, condition=loop.condition,
        number=loop.counter.switches[0].out(1), iterations=steps,
    )  # fmt: skip


def _launch(graph: Graph, loop: StepLoop, name: str, lists: list[Tensor], steps: int) -> Node:
    every, last = results_of(loop)
    count = loop.counter.exits[0].out()
    values = [count, *lists, *(carried.initial for carried in loop.lasts.values()), *loop.fixed.values()]
    results = [*(stack_of(t, steps) for t in every), *map(output_of, last)]
    return graph.add(
        "XlaLaunch",
        "tpugraph/steps",
        [*values, *loop.variables],
        attrs={"Tconstants": [], "Targs": [t.dtype for t in values], "Nresources": len(loop.variables),
               "Tresults": [kind for kind, _ in results], "function": attrs.Func(name)},
        outputs=results,
    )  # fmt: skip


def _deliver(graph: Graph, loop: StepLoop, launch: Node) -> None:
    """Let the readers of the loop's results read the computation's; what else leaves the loop waits for it."""
    own = graph.ancestors([launch])
    frame_of = analysis.frames(graph)
    gone: list[Node] = [loop.call, *loop.writes]
    for port, (write, flow) in enumerate(loop.writes.items()):
        _replace_carried(graph, flow, _write_all(graph, loop, write, flow, launch.out(port)), gone)
    for port, last in enumerate(loop.lasts.values(), len(loop.writes)):
        _replace_carried(graph, last, launch.out(port), gone)
    for leave in graph.of_type(*ops.EXIT):
        if frame_of.get(leave) == loop.frame and leave not in gone:
            _let_wait(graph, leave, launch, own)
    graph.replace_control_uses(loop.call, [])
    graph.remove_all(gone)
    graph.remove_all([node for node in graph.of_type(*ops.ENTER)
                      if node.attr("frame_name") == loop.frame and not node.consumers()])  # fmt: skip


def _replace_carried(graph: Graph, carried: Carried, value: Tensor, gone: list[Node]) -> None:
    for leave in carried.exits:
        graph.replace_uses(leave.out(), value)
        graph.replace_control_uses(leave, [value.node])
    gone += [carried.merge, *carried.switches, carried.closing, *carried.inside, *carried.exits]


def _write_all(graph: Graph, loop: StepLoop, write: Node, flow: Carried, stack: Tensor) -> Tensor:
    """The flow of the TensorArray after the values of all iterations are written."""
    shape = stack.shape or ()
    count, make = loop.counter.exits[0].out(), Builder(graph, "tpugraph/stage")
    all_of = [make.constant(np.int32(-1)) for _ in shape[1:]]
    size = make.add("Pack", [count, *all_of], (len(shape),), axis=0)
    zeros = make.constant(np.zeros(len(shape), "int32"))
    values = make.add("Slice", [stack, zeros, size], (None, *shape[1:]))
    indices = make.add("Range", [make.constant(np.int32(0)), count, make.constant(np.int32(1))], (None,))
    array = write.inputs[0].node.inputs[0]
    return make.add("TensorArrayScatterV3", [array, indices, values, flow.initial], flow.merge.out().shape)


def _let_wait(graph: Graph, leave: Node, launch: Node, own: analysis.NodeSet) -> None:
    """Let what reads this value of the loop, except what leads to the computation, wait for the computation."""
    value = leave.out()
    graph.replace_control_uses(leave, [launch])
    if all(use.node in own for use in leave.uses()):
        return
    after = graph.add("Identity", "tpugraph/stage/after", [value], attrs={"T": value.dtype}, controls=[launch],
                      outputs=[output_of(value)])  # fmt: skip
    graph.replace_uses(value, after.out(), where=lambda use: use.node is not after and use.node not in own)

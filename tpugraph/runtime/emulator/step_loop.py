"""What a loop around the launch of a step does: what each iteration reads, and where its results go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tpugraph import analysis, ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.loops import Carried
from tpugraph.ir.loops import carried as carried_by
from tpugraph.ir.pattern import anything, match, number, op

_INT32 = attrs.dtype("int32")
_PUT_IN = {op: held.puts for op, held in ops.CONTENTS.items() if held.index is not None and not held.value}
"""Ops that put an element into an array at a place, and which operand is the element."""


@dataclass
class StepLoop:
    """What the rewrite needs to know of the loop.

    Attributes:
        call: the launch of one step.
        frame: the loop.
        condition: the loop's LoopCond.
        counter: the number of the iteration, carried from 0.
        staged: what a step reads that differs from step to step.
        fixed: what it reads that does not, by its value outside the loop.
        variables: the handles that it reads, outside the loop.
        writes: TensorArray writes of results, with the flow that the loop carries for each.
        lasts: carried results of which nothing but the last is read, by NextIteration.
    """

    call: Node
    frame: str
    condition: Node
    counter: Carried
    staged: list[Tensor]
    fixed: dict[Tensor, Tensor]
    variables: list[Tensor]
    writes: dict[Node, Carried] = field(default_factory=dict)
    lasts: dict[Node, Carried] = field(default_factory=dict)


def step_loop(graph: Graph, call: Node) -> StepLoop | None:
    """The loop around ``call``, or None where its steps cannot be told apart from the rest of it."""
    frame_of = analysis.frames(graph)
    frame = frame_of[call]
    loops = [found for merge in graph.of_type(*ops.MERGE)
             if frame_of[merge] == frame and (found := carried_by(merge)) is not None]  # fmt: skip
    carried = {found.closing: found for found in loops if len(found.switches) == 1}
    counter = next((c for c in carried.values() if _counts(c)), None)
    if counter is None:
        return None
    reads = [t for t in call.inputs if t.dtype.name != "resource"]
    fixed = {t: t.node.inputs[0] for t in reads if t.node.op in ops.ENTER}
    handles = [t for t in call.inputs if t.dtype.name == "resource"]
    if any(t.node.op not in ops.ENTER for t in handles) or _touched_elsewhere(handles, call):
        return None
    loop = StepLoop(
        call, frame, counter.switches[0].inputs[1].node, counter, [t for t in reads if t not in fixed], fixed,
        [t.node.inputs[0] for t in handles],
    )  # fmt: skip
    for use in call.uses():
        flow = _flow_of(use.node, use.index, carried)
        if flow is not None:
            loop.writes[use.node] = flow
        elif use.node in carried and not any(node.consumers() for node in carried[use.node].inside):
            loop.lasts[use.node] = carried[use.node]
        else:
            return None
    return loop


_PLUS_ONE = op(("Add", "AddV2"), anything("before"), number(1))


def _counts(carried: Carried) -> bool:
    """Whether the value is 0, 1, 2 and so on, and leaves the loop."""
    following = match(_PLUS_ONE, carried.following)
    return (
        bool(carried.exits)
        and carried.merge.out().dtype == _INT32
        and _integer(carried.initial) == 0
        and bool(following)
        and following["before"].node in carried.inside
    )


def _integer(tensor: Tensor) -> int | None:
    return int(tensor.node.attr("value")) if tensor.node.op in ops.CONSTANTS and tensor.shape == () else None


def _flow_of(node: Node, index: int, carried: dict[Node, Carried]) -> Carried | None:
    """The flow of a TensorArray that takes this as the element of the iteration's own number, and that nothing reads."""
    if index != _PUT_IN.get(node.op) or node.inputs[0].node.op not in ops.ENTER:
        return None
    _, number, _, flow = (t.node for t in node.inputs)
    following = node.consumers()[0]
    found = carried.get(following)
    alone = (
        found is not None and node.consumers() == [following] and flow in found.inside and flow.consumers() == [node]
    )
    counts = any(number in c.inside for c in carried.values() if _counts(c))
    return found if alone and counts else None


def _touched_elsewhere(handles: Sequence[Tensor], call: Node) -> bool:
    """Whether another op of the loop uses one of these variables."""
    for handle in handles:
        entries = [use.node for use in handle.node.inputs[0].node.uses(handle.node.inputs[0].port)
                   if use.node.op in ops.ENTER and use.node.attr("frame_name") == handle.node.attr("frame_name")]  # fmt: skip
        if any(use.node is not call for entry in entries for use in entry.uses()):
            return True
    return False

"""Loops over the steps of a call, ``while i < limit``: those of host and device, and those of two hosts, can be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.ir import Graph, Node
from tpugraph.ir.loops import Counted, counted
from tpugraph.support.errors import RunError


@dataclass(frozen=True)
class LoopOfSteps:
    """A loop ``while i < limit`` over the steps, and its frame."""

    frame: str
    parts: Counted

    @property
    def condition(self) -> Node:
        """Its LoopCond."""
        return self.parts.condition

    def pivot(self) -> Node:
        """The Identity that hands the counter to the body, once per iteration.

        Raises:
            RunError: there is none.
        """
        found = next((node for node in self.parts.counter.inside if node.op in ops.IDENTITIES), None)
        if found is None:
            raise RunError("the loop has no pivot", node=self.parts.counter.merge)
        return found


def loop_of_frame(graph: Graph, frame_of: Mapping[Node, str], frame: str) -> LoopOfSteps | None:
    """The loop of a frame; None where there is none, or it counts to no variable."""
    if not frame:
        return None
    for condition in graph.of_type(*ops.LOOP_COND):
        if frame_of.get(condition) == frame:
            parts = counted(condition)
            return None if parts is None else LoopOfSteps(frame, parts)
    return None


def unite(graph: Graph, one: LoopOfSteps, into: LoopOfSteps) -> bool:
    """Let the iterations of one loop take place in those of another; returns False where they count to different limits."""
    if one.parts.limit is not into.parts.limit:
        return False
    for node in graph.of_type(*ops.ENTER):
        if node.attr("frame_name") in (one.frame, into.frame):
            graph.set_attr(node, "frame_name", into.frame)
            graph.set_attr(node, "parallel_iterations", 1)  # one step at a time, so that reads come in their order
    for use in one.condition.uses():
        graph.set_input(use.node, use.index, into.condition.out())
    pivot, own = into.pivot(), one.pivot()
    graph.replace_control_uses(own, [pivot])
    graph.replace_uses(own.out(), pivot.out(), where=lambda use: not _closes(use.node, one))
    return True


def _closes(node: Node, loop: LoopOfSteps) -> bool:
    """Whether a node is the increment of the loop's own counter."""
    return loop.parts.counter.closing in node.consumers()

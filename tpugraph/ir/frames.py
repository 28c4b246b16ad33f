"""Loops as TensorFlow 1 writes them: every circle closes at NextIteration, and every node stands in one frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from tpugraph import ops
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node
from tpugraph.support.errors import GraphError

_FIX = "write the loop with tf.while_loop"


@dataclass(frozen=True)
class _Frame:
    """A loop: its name and the loop around it, None at the top of the graph."""

    name: str
    parent: _Frame | None


def check_loops(graph: Graph, *, ordered: bool = False) -> None:
    """See that all circles are loops, and that loops are whole.

    Args:
        graph: the graph.
        ordered: whether each node is known to stand behind all that it reads and waits for: then there are no circles.

    Raises:
        GraphError: a circle that is no loop, a node that reads from two loops at once, a loop without a beginning or a condition,
            or one that is left without having been entered.
    """
    closing = graph.of_type(*ops.NEXT_ITERATION, *ops.ENTER, *ops.EXIT, *ops.LOOP_COND)
    if not closing:
        if not ordered:
            graph.check_order()
        return
    frames: dict[Node, _Frame | None] = {}
    entered: dict[str, _Frame] = {}
    for node in graph.topological_order():
        frames[node] = _frame_of(node, frames, entered)
    for node in closing:
        if node.op in ops.NEXT_ITERATION:
            _check_closing(node, frames)
    conditions = {frames[node] for node in graph.of_type(*ops.LOOP_COND)}
    for node in graph.of_type(*ops.ENTER):
        if frames[node] not in conditions:
            raise GraphError(f"the loop '{node.attr('frame_name')}' has no condition (LoopCond)", node=node, fix=_FIX)


def _frame_of(node: Node, frames: dict[Node, _Frame | None], entered: dict[str, _Frame]) -> _Frame | None:
    """The frame that the outputs of a node belong to."""
    found = _common(node, chain([maker for maker, _ in node.inputs], node.controls), frames)
    if node.op in ops.ENTER:
        name = node.attr("frame_name")
        frame = entered.setdefault(name, _Frame(name, found))
        if frame.parent is not found and frame.parent != found:
            raise GraphError(f"the loop '{name}' is entered from two loops", node=node, fix=_FIX)
        return frame
    if found is None and (node.op in ops.EXIT or node.op in ops.NEXT_ITERATION or node.op in ops.LOOP_COND):
        raise GraphError(f"{node.op} stands outside of any loop", node=node, fix=_FIX)
    return found.parent if found is not None and node.op in ops.EXIT else found


def _common(node: Node, makers: Iterable[Node], frames: dict[Node, _Frame | None]) -> _Frame | None:
    """The one frame that all inputs come from; the way back to a Merge is not there yet."""
    first, found = None, None
    for maker in makers:
        if maker not in frames:
            continue
        if first is None:
            first, found = maker, frames[maker]
        elif frames[maker] is not found and frames[maker] != found:
            raise GraphError(f"'{first.name}' and '{maker.name}' are in different loops, and one node reads both",
                             node=node, fix=_FIX)  # fmt: skip
    return found


def _check_closing(node: Node, frames: dict[Node, _Frame | None]) -> None:
    for merge in node.consumers():
        entries = [maker for maker, _ in merge.inputs if maker.op in ops.ENTER]
        if merge.op not in ops.MERGE or len(merge.inputs) != 2 or len(entries) != 1:
            raise GraphError(
                "NextIteration leads to no Merge with an Enter: the loop has no beginning", node=node, fix=_FIX
            )
        if frames[merge] != frames[node]:
            raise GraphError(f"NextIteration leads to '{merge.name}' of another loop", node=node, fix=_FIX)

"""TF1 loops: the frame of each node, the topological order of nodes in loops, and loop variables.

An Enter starts a loop and names its frame; its descendants are in the frame, up to an Exit. A nested loop has its own frame.
Every cycle contains a NextIteration. ``tf.while_loop`` writes each loop variable as ``Merge(Enter(initial),
NextIteration(following))``; a Switch on the loop's condition forwards the Merge's value to the body, or to an Exit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpugraph import ops
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.pattern import behind, match, op
from tpugraph.ir.walks import is_back_edge, source_of
from tpugraph.support.errors import GraphError

_FIX = "write the loop with tf.while_loop"


def frames(graph: Graph) -> dict[Node, str]:
    """The innermost TF1 loop frame of each node; "" is the frame of the graph itself.

    An Exit belongs to the frame that it leaves; its readers belong to the outer frame.
    """
    return graph.remember("frames", lambda graph: _Frames(graph).of)


def frames_around(graph: Graph) -> dict[str, str]:
    """The outer frame of each frame, by name; that of the graph itself, "", is ""."""
    return _Frames(graph).around


def frame_chain(around: Mapping[str, str], frame: str) -> list[str]:
    """A frame and its outer frames, the graph itself last."""
    chain = [frame]
    while chain[-1]:
        chain.append(around[chain[-1]])
    return chain


def check_loops(graph: Graph) -> None:
    """Check that all cycles are loops, and that loops are complete."""
    graph.topological_order()
    closing = graph.of_type(*ops.NEXT_ITERATION, *ops.ENTER, *ops.EXIT, *ops.LOOP_COND)
    if not closing:
        return
    _check_inside(closing, graph.descendants(graph.of_type(*ops.ENTER)))
    frame_of = _Frames(graph, check=True).of
    _check_inside(closing, {node for node, frame in frame_of.items() if frame})
    for node in graph.of_type(*ops.NEXT_ITERATION):
        _check_closing(node, frame_of)
    conditions = {frame_of[node] for node in graph.of_type(*ops.LOOP_COND)}
    for node in graph.of_type(*ops.ENTER):
        if frame_of[node] not in conditions:
            raise GraphError(f"the loop '{node.attr('frame_name')}' has no condition (LoopCond)", node=node, fix=_FIX)


def _check_inside(closing: Iterable[Node], inside: Container[Node]) -> None:
    for node in closing:
        if node not in inside:
            raise GraphError(f"{node.op} stands outside of any loop", node=node, fix=_FIX)


def _check_closing(node: Node, frame_of: Mapping[Node, str]) -> None:
    for merge in node.consumers():
        if carried(merge) is None:
            raise GraphError(
                "NextIteration leads to no Merge with an Enter: the loop has no beginning", node=node, fix=_FIX
            )
        if frame_of[merge] != frame_of[node]:
            raise GraphError(f"NextIteration leads to '{merge.name}' of another loop", node=node, fix=_FIX)


class _Frames:
    """The frame of each node (``of``) and the outer frame of each frame (``around``), computed in topological order.

    Raises:
        GraphError: a node that reads from two loops; with a single loop only if ``check`` asks for it.
    """

    def __init__(self, graph: Graph, *, check: bool = False) -> None:
        self.of: dict[Node, str] = dict.fromkeys(graph, "")
        self.around: dict[str, str] = {"": ""}
        enters = graph.of_type(*ops.ENTER)
        named: set[str] = {enter.attr("frame_name") for enter in enters}
        if len(named) == 1 and not check:  # which needs no topological order
            self.around |= dict.fromkeys(named, "")
            self.of |= dict.fromkeys(graph.descendants(enters, until=ops.EXIT), named.pop())
            return
        inside = graph.descendants(enters)  # nodes behind no Enter are in no loop
        for node in graph.topological_order(inside) if inside else ():
            around = self._read_from(node)
            self.of[node] = self._entered(node, around) if node.op in ops.ENTER else around

    def _entered(self, enter: Node, around: str) -> str:
        frame: str = enter.attr("frame_name")
        if self.around.setdefault(frame, around) != around:
            raise GraphError(f"the loop '{frame}' is entered from two loops", node=enter, fix=_FIX)
        return frame

    def _read_from(self, node: Node) -> str:
        """The frame of a node's data inputs, or else the innermost frame of its control inputs."""
        first, found = None, ""
        for producer, _ in node.inputs:
            if is_back_edge(producer, node):
                continue
            frame = self._behind(producer)
            if first is not None and frame != found:
                raise _in_two_loops(node, first, producer)
            first, found = producer, frame
        reads = first is not None
        for producer in node.controls:
            frame = self._behind(producer)
            if frame in frame_chain(self.around, found):  # in a TPU's loop TensorFlow allows control edges from outside
                first = first or producer
                continue
            if reads or found not in frame_chain(self.around, frame):
                raise _in_two_loops(node, first or node, producer)
            first, found = producer, frame
        return found

    def _behind(self, producer: Node) -> str:
        frame = self.of[producer]
        return self.around[frame] if producer.op in ops.EXIT else frame


def _in_two_loops(node: Node, one: Node, other: Node) -> GraphError:
    return GraphError(f"'{one.name}' and '{other.name}' are in different loops, and one node reads both",
                      node=node, fix=_FIX)  # fmt: skip


def loop_order(graph: Graph, nodes: Mapping[Node, Any]) -> list[Node]:
    """The nodes in topological order, with the exits of a loop after its whole body."""
    frame_of = frames(graph)
    ends: dict[str, list[Node]] = {}
    for node in nodes:
        if node.op in ops.NEXT_ITERATION:
            ends.setdefault(frame_of[node], []).append(node)
    if not ends:
        return graph.topological_order(nodes)
    bodies = {node: ends.get(frame_of[node], ()) for node in nodes if node.op in ops.EXIT}
    try:
        return graph.topological_order(nodes, extra=bodies)
    except GraphError:  # a loop reads the result of another one with the same frame name
        return graph.topological_order(nodes)


@dataclass(frozen=True)
class Carried:
    """A loop variable: ``merge`` takes the initial value from ``enter``, then from ``closing``, the NextIteration."""

    merge: Node
    enter: Node
    closing: Node

    @property
    def initial(self) -> Tensor:
        return self.enter.inputs[0]

    @property
    def following(self) -> Tensor:
        return self.closing.inputs[0]

    @property
    def switches(self) -> list[Node]:
        """The Switches that forward the value to the body or out of the loop."""
        return [use.node for use in self.merge.uses(0) if use.node.op in ops.SWITCH and use.index == 0]

    @property
    def inside(self) -> list[Node]:
        """The readers of the value in the body."""
        return [use.node for switch in self.switches for use in switch.uses(1)]

    @property
    def exits(self) -> list[Node]:
        """The Exits with the final value."""
        return [use.node for switch in self.switches for use in switch.uses(0) if use.node.op in ops.EXIT]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor of the body is the value, through identities."""
        node, port = source_of(tensor)
        return node.op in ops.SWITCH and port == 1 and node.inputs[0].node is self.merge


@dataclass(frozen=True)
class Counted:
    """A loop ``while counter < limit`` with the limit in a variable."""

    condition: Node
    counter: Carried
    limit: Node

    @property
    def frame(self) -> str:
        name: str = self.counter.enter.attr("frame_name")
        return name

    @property
    def number(self) -> Tensor:
        """The index of the iteration, in the body, int32 []."""
        return self.counter.switches[0].out(1)

    @property
    def pivot(self) -> Node:
        """The Identity of the counter, which runs once per full iteration."""
        found = next((node for node in self.counter.inside if node.op in ops.IDENTITIES), None)
        if found is None:
            raise GraphError("the loop has no pivot", node=self.counter.merge, fix=_FIX)
        return found


def carried(merge: Node) -> Carried | None:
    """The loop variable of a Merge; None where the Merge joins branches, or the node is no Merge."""
    if merge.op not in ops.MERGE or len(merge.inputs) != 2:
        return None
    enter = next((tensor.node for tensor in merge.inputs if tensor.node.op in ops.ENTER), None)
    closing = next((tensor.node for tensor in merge.inputs if tensor.node.op in ops.NEXT_ITERATION), None)
    return None if enter is None or closing is None else Carried(merge, enter, closing)


_BELOW_A_VARIABLE = op(
    ops.LOOP_COND,
    op(
        "Less",
        op(ops.MERGE, op(ops.ENTER), op(ops.NEXT_ITERATION), name="counter"),
        behind(ops.ENTER | ops.READS | ops.IDENTITIES, op(ops.RESOURCE_VARIABLES, name="limit")),
    ),
)


def counted(condition: Node) -> Counted | None:
    """The loop of a LoopCond, if it counts to the value of a variable; else None."""
    found = match(_BELOW_A_VARIABLE, condition.out())
    counter = carried(found["counter"].node) if found else None
    return None if counter is None else Counted(condition, counter, found["limit"].node)


def why_not_counted(condition: Node) -> str:
    """Which node differs from a loop that counts to the value of a variable; "" where none does."""
    return match(_BELOW_A_VARIABLE, condition.out()).why

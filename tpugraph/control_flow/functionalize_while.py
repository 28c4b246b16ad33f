"""TF1 control flow raised to functional control flow: loop frames become While, conditionals become If.

A compiler wants loops and branches as functions. TF1 draws them as dataflow: Enter, Merge, Switch, NextIteration, Exit.
The frames are taken from the inside out, so that what is nested is one node by the time its surroundings are raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tpugraph import analysis, ops
from tpugraph.control_flow import functionalize_cond, scopes
from tpugraph.ir import Graph, Node, Tensor, loops
from tpugraph.ir.attrs import Func
from tpugraph.ir.loops import Carried
from tpugraph.ir.walks import reached, source_of
from tpugraph.support.errors import ConversionError


@dataclass(frozen=True)
class Raised:
    """What was raised: the number of loops and of conditionals outside of them."""

    loops: int
    branches: int


def raise_control_flow(graph: Graph) -> Raised:
    """Turn every TF1 loop and conditional of a graph, nested ones and gradients too, into While and If, in place.

    Each tensor's dtype must be known. What leaves a loop keeps its name: the Exit becomes an Identity of the While.

    Raises:
        ConversionError: a loop or conditional of another form than ``tf.while_loop`` and ``tf.cond`` make; its node
            is named.
    """
    for node in graph:
        if node.has_attr("_class"):
            graph.set_attr(node, "_class", None)  # asks to be placed beside a node that may move into a function
    count = 0
    while graph.of_type(*ops.ENTER):
        _raise_loop(_innermost(graph))
        count += 1
    return Raised(count, functionalize_cond.raise_branches(graph))


# --------------------------------------------------------------------------- finding loops


@dataclass
class _Frame:
    """One loop.

    Attributes:
        graph: the graph.
        name: the frame's name.
        nodes: everything in the frame.
        condition: its LoopCond.
        carried: its carried values.
        fixed: the Enters of values that stay the same.
    """

    graph: Graph
    name: str
    nodes: dict[Node, None]
    condition: Node
    carried: list[Carried] = field(default_factory=list)
    fixed: list[Node] = field(default_factory=list)


def _innermost(graph: Graph) -> _Frame:
    frame_of = analysis.frames(graph)
    around = {
        frame_of[p]
        for enter in graph.of_type(*ops.ENTER)
        for p in enter.producers()
        if p.op not in ops.EXIT and frame_of[p] != frame_of[enter]
    }
    name = next((frame_of[e] for e in graph.of_type(*ops.ENTER) if frame_of[e] not in around), None)
    if name is None:
        raise ConversionError("the loops enclose each other", node=graph.of_type(*ops.ENTER)[0])
    nodes = {node: None for node in graph if frame_of[node] == name}
    conditions = [node for node in nodes if node.op in ops.LOOP_COND]
    if len(conditions) != 1:
        raise ConversionError(
            f"the loop '{name}' has {len(conditions)} conditions, not one",
            node=next(iter(nodes)), fix="write the loop with tf.while_loop",
        )  # fmt: skip
    frame = _Frame(graph, name, nodes, conditions[0])
    for enter in (node for node in nodes if node.op in ops.ENTER):
        merge = next((use.node for use in enter.uses() if use.node.op in ops.MERGE), None)
        if merge is None:
            frame.fixed.append(enter)
        elif len(enter.uses()) > 1:
            raise ConversionError("the first value of a loop is read past its Merge", node=enter)
        else:
            frame.carried.append(_carried(merge))
    return frame


def _carried(merge: Node) -> Carried:
    found = loops.carried(merge)
    if found is None or merge.uses(1):
        raise ConversionError("the Merge closes no loop of tf.while_loop", node=merge)
    return found


def _inside(carried: Carried) -> list[Tensor]:
    """All that stands for a value within an iteration."""
    return [carried.merge.out(), *(switch.out(1) for switch in carried.switches)]


# --------------------------------------------------------------------------- one loop


def _raise_loop(frame: _Frame) -> None:
    graph = frame.graph
    switches = {switch for carried in frame.carried for switch in carried.switches}
    closings = {t.node for c in frame.carried for t in c.merge.inputs}
    borders = {*frame.fixed, *switches, *closings, frame.condition, *(c.merge for c in frame.carried)}
    exits = [node for node in frame.nodes if node.op in ops.EXIT]
    inner = [node for node in frame.nodes if node not in borders and node.op not in ops.EXIT]
    test = _needed(frame, [frame.condition.inputs[0]], [], borders)
    effects = [node for node in inner if node not in test and functionalize_cond.has_effects(node)]
    body = _needed(frame, [c.following for c in frame.carried], effects, borders)
    arguments = [*map(_inside, frame.carried), *([e.out()] for e in frame.fixed)]
    results = [*(c.following for c in frame.carried), *(e.out() for e in frame.fixed)]
    reads_condition = [use for use in frame.condition.uses() if use.node in body]
    if reads_condition:
        raise ConversionError("the loop's body reads its condition", node=reads_condition[0].node)
    label = "".join(c if c.isalnum() else "_" for c in frame.name)
    names = {
        key: scopes.make_function(
            graph, f"tpugraph_{label}_{key}", nodes, arguments, returned, finish=functionalize_cond.finishing(nodes)
        )
        for key, nodes, returned in (("cond", test, [frame.condition.inputs[0]]), ("body", body, results))
    }
    initial = [*(c.initial for c in frame.carried), *(e.inputs[0] for e in frame.fixed)]
    loop = graph.add(
        "While" if effects else "StatelessWhile",
        f"{frame.condition.name}/While",
        initial,
        controls=_waits(frame),
        attrs={"T": [t.dtype for t in initial], "cond": Func(names["cond"]), "body": Func(names["body"]),
               "output_shapes": [], "parallel_iterations": 1, "_xla_propagate_compile_time_consts": True},
        outputs=[group[0].node.output(group[0].port) for group in arguments],
        source=frame.condition,
    )  # fmt: skip
    _leave(frame, loop, exits)
    graph.remove_all(node for node in frame.nodes if node not in exits)


def _needed(frame: _Frame, results: Iterable[Tensor], effects: Iterable[Node], borders: set[Node]) -> dict[Node, None]:
    """The nodes behind the borders that make some results and have some effects."""

    def behind(nodes: Iterable[Node]) -> Iterable[Node]:
        return (node for node in nodes if node in frame.nodes and node not in borders)

    return reached(behind([*(t.node for t in results), *effects]), lambda node: behind(node.producers()))


def _waits(frame: _Frame) -> list[Node]:
    return list(dict.fromkeys(c for n in frame.nodes for c in n.controls if c not in frame.nodes))


def _leave(frame: _Frame, loop: Node, exits: list[Node]) -> None:
    """Let what leaves the loop come from the While."""
    number = {switch: i for i, c in enumerate(frame.carried) for switch in c.switches}
    for node in exits:
        left = source_of(node.inputs[0])  # a gradient puts an identity between Switch and Exit
        switch = left.node
        if switch not in number or left.port != 0:
            raise ConversionError("what leaves the loop is no carried value", node=node)
        value = loop.out(number[switch])
        frame.graph.set_controls(node, [])
        frame.graph.retype(
            node, "Identity", inputs=[value], attrs={"T": value.dtype}, outputs=[loop.output(value.port)]
        )
    for node in frame.nodes:
        for waiting in node.control_uses():
            if waiting not in frame.nodes:
                frame.graph.remove_control(waiting, node)
                frame.graph.add_control(waiting, loop)

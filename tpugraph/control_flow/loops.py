"""Builds TF1 while loops around nodes of a graph, fuses two of them, and stacks the values of all iterations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis.step import Results
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import DType, Shape
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import Counted, counted, frames, frames_around
from tpugraph.support.errors import GraphError

_INT32 = attrs.dtype("int32")


@dataclass
class Loop:
    """An open loop ``for i in range(limit)``; :meth:`carry` values, :meth:`enclose` nodes, then :meth:`close` it.

    Args:
        limit: handle of the int32 resource variable that holds the number of iterations.
    """

    graph: Graph
    name: str
    limit: Tensor
    attributes: dict[str, Any] = field(default_factory=dict)
    device: str = ""

    def __post_init__(self) -> None:
        self._own: dict[Node, None] = {}
        self._enters: dict[Tensor, Tensor] = {}
        self._open: list[tuple[Node, Tensor | None]] = []  # merges with their updates
        self._exits: list[Tensor] = []
        zero = self._add("Const", name="zero", dtype=_INT32, value=np.int32(0))
        merge = self._merge(zero.out())
        read = self._add("ReadVariableOp", [self.enter(self.limit)], name="limit", controls=[merge], dtype=_INT32)
        less = self._add("Less", [merge.out(), read.out()], name="less")
        self.condition = self._add("LoopCond", [less.out()], name="condition")
        self.counter = self._body_value(merge)  # the iteration index, inside the body
        # runs once per full iteration; body nodes without inputs get a control edge from it
        self.pivot = self.counter.node
        self._increment_step = self._add("Const", name="one", controls=[self.pivot], dtype=_INT32, value=np.int32(1))
        increment = self._add("AddV2", [self.counter, self._increment_step.out()], name="next")
        self._open[0] = (merge, increment.out())

    def enter(self, tensor: Tensor) -> Tensor:
        """The loop-invariant value of an outside tensor, inside the body."""
        if tensor not in self._enters:
            node = self._add("Enter", [tensor], [tensor.shape], scope="", name=f"{tensor.node.name}/Enter", frame_name=self.name,
                             is_constant=True, parallel_iterations=1)  # fmt: skip
            self._enters[tensor] = node.out()
        return self._enters[tensor]

    def carry(self, initial: Tensor) -> tuple[int, Tensor]:
        """Add a loop variable; returns its index and its value inside the body."""
        index = len(self._open)
        merge = self._merge(initial)
        return index, self._body_value(merge)

    def update(self, index: int, value: Tensor) -> None:
        """Set the value of loop variable ``index`` for the next iteration."""
        self._open[index] = (self._open[index][0], value)

    def enclose(self, nodes: Iterable[Node]) -> None:
        """Move nodes into the body: outside inputs enter as loop invariants, nodes without inputs wait for the pivot."""
        body, own = dict.fromkeys(nodes), self._own
        groups: dict[
            int, list[Node]
        ] = {}  # the control inputs inside the body, for each set of control inputs that nodes share
        for node in body:
            inside = False
            for index, tensor in enumerate(node.inputs):
                if tensor.node in body or tensor.node in own:
                    inside = inside or tensor.node.op not in ops.ENTER or tensor.node in body
                    continue
                self.graph.set_input(node, index, self._merged(tensor) if node.op in ops.MERGE else self.enter(tensor))
            kept = groups.get(id(node.controls))
            if kept is None:
                kept = groups[id(node.controls)] = [c for c in node.controls if c in body or c in own]
            self.graph.set_controls(node, kept if inside or kept else [self.pivot])
        self._own.update(body)

    def finish_after(self, nodes: Iterable[Node]) -> None:
        """Make the end of an iteration wait for these nodes."""
        self.graph.add_controls(self._increment_step, nodes)

    def close(self) -> list[Tensor]:
        """Close the loop; returns the final values of the counter and of each loop variable."""
        for merge, value in self._open:
            if value is None:
                raise GraphError("a carried value is never updated", node=merge)
            following = self._add("NextIteration", [value], [merge.out().shape])
            self.graph.set_input(merge, 1, following.out())
        for node in self._own:
            for use in node.uses():
                if use.node not in self._own and use.node.op not in ops.EXIT:
                    raise GraphError(f"'{use.node.name}' outside the loop reads a value inside it", node=node)
        return self._exits

    def _merged(self, tensor: Tensor) -> Tensor:
        """An outside tensor for a Merge of the body, behind an Identity.

        TensorFlow treats a Merge as dead once a dead Enter reaches it, and loses the other branch's value; an Identity waits
        for all of its inputs.
        """
        return self._add(
            "Identity", [self.enter(tensor)], [tensor.shape], scope="", name=f"{tensor.node.name}/merged"
        ).out()

    def _merge(self, initial: Tensor) -> Node:
        enter = self._add(
            "Enter", [initial], [initial.shape], frame_name=self.name, is_constant=False, parallel_iterations=1
        )
        merge = self._add("Merge", [enter.out(), enter.out()], [initial.shape, ()])
        self._open.append((merge, None))
        return merge

    def _body_value(self, merge: Node) -> Tensor:
        shape = merge.out().shape
        switch = self._add("Switch", [merge.out(), self.condition.out()], [shape, shape])
        value = self._add("Identity", [switch.out(1)], [shape])
        leave = self._add("Exit", [switch.out(0)], [shape])
        self._own.pop(leave)
        self._exits.append(leave.out())
        return value.out()

    def _add(self, op: str, inputs: Sequence[Tensor] = (), shapes: Sequence[Shape] = ((),), *, scope: str | None = None,
             controls: Iterable[Node] = (), **about: Any) -> Node:  # fmt: skip
        make = Builder(self.graph, self.name if scope is None else scope, device=self.device, marks=self.attributes)
        node = make.node(op, inputs, shapes=shapes, controls=controls, **about)
        if op != "Const" or node.controls:
            self._own[node] = None
        return node


def add_results(graph: Graph, **names: str) -> None:
    """Add names of nodes and tensors for the entry points."""
    before = graph.kept_or_empty(Results)
    graph.keep(Results({**before.names, **names}))


def per_batch(graph: Graph, ends: Iterable[Node]) -> list[Node]:
    """Ancestors of ``ends`` that run once per batch: descendants of the input and of random ops; loops and arrays as a whole."""
    cone, frame_of, around = graph.ancestors(ends), frames(graph), frames_around(graph)
    moving: dict[Node, Any] = {}
    more = [n for n in cone if n.op in ops.INPUTS | ops.RANDOM]
    while more:
        moving |= graph.descendants(more)
        turning = {frame_of.get(node, "") for node in cone if node in moving} - {""}
        turning |= {frame for frame in around if around[frame] in turning}
        arrays = {n for n in cone if n.op in ops.CONTAINERS and any(user in moving for user in n.consumers())}
        more = [n for n in cone if n not in moving and (n in arrays or frame_of.get(n, "") in turning)]
    return [n for n in cone if n in moving]


def whole_loops(
    graph: Graph, nodes: Iterable[Node], within: Iterable[Node], *, data_only: bool = False
) -> dict[Node, None]:
    """The descendants of some nodes; of a loop that has one of them all nodes that are ``within``, and their descendants."""
    frame_of, found, more = frames(graph), dict[Node, None](), list(nodes)
    while more:
        found |= graph.descendants(more, data_only=data_only)
        turning = {frame_of[node] for node in found} - {""}
        more = [node for node in within if frame_of[node] in turning and node not in found]
    return found


def local_variable(graph: Graph, name: str, value: Any, kind: DType) -> tuple[Node, Node]:
    """A scalar resource variable outside of checkpoints, and the op that initializes it."""
    make = Builder(graph)
    handle = make.variable(kind, (), name=name)
    first = make.constant(value, kind, name=f"{name}/Initializer")
    return handle, make.node("AssignVariableOp", [handle.out(), first], name=f"{name}/Assign")


def loop_of_frame(graph: Graph, frame: str) -> Counted | None:
    """The loop of a frame; None where there is none, or its trip count is no variable."""
    found = (counted(condition) for condition in graph.of_type(*ops.LOOP_COND))
    return next((loop for loop in found if loop is not None and loop.frame == frame), None)


def unite(graph: Graph, one: Counted, into: Counted) -> bool:
    """Fuse one loop into another; returns False where their trip counts differ."""
    if one.limit is not into.limit:
        return False
    both = (one.frame, into.frame)
    for node in [node for node in graph.of_type(*ops.ENTER) if node.attr("frame_name") in both]:
        graph.set_attr(node, "frame_name", both[1])
        graph.set_attr(node, "parallel_iterations", 1)  # one step at a time, to keep the order of reads
    for use in one.condition.uses():
        graph.set_input(use.node, use.index, into.condition.out())
    pivot, own = into.pivot, one.pivot
    graph.replace_control_uses(own, [pivot])
    graph.replace_uses(own.out(), pivot.out(), where=lambda use: one.counter.closing not in use.node.consumers())
    return True


def stack_iterations(
    make: Builder, value: Tensor, shape: Sequence[int | None], loop: Counted, iterations: int
) -> Tensor:
    """Stack a tensor's values of up to ``iterations`` iterations of its loop, [iterations, ...]; zeros for missing ones."""
    kind = value.dtype
    dims, rows = make.constant(np.asarray(shape, "int32")), make.constant(np.int32(iterations))
    empty = make.add("TensorListReserve", [dims, rows], (), element_dtype=kind)
    entry = make.enter(empty, loop.frame, constant=False)
    merge = make.node("Merge", [entry, entry], shapes=[(), ()])
    switch = make.node("Switch", [merge.out(), loop.condition.out()], shapes=[(), ()])
    filled = make.add("TensorListSetItem", [switch.out(1), loop.number, value], (), resize_if_index_out_of_bounds=False)
    make.graph.set_input(merge, 1, make.add("NextIteration", [filled], ()))
    leave = make.add("Exit", [switch.out(0)], ())
    return make.add("TensorListStack", [leave, dims], (iterations, *shape), element_dtype=kind, num_elements=iterations)

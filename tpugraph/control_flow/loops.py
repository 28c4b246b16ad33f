"""TF1 while loops as a verb: put a flat part of a graph into a loop frame of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE
from tpugraph.analysis.step import Enqueues, Results
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import frames, frames_around
from tpugraph.support.errors import GraphError

_INT32 = attrs.dtype("int32")
_BOOL = attrs.dtype("bool")


@dataclass
class Loop:
    """An open loop ``for i in range(limit)``; :meth:`carry` values, :meth:`enclose` nodes, then :meth:`close` it.

    Args:
        graph: the graph.
        name: scope of the loop's own nodes; also the frame name.
        limit: handle of the int32 resource variable that holds the number of iterations.
        attributes: attributes of every node made for the loop (the cluster mark, say).
        device: device of every node made for the loop.

    Attributes:
        counter: the iteration number, inside the body.
        pivot: runs once per iteration that takes place; body nodes without inputs wait for it.
    """

    graph: Graph
    name: str
    limit: Tensor
    attributes: dict[str, Any] = field(default_factory=dict)
    device: str = ""
    entry_controls: Sequence[Node] = ()

    def __post_init__(self) -> None:
        self._own: dict[Node, None] = {}
        self._enters: dict[Tensor, Tensor] = {}
        self._open: list[tuple[Node, Tensor | None]] = []  # merges with their updates
        self._exits: list[Tensor] = []
        zero = self._add(
            "Const", "zero", [], {"dtype": _INT32, "value": np.int32(0)}, [(_INT32, ())], controls=self.entry_controls
        )
        merge = self._merge(zero.out())
        read = self._add(
            "ReadVariableOp", "limit", [self.enter(self.limit)], {"dtype": _INT32}, [(_INT32, ())], [merge]
        )
        less = self._add("Less", "less", [merge.out(), read.out()], {"T": _INT32}, [(_BOOL, ())])
        self.condition = self._add("LoopCond", "condition", [less.out()], {}, [(_BOOL, ())])
        self.counter = self._body_value(merge, 0)
        self.pivot = self.counter.node
        one = self._add("Const", "one", [], {"dtype": _INT32, "value": np.int32(1)}, [(_INT32, ())], [self.pivot])
        self._increment_step = one
        self._increment = self._add("AddV2", "next", [self.counter, one.out()], {"T": _INT32}, [(_INT32, ())])
        self._open[0] = (merge, self._increment.out())

    def enter(self, tensor: Tensor) -> Tensor:
        """The loop-invariant value of an outside tensor, inside the body."""
        if tensor not in self._enters:
            node = self._add(
                "Enter",
                f"{tensor.node.name}/Enter",
                [tensor],
                {"T": tensor.dtype, "frame_name": self.name, "is_constant": True, "parallel_iterations": 1},
                [(tensor.dtype, tensor.shape)],
                controls=self.entry_controls,
                scoped=False,
            )
            self._enters[tensor] = node.out()
        return self._enters[tensor]

    def carry(self, initial: Tensor) -> tuple[int, Tensor]:
        """Carry a value from one iteration to the next; returns its number and its value inside the body."""
        index = len(self._open)
        merge = self._merge(initial)
        return index, self._body_value(merge, index)

    def update(self, index: int, value: Tensor) -> None:
        """Say what carried value ``index`` becomes at the end of an iteration."""
        self._open[index] = (self._open[index][0], value)

    def enclose(self, nodes: Iterable[Node]) -> None:
        """Take nodes into the body: outside inputs enter as constants, what has no input waits for the pivot.

        Raises:
            GraphError: a node outside reads a value of the body that is not carried out.
        """
        body, own = dict.fromkeys(nodes), self._own
        groups: dict[int, list[Node]] = {}  # of what nodes wait for in common, what is in the body
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
        """Let an iteration end only after these nodes have run."""
        self.graph.add_controls(self._increment_step, nodes)

    def close(self) -> list[Tensor]:
        """Close the loop; returns the value of the counter and of each carried value after the last iteration."""
        for merge, value in self._open:
            if value is None:
                raise GraphError("a carried value is never updated", node=merge)
            kind = merge.out().dtype
            following = self._add("NextIteration", "NextIteration", [value], {"T": kind}, [(kind, merge.out().shape)])
            self.graph.set_input(merge, 1, following.out())
        for node in self._own:
            for use in node.uses():
                if use.node not in self._own and use.node.op not in ops.EXIT:
                    raise GraphError(f"'{use.node.name}' outside the loop reads a value inside it", node=node)
        return self._exits

    # ------------------------------------------------------------------ parts

    def _merged(self, tensor: Tensor) -> Tensor:
        """An outside tensor as one that a merge of the body reads, which has no value where its branch is not taken.

        TensorFlow takes a merge for one in a branch that is not taken as soon as an Enter without a value reaches it, so
        that what the other branch makes is lost. Behind an Identity it waits for the others.
        """
        entered, kind = self.enter(tensor), [(tensor.dtype, tensor.shape)]
        return self._add(
            "Identity", f"{tensor.node.name}/merged", [entered], {"T": tensor.dtype}, kind, scoped=False
        ).out()

    def _merge(self, initial: Tensor) -> Node:
        kind, shape = initial.dtype, initial.shape
        enter = self._add(
            "Enter",
            "Enter",
            [initial],
            {"T": kind, "frame_name": self.name, "is_constant": False, "parallel_iterations": 1},
            [(kind, shape)],
        )
        merge = self._add(
            "Merge", "Merge", [enter.out(), enter.out()], {"T": kind, "N": 2}, [(kind, shape), (_INT32, ())]
        )
        self._open.append((merge, None))
        return merge

    def _body_value(self, merge: Node, index: int) -> Tensor:
        kind, shape = merge.out().dtype, merge.out().shape
        switch = self._add("Switch", "Switch", [merge.out(), self.condition.out()], {"T": kind}, [(kind, shape)] * 2)
        value = self._add("Identity", "Identity", [switch.out(1)], {"T": kind}, [(kind, shape)])
        leave = self._add("Exit", "Exit", [switch.out(0)], {"T": kind}, [(kind, shape)])
        self._own.pop(leave)
        self._exits.append(leave.out())
        return value.out()

    def _add(
        self,
        op: str,
        name: str,
        inputs: Sequence[Tensor],
        attributes: dict[str, Any],
        outputs: list[Output],
        controls: Sequence[Node] = (),
        *,
        scoped: bool = True,
    ) -> Node:
        node = self.graph.add(
            op,
            f"{self.name}/{name}" if scoped else name,
            inputs,
            controls=controls,
            attrs={**attributes, **self.attributes},
            device=self.device,
            outputs=outputs,
        )
        if op != "Const" or controls:
            self._own[node] = None
        return node


def enclose_step(
    graph: Graph, iterations: int, device: Callable[[Graph, Tensor], Tensor], outfeed: Callable[[Graph, Tensor], object]
) -> None:
    """Let the step run in three loops of the same length, which is a variable: on the device, and on the host either side.

    Args:
        graph: the graph, with infeed and outfeed.
        iterations: the length until another one is assigned.
        device: puts the cluster into its loop, given the handle of the length; returns the loop's result.
        outfeed: does so with what the host does behind the device.
    """
    limit, assign = local_int(graph, "tpugraph/iterations_per_loop", iterations)
    last = device(graph, limit.out())
    enqueues = [graph[name] for name in graph.result(Enqueues).nodes]
    fed = infeed_loop(graph, limit.out(), enqueues)
    add_results(graph, limit_init=assign.name, train=str(last), enqueue=fed.name)
    outfeed(graph, limit.out())


def add_results(graph: Graph, **names: str) -> None:
    """Keep more of the nodes and tensors that entry points name."""
    before = graph.kept(Results) or Results()
    graph.keep(Results({**before.names, **names}))


def infeed_loop(graph: Graph, limit: Tensor, enqueues: list[Node]) -> Node:
    """Put the input part of the host, which ends in ``enqueues``, into its loop; returns the node that ends it."""
    body = per_batch(graph, enqueues)
    loop = Loop(graph, "tpugraph/infeed/while", limit, device=HOST_DEVICE)
    loop.enclose(dict.fromkeys([*body, *enqueues]))
    loop.finish_after(enqueues)
    return loop.close()[0].node


def per_batch(graph: Graph, ends: Iterable[Node]) -> list[Node]:
    """What runs anew for each batch in front of ``ends``: what the input or random numbers lead to; loops and arrays whole."""
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


def local_int(graph: Graph, name: str, value: int) -> tuple[Node, Node]:
    """A scalar int32 resource variable that no checkpoint holds, and the op that initialises it."""
    return local_variable(graph, name, np.int32(value), _INT32)


def local_variable(graph: Graph, name: str, value: Any, kind: DType) -> tuple[Node, Node]:
    """A scalar resource variable that no checkpoint holds, and the op that initialises it."""
    make = Builder(graph)
    handle = make.variable(kind, (), name=name)
    first = make.constant(value, kind, name=f"{name}/Initializer")
    return handle, make.node("AssignVariableOp", [handle.out(), first], name=f"{name}/Assign")

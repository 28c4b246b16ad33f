"""Lowers functional control flow to TF1's: a While becomes a loop frame, an If or Case becomes Switch and Merge.

The functions of conditions, bodies and branches stay calls, which :mod:`tpugraph.control_flow.inlining` replaces. The inverse is
:mod:`tpugraph.control_flow.functionalize`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.control_flow import inlining, optionals
from tpugraph.control_flow.inlining import Call
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
from tpugraph.ir.attrs import DType, Func, Shape
from tpugraph.ir.builder import Builder
from tpugraph.ir.function_library import Body
from tpugraph.ir.walks import source_of
from tpugraph.support.errors import ConversionError

_BOOL = attrs.dtype("bool")
_INT32 = attrs.dtype("int32")
_NUMBER = "_tpugraph_first_branch"
"""Attribute of the Case with the remaining branches: the index of its first branch."""


class Lowering:
    """Lowers one While, If or Case; the node is left without uses, and ``calls`` remain to be inlined."""

    def __init__(self, graph: Graph, call: Call) -> None:
        self.graph = graph
        self.call = call
        self.node = call.node
        self.calls: list[Call] = []

    def loop(self) -> None:
        """Lower a While: for each loop variable Enter, Merge with NextIteration, Switch on the condition, Exit.

        A loop variable that the body returns unchanged enters as a loop invariant. The next iteration, and the end of the loop,
        wait for the side effects of the previous one: the condition's operand has control edges from them.
        """
        node, types = self.node, self.node.attr("T")
        condition, body = (inlining.body_of(self.graph, self.call, node.attr(key).name) for key in ("cond", "body"))
        if {len(condition.arguments), len(body.arguments), len(body.results)} != {len(node.inputs)}:
            raise ConversionError("the loop's functions take or return another number of values than it has", node=node,
                                  origin=self.graph.source, fix="write the graph again")  # fmt: skip
        origins = [_origin(result) for result in body.results]
        carried = [i for i, argument in enumerate(body.arguments) if origins[i] is not argument]
        fixed = {argument for i, argument in enumerate(body.arguments) if i not in carried}
        first = next((i for i in carried if _reads(condition, i)), carried[0] if carried else 0)
        now = [
            self._add("Enter", [tensor], types[i], self._starts(tensor), is_constant=i not in carried,
                      frame_name=node.name, parallel_iterations=node.attr("parallel_iterations", 10))
            for i, tensor in enumerate(node.inputs)
        ]  # fmt: skip
        for i in carried:
            now[i] = self._add("Merge", [now[i], now[i]], types[i], N=2, shapes=[body.shapes[i], ()])
        merges = list(now)
        tested = self._call(node.attr("cond"), now, types, [_BOOL], now[first].node, gates=False)
        test = self._add("LoopCond", [tested.out()])
        switches = {i: self._add("Switch", [now[i], test], types[i]).node for i in carried}
        for i in carried:
            now[i] = self._add("Identity", [switches[i].out(1)], types[i])
        pivot = now[first].node
        done = self._call(node.attr("body"), now, types, types, pivot, gates=False)
        for i in carried:
            waits = [done] if i == first else [pivot] if origins[i] in fixed else []
            closing = self._add("NextIteration", [done.out(i)], types[i], waits)
            self.graph.set_input(merges[i].node, 1, closing)
        shapes = node.attr("output_shapes") or [None] * len(types)
        exits = {i: self._add("Exit", [switches[i].out()], types[i], shapes=[shapes[i]]) for i in carried}
        effects = exits and (body.must_run or any(map(inlining.has_effects, body.graph)))
        for i, tensor in enumerate(node.inputs):
            left = exits.get(i, tensor)
            if effects and i not in exits:
                left = self._add("Identity", [tensor], types[i], [exits[first].node])
            self.graph.replace_uses(node.out(i), left)
        self.graph.replace_control_uses(node, [exits[first].node] if exits else [])

    def conditional(self) -> None:
        """Lower an If: Switches on the predicate before both branches, a Merge for each result."""
        kind = self.node.attr("Tcond")
        given, starts = self.node.inputs[:1], self._starts(self.node.inputs[0])
        truth = (
            self._add("Identity", given, _BOOL, starts) if kind == _BOOL else self._add("ToBool", given, kind, starts)
        )
        self._branch(
            truth,
            self.node.inputs[1:],
            lambda given, pivot: self._branch_call(self.node.attr("then_branch"), given, pivot),
            lambda given, pivot: self._branch_call(self.node.attr("else_branch"), given, pivot),
        )

    def case(self) -> None:
        """Lower a Case: the first branch where the index equals its number, else a Case of the others.

        An index out of range takes the last branch, as in TensorFlow.
        """
        node, functions, number = self.node, self.node.attr("branches"), self.node.attr(_NUMBER, 0)
        index = self._add("Identity", node.inputs[:1], _INT32, self._starts(node.inputs[0]))
        if len(functions) == 1:
            only = self._branch_call(functions[0], node.inputs[1:], index.node)
            for port in range(len(node.attr("Tout"))):
                self.graph.replace_uses(node.out(port), only.out(port))
            self.graph.replace_control_uses(node, [only])
            return
        held = self._add("Const", [], None, [index.node], dtype=_INT32, value=np.int32(number))
        first = self._add("Equal", [index, held], _INT32)

        def others(given: Sequence[Tensor], pivot: Node) -> Node:
            left = self._add("Switch", [index, first], _INT32)
            attributes = {key: node.raw_attrs[key] for key in ("Tin", "Tout", "output_shapes") if node.has_attr(key)}
            attributes |= {"branches": functions[1:], _NUMBER: number + 1}
            rest = self.graph.add(node.op, f"{self.call.scope}/{node.op}", [left, *given], attrs=attributes,
                                  device=node.device, source=node)  # fmt: skip
            self.calls.append(replace(self.call, node=rest, pivot=(pivot,), gates=True))
            return rest

        self._branch(first, node.inputs[1:], lambda given, p: self._branch_call(functions[0], given, p), others)

    def _branch(self, truth: Tensor, given: Sequence[Tensor], then: _Branch, other: _Branch) -> None:
        node, kinds = self.node, self.node.attr("Tout")
        decided = self._add("Switch", [truth, truth], _BOOL).node
        switches = [self._add("Switch", [t, truth], kind).node for t, kind in zip(given, node.attr("Tin"), strict=True)]
        pivots = [self._add("Identity", [decided.out(side)], _BOOL).node for side in (0, 1)]
        calls = [make([s.out(side) for s in switches], pivots[side]) for side, make in enumerate((other, then))]
        shapes = node.attr("output_shapes") or [None] * len(kinds)
        for port, kind in enumerate(kinds):
            joined = self._add("Merge", [call.out(port) for call in calls], kind, N=2, shapes=[shapes[port], ()])
            self.graph.replace_uses(node.out(port), joined)
        if node.control_uses():
            ends = [self._add("Identity", [p.out()], _BOOL, [call]) for p, call in zip(pivots, calls, strict=True)]
            self.graph.replace_control_uses(node, [self._add("Merge", ends, _BOOL, N=2).node])

    def _starts(self, tensor: Tensor) -> tuple[Node, ...]:
        return self.node.controls or inlining.waits([tensor], self.call.pivot)

    def _branch_call(self, function: Func, given: Sequence[Tensor], pivot: Node) -> Node:
        return self._call(function, given, self.node.attr("Tin"), self.node.attr("Tout"), pivot)

    def _call(self, function: Func, given: Sequence[Tensor], types: list[DType], results: list[DType], pivot: Node,
              *, gates: bool = True) -> Node:  # fmt: skip
        made = self.graph.add("PartitionedCall", f"{self.call.scope}/{function.name}", given, device=self.node.device,
                              attrs={"Tin": types, "Tout": results, "f": function}, source=self.node)  # fmt: skip
        self.calls.append(replace(self.call, node=made, pivot=(pivot,), gates=gates))
        return made

    def _add(self, op: str, inputs: Sequence[Tensor], kind: DType | None = None, controls: Sequence[Node] = (), *,
             shapes: Sequence[Shape] = (), **attributes: Any) -> Tensor:  # fmt: skip
        """Add a node named after its op; ``shapes`` are those of its outputs, where the first of them is known."""
        if kind is not None:
            attributes["T"] = kind
        if shapes and shapes[0] is not None:
            attributes["_output_shapes"] = list(shapes)
        made = self.graph.add(op, f"{self.call.scope}/{op}", inputs, controls=controls, attrs=attributes,
                              device=self.node.device, source=self.node)  # fmt: skip
        return made.out()


_Branch = Callable[[Sequence[Tensor], Node], Node]
"""Builds the call of a branch from its arguments and its pivot."""


def inline_updates(graph: Graph, train_op: str | None) -> None:
    """Inline the calls whose functions write variables, such as a TensorFlow 2 conditional that applies gradients.

    The updates are then found as in any other graph. Nodes named in ``train_op``, separated by commas, keep their names, and
    so do calls without readers.
    """
    named = [*(train_op or "").split(","), *graph.collections.get("train_op", [])]
    calls = [call for call in inlining.calls_of(graph, graph) if _writes(graph, call.node)]
    before = dict.fromkeys(graph)
    kept = {call.node.name for call in calls if call.node.name in named or not call.node.consumers()}
    if replace_calls(graph, calls, kept):
        graph.remove_dead(node for node in graph if node in before)


def _writes(graph: Graph, node: Node) -> bool:
    functions = function_library.used_by(graph, [node])
    return any(inner.op in ops.WRITES for function in functions.values() for inner in function.node_def)


def replace_calls(graph: Graph, calls: list[Call], named: Container[str]) -> list[Node]:
    """Inline nodes that call functions, recursively.

    The ``named`` ones leave an Identity of their results under their names. Returns the nodes that were replaced.
    """
    calls = list(calls)
    for call in calls:
        _dereference(graph, call)
    held = {call.node: inlining.hold(graph, call) for call in calls if call.node.name in named}
    replaced: list[Node] = []
    while calls:
        call = calls.pop(0)
        calls[:0] = replace_call(graph, call)
        replaced.append(call.node)
    if replaced:
        optionals.unwrap(graph)
    for node, reader in held.items():
        inlining.keep_name(graph, node, reader)
    graph.remove_all(node for node in replaced if node not in held)
    return replaced


def _dereference(graph: Graph, call: Call) -> None:
    """Pass a call the value of a ref variable at the time of the call, not the reference."""
    node = call.node
    for index, (tensor, kind) in enumerate(zip(node.inputs, inlining.dtypes_of(graph, node), strict=True)):
        outputs = ops.op_def(tensor.node.op).output_arg if ops.op_def(tensor.node.op) else ()
        if tensor.port < len(outputs) and outputs[tensor.port].is_ref:
            value = inlining.identity(graph, tensor, kind, f"{node.name}/value", call, call.starts)
            graph.set_input(node, index, value)
            for waiting in node.control_uses():
                graph.add_control(waiting, value.node)


def replace_call(graph: Graph, call: Call) -> list[Call]:
    """Inline or lower one call of any kind and leave it without uses; returns the calls in its replacement."""
    op, lowering = call.node.op, Lowering(graph, call)
    lower = {"while": lowering.loop, "if": lowering.conditional, "case": lowering.case}.get(ops.record(op).role or "")
    if lower is None:
        return inlining.inline(graph, call, call.node.attr("f").name if op in ops.CALLS else op)
    lower()
    return lowering.calls


def _origin(tensor: Tensor) -> Node:
    """The producer of a result of a body, through identities."""
    return source_of(tensor, ("Identity",), where=lambda node: not node.controls).node


def _reads(body: Body, index: int) -> bool:
    return body.arguments[index] in body.graph.ancestors(tensor.node for tensor in body.results)


def make_initializable(graph: Graph) -> None:
    """Replace each OneShotIterator by an IteratorV2 that a MakeIterator fills; its function is inlined.

    One that a dataset reads stays: it starts when that dataset requests the first element.
    """
    for node in graph.of_type("OneShotIterator"):
        if any(ops.is_dataset(use.node.op) for use in node.uses(0)):
            continue
        make = Builder(graph, node.name, source=node)
        call = make.add(
            "PartitionedCall", (), (), name="dataset", Tout=[attrs.dtype("variant")], f=node.attr("dataset_factory")
        )
        kept = {name: value for name, value in node.raw_attrs.items() if name in ops.attr_names("IteratorV2")}
        iterator = make.add("IteratorV2", (), (), name="initializable", **kept)
        make.node("MakeIterator", [call, iterator], name="make")
        graph.replace_uses(node.out(), iterator)
        graph.remove(node)
        replace_calls(graph, inlining.calls_of(graph, [call.node]), ())

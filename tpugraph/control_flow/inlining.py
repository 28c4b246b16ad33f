"""Inlines calls of library functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpugraph import analysis, ops
from tpugraph.control_flow import functionalize
from tpugraph.ir import Graph, Node, Tensor, function_library, is_back_edge
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.attrs import DType
from tpugraph.ir.function_library import ARGUMENT, Body
from tpugraph.support.errors import ConversionError


@dataclass(frozen=True)
class Call:
    """A node that calls functions."""

    node: Node
    scope: str  # the prefix of the names of the nodes that replace it
    # nodes that run exactly when the call would; control inputs of inlined nodes without inputs
    pivot: tuple[Node, ...] = ()
    inside: tuple[str, ...] = ()  # the functions whose bodies the call comes from, outermost first
    gates: bool = True  # whether a result gets control edges from the body's side effects

    @property
    def starts(self) -> tuple[Node, ...]:
        """The control inputs of the body's first nodes."""
        return self.node.controls or self.pivot


def calls_of(graph: Graph, nodes: Iterable[Node]) -> list[Call]:
    """The nodes that call functions, except ``SymbolicGradient``, which derives one function from another."""
    functions = function_library.functions_named(graph)
    found = [
        node for node in nodes if node.op in ops.CALLS or node.op in functions
    ]  # a function's name is an op type too
    held = analysis.nested(graph) if found else {}
    return [Call(node, node.name, _pivot(graph, node) if node in held else ()) for node in found]


def body_of(graph: Graph, call: Call, name: str) -> Body:
    """The body of a function that a node calls; a ConversionError where there is none or it calls itself."""
    if name in call.inside:
        chain = " -> ".join([*call.inside[call.inside.index(name) :], name])
        raise ConversionError(f"the function '{name}' calls itself: {chain}", node=call.node, origin=graph.source,
                              fix="write the recursion as a loop, with tf.while_loop")  # fmt: skip
    return function_library.function_body(graph, name, call.node)


def is_constant(tensor: Tensor) -> bool:
    """Whether a tensor is loop-invariant, hence alive in the last, partial iteration too."""
    return tensor.node.op in ops.ENTER and bool(tensor.node.attr("is_constant"))


def identity(graph: Graph, tensor: Tensor, kind: DType, name: str, call: Call, controls: Iterable[Node] = ()) -> Tensor:
    node = graph.add("Identity", name, [tensor], controls=controls, attrs={"T": kind}, device=call.node.device,
                     source=call.node)  # fmt: skip
    return node.out()


def inline(graph: Graph, call: Call, name: str) -> list[Call]:
    """Replace a call of the function ``name`` by its body; returns the calls in the body.

    The node is left without uses; its control edges lead from the body's stateful nodes instead.
    """
    body, node = body_of(graph, call, name), call.node
    silent = ops.RESOURCE_VARIABLES | ops.RANDOM | {ARGUMENT}  # their order does not matter
    ends = [n for n in body.graph if n in body.must_run or (ops.is_stateful(n.op) and n.op not in silent)]
    wanted = body.graph.ancestors([*(tensor.node for tensor in body.results), *ends])
    inner = calls_of(body.graph, [n for n in body.graph if n in wanted])
    wanted.update(dict.fromkeys(pivot for found in inner for pivot in found.pivot))
    given = dict(zip(body.arguments, node.inputs, strict=True))
    if node.controls:
        for argument, kind in zip(body.arguments, body.types, strict=True):
            if argument in wanted:
                label = f"{call.scope}/{argument.name}"
                given[argument] = identity(graph, given[argument], kind, label, call, node.controls)
    copies = _copy(graph, call, name, body.graph, wanted, given)
    effects = [n for n in ends if n in body.must_run or has_effects(n)] if call.gates else []
    for port, result in enumerate(body.results):
        value = _found(result, given, copies)
        before = body.graph.ancestors([result.node]) if effects and node.uses(port) else effects
        missing = [copies[n] for n in effects if n not in before]
        if missing:
            value = identity(graph, value, body.result_types[port], f"{call.scope}/result", call, missing)
        graph.replace_uses(node.out(port), value)
    graph.replace_control_uses(node, [copies[n] for n in ends] or call.starts)
    functions = (*call.inside, name)
    return [
        Call(copies[c.node], copies[c.node].name, tuple(copies[p] for p in c.pivot) or call.starts, functions)
        for c in inner
    ]


def hold(graph: Graph, call: Call) -> Node:
    """An IdentityN of all outputs of a call, with a control edge from it: its inputs show afterwards what replaced the call."""
    node = call.node
    kinds = dtypes_of(graph, node, results=True)
    return graph.add("IdentityN", f"{node.name}/held", [node.out(port) for port in range(len(kinds))], controls=[node],
                     attrs={"T": kinds}, device=node.device, source=node)  # fmt: skip


def keep_name(graph: Graph, node: Node, held: Node) -> None:
    """Turn the inlined call into an Identity of the values that replace it, to keep its name."""
    kinds = held.attr("T")
    op = "NoOp" if not kinds else "Identity" if len(kinds) == 1 else "IdentityN"
    graph.set_controls(node, held.controls)
    graph.retype(node, op, inputs=held.inputs, attrs={"T": kinds[0] if len(kinds) == 1 else kinds} if kinds else {})
    graph.remove(held)


def has_effects(node: Node) -> bool:
    """Whether a node must run though no data edge leads from it."""
    return functionalize.has_effects(node) and node.op not in ops.RANDOM


def _copy(
    graph: Graph, call: Call, name: str, body: Graph, wanted: Mapping[Node, Any], given: Mapping[Node, Tensor]
) -> dict[Node, Node]:
    copies: dict[Node, Node] = {}
    closing: list[tuple[Node, int]] = []
    for node in body.topological_order([n for n in wanted if n.op != ARGUMENT]):
        inputs: list[Tensor] = []
        for index, tensor in enumerate(node.inputs):
            if is_back_edge(tensor.node, node):  # not copied yet: the other input of the Merge takes its place for now
                closing.append((node, index))
                tensor = next(t for t in node.inputs if not is_back_edge(t.node, node))
            inputs.append(_found(tensor, given, copies))
        attributes = {key: value for key, value in node.raw_attrs.items() if key != "_class"}
        if node.op in ops.ENTER:
            attributes["frame_name"] = f"{call.scope}/{name}/{node.attr('frame_name')}"
        controls = [copies[c] for c in node.controls if c in copies] or waits(inputs, call.starts)
        copies[node] = graph.add(node.op, f"{call.scope}/{node.name}", inputs, controls=controls, attrs=attributes,
                                 device=node.device or call.node.device, source=call.node)  # fmt: skip
    for node, index in closing:
        graph.set_input(copies[node], index, _found(node.inputs[index], given, copies))
    return copies


def _found(tensor: Tensor, given: Mapping[Node, Tensor], copies: Mapping[Node, Node]) -> Tensor:
    return given[tensor.node] if tensor.node in given else copies[tensor.node].out(tensor.port)


def waits(inputs: Iterable[Tensor], starts: tuple[Node, ...]) -> tuple[Node, ...]:
    """The control inputs of an inlined node: with ``starts`` where all of its inputs are loop-invariant."""
    return starts if all(is_constant(tensor) for tensor in inputs) else ()


def _pivot(graph: Graph, node: Node) -> tuple[Node, ...]:
    """Nodes that run exactly when a call does: its control inputs, else an Identity of its first argument."""
    if node.controls or not node.inputs:
        return node.controls
    kind = dtypes_of(graph, node)[0]
    return (graph.add("Identity", f"{node.name}/pivot", node.inputs[:1], attrs={"T": kind}, device=node.device,
                      source=node),)  # fmt: skip


def dtypes_of(graph: Graph, node: Node, *, results: bool = False) -> list[DType]:
    """The dtypes that a call takes, or those of its results."""
    found = function_library.definition(node.op, function_library.functions_named(graph))
    arguments = found.outputs if results else found.inputs
    return [attr_codec.dtype(number) for number in found.dtypes(arguments, node.raw_attrs)]

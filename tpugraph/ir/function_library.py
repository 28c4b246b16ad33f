"""The function library of a graph: functions by name, function bodies as graphs, nodes as a function or a graph of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tensorflow.core.framework import function_pb2, graph_pb2

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.attrs import DType, Shape
from tpugraph.ir.node import Wired, wire
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ConversionError, GraphError

_KEPT_IN_FUNCTIONS = frozenset({"_xla_propagate_compile_time_consts"})
"""Attributes outside of op definitions that XLA reads."""


def functions_named(graph: Graph) -> dict[str, Any]:
    return {} if graph.library is None else {f.signature.name: f for f in graph.library.function}


ARGUMENT = "Placeholder"
"""The op of an argument in the graph of a function body."""


@dataclass(frozen=True)
class Wiring:
    """A function body as nodes, each with its data and control inputs; arguments come first."""

    nodes: list[Wired]
    arguments: list[Node]
    results: Sequence[Tensor]
    must_run: Sequence[Node]  # the function's control outputs


@dataclass(frozen=True)
class Body(Wiring):
    """A function body as a graph; arguments are nodes of op ``ARGUMENT``."""

    graph: Graph
    types: list[DType]
    shapes: list[Shape]  # the shape of each argument in the function's definition; None where unknown
    result_types: list[DType]


def function_body(graph: Graph, name: str, call: Node | None) -> Body:
    """The body of a library function; the calling node gives the function's open attributes."""
    library = functions_named(graph)
    if name not in library:
        raise ConversionError(f"the function '{name}' is not in the graph's library", node=call, origin=graph.source,
                              fix="write the graph again, together with its functions")  # fmt: skip
    function = library[name]
    wired = wire_body(function, library, call)
    body = Graph()
    body.library, body.source = graph.library, graph.source
    body.adopt(wired.nodes)
    arguments, results = function.signature.input_arg, function.signature.output_arg
    types, result_types = ([_type_of(argument, call) for argument in some] for some in (arguments, results))
    return Body(**vars(wired), graph=body, types=types, shapes=_argument_shapes(function), result_types=result_types)


def wire_body(function: Any, library: Mapping[str, Any], call: Node | None = None) -> Wiring:
    """Resolve the inputs of each node of a library function; a GraphError where one is missing."""
    signature = function.signature
    for result in signature.output_arg:
        if result.name not in function.ret:
            raise GraphError(f"the result '{result.name[:100]}' is not computed")
    arguments = [Node(ARGUMENT, argument.name, "", {}) for argument in signature.input_arg]
    made = [
        Node(d.op, d.name, d.device, {key: _given(value, call) for key, value in d.attr.items()})
        for d in function.node_def
    ]
    given = set(arguments)
    ends = Node("_Retval", ".results", "", {})  # reads the results and waits for the control outputs
    waited = [f"^{function.control_ret.get(label, '')}" for label in signature.control_output]

    @cache
    def first_ports(node: Node) -> dict[str, int] | None:
        return {"": 0} if node in given else _first_ports(node, library)

    *nodes, (_, results, must_run) = wire(
        [
            *((argument, ()) for argument in arguments),
            *((node, definition.input[:]) for node, definition in zip(made, function.node_def, strict=True)),
            (ends, [*(function.ret[result.name] for result in signature.output_arg), *waited]),
        ],
        first_ports,
    )
    return Wiring(nodes, arguments, results, must_run)


def _given(value: Any, call: Node | None) -> Any:
    """An attribute of a body; open ones are taken from the call."""
    return value if call is None or value.WhichOneof("value") != "placeholder" else call.raw_attrs[value.placeholder]


def _type_of(argument: Any, call: Node | None) -> DType:
    return attr_codec.dtype(argument.type) if call is None or argument.type else call.attr(argument.type_attr)


def is_closed(function: Any) -> bool:
    """Whether a function has no open attributes."""
    arguments = [*function.signature.input_arg, *function.signature.output_arg]
    given = (value.WhichOneof("value") for node in function.node_def for value in node.attr.values())
    return all(argument.type for argument in arguments) and "placeholder" not in given


def _argument_shapes(function: Any) -> list[Shape]:
    count = len(function.signature.input_arg)
    if "_input_shapes" in function.attr:
        held = attr_codec.decode(function.attr["_input_shapes"])
        return held if len(held) == count else [None] * count
    told = [function.arg_attr[i].attr if i in function.arg_attr else {} for i in range(count)]
    return [attr_codec.decode(t["_output_shapes"])[0] if "_output_shapes" in t else None for t in told]


def definition(op: str, library: Mapping[str, Any]) -> attr_codec.Definition:
    """The definition of an op type or a library function; a GraphError where it is neither."""
    return attr_codec.Definition(library[op].signature) if op in library else attr_codec.definition(op)


def _first_ports(node: Node, library: Mapping[str, Any]) -> dict[str, int] | None:
    """The index of the first tensor of each output, by name; None where op type or attributes are unknown."""
    if node.op not in library and ops.op_def(node.op) is None:
        return None
    found, ports, port = definition(node.op, library), dict[str, int](), 0
    held = {**found.defaults, **node.raw_attrs}
    for output in found.outputs:
        ports[output.name] = port
        if output.several not in {"", *held}:
            return None
        port += output.count(held) or 0
    return ports


def callers(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    library = functions_named(graph)
    return [n for n in nodes if n.op in library or _referred(n.raw_attrs.values())] if library else []


def used_by(graph: Graph, nodes: Iterable[Node]) -> dict[str, Any]:
    """The library functions that nodes refer to, transitively, by name."""
    library = functions_named(graph)
    if not library:
        return {}
    gradients = {gradient.function_name: gradient.gradient_func for gradient in graph.library.gradient}

    def called(name: str) -> Iterator[str]:
        yield gradients.get(name, name)
        yield from calls(library[name]) if name in library else ()

    used = reached((name for node in nodes for name in (node.op, *_referred(node.raw_attrs.values()))), called)
    return {name: library[name] for name in library if name in used}


def remove_unused(graph: Graph) -> int:
    """Remove unused functions; returns their number."""
    library, used = functions_named(graph), used_by(graph, graph)
    if len(used) < len(library):
        kept = function_pb2.FunctionDefLibrary()
        kept.function.extend(used.values())
        kept.gradient.extend(g for g in graph.library.gradient if g.function_name in used)
        graph.library = kept
    return len(library) - len(used)


def _referred(values: Iterable[Any]) -> list[str]:
    return [f.name for v in values for f in ([v.func] if v.WhichOneof("value") == "func" else v.list.func)]


def calls(function: Any) -> list[str]:
    """The possible callees of a function's nodes: op types, and functions named in attributes."""
    return [name for d in function.node_def for name in (d.op, *_referred(d.attr.values()))]


def add_function(
    graph: Graph,
    name: str,
    nodes: Sequence[Node],
    arguments: Sequence[Tensor],
    results: Sequence[Tensor],
    alike: Mapping[Tensor, Tensor],
) -> str:
    """Add a function with copies of nodes to the library, marked for XLA compilation; returns its name.

    ``alike`` maps other tensors that the body reads to arguments or outputs of the body.
    """
    function = function_pb2.FunctionDef()
    signature = function.signature
    signature.is_stateful = True
    for key in ("_XlaMustCompile", "_noinline"):
        function.attr[key].b = True
    given = {f"in{index}" for index in range(len(arguments))}
    own = {node: graph.fresh_name(node.name) if node.name in given else node.name for node in nodes}
    names: dict[Tensor, str] = {}
    for node, label in own.items():
        names.update((Tensor(node, port), f"{label}:{text}") for port, text in enumerate(_output_names(node)))
    for index, tensor in enumerate(arguments):
        signature.input_arg.add(name=f"in{index}", type=tensor.dtype.number)
        names[tensor] = f"in{index}"
    names.update((tensor, names[same]) for tensor, same in alike.items())
    _fill_body(function, own, names)
    for index, tensor in enumerate(results):
        signature.output_arg.add(name=f"out{index}", type=tensor.dtype.number)
        function.ret[f"out{index}"] = names[tensor]
    return put(graph, name, function)


def put(graph: Graph, name: str, function: Any) -> str:
    """Add a function to a copy of the library, which other graphs may share; returns its name."""
    library, taken = function_pb2.FunctionDefLibrary(), functions_named(graph)
    if graph.library is not None:
        library.CopyFrom(graph.library)
    name = next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1))) if n not in taken)
    library.function.add().CopyFrom(function)
    library.function[-1].signature.name = name
    graph.library = library
    return name


def _fill_body(function: Any, own: Mapping[Node, str], names: Mapping[Tensor, str]) -> None:
    """Copy nodes into a function under the names of ``own``; ``names`` has the names of their inputs."""
    for node, label in own.items():
        try:
            inputs = [names[t] for t in node.inputs] + [f"^{own[c]}" for c in node.controls if c in own]
        except KeyError as missing:
            raise GraphError(f"the function reads '{missing.args[0]}', which it does not have", node=node) from None
        definition = function.node_def.add(name=label, op=node.op, input=inputs)
        for key, value in node.raw_attrs.items():
            if key[0] != "_" or key in _KEPT_IN_FUNCTIONS:
                definition.attr[key].CopyFrom(value)
        if node.op in ops.WRITES or (node.op in ops.CALLS and ops.is_stateful(node.op)):
            function.signature.control_output.append(label)
            function.control_ret[label] = label


def _output_names(node: Node) -> list[str]:
    found = attr_codec.definition(node.op)
    return [f"{name}:{index}" for name, index in found.names(found.outputs, node.raw_attrs)]


def named_operands(node: Node) -> Iterator[tuple[str, Any]]:
    """The operands of a node with their names in the op's definition, which a list shares; "" for those of a function call."""
    if ops.op_def(node.op) is None:
        return (("", operand) for operand in node.inputs)
    found = attr_codec.definition(node.op)
    names = found.names(found.inputs, node.raw_attrs)
    return ((name, operand) for (name, _), operand in zip(names, node.inputs, strict=False))


def sub_graph_def(names: Mapping[Node, str], inputs: Mapping[Tensor, str]) -> Any:
    """A GraphDef of some nodes under other names, without control edges; ``inputs`` names their outside operands.

    Ops that only forward a value, such as StopGradient, become Identity.
    """
    graph_def = graph_pb2.GraphDef()
    for node, name in names.items():
        texts = [f"{names[t.node]}:{t.port}" if t.node in names else inputs[t] for t in node.inputs]
        op = "Identity" if node.op in ops.IDENTITIES & ops.SAME_NUMBERS else node.op
        definition = graph_def.node.add(name=name, op=op, input=texts)
        for key, value in node.raw_attrs.items():
            if key in ops.attr_names(op):
                definition.attr[key].CopyFrom(value)
    return graph_def

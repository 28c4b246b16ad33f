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
from tpugraph.ir.attrs import DType, Func, Shape
from tpugraph.ir.validate import tensors
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ConversionError, GraphError

_KEPT_IN_FUNCTIONS = frozenset({"_xla_propagate_compile_time_consts"})
"""Attributes of no op definition that mean something to XLA."""


def functions_named(graph: Graph) -> dict[str, Any]:
    return {} if graph.library is None else {f.signature.name: f for f in graph.library.function}


ARGUMENT = "Placeholder"
"""What stands for an argument in the graph of a function body."""


@dataclass(frozen=True)
class Body:
    """What a library function does, as a graph to read from; its arguments are nodes of op ``ARGUMENT``."""

    graph: Graph
    arguments: list[Node]
    types: list[DType]
    shapes: list[Shape]  # the shape of each argument where the function was written; None where that is not known
    results: list[Tensor]
    result_types: list[DType]
    must_run: list[Node]  # the nodes that the function names as its control outputs


def function_body(graph: Graph, name: str, call: Node | None) -> Body:
    """The body of a library function; a node that calls it gives the attributes that the function leaves open."""
    library = functions_named(graph)
    if name not in library:
        raise ConversionError(f"the function '{name}' is not in the graph's library", node=call, origin=graph.source,
                              fix="write the graph again, together with its functions")  # fmt: skip
    function = library[name]
    body = Graph()
    body.library, body.source = graph.library, graph.source
    arguments = [Node(ARGUMENT, argument.name, "", {}) for argument in function.signature.input_arg]
    nodes = {node.name: node for node in arguments}
    for definition in function.node_def:
        given = {key: _given(value, call) for key, value in definition.attr.items()}
        nodes[definition.name] = Node(definition.op, definition.name, definition.device, given)
    inputs = {definition.name: definition.input for definition in function.node_def}
    places: dict[Node, dict[str, int]] = {}

    def tensor(text: str) -> Tensor:
        label, _, rest = text.partition(":")
        output, _, index = rest.partition(":")
        if nodes[label] not in places:
            places[nodes[label]] = _first_ports(nodes[label], library)
        return Tensor(nodes[label], places[nodes[label]].get(output, 0) + int(index or 0))

    def wired(node: Node) -> tuple[Node, tuple[Tensor, ...], tuple[Node, ...]]:
        texts = inputs.get(node.name, ())
        controls = dict.fromkeys(nodes[text[1:]] for text in texts if text[0] == "^")
        return node, tuple(tensor(text) for text in texts if text[0] != "^"), tuple(controls)

    body.adopt([wired(node) for node in nodes.values()])
    return Body(
        body,
        arguments,
        [_type_of(argument, call) for argument in function.signature.input_arg],
        _argument_shapes(function),
        [tensor(function.ret[result.name]) for result in function.signature.output_arg],
        [_type_of(result, call) for result in function.signature.output_arg],
        [nodes[function.control_ret[label]] for label in function.signature.control_output],
    )


def _given(value: Any, call: Node | None) -> Any:
    """An attribute of a body; one that the function leaves open is an attribute of the call."""
    return value if call is None or value.WhichOneof("value") != "placeholder" else call.raw_attrs[value.placeholder]


def _type_of(argument: Any, call: Node | None) -> DType:
    return attr_codec.dtype(argument.type) if call is None or argument.type else call.attr(argument.type_attr)


def is_closed(function: Any) -> bool:
    """Whether a function leaves no attribute open to its call."""
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


def _first_ports(node: Node, library: Mapping[str, Any]) -> dict[str, int]:
    """The number of the first tensor of each output, by name."""
    if node.op in library:
        return {output.name: port for port, output in enumerate(library[node.op].signature.output_arg)}
    names = [text.rpartition(":")[0] for text in _output_names(node)]
    return {name: names.index(name) for name in names}


def callers(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    library = functions_named(graph)
    return [n for n in nodes if n.op in library or _referred(n.raw_attrs.values())] if library else []


def used_by(graph: Graph, nodes: Iterable[Node]) -> dict[str, Any]:
    """The functions of the library, by name, that nodes refer to, themselves or through other functions."""
    library = functions_named(graph)
    if not library:
        return {}
    gradients = {gradient.function_name: gradient.gradient_func for gradient in graph.library.gradient}

    def called(name: str) -> Iterator[str]:
        yield gradients.get(name, name)
        for definition in library[name].node_def if name in library else ():
            yield from (definition.op, *_referred(definition.attr.values()))

    used = reached((name for node in nodes for name in (node.op, *_referred(node.raw_attrs.values()))), called)
    return {name: library[name] for name in library if name in used}


def remove_unused(graph: Graph) -> int:
    """Remove the functions that no node and no function that is used refers to; returns how many."""
    library, used = functions_named(graph), used_by(graph, graph)
    if len(used) < len(library):
        kept = function_pb2.FunctionDefLibrary()
        kept.function.extend(used.values())
        kept.gradient.extend(g for g in graph.library.gradient if g.function_name in used)
        graph.library = kept
    return len(library) - len(used)


def _referred(values: Any) -> list[str]:
    found = [attr_codec.decode(v) for v in values if v.WhichOneof("value") == "func" or v.list.func]
    return [
        func.name for held in found for func in (held if isinstance(held, list) else [held]) if isinstance(func, Func)
    ]


def add_function(
    graph: Graph,
    name: str,
    nodes: Sequence[Node],
    arguments: Sequence[Tensor],
    results: Sequence[Tensor],
    alike: Mapping[Tensor, Tensor],
) -> str:
    """Add a function with copies of nodes to the library, marked to be compiled by XLA; returns its name.

    Other tensors that the body reads are ``alike`` an argument or an output of the body.
    """
    library = function_pb2.FunctionDefLibrary()
    if graph.library is not None:
        library.CopyFrom(graph.library)
    taken = {function.signature.name for function in library.function}
    name = next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1))) if n not in taken)
    function = library.function.add()
    signature = function.signature
    signature.name, signature.is_stateful = name, True
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
    graph.library = library
    return name


def _fill_body(function: Any, own: Mapping[Node, str], names: Mapping[Tensor, str]) -> None:
    """Give a function copies of nodes, under the names of ``own``; what they read is called as in ``names``."""
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


def _output_names(node: Node) -> Sequence[str]:
    single = _single_outputs(node.op)
    if single is not None:
        return single
    definition = ops.op_def(node.op)
    names = [name for name, _ in tensors(definition, definition.output_arg, node.raw_attrs)]
    return [f"{name}:{port - names.index(name)}" for port, name in enumerate(names)]


def named_operands(node: Node) -> Iterator[tuple[str, Any]]:
    """The operands of a node by their names in the op's definition; those of a list share one, those of a call have none."""
    found = ops.op_def(node.op)
    names = (
        itertools.repeat("") if found is None else (name for name, _ in tensors(found, found.input_arg, node.raw_attrs))
    )
    return zip(names, node.inputs, strict=False)


@cache
def _single_outputs(op: str) -> tuple[str, ...] | None:
    """The names of the outputs of an op of which each is one tensor; None of another op."""
    outputs = ops.op_def(op).output_arg
    if any(output.number_attr or output.type_list_attr for output in outputs):
        return None
    return tuple(f"{output.name}:0" for output in outputs)


def sub_graph_def(names: Mapping[Node, str], inputs: Mapping[Tensor, str]) -> Any:
    """A GraphDef of some nodes under other names, without control edges; what they read from outside has the names given.

    Identities in all but name become identities.
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

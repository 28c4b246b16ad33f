"""The function library of a graph: functions by name, nodes as a function, nodes as a graph of their own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow.core.framework import function_pb2, graph_pb2

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor

_CALLS = frozenset({"StatefulPartitionedCall", "While", "If"})
"""Ops that write what the functions they call write."""

_KEPT_IN_FUNCTIONS = frozenset({"_xla_propagate_compile_time_consts"})
"""Attributes of no op definition that mean something to XLA."""


def functions_named(graph: Graph) -> dict[str, Any]:
    """The library functions by name."""
    return {} if graph.library is None else {f.signature.name: f for f in graph.library.function}


def add_function(
    graph: Graph,
    name: str,
    nodes: Sequence[Node],
    arguments: Sequence[Tensor],
    results: Sequence[Tensor],
    constants: Mapping[Tensor, Node],
    *,
    keep_names: bool = False,
) -> str:
    """Add a function with copies of nodes to the library, marked to be compiled by XLA; returns its name.

    Args:
        graph: the graph.
        name: the name wished for.
        nodes: its body; every op that writes is run.
        arguments: what the body reads from outside, in order.
        results: what the function returns, in order.
        constants: of other tensors that the body reads: the constant that is copied into the body.
        keep_names: name the nodes of the body as in the graph, for messages about it, and not by short numbers.
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
    names: dict[Tensor, str] = {}
    for index, tensor in enumerate(arguments):
        signature.input_arg.add(name=f"in{index}", type=tensor.dtype.number)
        names[tensor] = f"in{index}"
    body = dict.fromkeys([*constants.values(), *nodes])
    own = {node: node.name if keep_names else f"n{index}" for index, node in enumerate(body)}
    for node, label in own.items():
        names.update((node.out(port), f"{label}:{text}") for port, text in enumerate(_output_names(node)))
    names.update((tensor, names[node.out()]) for tensor, node in constants.items())
    for node, label in own.items():
        inputs = [names[t] for t in node.inputs] + [f"^{own[c]}" for c in node.controls if c in own]
        definition = function.node_def.add(name=label, op=node.op, input=inputs)
        for key, value in node.raw_attrs.items():
            if key[0] != "_" or key in _KEPT_IN_FUNCTIONS:
                definition.attr[key].CopyFrom(value)
        if node.op in ops.WRITES or node.op in _CALLS:
            signature.control_output.append(label)
            function.control_ret[label] = label
    for index, tensor in enumerate(results):
        signature.output_arg.add(name=f"out{index}", type=tensor.dtype.number)
        function.ret[f"out{index}"] = names[tensor]
    graph.library = library
    return name


def _output_names(node: Node) -> list[str]:
    """The outputs of a node as a function body writes them."""
    names: list[str] = []
    for output in ops.op_def(node.op).output_arg:
        count = 1
        if output.number_attr:
            count = node.attr(output.number_attr)
        elif output.type_list_attr:
            count = len(node.attr(output.type_list_attr))
        names.extend(f"{output.name}:{index}" for index in range(count))
    return names


def sub_graph_def(names: Mapping[Node, str], inputs: Mapping[Tensor, str]) -> Any:
    """A GraphDef of some nodes under other names, without control edges; what they read from outside has the names given.

    Identities in all but name become identities.
    """
    graph_def = graph_pb2.GraphDef()
    for node, name in names.items():
        texts = [f"{names[t.node]}:{t.port}" if t.node in names else inputs[t] for t in node.inputs]
        op = "Identity" if node.op in ("PreventGradient", "StopGradient", "Snapshot") else node.op
        definition = graph_def.node.add(name=name, op=op, input=texts)
        for key, value in node.raw_attrs.items():
            if key[0] != "_" and key != "message":
                definition.attr[key].CopyFrom(value)
    return graph_def

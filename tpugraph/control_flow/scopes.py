"""Parts of a graph as functions of its library; what has to be edited first is copied into a graph of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tpugraph.ir import Graph, Node, Tensor, function_library
from tpugraph.ir.function_library import ARGUMENT
from tpugraph.support.errors import GraphError


def make_function(
    graph: Graph,
    name: str,
    nodes: Iterable[Node],
    arguments: Sequence[Sequence[Tensor]],
    results: Sequence[Tensor],
    *,
    finish: Callable[[Graph], object] | None = None,
) -> str:
    """Write nodes as a function of the library; returns its name. The nodes themselves stay where they are.

    Args:
        graph: the graph.
        name: the name wished for.
        nodes: the body. Control edges from outside are left out: the caller of the function waits instead.
        arguments: of each argument, the tensors of the graph that it stands for.
        results: what the function returns: outputs of the body, or argument tensors.
        finish: edits the body, as a graph of its own, before it is saved.

    Raises:
        GraphError: the body reads a tensor that is no argument.
    """
    if finish is not None:
        return _edited(graph, name, nodes, arguments, results, finish)
    given = [group[0] for group in arguments]
    alike = {tensor: group[0] for group in arguments for tensor in group[1:]}
    return function_library.add_function(graph, name, [*nodes], given, results, alike, keep_names=True)


def _edited(
    graph: Graph,
    name: str,
    nodes: Iterable[Node],
    arguments: Sequence[Sequence[Tensor]],
    results: Sequence[Tensor],
    finish: Callable[[Graph], object],
) -> str:
    """The same for a body that is edited first, as a graph of its own."""
    body = Graph()
    body.library, body.versions, body.source, body.stage = graph.library, graph.versions, graph.source, graph.stage
    given: list[Tensor] = []
    tensors: dict[Tensor, Tensor] = {}
    for index, group in enumerate(arguments):
        known = group[0].node.output(group[0].port)
        given.append(body.add(ARGUMENT, f"in{index}", outputs=[known]).out())  # so no node of the body takes the name
        tensors.update(dict.fromkeys(group, given[-1]))
    copy_into(body, graph.topological_order(nodes), tensors)
    returned = [_returned(body, tensors, tensor) for tensor in results]
    finish(body)
    found = [tensor.node.inputs[0] if tensor.node.op == RESULT else tensor for tensor in returned]
    inner = [node for node in body if node.op not in (ARGUMENT, RESULT)]
    function = function_library.add_function(body, name, inner, given, found, {}, keep_names=True)
    graph.library = body.library
    return function


RESULT = "_Retval"
"""Holds a result while the body is edited, so that edits of its producer are seen."""


def _returned(body: Graph, tensors: dict[Tensor, Tensor], tensor: Tensor) -> Tensor:
    copy = tensors[tensor]
    if copy.node.op == ARGUMENT:
        return copy
    return body.add(RESULT, "result", [copy], outputs=[]).out()


def copy_into(target: Graph, nodes: Sequence[Node], tensors: dict[Tensor, Tensor]) -> dict[Node, Node]:
    """Copy nodes of another graph, in topological order; returns the copy of each.

    Args:
        target: the graph to copy into.
        nodes: what to copy.
        tensors: of each tensor that is known in ``target``, its counterpart there; the outputs of the copies are added.

    Raises:
        GraphError: an input is neither copied nor known.
    """
    copies: dict[Node, Node] = {}
    for node in nodes:
        inputs = []
        for tensor in node.inputs:
            if tensor not in tensors and tensor.node in copies:
                tensors[tensor] = copies[tensor.node].out(tensor.port)
            if tensor not in tensors:
                raise GraphError(f"the function reads '{tensor}', which it does not have", node=node)
            inputs.append(tensors[tensor])
        copy = target.add(
            node.op, node.name, inputs, controls=[copies[c] for c in node.controls if c in copies],
            attrs=node.raw_attrs, outputs=node.outputs, source=node,
        )  # fmt: skip
        copies[node] = copy
        for port in range(len(node.outputs or ())):
            tensors.setdefault(node.out(port), copy.out(port))
    return copies

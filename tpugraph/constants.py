"""The value of a tensor that is made of constants alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.graphdef import to_graph_def
from tpugraph.ir import Graph, Node, Tensor

_LARGEST_CONSTANT_CONE = 400
_SIZE = re.compile(r"(?:^|/)(?:Size|num_elements)(?:_\d+)?$")


def evaluate(
    graph: Graph, tensor: Tensor, *, instead: Mapping[Node, np.ndarray[Any, Any]] | None = None
) -> np.ndarray[Any, Any] | None:
    """The value of a tensor that is made of constants alone, or None.

    Args:
        graph: the graph.
        tensor: the tensor.
        instead: other values for some of the constants.
    """
    if instead:
        return _run(graph, tensor, instead)
    node = tensor.node
    if node.op == "Const":
        return np.asarray(node.attr("value"))
    if node.op in ops.VARIABLES or node.op in ops.READS:
        return None
    if node.op == "Cast" and node.inputs[0].node.op == "Const" and tensor.dtype.name in ("float32", "float64"):
        return np.asarray(node.inputs[0].node.attr("value")).astype(tensor.dtype.name)  # what most of them are
    return _run(graph, tensor, {})


def constants_of(graph: Graph, tensor: Tensor) -> list[Node]:
    """The constants that a tensor is made of."""
    return [node for node in graph.ancestors([tensor.node], data_only=True) if node.op == "Const"]


def is_read_from_shapes(graph: Graph, tensor: Tensor) -> bool:
    """Whether a number was read from the shape of a tensor, and is no literal of the model.

    What was known when the model was traced is a constant in its graph: a vector where it was a shape, and under
    TensorFlow's own name where it was a size.
    """
    folded = graph.facts.get("static-shapes", {}).get("folded", ())
    return any(
        node.name in folded
        or (node.attr("value").dtype.kind == "i" and (node.attr("value").ndim == 1 or _SIZE.search(node.name)))
        for node in constants_of(graph, tensor)
    )


def _run(graph: Graph, tensor: Tensor, instead: Mapping[Node, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    cone = graph.ancestors([tensor.node], data_only=True)
    if len(cone) > _LARGEST_CONSTANT_CONE or any(ops.is_stateful(n.op) or n.op in ops.CONTROL_FLOW for n in cone):
        return None
    import tensorflow as tf

    part = Graph()
    part.versions, part.library = graph.versions, graph.library
    copies: dict[Node, Node] = {}
    for node in graph.topological_order(cone):
        copies[node] = part.add(
            node.op,
            node.name,
            [copies[t.node].out(t.port) for t in node.inputs],
            attrs={k: v for k, v in node.raw_attrs.items() if k[0] != "_"}
            | ({"value": instead[node]} if node in instead else {}),
        )
    with tf.Graph().as_default() as inner:
        tf.compat.v1.import_graph_def(to_graph_def(part), name="")
        with tf.compat.v1.Session(graph=inner) as session:
            return np.asarray(session.run(f"{tensor.node.name}:{tensor.port}"))

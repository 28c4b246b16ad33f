"""The value of a tensor that is made of constants alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.graphdef import to_graph_def
from tpugraph.ir import Graph, Node, Tensor

_LARGEST_CONSTANT_CONE = 400


def evaluate(graph: Graph, tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a tensor that is made of constants alone, or None."""
    if tensor.node.op == "Const":
        return np.asarray(tensor.node.attr("value"))
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
            attrs={k: v for k, v in node.raw_attrs.items() if k[0] != "_"},
        )
    with tf.Graph().as_default() as inner:
        tf.compat.v1.import_graph_def(to_graph_def(part), name="")
        with tf.compat.v1.Session(graph=inner) as session:
            return np.asarray(session.run(f"{tensor.node.name}:{tensor.port}"))

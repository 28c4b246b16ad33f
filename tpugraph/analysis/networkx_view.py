"""A graph as networkx sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpugraph.analysis import shapes
from tpugraph.analysis.sides_of_step import in_cluster
from tpugraph.ir import Graph, Node, is_back_edge


def as_networkx(graph: Graph, nodes: Iterable[Node] | None = None) -> Any:
    """The graph as a ``networkx.MultiDiGraph``, for networkx's algorithms.

    Vertices are node names with the attributes ``op``, ``dtypes`` and ``shapes`` of the outputs (None where unknown), and
    ``placement``: ``device`` for nodes of the cluster of a converted graph, else ``host``. Edges have ``kind``: ``data``,
    ``control``, or ``back`` for a loop's back edge; data edges also ``output`` and ``operand``, the indices of the output that
    is read and of the operand that reads it.
    """
    import networkx as nx

    chosen = dict.fromkeys(graph if nodes is None else nodes)
    if any(node.outputs is None for node in chosen):
        shapes.infer(graph)
    view: Any = nx.MultiDiGraph()
    for node in chosen:
        outputs = node.outputs or ()
        view.add_node(node.name, op=node.op, dtypes=tuple(str(dtype) for dtype, _ in outputs),
                      shapes=tuple(shape for _, shape in outputs), placement="device" if in_cluster(node) else "host")  # fmt: skip
    for node in chosen:
        for control in node.controls:
            if control in chosen:
                view.add_edge(control.name, node.name, kind="control")
        for operand, tensor in enumerate(node.inputs):
            if tensor.node in chosen:
                kind = "back" if is_back_edge(tensor.node, node) else "data"
                view.add_edge(tensor.node.name, node.name, kind=kind, output=tensor.port, operand=operand)
    return view

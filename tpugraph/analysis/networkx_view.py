"""A graph as networkx sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpugraph.ir import Graph, Node, is_back_edge


def as_networkx(graph: Graph, nodes: Iterable[Node] | None = None) -> Any:
    """The graph as a ``networkx.DiGraph``, for analyses that the field has written already.

    Vertices are node names with the attribute ``op``; edges carry ``kind``: ``data``, ``control``, or ``back`` for the
    edge that closes a loop.

    Args:
        graph: the graph.
        nodes: limits the view to some nodes; all by default.
    """
    import networkx as nx

    chosen = dict.fromkeys(graph if nodes is None else nodes)
    view: Any = nx.DiGraph()
    for node in chosen:
        view.add_node(node.name, op=node.op)
    for node in chosen:
        for control in node.controls:
            if control in chosen:
                view.add_edge(control.name, node.name, kind="control")
        for tensor in node.inputs:
            if tensor.node in chosen:
                kind = "back" if is_back_edge(tensor.node, node) else "data"
                view.add_edge(tensor.node.name, node.name, kind=kind)
    return view

"""A conversion in the JSON of Google's Model Explorer: a graph for each stage, and what its nodes are coloured by."""

from __future__ import annotations

from typing import Any

from tpugraph.views.view_data import NodeView, ViewData, current

_SIDES = {"device": "#93c5fd", "host": "#fcd34d", "": "#d1d5db"}
_KINDS = {"replicate": "#86efac", "shard": "#93c5fd", "partial": "#f9a8d4", "collective": "#c084fc"}


def graphs(view: ViewData) -> dict[str, Any]:
    """The graph as it was read and as it became; Model Explorer opens them side by side."""
    stages = sorted({0, len(view.stages) - 1})
    return {"label": view.title, "graphs": [_graph(view, at) for at in stages]}


def node_data(view: ViewData) -> dict[str, dict[str, Any]]:
    """Model Explorer's node data for colouring nodes by ``side`` and by ``placement``, for each graph."""
    found: dict[str, dict[str, Any]] = {"side": {}, "placement": {}}
    for at in sorted({0, len(view.stages) - 1}):
        alive = view.alive(at).values()
        sides = {node.name: {"value": node.side, "bgColor": _SIDES[node.side]} for node in alive if node.side}
        kinds = {
            node.name: {"value": kind, "bgColor": _KINDS.get(kind, "#e5e7eb")}
            for node in alive
            if (kind := _kind(node))
        }
        found["side"][_id(view, at)] = {"results": sides}
        found["placement"][_id(view, at)] = {"results": kinds}
    return found


def _id(view: ViewData, at: int) -> str:
    return f"{at:02}_{view.stages[at].name}"


def _kind(node: NodeView) -> str:
    if node.collective is not None:
        return "collective"
    return node.lives[0].kind if node.lives else ""


def _graph(view: ViewData, at: int) -> dict[str, Any]:
    return {"id": _id(view, at), "nodes": [_node(view, node, at) for node in view.alive(at).values()]}


def _node(view: ViewData, node: NodeView, at: int) -> dict[str, Any]:
    version = current(node, at)
    edges = [
        {"sourceNodeId": view.nodes[source].name, "sourceNodeOutputId": str(port), "targetNodeInputId": str(place)}
        for place, (source, port) in enumerate(version.inputs or [])
    ]
    edges += [
        {"sourceNodeId": view.nodes[source].name, "sourceNodeOutputId": "control", "targetNodeInputId": "control"}
        for source in version.controls or []
    ]
    said = {**version.attrs, "device": version.device or None, "side": node.side or None, "made by": node.made_by,
            "made for": node.origin, "lives": "; ".join(lives.text for lives in node.lives) or None}  # fmt: skip
    return {
        "id": node.name,
        "label": version.op,
        "namespace": node.name.rpartition("/")[0],
        "attrs": [{"key": key, "value": value} for key, value in said.items() if value is not None],
        "incomingEdges": edges,
        "outputsMetadata": [
            {"id": str(port), "attrs": [{"key": "tensor_shape", "value": text}]}
            for port, text in enumerate(node.outputs)
        ],
    }

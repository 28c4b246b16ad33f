"""A view of a conversion that can be saved in several forms, and shown in a notebook."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import Any

from tpugraph.support import files
from tpugraph.support.errors import UsageError
from tpugraph.support.wording import counted
from tpugraph.views import page
from tpugraph.views.view_data import NodeView, ViewData, current

FORMATS = ("html", "model_explorer", "json")
"""The forms in which a view is written."""

_FRAME_HEIGHT = 640  # pixels


class View:
    """A view of a conversion: the graph by scopes at every stage, what each pass did, placements, verdicts.

    In a notebook it shows itself.

    Attributes:
        data: what is shown, as plain data.
    """

    def __init__(self, data: ViewData) -> None:
        self.data = data

    def save(self, path: str | os.PathLike[str], format: str = "html") -> list[Path]:
        """Write the view.

        Args:
            path: the file.
            format: ``html`` (one page that needs no server and no network), ``model_explorer`` (the graph for Google's Model
                Explorer, and beside it what its nodes are coloured by), or ``json``.

        Returns:
            The files that were written.

        Raises:
            UsageError: there is no such format.
            LoadError: the place cannot be written.
        """
        place = Path(path)
        if format == "html":
            contents = {place: self.html()}
        elif format == "model_explorer":
            contents = {place: json.dumps(_graphs(self.data))}
            for name, data in _node_data(self.data).items():
                contents[place.with_name(f"{place.stem}.{name}.json")] = json.dumps(data)
        elif format == "json":
            contents = {place: json.dumps(self.data.as_dict())}
        else:
            raise UsageError(f"'{format}' is no format of a view", fix=f"one of {', '.join(FORMATS)}")
        files.write_together({place: text.encode() for place, text in contents.items()})
        return list(contents)

    def html(self) -> str:
        return page.make("view", self.data.title, self.data.as_dict())

    def _repr_html_(self) -> str:
        """The page in a frame, as notebooks show it."""
        source = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{source}" style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'

    def __repr__(self) -> str:
        return (
            f"<View of {self.data.title}: {counted(len(self.data.stages), 'stage')}, {len(self.data.alive()):,} nodes>"
        )


# --------------------------------------------------------------------------- the JSON of Google's Model Explorer

_SIDES = {"device": "#93c5fd", "host": "#fcd34d", "": "#d1d5db"}
_KINDS = {"replicate": "#86efac", "shard": "#93c5fd", "partial": "#f9a8d4", "collective": "#c084fc"}


def _graphs(view: ViewData) -> dict[str, Any]:
    """The graph as it was read and as it became; Model Explorer opens them side by side."""
    stages = sorted({0, len(view.stages) - 1})
    return {"label": view.title, "graphs": [_graph(view, at) for at in stages]}


def _node_data(view: ViewData) -> dict[str, dict[str, Any]]:
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

"""A conversion's last stage in the DOT language, for Graphviz: scopes as clusters, host and device told apart."""

from __future__ import annotations

import json
from typing import Any

from tpugraph.views.view_data import NodeView, ViewData, current

_FILL = {"device": "#dbeafe", "host": "#fef3c7", "": "#f3f4f6"}


def drawing(view: ViewData) -> str:
    """The graph after the last stage as a digraph.

    Nodes on the device are blue, those on the host yellow, those that stop the step have a red frame. An edge from host to
    device or back says how many bytes go over it, a dashed one goes over infeed or outfeed, a dotted one is a control edge.
    """
    at = len(view.stages) - 1
    nodes = view.alive()
    scopes: dict[str | int, Any] = {}
    for number, node in nodes.items():
        inside = scopes
        for part in node.name.split("/")[:-1]:
            inside = inside.setdefault(part, {})
        inside[number] = node
    lines = ["digraph {", "  node [shape=box, style=filled, fontname=Helvetica];"]
    lines += _cluster(scopes, view, at, "", 1)
    for number, node in nodes.items():
        version = current(node, at)
        for source, port in version.inputs or []:
            crosses = view.nodes[source].side != node.side
            lines.append(_edge(source, number, label=_bytes(view.nodes[source], port) if crosses else None))
        lines += [_edge(source, number, style="dotted") for source in version.controls or []]
    for sent in view.transfers:
        amount = "" if sent.bytes is None else f" {sent.bytes:,} bytes"
        lines.append(_edge(sent.source, sent.target, style="dashed", label=f"{sent.kind}{amount}"))
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(inside: dict[Any, Any], view: ViewData, at: int, path: str, depth: int) -> list[str]:
    """What a scope holds, scopes within it as clusters of their own."""
    indent = "  " * depth
    lines = []
    for key, held in inside.items():
        if isinstance(key, int):
            stops = ", color=red, penwidth=2" if view.stops(held) else ""
            label = f"{held.name.rpartition('/')[2]}\\n{current(held, at).op}"
            lines.append(f'{indent}n{key} [label="{label}", fillcolor="{_FILL[held.side]}"{stops}];')
            continue
        whole = f"{path}{key}"
        lines += [f"{indent}subgraph {json.dumps('cluster_' + whole)} {{", f"{indent}  label={json.dumps(key)};"]
        lines += [*_cluster(held, view, at, f"{whole}/", depth + 1), f"{indent}}}"]
    return lines


def _bytes(node: NodeView, port: int) -> str | None:
    size = node.bytes[port] if port < len(node.bytes) else None
    return None if size is None else f"{size:,} bytes"


def _edge(source: int, target: int, **attributes: str | None) -> str:
    said = ", ".join(f"{key}={json.dumps(value)}" for key, value in attributes.items() if value is not None)
    return f"  n{source} -> n{target}{f' [{said}]' if said else ''};"

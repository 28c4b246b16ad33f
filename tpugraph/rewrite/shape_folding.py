"""Folding: what only asks for the shape of a tensor becomes a constant, where the shape is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.analysis.values import partial_value
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import Shape
from tpugraph.ir.builder import Builder

_NUMBERS = frozenset({"int32", "int64", "float32", "float64"})


def fold(graph: Graph) -> None:
    """Replace the shape of a statically shaped tensor by a constant."""
    inside = analysis.conditional(graph)
    inside.update((node, None) for node, frame in analysis.frames(graph).items() if frame)
    for node in graph.of_type(*ops.SHAPE_OF):
        kind = node.attr("out_type", attrs.dtype("int32"))
        for port, tensor in enumerate(node.inputs):
            if not shapes.is_static(tensor.shape) or tensor.node.op in ops.MERGE:
                continue
            value = _answer(node.op, tensor.shape, kind.name)
            constant = _beside(graph, node).constant(value, kind, name="folded", controls=node.controls).node
            if tensor.node in inside or tensor.node.op in ops.SWITCH:
                graph.add_control(constant, _pivot(graph, tensor))  # else it would leave its loop body or branch
            graph.replace_uses(node.out(port), constant.out())
        if not node.used_ports() and not node.control_uses():
            graph.remove(node)


def fold_numbers(graph: Graph) -> None:
    """Replace numbers by constants that the known dimensions of open shapes decide, as the width of a batch of any length."""
    inside = analysis.conditional(graph)
    inside.update((node, None) for node, frame in analysis.frames(graph).items() if frame)
    stack = graph.of_type(*ops.SHAPES)
    seen = dict.fromkeys(stack)
    for node in stack:  # grows while it is walked
        for reader in dict.fromkeys(use.node for use in node.uses()):
            if (
                reader in seen
                or reader in inside
                or len(reader.outputs or ()) != 1
                or reader.out().dtype.name not in _NUMBERS
            ):
                continue
            seen[reader] = None
            value = partial_value(reader.out())
            if value is None:
                continue
            if np.isnan(value).any():
                stack.append(reader)
                continue
            kind = reader.out().dtype
            graph.replace_uses(
                reader.out(), _beside(graph, reader).constant(value.astype(kind.name), kind, name="folded")
            )
    kept = set() if graph.roles is None else graph.roles.kept
    for node in reversed(seen):
        if not node.consumers() and node.name not in kept:
            graph.remove(node)


def _pivot(graph: Graph, tensor: Tensor) -> Node:
    """A node that runs where the tensor has a value; a Switch itself runs on both of its sides."""
    if tensor.node.op not in ops.SWITCH:
        return tensor.node
    readers = (use.node for use in tensor.node.uses(tensor.port))
    found = next((node for node in readers if node.op in ops.IDENTITIES), None)
    return found or _beside(graph, tensor.node).identity(tensor, name="alive").node


def _beside(graph: Graph, node: Node) -> Builder:
    return Builder(graph, node.name, device=node.device, source=node)


def _answer(op: str, shape: Shape, kind: str) -> np.ndarray[Any, Any]:
    dims = [int(d or 0) for d in shape or ()]
    if op == "Rank":
        return np.asarray(len(dims), kind)
    return np.asarray(np.prod(dims, dtype=np.int64) if op == "Size" else dims, kind)

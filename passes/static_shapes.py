"""Static shapes: close the batch dimension, infer every shape, fold shape arithmetic, and drop checks that hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import loop_shapes, shapes
from tpugraph.analysis.step import ClosedShapes
from tpugraph.ir import Graph, Node, attrs
from tpugraph.ir.attrs import Shape
from tpugraph.ir.builder import Builder
from tpugraph.rebatch.rebatching import TRACE
from tpugraph.rewrite.folding import fold, remove_settled
from tpugraph.rewrite.step_nodes import ends_of, remove_unread
from tpugraph.support.errors import GraphError
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class StaticShapes(Pass):
    """Dtype and shape of every tensor are known, batches have a fixed size, and shapes that are known are constants."""

    requires = ("resource_variables",)
    ensures = ("shapes_known",)
    gives = (ClosedShapes,)

    def run(self, graph: Graph) -> None:
        closed = [batch for node in graph.of_type(*ops.GET_NEXT) for batch in _close_batch(graph, node)]
        try:
            shapes.infer(graph)
        except GraphError as error:
            if not closed:
                raise
            raise GraphError(error.fault, node=error.node, origin=graph.source, fix=f"{TRACE} ({closed[0]})") from error
        while shapes.tell_lookups(graph) + loop_shapes.tell(graph):
            shapes.infer(graph)
        ends = ends_of(graph)
        fold(graph)
        remove_settled(graph)
        _remove_unread(graph, ends)
        graph.keep(ClosedShapes(tuple(closed)))


def _remove_unread(graph: Graph, ends: frozenset[Node]) -> None:
    if graph.roles is None:
        return
    keep = ends | {graph[name] for name in graph.roles.kept if name in graph}
    remove_unread(graph, [node for node in graph if not node.consumers()], keep=keep)


# --------------------------------------------------------------------------- the batch dimension


def _rows(dataset: Node) -> int | None:
    rows = dataset.inputs[ops.BATCHING[dataset.op][0]].node
    return int(rows.attr("value").item()) if rows.op in ops.CONSTANTS and rows.attr("value").size == 1 else None


def _close_batch(graph: Graph, get_next: Node) -> list[str]:
    """Set drop_remainder, where that alone leaves the batch dimension open."""
    if all(shape is not None and (not shape or shape[0] is not None) for shape in get_next.attr("output_shapes")):
        return []
    iterator = get_next.inputs[0].node
    dataset = next((u.node.inputs[0].node for u in iterator.uses() if u.node.op in ops.MAKE_ITERATOR), None)
    chain: list[Node] = []
    while dataset is not None and dataset.op in ops.ELEMENTS:
        chain.append(dataset)
        dataset = dataset.inputs[0].node
    if dataset is None or dataset.op not in ops.BATCHING:
        return []
    drop_operand, size = ops.BATCHING[dataset.op][1], _rows(dataset)
    if drop_operand is None or size is None:
        return []
    make = Builder(graph, dataset.name, device=dataset.device, source=dataset)
    graph.set_input(dataset, drop_operand % len(dataset.inputs), make.constant(np.asarray(True), name="drop_remainder"))
    for node in (dataset, *chain, iterator, get_next):
        graph.set_attr(node, "output_shapes", [_with_batch(s, size) for s in node.attr("output_shapes")])
    graph.note(dataset, f"drops the last partial batch, so that every batch has {size} rows")
    return [f"{dataset.name}: {size} rows, the last partial batch is dropped"]


def _with_batch(shape: Shape, size: int) -> Any:
    return attrs.encode(None if shape is None else (size, *shape[1:])) if shape else shape

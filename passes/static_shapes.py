"""Makes shapes static: sets the batch size, infers shapes, folds shape arithmetic, and removes assertions that always hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpugraph import ops
from tpugraph.analysis import batched_input, loop_shapes
from tpugraph.ir import Graph, Node, attrs
from tpugraph.ir.attrs import Shape
from tpugraph.rebatch.rebatching import TRACE
from tpugraph.rewrite.folding import fold, remove_settled
from tpugraph.rewrite.step_nodes import ends_of, remove_unread
from tpugraph.support.errors import GraphError
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class StaticShapes(Pass):
    """Dtype and shape of every tensor are known, batches have a fixed size, and static shapes are folded into constants."""

    requires = ("resource_variables",)
    ensures = ("shapes_known",)

    def run(self, graph: Graph) -> None:
        for node in graph.of_type(*ops.GET_NEXT):
            _close_batch(graph, node)
        closed = [note.text for note in graph.notes if note.shown and note.stage == self.name]
        try:
            loop_shapes.infer(graph)
        except GraphError as error:
            if not closed:
                raise
            raise GraphError(error.fault, node=error.node, origin=graph.source, fix=f"{TRACE} ({closed[0]})") from error
        ends = ends_of(graph)
        fold(graph)
        remove_settled(graph)
        if graph.roles is not None:
            remove_unread(graph, [node for node in graph if not node.consumers()], keep=ends)


def _close_batch(graph: Graph, get_next: Node) -> None:
    """Set drop_remainder, where only that makes the batch dimension unknown."""
    if all(shape is not None and (not shape or shape[0] is not None) for shape in get_next.attr("output_shapes")):
        return
    iterator = get_next.inputs[0].node
    chain = [maker.inputs[0].node for maker in batched_input.makers_of(iterator)[:1]]
    while chain and chain[-1].op in ops.ELEMENTS:
        chain.append(chain[-1].inputs[0].node)
    held = batched_input.batch_size(chain[-1]) if chain else None
    if held is None or not batched_input.drop_remainder(graph, chain[-1]):
        return
    dataset, size = chain[-1], int(held.attr("value").item())
    for node in (*chain, iterator, get_next):
        graph.set_attr(node, "output_shapes", [_with_batch(s, size) for s in node.attr("output_shapes")])
    graph.note(dataset, f"{dataset.name}: {size} rows, the last partial batch is dropped", shown=True)


def _with_batch(shape: Shape, size: int) -> Any:
    return attrs.encode(None if shape is None else (size, *shape[1:])) if shape else shape

"""Every batch of a core has the same number of rows; its true number is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tpugraph import ops
from tpugraph.analysis import batched_input, shapes
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Node
from tpugraph.tpu.padding import add, grow_sparse, pad, zero_made_of_text
from tpugraph.tpu.pipeline import Pass
from tpugraph.tpu.whole_dataset import endless, go_on_empty, keep_remainder


@dataclass(frozen=True)
class PadBatches(Pass):
    """Every batch has the same number of rows: a partial one is padded with zeros, and its true number of rows is kept.

    The last partial batch is not dropped, and behind the end of the data the dataset goes on with empty batches, so
    that cores without rows have a batch of nothing but padding.
    """

    requires = ("roles_known", "resource_variables")
    ensures = ("shapes_known",)
    gives = (PaddedBatches,)

    def run(self, graph: Graph) -> None:
        take = batched_input.take_of(graph)
        _read_predictions(graph, take)
        iterator, dataset = batched_input.dataset_of(graph, take)
        chain = list(batched_input.stages(dataset))
        batcher = chain[-1] if chain and chain[-1].op in ops.BATCHING else None
        rows = batched_input.rows_of(graph, take, batcher)
        baked = any(shape and shape[0] is not None for shape in take.attr("output_shapes"))
        noted = keep_remainder(graph, chain, batcher)
        open_shapes = [
            batched_input.with_open_rows(graph, take, index, shape)
            for index, shape in enumerate(take.attr("output_shapes"))
        ]
        go_on_empty(graph, iterator, take, dataset, open_shapes)
        for node in (iterator, take):
            graph.set_attr(node, "output_shapes", list(open_shapes))
            graph.set_attr(node, "_output_shapes", None)
        graph.set_outputs(take, list(zip(take.attr("output_types"), open_shapes, strict=True)))
        count, padded = pad(graph, take, rows)
        shapes.infer(graph)
        if shapes.tell_lookups(graph):
            shapes.infer(graph)
        zero_made_of_text(graph, count, padded, rows)
        grown = grow_sparse(graph, take, rows)
        sparse = [(str(indices), str(values), str(shape)) for indices, values, shape in grown]
        graph.keep(
            PaddedBatches(
                rows, count.node.name, baked, tuple(map(str, padded)), tuple(sparse), endless(chain), tuple(noted)
            )
        )
        shapes.infer(graph)


def _read_predictions(graph: Graph, take: Node) -> None:
    """A part of the batch that is handed out as it is counts as read."""
    predictions = {name: graph.tensor(text) for name, text in graph.roles.predictions.items()}
    for name, tensor in predictions.items():
        if tensor.node is take:
            predictions[name] = add(graph, "Identity", "prediction", [tensor], {"T": tensor.dtype})
    graph.roles = replace(graph.roles, predictions={name: str(tensor) for name, tensor in predictions.items()})

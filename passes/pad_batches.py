"""Every batch has the same number of rows; its true number is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tpugraph import ops
from tpugraph.analysis import batched_input, loop_shapes, shapes
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Node
from tpugraph.rewrite.folding import fold, fold_numbers
from tpugraph.spmd.analysis import refuse_uneven
from tpugraph.tpu.padding import add, grow_sparse, pad, zero_made_of_text
from tpugraph.tpu.pipeline import Pass
from tpugraph.tpu.whole_dataset import endless, go_on_empty


@dataclass(frozen=True)
class PadBatches(Pass):
    """Every batch has a number of rows that the cores divide: a partial one is padded with zeros, and its true number is kept.

    A graph with static rows drops the last partial batch itself. One with an open number of rows keeps every example: its
    shapes get a full batch's rows, rounded up. Behind the end of the data the dataset goes on with empty batches.
    """

    num_replicas: int = 8

    requires = ("roles_known", "resource_variables")
    ensures = ("shapes_known",)
    gives = (PaddedBatches,)

    def run(self, graph: Graph) -> None:
        take = batched_input.take_of(graph)
        _read_predictions(graph, take)
        iterator, dataset = batched_input.dataset_of(graph, take)
        chain = list(batched_input.stages(dataset))
        batcher = chain[-1] if chain and chain[-1].op in ops.BATCHING else None
        plain_rows = rows = batched_input.rows_of(graph, take, batcher)
        whole = any(shape and shape[0] is not None for shape in take.attr("output_shapes"))
        open_shapes = [
            batched_input.with_open_rows(graph, take, i, s) for i, s in enumerate(take.attr("output_shapes"))
        ]
        if whole:
            refuse_uneven(graph, rows, self.num_replicas)
        else:  # a dimension of size 1 would be broadcast
            rows = -(-max(rows, 2) // self.num_replicas) * self.num_replicas
        shapes.infer(graph)
        fold(graph)
        fold_numbers(graph)
        go_on_empty(graph, iterator, take, dataset, open_shapes)
        for node in (iterator, take):
            graph.set_attr(node, "output_shapes", list(open_shapes))
            graph.set_attr(node, "_output_shapes", None)
        graph.set_outputs(take, list(zip(take.attr("output_types"), open_shapes, strict=True)))
        count, padded = pad(graph, take, rows)
        _infer(graph)
        texts = zero_made_of_text(graph, count, padded, rows)
        sparse = grow_sparse(graph, take, rows)
        plain = {} if whole else {**padded, **texts, **{parts[2]: parts[0].node.out(2) for parts in sparse}}
        graph.keep(PaddedBatches(rows, plain_rows, count.node.name, whole, tuple(map(str, padded)), tuple(map(str, texts)),
                                 tuple((str(i), str(v), str(s)) for i, v, s in sparse),
                                 {str(t): str(p) for t, p in plain.items()}, endless(chain)))  # fmt: skip
        _infer(graph)


def _infer(graph: Graph) -> None:
    shapes.infer(graph)
    while shapes.tell_lookups(graph) + loop_shapes.tell(graph):
        shapes.infer(graph)


def _read_predictions(graph: Graph, take: Node) -> None:
    """A part of the batch that is handed out as it is counts as read."""
    predictions = {name: graph.tensor(text) for name, text in graph.roles.predictions.items()}
    for name, tensor in predictions.items():
        if tensor.node is take:
            predictions[name] = add(graph, "Identity", "prediction", [tensor], {"T": tensor.dtype})
    graph.roles = replace(graph.roles, predictions={name: str(tensor) for name, tensor in predictions.items()})

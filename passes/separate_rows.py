"""Splits evaluation and prediction: independent rows on the device, ops that mix rows on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tpugraph import ops
from tpugraph.analysis.step import DeviceEnds, PaddedBatches
from tpugraph.ir import Graph
from tpugraph.ir.builder import Builder
from tpugraph.tpu.evaluation_split import EvaluationSplit
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class SeparateRows(Pass):
    """The host updates metrics after the device, on exactly the unpadded batch.

    Where batches are padded, ops that mix rows run there too, and rows stay independent before them. The cut minimizes the bytes
    that leave the device in each step.
    """

    requires = ("shapes_known", "resource_variables")
    ensures = ("rows_separate",)
    breaks = ("shapes_known",)
    reads = (PaddedBatches,)
    gives = (DeviceEnds,)

    def run(self, graph: Graph) -> None:
        _drop_prints(graph)
        _name_predictions(graph)
        step = EvaluationSplit(graph)
        step.refuse_in_the_middle()
        step.build()
        step.note_products()


def _drop_prints(graph: Graph) -> None:
    for node in graph.of_type(*ops.PRINTS):
        if node.inputs and node.outputs:
            graph.replace_uses(node.out(), node.inputs[0])
            graph.note(node, "dropped: nothing is printed in evaluation and prediction")


def _name_predictions(graph: Graph) -> None:
    """Give each prediction an Identity of its own, on the host."""
    roles, named = graph.roles, {}
    for name, text in roles.predictions.items():
        tensor = graph.tensor(text)
        make = Builder(graph, "tpugraph/prediction", source=tensor.node)
        named[name] = make.identity(tensor, name=tensor.node.name).node.name
    graph.roles = replace(roles, predictions=named)

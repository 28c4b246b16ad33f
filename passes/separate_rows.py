"""What keeps the rows of a batch apart goes to the device; what mixes them reads the true rows of all cores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tpugraph import ops
from tpugraph.analysis.step import DeviceEnds, HostModels, PaddedBatches, SecondTrace
from tpugraph.ir import Graph
from tpugraph.tpu.divided_step import DividedStep
from tpugraph.tpu.host_epilogue import HostTail
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class SeparateRows(Pass):
    """What mixes the rows of a batch reads the true rows of all cores; all before it keeps the rows apart.

    Metrics and mean losses see exactly the global batch without its padding. As few bytes as possible cross per step:
    what a core can compute row by row, it does.
    """

    requires = ("shapes_known", "resource_variables")
    ensures = ("rows_separate",)
    breaks = ("shapes_known",)
    reads = (PaddedBatches,)
    reads_if_given = (SecondTrace,)
    gives = (DeviceEnds, HostModels)

    def run(self, graph: Graph) -> None:
        _drop_prints(graph)
        _name_predictions(graph)
        step = DividedStep(graph)
        step.refuse_in_the_middle()
        cut = step.cut()
        tail = HostTail(graph, step.cone, step.tail, step.placed, cut)
        tail.refuse()
        tail.build()
        graph.keep(HostModels(tuple(step.note_products())))


def _drop_prints(graph: Graph) -> None:
    for node in graph.of_type(*ops.PRINTS):
        if node.inputs and node.outputs:
            graph.replace_uses(node.out(), node.inputs[0])
            graph.note(node, "dropped: nothing is printed in evaluation and prediction")


def _name_predictions(graph: Graph) -> None:
    """Give each prediction a node of its own, which the host runs."""
    roles, named = graph.roles, {}
    for name, text in roles.predictions.items():
        tensor = graph.tensor(text)
        node = graph.add("Identity", f"tpugraph/prediction/{tensor.node.name}", [tensor], attrs={"T": tensor.dtype},
                         outputs=[(tensor.dtype, tensor.shape)], source=tensor.node)  # fmt: skip
        named[name] = node.name
    graph.roles = replace(roles, predictions=named)

"""An evaluation or prediction step becomes the body of loops."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, in_cluster
from tpugraph.analysis.step import Enqueues, Outfed, Results
from tpugraph.control_flow.loops import Loop, enclose_step
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.tpu.eval_outfeed import collect_in_loop
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class EvaluationLoop(Pass):
    """One Session.run evaluates or predicts `iterations_per_loop` batches: device, infeed and outfeed loop alike.

    Metrics are updated on the host in every step; predictions of all steps leave together. All loops run the same
    number of times, which is a variable; steps behind the end of the data count for nothing.
    """

    iterations_per_loop: int = 100

    requires = ("static_infeed", "fed_to_outfeed", "fed_by_infeed")
    ensures = ("in_loop",)
    reads = (Enqueues, Outfed)
    gives = (Results,)

    def run(self, graph: Graph) -> None:
        enclose_step(graph, self.iterations_per_loop, _device_loop, collect_in_loop)


def _device_loop(graph: Graph, limit: Tensor) -> Tensor:
    """Put the cluster into its loop; returns how often it ran."""
    body = [n for n in graph if in_cluster(n) and not n.has_attr("_tpu_input_identity")]
    loop = Loop(graph, "tpugraph/device/while", limit, attributes={CLUSTER_ATTR: CLUSTER})
    loop.enclose(body)
    loop.finish_after([graph[graph.result(Outfed).enqueue]])
    return loop.close()[0]

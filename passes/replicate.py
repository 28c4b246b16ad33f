"""The TPUReplicate form: one cluster, whatever the number of cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, CORE_DEVICE, HOST_DEVICE, cluster_nodes
from tpugraph.analysis.step import Results
from tpugraph.control_flow.loops import add_results
from tpugraph.ir import Graph
from tpugraph.ir.builder import Builder
from tpugraph.rewrite.collectives import Collectives
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class Replicate(Pass):
    """The device part is one TPUReplicate cluster with its metadata, its pivot and one output, the last loss.

    The cluster holds one copy of the computation; the number of cores is an attribute of its metadata.
    """

    num_replicas: int = 8

    requires = ("in_loop", "fed_by_infeed", "fed_to_outfeed")
    ensures = ("replicated",)
    reads = (Results,)
    gives = (Results,)

    def run(self, graph: Graph) -> None:
        self._output(graph)
        cluster, make = cluster_nodes(graph), Builder(graph)
        pivot = make.node("NoOp", name=f"{CLUSTER}/pivot")
        metadata = make.node("TPUReplicateMetadata", controls=[pivot], num_replicas=self.num_replicas, **_METADATA)
        for node in cluster:
            if not node.controls and not any(t.node in cluster for t in node.inputs):
                graph.add_control(node, metadata)
        make.node("TPUCompilationResult", controls=[metadata], shapes=((),), _tpu_compilation_status=CLUSTER)
        graph.set_attr([node for node in graph if node.has_attr("_output_shapes")], "_output_shapes", None)

    def _output(self, graph: Graph) -> None:
        """Output the last loss from the cluster, as the sum of the cores' shares; without training the number of steps."""
        loss = graph.tensor(graph.result(Results)["train"])
        if graph.roles.mode == "train":
            loss = Collectives(graph, self.num_replicas, flat=True).sum(loss)
        marks = {CLUSTER_ATTR: CLUSTER, "_tpu_output_identity": True}
        marked = Builder(graph, "tpugraph/loss", device=CORE_DEVICE, marks=marks).add(
            "Identity", [loss], (), name="output"
        )
        output = Builder(graph, "tpugraph/loss").node("TPUReplicatedOutput", [marked], name="replicated",
                                                      shapes=[()] * self.num_replicas, num_replicas=self.num_replicas)  # fmt: skip
        first = Builder(graph, "tpugraph/loss", device=HOST_DEVICE).identity(output.out(), name="core_0")
        add_results(graph, train=str(first))


_METADATA: dict[str, Any] = {
    "num_cores_per_replica": 1, "topology": "", "use_tpu": True, "device_assignment": [], "computation_shape": [],
    "host_compute_core": [], "padding_map": [], "step_marker_location": "STEP_MARK_AT_TOP_LEVEL_WHILE_LOOP",
    "allow_soft_placement": False, "use_spmd_for_xla_partitioning": False, "tpu_compile_options_proto": "",
    CLUSTER_ATTR: CLUSTER,
}  # fmt: skip

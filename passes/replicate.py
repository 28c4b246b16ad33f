"""The TPUReplicate form: one cluster, whatever the number of cores."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, CORE_DEVICE, HOST_DEVICE, cluster_nodes
from tpugraph.analysis.step import Results
from tpugraph.control_flow.loops import add_results
from tpugraph.ir import Graph, Tensor, attrs
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
        cluster = cluster_nodes(graph)
        pivot = graph.add("NoOp", f"{CLUSTER}/pivot", outputs=[])
        metadata = graph.add(
            "TPUReplicateMetadata",
            "TPUReplicateMetadata",
            controls=[pivot],
            attrs={
                "num_replicas": self.num_replicas,
                "num_cores_per_replica": 1,
                "topology": "",
                "use_tpu": True,
                "device_assignment": [],
                "computation_shape": [],
                "host_compute_core": [],
                "padding_map": [],
                "step_marker_location": "STEP_MARK_AT_TOP_LEVEL_WHILE_LOOP",
                "allow_soft_placement": False,
                "use_spmd_for_xla_partitioning": False,
                "tpu_compile_options_proto": "",
                CLUSTER_ATTR: CLUSTER,
            },
            outputs=[],
        )
        for node in cluster:
            if not node.controls and not any(t.node in cluster for t in node.inputs):
                graph.add_control(node, metadata)
        graph.add(
            "TPUCompilationResult",
            "TPUCompilationResult",
            controls=[metadata],
            attrs={"_tpu_compilation_status": CLUSTER},
            outputs=[(attrs.dtype("string"), ())],
        )
        for node in graph:
            if node.has_attr("_output_shapes"):
                graph.set_attr(node, "_output_shapes", None)

    def _output(self, graph: Graph) -> None:
        """Hand the last loss out of the cluster, as the sum of the cores' shares; without training the number of steps."""
        loss = graph.tensor(graph.result(Results)["train"])
        if graph.roles.mode == "train":
            loss = Collectives(graph, self.num_replicas, flat=True).sum(loss)
        kind = loss.dtype
        marked = graph.add(
            "Identity",
            "tpugraph/loss/output",
            [loss],
            device=CORE_DEVICE,
            outputs=[(kind, ())],
            attrs={"T": kind, CLUSTER_ATTR: CLUSTER, "_tpu_output_identity": True},
        )
        output = graph.add(
            "TPUReplicatedOutput",
            "tpugraph/loss/replicated",
            [marked.out()],
            attrs={"num_replicas": self.num_replicas, "T": kind},
            outputs=[(kind, ())] * self.num_replicas,
        )
        add_results(graph, train=str(self._read(graph, output.out())))

    def _read(self, graph: Graph, output: Tensor) -> Tensor:
        return graph.add(
            "Identity",
            "tpugraph/loss/core_0",
            [output],
            attrs={"T": output.dtype},
            device=HOST_DEVICE,
            outputs=[(output.dtype, ())],
        ).out()

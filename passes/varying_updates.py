"""Writes that would differ between cores, such as batch statistics, are made one."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis import in_cluster
from tpugraph.errors import ConversionError, UsageError
from tpugraph.ir import Graph, Node
from tpugraph.pipeline import Pass
from tpugraph.reduction import Reduction
from tpugraph.replicas import Replicas
from tpugraph.roles import written_variables


@dataclass(frozen=True)
class VaryingUpdates(Pass):
    """A variable that each core would write differently gets one value: the mean over cores, core 0's, or an error."""

    num_replicas: int = 8
    varying_updates: str = "mean"

    requires = ("gradients_reduced",)
    ensures = ("uniform_writes",)

    def run(self, graph: Graph) -> None:
        if self.varying_updates not in ("mean", "replica0", "error"):
            raise UsageError(
                f"'{self.varying_updates}' is no way to combine updates",
                fix="--varying_updates=mean, replica0 or error",
            )
        varying = analysis.replica_varying(graph)
        writes = [n for n in graph if n.op in ops.WRITES and in_cluster(n) and n in varying]
        replicas = Replicas(graph, self.num_replicas, Reduction("mean", "batch statistics"))
        combined = {}
        for node in writes:
            names = ", ".join(v.name for v in written_variables(node))
            if self.varying_updates == "error":
                raise ConversionError(
                    f"each core would write another value to '{names}'",
                    node=node,
                    fix="--varying_updates=mean writes the mean, =replica0 core 0's",
                )
            self._combine(graph, replicas, node, names)
            combined[names] = self.varying_updates
        graph.facts[self.name] = {"combined": combined}

    def _combine(self, graph: Graph, replicas: Replicas, node: Node, names: str) -> None:
        fact = ops.WRITES[node.op]
        value = node.inputs[fact.value]
        if fact.kind != "assign":
            raise ConversionError(
                f"'{names}' is written row by row and differently on each core",
                node=node,
                fix="--not_trained or another optimizer for it",
            )
        if not value.dtype.floating:
            raise ConversionError(
                f"each core would write another {value.dtype} to '{names}', and integers have no mean",
                node=node,
                fix="--varying_updates=replica0, or compute it from the step counter",
            )
        mean = self.varying_updates == "mean"
        result = replicas.all_reduce(value) if mean else replicas.from_first(value)
        graph.set_input(node, fact.value, result)
        graph.note(node, f"writes {'the mean over cores' if mean else 'the value of core 0'}")

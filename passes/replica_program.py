"""Replicates a program that is written for one replica."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, in_cluster
from tpugraph.analysis.placements import REPLICATE, PerCore, Placement, Shard
from tpugraph.analysis.state import written_variables
from tpugraph.analysis.step import PaddedBatches, Partitioned
from tpugraph.analysis.values import constant_at
from tpugraph.ir import Graph, attrs
from tpugraph.rewrite.collectives import Collectives
from tpugraph.spmd.analysis import batch_of
from tpugraph.support.errors import ConversionError
from tpugraph.support.wording import counted
from tpugraph.tpu.pipeline import Pass, check_choices

_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class ReplicaProgram(Pass):
    """A program that is written for one replica runs unchanged on each core, on the core's own batch.

    It combines gradients itself. Writes to shared variables that differ between cores, such as moving averages of the cores' own
    batches, are unified. The loss is the mean of the cores' losses.
    """

    num_replicas: int = 8
    varying_updates: str = "mean"

    requires = ("placed", "shapes_known")
    ensures = ("gradients_reduced", "uniform_writes")
    reads_if_given = (PaddedBatches,)
    gives = (Partitioned,)

    def run(self, graph: Graph) -> None:
        check_choices(self)
        self._check_groups(graph)
        cores = Collectives(graph, self.num_replicas)
        for node in graph.of_type(*ops.REPLICA_IDS):
            graph.retype(
                node, "Identity", inputs=[cores.own_id(node.out())], attrs={"T": _INT32, CLUSTER_ATTR: CLUSTER}
            )
        leaving = _leaving(graph)
        unified = {} if self.num_replicas == 1 else self._unify(graph, cores)
        share = cores.share(graph.tensor(graph.roles.loss.name))
        note = f"a replica program, replicated as it is on {counted(self.num_replicas, 'core')}: the loss is the mean of theirs"
        graph.keep(Partitioned(self.num_replicas, batch_of(graph), str(share), (note,), leaving, unified=unified))

    def _check_groups(self, graph: Graph) -> None:
        """Refuse collectives over another number of replicas than there are cores."""
        for node in graph.of_type(*ops.OF_REPLICAS):
            groups = constant_at(node.inputs[1]) if len(node.inputs) > 1 else None
            if node.op not in ops.ALL_REDUCES | ops.REPLICA_IDS:
                raise ConversionError(f"the collective {node.op} is not emulated", node=node, origin=graph.source,
                                      fix="combine the replicas by cross_replica_sum")  # fmt: skip
            if groups is None or groups.size == self.num_replicas == len(groups[0]):
                continue
            if len(groups) == 1:
                traced = counted(groups.size, "replica")
                raise ConversionError(f"the program was traced as one of {traced}, not of {self.num_replicas}", node=node,
                                      origin=graph.source, fix=f"--num_replicas={groups.size}")  # fmt: skip
            raise ConversionError(f"it sums over {len(groups)} groups of replicas", node=node, origin=graph.source,
                                  fix="sum over all of them: leave group_assignment out")  # fmt: skip

    def _unify(self, graph: Graph, cores: Collectives) -> dict[str, str]:
        """Give all cores one value for each write of a common variable; returns how, by variable."""
        varying, found = analysis.replica_varying(graph), {}
        for node in [n for n in varying if n.op in ops.WRITES and in_cluster(n) and not analysis.writes_own(n)]:
            fact, name = ops.WRITES[node.op], written_variables(node)[0].name
            differing = [i for i, t in enumerate(node.inputs) if i not in fact.variables and t.node in varying]
            if self.varying_updates == "error" or not differing or fact.rows in differing:
                how = "other rows of" if fact.rows in differing else "another value to"
                raise ConversionError(f"each core would write {how} '{name}'", node=node, origin=graph.source,
                                      fix="sum what it writes over the cores with cross_replica_sum, outside of any "
                                          "condition that differs between them")  # fmt: skip
            for index in differing:
                tensor = node.inputs[index]
                mean = tensor.dtype.floating and self.varying_updates == "mean"
                part = cores.scaled(tensor, 1 / cores.count) if mean else cores.first(tensor)
                graph.set_input(node, index, cores.sum(part))
                found[name] = "mean" if mean else "replica0"
        return found


def _leaving(graph: Graph) -> dict[str, Placement]:
    """Placements of the tensors that the host reads: those that vary are sharded along dimension 0."""
    varying, read = analysis.replica_varying(graph), analysis.read_by_host(graph)
    own = {tensor: Shard(0) if tensor.shape else PerCore("replica program") for tensor in read}
    return {str(tensor): own[tensor] if tensor.node in varying else REPLICATE for tensor in read}

"""Writes that would differ between cores, such as batch statistics, are made one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import analysis, counters, ops, reduction
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, NodeSet, in_cluster
from tpugraph.errors import ConversionError, UsageError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.pipeline import Pass
from tpugraph.reduction import Reduction
from tpugraph.replicas import Replicas
from tpugraph.state import written_variables


@dataclass(frozen=True)
class VaryingUpdates(Pass):
    """A variable that each core would write differently gets one value: the mean over cores, core 0's, or an error.

    What is a sum over the batch, such as a count, is summed instead of averaged; what counts the rows of one core's batch
    counts those of all cores.
    """

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
        replicas = Replicas(graph, self.num_replicas, Reduction("mean", "batch statistics"))
        combined: dict[str, str] = {}
        notes: list[str] = []
        for node in [n for n in graph if n.op in ops.WRITES and in_cluster(n) and n in varying]:
            names = ", ".join(v.name for v in written_variables(node))
            if self.varying_updates == "error":
                raise ConversionError(
                    f"each core would write another value to '{names}'",
                    node=node,
                    fix="--varying_updates=mean writes the mean, =replica0 core 0's",
                )
            how = self._how(graph, node, varying)
            combined[names] = self._combine(graph, replicas, node, names, how, varying)
            if how.departs:
                notes.append(_note(names, combined[names], how.departs))
            elif how.doubt:
                notes.append(f"'{names}' is given the {combined[names]} over the cores: {how.doubt}")
        if self.num_replicas > 1 and self.varying_updates != "replica0":
            notes += self._count_all_rows(graph, varying)
        graph.facts[self.name] = {"combined": combined, "notes": notes}

    def _count_all_rows(self, graph: Graph, varying: NodeSet) -> list[str]:
        """What adds the rows of one core's batch adds those of all cores; returns what may do so and is no shape."""
        notes: list[str] = []
        rows = graph.facts.get("cross-replica-sum", {}).get("batch_rows")
        for counter in list(counters.find(graph, varying, rows)):
            if counter.certain:
                amount = counter.reader.inputs[counter.place]
                graph.set_input(counter.reader, counter.place, _times(graph, amount, self.num_replicas))
                graph.note(counter.reader, "counts the rows of all cores")
                continue
            notes.append(
                f"'{counter.variable}' is given {counter.value:g} more in each step, as one core has rows: "
                "if it counts rows, add tf.shape(x)[0] of a batch of unknown size instead, which counts those of all cores"
            )
        return notes

    def _how(self, graph: Graph, node: Node, varying: NodeSet) -> Reduction:
        if self.varying_updates == "replica0":
            return Reduction("replica0", "chosen with --varying_updates")
        facts = graph.facts.get("cross-replica-sum", {})
        value, known = node.inputs[ops.WRITES[node.op].value], facts.get("own_statistics", ())
        rescaled = graph.facts.get("split-batch", {}).get("constants")
        return reduction.of_value(graph, value, varying, facts.get("batch_rows"), known=known, rescaled=rescaled)

    def _combine(
        self, graph: Graph, replicas: Replicas, node: Node, names: str, how: Reduction, varying: NodeSet
    ) -> str:
        fact = ops.WRITES[node.op]
        value = node.inputs[fact.value]
        if fact.kind != "assign":
            raise ConversionError(
                f"'{names}' is written row by row and differently on each core",
                node=node,
                fix="write the whole variable, for example by the sum of one-hot rows",
            )
        exact_sum = how.kind == "sum" and not how.departs
        kinds = ("int32", "bool") if how.kind == "replica0" else ("int32", "int64") if exact_sum else ()
        if not value.dtype.floating and value.dtype.name not in kinds:
            plural = "flags" if value.dtype.name == "bool" else "integers"
            raise ConversionError(
                f"each core would write another {value.dtype} to '{names}', and {plural} have no mean",
                node=node,
                fix="--varying_updates=replica0, or compute it from the step counter",
            )
        if how.kind == "replica0":
            result, text = replicas.from_first(value), "the value of core 0"
        elif exact_sum:
            result, text = replicas.total(value, varying), "the sum over cores"
        else:
            result, text = replicas.all_reduce(value), "the mean over cores"
        graph.set_input(node, fact.value, result)
        graph.note(node, f"writes {text}")
        return how.kind if how.kind == "replica0" or exact_sum else "mean"


def _times(graph: Graph, amount: Tensor, count: int) -> Tensor:
    """The amount for all cores; made beside it, should it be in a loop or a branch."""
    source, mark = amount.node, {CLUSTER_ATTR: CLUSTER}
    factor = graph.add(
        "Const",
        f"{source.name}/cores",
        controls=[source],
        attrs={"dtype": amount.dtype, "value": np.asarray(count, amount.dtype.name), **mark},
        outputs=[(amount.dtype, ())],
        source=source,
    )
    return graph.add(
        "Mul",
        f"{source.name}/of_all_cores",
        [amount, factor.out()],
        attrs={"T": amount.dtype, **mark},
        outputs=[(amount.dtype, amount.shape)],
        source=source,
    ).out()


def _note(names: str, how: str, departs: str) -> str:
    return (
        f"'{names}' is given the {how} over the cores, which is not what the whole batch gives: {departs}; "
        "--varying_updates=replica0 writes core 0's, =error refuses"
    )

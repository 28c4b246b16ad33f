"""Fixed names for what a session runs."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.analysis.step import Cut, Results
from tpugraph.control_flow.loops import local_variable
from tpugraph.ir import Graph
from tpugraph.ir.builder import Builder
from tpugraph.tpu.checkpoint_nodes import add_checkpoint_ops
from tpugraph.tpu.entries import add_init, add_read, add_result, add_step, add_system
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class EntryPoints(Pass):
    """The graph runs by name alone: configure, init, enqueue, train, dequeue, save, restore, shutdown are fixed."""

    requires = ("replicated",)
    ensures = ("entry_points",)
    reads = (Results,)
    reads_if_given = (Cut,)

    def run(self, graph: Graph) -> None:
        roles, results, cut = graph.roles, graph.result(Results), graph.kept(Cut)
        tail = cut.tail if cut is not None else ()
        add_system(graph)
        loss = graph.tensor(results["last_loss"])
        handle, first = local_variable(graph, "tpugraph/last_loss", 0.0, loss.dtype)
        make = Builder(graph, device=HOST_DEVICE)
        kept = make.node("AssignVariableOp", [handle.out(), loss], name="tpugraph/last_loss/Keep")
        add_result(graph, "tpugraph/train", graph.tensor(results["train"]))
        make.node("NoOp", name="tpugraph/enqueue", controls=[graph[results["enqueue"]]])
        watched = [
            n
            for n in graph
            if (n.op in ops.PRINTS or n.name in tail)
            and not in_cluster(n)
            and n.op not in ops.SUMMARIES
            and not n.consumers()
        ]
        add_result(graph, "tpugraph/dequeue", graph.tensor(results["losses"]), [kept, *watched])
        add_read(graph, "tpugraph/loss", handle, loss.dtype)
        add_step(graph)
        if roles.summaries:
            self._summaries(graph)
        add_init(graph, [first, graph[results["limit_init"]]])
        add_checkpoint_ops(graph)

    def _summaries(self, graph: Graph) -> None:
        tensors = [graph[f.name].out() for f in graph.roles.summaries]
        merged = tensors[0]
        if len(tensors) > 1:
            merged = Builder(graph, device=HOST_DEVICE).add(
                "MergeSummary", tensors, (), name="tpugraph/summaries/merge"
            )
        add_result(graph, "tpugraph/summaries", merged)

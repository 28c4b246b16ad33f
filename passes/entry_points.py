"""Adds the entry points: nodes with fixed names that a session runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.analysis.step import Cut, Results
from tpugraph.control_flow.loops import local_variable
from tpugraph.ir import Graph, Node
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import reached
from tpugraph.tpu.checkpoint_nodes import add_checkpoint_ops
from tpugraph.tpu.pipeline import Pass
from tpugraph.tpu.program import DEVICE_PARTS, USER_NAME


@dataclass(frozen=True)
class EntryPoints(Pass):
    """The graph has its entry points: configure, init, enqueue, train, dequeue, save, restore and shutdown, by fixed names.

    In evaluation and prediction, evaluate or predict replaces train. The value of each metric is under `tpugraph/metrics`, the
    rows of each prediction under `tpugraph/predictions`.
    """

    requires = ("replicated",)
    ensures = ("entry_points",)
    reads = (Results,)
    reads_if_given = (Cut,)

    def run(self, graph: Graph) -> None:
        roles, results = graph.roles, graph.result(Results)
        system = Builder(graph, "tpugraph", device="/device:TPU_SYSTEM:0")
        system.node("ConfigureDistributedTPU", name="configure", shapes=[()], embedding_config="", tpu_embedding_config="",
                    is_global_init=False)  # fmt: skip
        system.node("ShutdownDistributedTPU", name="shutdown")
        make = Builder(graph, "tpugraph", device=HOST_DEVICE)
        first = [graph[results["limit_init"]]]
        if roles.mode == "train":
            loss = graph.tensor(results["last_loss"])
            handle, assign = local_variable(graph, "tpugraph/last_loss", 0.0, loss.dtype)
            first.insert(0, assign)
            kept = make.node("AssignVariableOp", [handle.out(), loss], name="last_loss/Keep")
        Builder(graph, device=HOST_DEVICE).identity(graph.tensor(results["train"]), name=DEVICE_PARTS[roles.mode])
        make.node("NoOp", name="enqueue", controls=[graph[results["enqueue"]]])
        if roles.mode == "train":
            make.identity(graph.tensor(results["losses"]), name="dequeue", controls=[kept, *_watched(graph)])
            make.add("ReadVariableOp", [handle.out()], (), name="loss", dtype=loss.dtype)
        else:
            _add_outputs(make, results)
        if roles.step is None:  # the session counts the steps
            make.constant(np.int64(-1), name="global_step")
        else:
            step = graph[roles.step.name]
            make.add("ReadVariableOp", [step.out()], (), name="global_step", dtype=step.attr("dtype"))
        if roles.mode == "train" and roles.summaries:
            _merge_summaries(make)
        if roles.mode != "train":
            make.node("NoOp", name="init_metrics", controls=_local_initializers(graph))
            make.node("NoOp", name="restart_input", controls=[graph[name] for name in roles.iterator_initializers])
        variables = roles.variables.values()
        initializers = [graph[v.initializer] for v in variables if v.initializer and v.initializer in graph]
        others = [graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)]
        make.node("NoOp", name="init_input", controls=others)
        make.node("NoOp", name="init_local", controls=[*first, *_local_initializers(graph)])
        make.node("NoOp", name="init", controls=[*initializers, *others, *first])
        add_checkpoint_ops(graph)


def _watched(graph: Graph) -> list[Node]:
    """Host nodes that run only for a side effect, such as a print."""
    cut = graph.kept(Cut)
    tail = cut.tail if cut is not None else ()
    host = (n for n in graph if (n.op in ops.PRINTS or n.name in tail) and not in_cluster(n))
    return [n for n in host if n.op not in ops.SUMMARIES and not n.consumers()]


def _merge_summaries(make: Builder) -> None:
    """Merge summaries in two groups: of the last step's values, from the outfeed, and of variables, read after the loop."""
    graph = make.graph
    found = reached([graph[f.name] for f in graph.roles.summaries],
                    lambda node: (t.node for t in node.inputs) if node.op in ops.MERGED_SUMMARIES else ())  # fmt: skip
    of_state = [node for node in found if node.op not in ops.MERGED_SUMMARIES and _shows_variables(graph, node)]
    gone = dict.fromkeys(of_state)
    for merge in graph.topological_order([node for node in found if node.op in ops.MERGED_SUMMARIES]):
        kept = [tensor for tensor in merge.inputs if tensor.node not in gone]
        if not kept:
            gone[merge] = None
        elif len(kept) < len(merge.inputs):
            graph.set_inputs(merge, kept)
            graph.set_attr(merge, "N", len(kept))
    last = [graph[f.name].out() for f in graph.roles.summaries if graph[f.name] not in gone]
    graph.remove_all([node for node in gone if node.op in ops.MERGED_SUMMARIES])
    for name, tensors in (("summaries", last), ("state_summaries", [node.out() for node in of_state])):
        if tensors:
            merged = make.add("MergeSummary", tensors, (), name=f"{name}/merge") if len(tensors) > 1 else tensors[0]
            make.identity(merged, name=name)


def _shows_variables(graph: Graph, summary: Node) -> bool:
    behind = graph.ancestors([summary])
    return any(n.op in ops.READS for n in behind) and not any(n.op in ops.OUTFEEDS for n in behind)


def _add_outputs(make: Builder, results: Results) -> None:
    """Add the outputs of evaluation and prediction: number of steps, losses, metrics and predictions."""
    graph = make.graph
    make.identity(graph.tensor(results["counts"]), name="dequeue")
    if "losses" in results:
        make.identity(graph.tensor(results["losses"]), name="losses")
    outputs = [("metrics", name, value) for name, value in graph.roles.values.items()]
    outputs += [("predictions", name, results[f"prediction/{name}"]) for name in graph.roles.predictions]
    for scope, name, value in outputs:
        made = make.identity(graph.tensor(value), name=f"{scope}/{re.sub(r'[^A-Za-z0-9_./-]', '_', name)}")
        graph.set_attr(made.node, USER_NAME, name)


def _local_initializers(graph: Graph) -> list[Node]:
    """Initializers of variables outside of the checkpoint, in a graph with a checkpoint."""
    variables = graph.roles.variables.values()
    saved = {v.initializer for v in variables if v.key is not None}
    if not saved and graph.roles.mode == "train":
        return []
    return [graph[v.initializer] for v in variables if v.initializer in graph and v.initializer not in saved]

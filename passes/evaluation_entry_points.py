"""Fixed names for what a session runs to evaluate or to predict."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpugraph.analysis import HOST_DEVICE
from tpugraph.analysis.step import Results
from tpugraph.ir import Graph
from tpugraph.ir.builder import Builder
from tpugraph.tpu.checkpoint_nodes import add_checkpoint_ops
from tpugraph.tpu.entries import add_init, add_result, add_step, add_system, local_initializers
from tpugraph.tpu.pipeline import Pass

NAME = "_tpugraph_name"
"""Attribute that holds the name of a metric or prediction as the user knows it; a node's name takes fewer characters."""

_ENTRY = {"eval": "tpugraph/evaluate", "predict": "tpugraph/predict"}


@dataclass(frozen=True)
class EvaluationEntryPoints(Pass):
    """The graph evaluates or predicts by name alone: configure, init, enqueue, evaluate or predict, dequeue are fixed.

    The value of each metric is under `tpugraph/metrics`, the rows of each prediction under `tpugraph/predictions`.
    """

    requires = ("replicated",)
    ensures = ("entry_points",)
    reads = (Results,)

    def run(self, graph: Graph) -> None:
        roles, results = graph.roles, graph.result(Results)
        add_system(graph)
        add_result(graph, _ENTRY[roles.mode], graph.tensor(results["train"]))
        make = Builder(graph, device=HOST_DEVICE)
        make.node("NoOp", name="tpugraph/enqueue", controls=[graph[results["enqueue"]]])
        add_result(graph, "tpugraph/dequeue", graph.tensor(results["counts"]))
        if "losses" in results:
            add_result(graph, "tpugraph/losses", graph.tensor(results["losses"]))
        for name, value in roles.values.items():
            _named(graph, "tpugraph/metrics", name, value)
        for name in roles.predictions:
            _named(graph, "tpugraph/predictions", name, results[f"prediction/{name}"])
        add_step(graph)
        metrics = local_initializers(graph)
        make.node("NoOp", name="tpugraph/init_metrics", controls=metrics)
        iterators = [graph[name] for name in roles.iterator_initializers]
        make.node("NoOp", name="tpugraph/restart_input", controls=iterators)
        add_init(graph, [graph[results["limit_init"]]])
        add_checkpoint_ops(graph)


def _named(graph: Graph, scope: str, name: str, tensor: str) -> None:
    node = add_result(graph, f"{scope}/{re.sub(r'[^A-Za-z0-9_./-]', '_', name)}", graph.tensor(tensor))
    graph.set_attr(node, NAME, name)

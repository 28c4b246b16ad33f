"""Fixed names for what a session runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.analysis.step import Cut, Results
from tpugraph.control_flow.loops import local_variable
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import reached
from tpugraph.tpu.checkpoint_nodes import add_checkpoint_ops
from tpugraph.tpu.pipeline import Pass

NAME = "_tpugraph_name"
"""Attribute that holds the name of a metric or prediction as the user knows it; a node's name takes fewer characters."""

_DEVICE_PART = {"train": "tpugraph/train", "eval": "tpugraph/evaluate", "predict": "tpugraph/predict"}


@dataclass(frozen=True)
class EntryPoints(Pass):
    """The graph runs by name alone: configure, init, enqueue, train, dequeue, save, restore, shutdown are fixed.

    In evaluation and prediction, evaluate or predict takes the place of train. The value of each metric is under
    `tpugraph/metrics`, the rows of each prediction under `tpugraph/predictions`.
    """

    requires = ("replicated",)
    ensures = ("entry_points",)
    reads = (Results,)
    reads_if_given = (Cut,)

    def run(self, graph: Graph) -> None:
        add_system(graph)
        first = _train(graph) if graph.roles.mode == "train" else _evaluate(graph)
        add_init(graph, [*first, graph[graph.result(Results)["limit_init"]]])
        add_checkpoint_ops(graph)


def _add_loops(graph: Graph) -> None:
    results = graph.result(Results)
    add_result(graph, _DEVICE_PART[graph.roles.mode], graph.tensor(results["train"]))
    graph.add("NoOp", "tpugraph/enqueue", controls=[graph[results["enqueue"]]], device=HOST_DEVICE, outputs=[])


# --------------------------------------------------------------------------- training


def _train(graph: Graph) -> list[Node]:
    """Add what a training session runs; returns the initialisers of the pass's own variables."""
    roles, results = graph.roles, graph.result(Results)
    loss = graph.tensor(results["last_loss"])
    handle, first = local_variable(graph, "tpugraph/last_loss", 0.0, loss.dtype)
    make = Builder(graph, device=HOST_DEVICE)
    kept = make.node("AssignVariableOp", [handle.out(), loss], name="tpugraph/last_loss/Keep")
    _add_loops(graph)
    add_result(graph, "tpugraph/dequeue", graph.tensor(results["losses"]), [kept, *_watched(graph)])
    add_read(graph, "tpugraph/loss", handle, loss.dtype)
    add_step(graph)
    if roles.summaries:
        _merge_summaries(graph)
    return [first]


def _watched(graph: Graph) -> list[Node]:
    """Host nodes that run for a side effect alone, such as a print."""
    cut = graph.kept(Cut)
    tail = cut.tail if cut is not None else ()
    host = (n for n in graph if (n.op in ops.PRINTS or n.name in tail) and not in_cluster(n))
    return [n for n in host if n.op not in ops.SUMMARIES and not n.consumers()]


def _merge_summaries(graph: Graph) -> None:
    """Divide the summaries: values of the last step come with the outfeed, those of variables are read behind the loop."""
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
    _merged(graph, "tpugraph/summaries", last)
    _merged(graph, "tpugraph/state_summaries", [node.out() for node in of_state])


def _shows_variables(graph: Graph, summary: Node) -> bool:
    behind = graph.ancestors([summary])
    return any(n.op in ops.READS for n in behind) and not any(n.op in ops.OUTFEEDS for n in behind)


def _merged(graph: Graph, name: str, tensors: list[Tensor]) -> None:
    if not tensors:
        return
    merged = tensors[0]
    if len(tensors) > 1:
        merged = Builder(graph, device=HOST_DEVICE).add("MergeSummary", tensors, (), name=f"{name}/merge")
    add_result(graph, name, merged)


# --------------------------------------------------------------------------- evaluation and prediction


def _evaluate(graph: Graph) -> list[Node]:
    """Add what a session runs that evaluates or predicts; the pass has no variables of its own there."""
    roles, results = graph.roles, graph.result(Results)
    _add_loops(graph)
    add_result(graph, "tpugraph/dequeue", graph.tensor(results["counts"]))
    if "losses" in results:
        add_result(graph, "tpugraph/losses", graph.tensor(results["losses"]))
    for name, value in roles.values.items():
        _named(graph, "tpugraph/metrics", name, value)
    for name in roles.predictions:
        _named(graph, "tpugraph/predictions", name, results[f"prediction/{name}"])
    add_step(graph)
    metrics = local_initializers(graph)
    graph.add("NoOp", "tpugraph/init_metrics", controls=metrics, device=HOST_DEVICE, outputs=[])
    iterators = [graph[name] for name in roles.iterator_initializers]
    graph.add("NoOp", "tpugraph/restart_input", controls=iterators, device=HOST_DEVICE, outputs=[])
    return []


def _named(graph: Graph, scope: str, name: str, tensor: str) -> None:
    node = add_result(graph, f"{scope}/{re.sub(r'[^A-Za-z0-9_./-]', '_', name)}", graph.tensor(tensor))
    graph.set_attr(node, NAME, name)


# --------------------------------------------------------------------------- parts of every mode


SYSTEM_DEVICE = "/device:TPU_SYSTEM:0"


def add_system(graph: Graph) -> None:
    make = Builder(graph, device=SYSTEM_DEVICE)
    make.node("ConfigureDistributedTPU", name="tpugraph/configure", shapes=[()], embedding_config="",
              tpu_embedding_config="", is_global_init=False)  # fmt: skip
    make.node("ShutdownDistributedTPU", name="tpugraph/shutdown")


def add_result(graph: Graph, name: str, tensor: Tensor, controls: Sequence[Node] = ()) -> Node:
    return Builder(graph, device=HOST_DEVICE).identity(tensor, name=name, controls=controls).node


def add_read(graph: Graph, name: str, handle: Node, kind: attrs.DType) -> None:
    Builder(graph, device=HOST_DEVICE).add("ReadVariableOp", [handle.out()], (), name=name, dtype=kind)


def add_step(graph: Graph) -> None:
    """Add ``tpugraph/global_step``; a graph without a step counter reports -1, and the session counts for itself."""
    roles = graph.roles
    if roles.step is not None:
        step = graph[roles.step.name]
        add_read(graph, "tpugraph/global_step", step, step.attr("dtype"))
        return
    Builder(graph, device=HOST_DEVICE).constant(np.int64(-1), name="tpugraph/global_step")


def add_init(graph: Graph, more: list[Node]) -> None:
    """Add ``tpugraph/init`` and its parts ``.../init_input`` and ``.../init_local``."""
    roles = graph.roles
    initializers = [graph[v.initializer] for v in roles.variables.values() if v.initializer and v.initializer in graph]
    others = [graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)]
    make = Builder(graph, device=HOST_DEVICE)
    make.node("NoOp", name="tpugraph/init_input", controls=others)
    make.node("NoOp", name="tpugraph/init_local", controls=[*more, *local_initializers(graph)])
    make.node("NoOp", name="tpugraph/init", controls=[*initializers, *others, *more])


def local_initializers(graph: Graph) -> list[Node]:
    """Initialisers of variables that no checkpoint holds, in a graph with a checkpoint."""
    variables = graph.roles.variables.values()
    saved = {v.initializer for v in variables if v.key is not None}
    if not saved and graph.roles.mode == "train":
        return []
    return [graph[v.initializer] for v in variables if v.initializer in graph and v.initializer not in saved]

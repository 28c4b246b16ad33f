"""Fixed names for what a session runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.analysis.step import Cut, Results
from tpugraph.control_flow.loops import local_variable
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.walks import reached
from tpugraph.tpu.checkpoint_nodes import add_checkpoint_ops
from tpugraph.tpu.entries import add_init, add_read, add_result, add_step, add_system, local_initializers
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
    """The device's part of the loops, and the part that feeds it."""
    results = graph.result(Results)
    add_result(graph, _DEVICE_PART[graph.roles.mode], graph.tensor(results["train"]))
    graph.add("NoOp", "tpugraph/enqueue", controls=[graph[results["enqueue"]]], device=HOST_DEVICE, outputs=[])


# --------------------------------------------------------------------------- training


def _train(graph: Graph) -> list[Node]:
    """What a training session runs; returns what gives its own variables their first values."""
    roles, results = graph.roles, graph.result(Results)
    loss = graph.tensor(results["last_loss"])
    handle, first = local_variable(graph, "tpugraph/last_loss", 0.0, loss.dtype)
    kept = graph.add(
        "AssignVariableOp",
        "tpugraph/last_loss/Keep",
        [handle.out(), loss],
        attrs={"dtype": loss.dtype},
        device=HOST_DEVICE,
        outputs=[],
    )
    _add_loops(graph)
    add_result(graph, "tpugraph/dequeue", graph.tensor(results["losses"]), [kept, *_watched(graph)])
    add_read(graph, "tpugraph/loss", handle, loss.dtype)
    add_step(graph)
    if roles.summaries:
        _merge_summaries(graph)
    return [first]


def _watched(graph: Graph) -> list[Node]:
    """What runs on the host for its effect alone, such as a print."""
    cut = graph.kept(Cut)
    tail = cut.tail if cut is not None else ()
    return [
        n
        for n in graph
        if (n.op in ops.PRINTS or n.name in tail)
        and not in_cluster(n)
        and n.op not in ops.SUMMARIES
        and not n.consumers()
    ]


def _merge_summaries(graph: Graph) -> None:
    """What the loop's last step gives is read with its outfeed; what variables alone show is read behind the loop."""
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
    """Whether a summary is made of variables and of nothing that leaves the device."""
    behind = graph.ancestors([summary])
    return any(n.op in ops.READS for n in behind) and not any(n.op in ops.OUTFEEDS for n in behind)


def _merged(graph: Graph, name: str, tensors: list[Tensor]) -> None:
    """Let one name give these serialised summaries."""
    if not tensors:
        return
    merged = tensors[0]
    if len(tensors) > 1:
        merged = graph.add(
            "MergeSummary",
            f"{name}/merge",
            tensors,
            attrs={"N": len(tensors)},
            device=HOST_DEVICE,
            outputs=[(attrs.dtype("string"), ())],
        ).out()
    add_result(graph, name, merged)


# --------------------------------------------------------------------------- evaluation and prediction


def _evaluate(graph: Graph) -> list[Node]:
    """What a session runs that evaluates or predicts; it has no variables of its own."""
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

"""Puts the step into while loops: one on the device, one for the infeed, one for the outfeed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE, cluster_nodes
from tpugraph.analysis.step import Enqueues, EveryStep, Outfed, Partitioned, Results
from tpugraph.control_flow.loops import Loop, add_results, local_variable, per_batch
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.tpu.outfeed import collect_in_loop, read_in_loop
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")
_MARK: dict[str, Any] = {CLUSTER_ATTR: CLUSTER}


@dataclass(frozen=True)
class TrainingLoop(Pass):
    """One Session.run runs ``iterations_per_loop`` steps: device, infeed and outfeed each run in a while loop.

    The trip count is a variable, so that the last loop can be shorter. In training the host reads a loss per step; summaries and
    metrics get the values of the loop's last step, unless they are needed of every step. In evaluation and prediction, the host
    updates metrics in every step, predictions of all steps are returned together, and steps after the end of the data have no
    effect.
    """

    iterations_per_loop: int = 100

    requires = ("static_infeed", "fed_to_outfeed", "fed_by_infeed")
    ensures = ("in_loop",)
    reads = (Enqueues, Outfed)
    reads_if_given = (Partitioned, EveryStep)
    gives = (Results,)

    def run(self, graph: Graph) -> None:
        training = graph.roles.mode == "train"
        handle, assign = local_variable(graph, "tpugraph/iterations_per_loop", self.iterations_per_loop, _INT32)
        limit = handle.out()
        last = _train(graph, limit) if training else _evaluate(graph, limit)
        enqueues = [graph[name] for name in graph.result(Enqueues).nodes]
        body = per_batch(graph, enqueues)
        loop = Loop(graph, "tpugraph/infeed/while", limit, device=HOST_DEVICE)
        loop.enclose(dict.fromkeys([*body, *enqueues]))
        loop.finish_after(enqueues)
        add_results(graph, limit_init=assign.name, train=str(last), enqueue=loop.close()[0].node.name)
        (read_in_loop if training else collect_in_loop)(graph, limit)


def _train(graph: Graph, limit: Tensor) -> Tensor:
    """Put the cluster into its loop; returns the core's share of the last loss."""
    body = _step(graph)
    share = graph.tensor(graph.result(Partitioned).loss_share)
    make = Builder(graph, "tpugraph/device/loss", marks=_MARK)
    zero = make.constant(0, share.dtype, name="zero")
    loop = Loop(graph, "tpugraph/device/while", limit, attributes=_MARK)
    last, _ = loop.carry(zero)
    loop.enclose(body)
    ends = [*(graph[f.name] for f in graph.roles.train_ops), graph[graph.result(Outfed).enqueue]]
    if share.shape != ():
        shape = make.constant(np.zeros(0, "int32"), name="shape", controls=[loop.pivot])
        share = make.add("Reshape", [share, shape], (), name="scalar")
        loop.enclose([shape.node, share.node])
    kept = Builder(graph, "tpugraph/device", marks=_MARK).add("Identity", [share], (), name="loss", controls=ends)
    loop.enclose([kept.node])
    loop.update(last, kept)
    return loop.close()[1]


def _evaluate(graph: Graph, limit: Tensor) -> Tensor:
    """Put the cluster into its loop; returns the number of steps."""
    body = _step(graph)
    loop = Loop(graph, "tpugraph/device/while", limit, attributes=_MARK)
    loop.enclose(body)
    loop.finish_after([graph[graph.result(Outfed).enqueue]])
    return loop.close()[0]


def _step(graph: Graph) -> list[Node]:
    return [n for n in cluster_nodes(graph) if not n.has_attr("_tpu_input_identity")]

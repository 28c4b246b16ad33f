"""The step becomes the body of loops: one on the device, one that feeds it, one that reads from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, cluster_nodes
from tpugraph.analysis.step import Enqueues, Outfed, Partitioned, Results
from tpugraph.control_flow.loops import Loop, enclose_step
from tpugraph.ir import Graph, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.tpu.outfeeding import read_in_loop
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class TrainingLoop(Pass):
    """One Session.run trains ``iterations_per_loop`` steps: device, infeed and outfeed each run in a while loop.

    The number of iterations is a variable, so that the last loop can be shorter. The host reads a loss per step; what
    summaries and metrics see are the values of the loop's last step.
    """

    iterations_per_loop: int = 100

    requires = ("static_infeed", "fed_to_outfeed", "fed_by_infeed")
    ensures = ("in_loop",)
    reads = (Enqueues, Outfed, Partitioned)
    gives = (Results,)

    def run(self, graph: Graph) -> None:
        enclose_step(graph, self.iterations_per_loop, _device_loop, read_in_loop)


def _device_loop(graph: Graph, limit: Tensor) -> Tensor:
    """Put the cluster into its loop; returns the core's share of the last loss."""
    roles = graph.roles
    body = [n for n in cluster_nodes(graph) if not n.has_attr("_tpu_input_identity")]
    share = graph.tensor(graph.result(Partitioned).loss_share)
    make = Builder(graph, "tpugraph/device", marks={CLUSTER_ATTR: CLUSTER})
    zero = make.constant(np.zeros((), share.dtype.name), share.dtype, name="loss/zero")
    loop = Loop(graph, "tpugraph/device/while", limit, attributes={CLUSTER_ATTR: CLUSTER})
    last, _ = loop.carry(zero)
    loop.enclose(body)
    ends = [*(graph[f.name] for f in roles.train_ops), graph[graph.result(Outfed).enqueue]]
    kept = make.identity(_scalar(make, loop, share), name="loss", controls=ends)
    loop.enclose([kept.node])
    loop.update(last, kept)
    return loop.close()[1]


def _scalar(make: Builder, loop: Loop, tensor: Tensor) -> Tensor:
    if tensor.shape == ():
        return tensor
    shape = make.constant(np.zeros(0, "int32"), name="loss/shape", controls=[loop.pivot])
    scalar = make.add("Reshape", [tensor, shape], (), name="loss/scalar")
    loop.enclose([shape.node, scalar.node])
    return scalar

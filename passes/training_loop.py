"""The step becomes the body of loops: one on the device, one that feeds it, one that reads from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, cluster_nodes
from tpugraph.analysis.step import Enqueues, Outfed, Partitioned, Results
from tpugraph.control_flow.loops import Loop, enclose_step
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.tpu.outfeeding import read_in_loop
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")


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
    mark = {CLUSTER_ATTR: CLUSTER}
    zero = graph.add(
        "Const",
        "tpugraph/device/loss/zero",
        attrs={"dtype": share.dtype, "value": np.zeros((), share.dtype.name), **mark},
        outputs=[(share.dtype, ())],
    )
    loop = Loop(graph, "tpugraph/device/while", limit, attributes=mark)
    last, _ = loop.carry(zero.out())
    loop.enclose(body)
    ends = [*(graph[f.name] for f in roles.train_ops), graph[graph.result(Outfed).enqueue]]
    kept = graph.add(
        "Identity",
        "tpugraph/device/loss",
        [_scalar(graph, loop, share, mark)],
        attrs={"T": share.dtype, **mark},
        controls=ends,
        outputs=[(share.dtype, ())],
    )
    loop.enclose([kept])
    loop.update(last, kept.out())
    return loop.close()[1]


def _scalar(graph: Graph, loop: Loop, tensor: Tensor, mark: dict[str, Any]) -> Tensor:
    if tensor.shape == ():
        return tensor
    shape = graph.add(
        "Const",
        "tpugraph/device/loss/shape",
        controls=[loop.pivot],
        outputs=[(_INT32, (0,))],
        attrs={"dtype": _INT32, "value": np.zeros(0, "int32"), **mark},
    )
    scalar = graph.add(
        "Reshape",
        "tpugraph/device/loss/scalar",
        [tensor, shape.out()],
        outputs=[(tensor.dtype, ())],
        attrs={"T": tensor.dtype, "Tshape": _INT32, **mark},
    )
    loop.enclose([shape, scalar])
    return scalar.out()

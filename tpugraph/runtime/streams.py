"""Random streams of a compiled cluster: stateless ops with a seed made of node, step and core.

A stateful random op has no meaning that a compiler could keep: its stream lives in the kernel. Here each becomes a
stateless one. Its key is the node's own seed and the seed of the call, its counter the iteration of the device loop and, where
the values differ between cores, the number of the core. So a run is the same for a graph, a seed and a number of cores.
"""

from __future__ import annotations

from tpugraph import attrs
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.ir import Tensor
from tpugraph.runtime.cluster import Cluster

_INT32 = attrs.dtype("int32")


def own_streams(found: Cluster) -> Tensor:
    """Turn the cluster's stateful random ops into stateless ones; returns the argument for the seed, int32 [2]."""
    graph = found.graph
    seed = graph.add("Placeholder", "tpugraph/argument/seed",
                     attrs={"dtype": _INT32, "shape": (2,), CLUSTER_ATTR: CLUSTER}, outputs=[(_INT32, (2,))])  # fmt: skip
    return seed.out()

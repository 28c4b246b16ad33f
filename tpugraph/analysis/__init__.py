"""Analyses of a Graph: host and device, loop frames, replica-varying values, shapes and sizes, placements."""

from tpugraph.analysis.min_cut import minimum_cut
from tpugraph.analysis.networkx_view import as_networkx
from tpugraph.analysis.sides_of_step import (
    CLUSTER,
    CLUSTER_ATTR,
    CORE_DEVICE,
    HOST_DEVICE,
    REPLICATED_ATTR,
    NodeSet,
    by_core,
    cluster_nodes,
    fed_to_device,
    in_cluster,
    is_tpu_graph,
    must_be_host,
    num_replicas,
    read_by_host,
)
from tpugraph.analysis.varying_values import reading_host, replica_varying, varying_from, varying_with_input, writes_own
from tpugraph.ir.conditionals import conditional, nested
from tpugraph.ir.loops import frames, loop_order

__all__ = [
    "CLUSTER",
    "CLUSTER_ATTR",
    "CORE_DEVICE",
    "HOST_DEVICE",
    "REPLICATED_ATTR",
    "NodeSet",
    "as_networkx",
    "by_core",
    "cluster_nodes",
    "conditional",
    "fed_to_device",
    "frames",
    "in_cluster",
    "is_tpu_graph",
    "loop_order",
    "minimum_cut",
    "must_be_host",
    "nested",
    "num_replicas",
    "read_by_host",
    "reading_host",
    "replica_varying",
    "varying_from",
    "varying_with_input",
    "writes_own",
]

"""Ops of the TPU system, and marks and devices of its nodes, taken off a graph."""

from __future__ import annotations

import numpy as np

from tpugraph.ir import Graph, attrs
from tpugraph.support.errors import RunError


def clear_places(graph: Graph, *, devices: bool = True) -> None:
    """Remove the marks of the cluster, and devices."""
    for node in graph:
        if devices:
            graph.set_device(node, "")
        for name in (
            "_tpu_replicate",
            "_tpu_input_identity",
            "_tpu_output_identity",
            "_tpu_compilation_status",
            "_class",
        ):
            if node.has_attr(name):
                graph.set_attr(node, name, None)


def lower_system(graph: Graph) -> None:
    """Turn the ops of the TPU system into constants and no-ops; infeed and outfeed must be gone."""
    empty = {"dtype": attrs.dtype("string"), "value": np.asarray(b"", dtype=object)}
    for node in graph.of_type("ConfigureDistributedTPU", "TPUCompilationResult"):
        graph.set_controls(node, [])
        graph.retype(node, "Const", inputs=[], attrs=empty)
    for node in graph.of_type("ShutdownDistributedTPU", "TPUReplicateMetadata"):
        graph.retype(node, "NoOp", inputs=[], attrs={})
    for node in graph.of_type("InfeedEnqueueTuple", "OutfeedEnqueueTuple", "InfeedDequeueTuple", "OutfeedDequeueTuple"):
        raise RunError("an infeed or outfeed has no other side", node=node)

"""Sparse optimizer steps as dense ones, where XLA has no kernel for the sparse one and rows of zeros change nothing.

The gradients of the rows are summed into a tensor of the variable's shape. Optimizers whose step moves a row even when its
gradient is zero (Momentum, Adam, Ftrl) stay as they are: made dense, they would train something else.
"""

from __future__ import annotations

import numpy as np

from tpugraph import attrs, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.attrs import DType
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.runtime.cluster import Cluster

_INT32 = attrs.dtype("int32")


def make_dense(found: Cluster, shapes: dict[str, tuple[str, tuple[int, ...]]]) -> int:
    """Replace the sparse steps of a cluster that can be dense; returns how many.

    Args:
        found: the cluster.
        shapes: dtype and shape of each variable, by name.
    """
    graph, made = found.graph, 0
    for node in graph.of_type(*ops.DENSE_STEPS):
        fact = ops.WRITES[node.op]
        assert fact.rows is not None  # a sparse step
        shape = shapes[_variable_of(node.inputs[0])][1]
        gradient = _summed(graph, node, node.inputs[fact.value], node.inputs[fact.rows], shape)
        inputs = [gradient if i == fact.value else t for i, t in enumerate(node.inputs) if i != fact.rows]
        kept = {key: node.attr(key) for key in ("T", "use_locking", "update_slots")}
        graph.retype(node, ops.DENSE_STEPS[node.op], inputs=inputs, attrs=kept)
        made += 1
    return made


def _variable_of(handle: Tensor) -> str:
    node = handle.node
    while node.op in ops.HANDLE_ALIASES:
        node = node.inputs[0].node
    return node.origin or node.name


def _summed(graph: Graph, node: Node, rows: Tensor, numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The rows added up by their number, in a tensor of the variable's shape."""
    count = graph.add(
        "Const",
        f"{node.name}/rows",
        controls=[numbers.node],  # in the frame of the step
        attrs={"dtype": _INT32, "value": np.int32(shape[0]), CLUSTER_ATTR: CLUSTER},
        outputs=[(_INT32, ())],
        source=node,
    )
    kinds: dict[str, DType | str] = {"T": rows.dtype, "Tindices": numbers.dtype, "Tnumsegments": _INT32}
    total = graph.add(
        "UnsortedSegmentSum",
        f"{node.name}/dense",
        [rows, numbers, count.out()],
        attrs={**kinds, CLUSTER_ATTR: CLUSTER},
        outputs=[(rows.dtype, shape)],
        source=node,
    )
    return total.out()

"""Sparse optimizer steps as dense ones, where XLA has no kernel for the sparse one and rows of zeros change nothing.

The gradients of the rows are summed into a tensor of the variable's shape. Optimizers whose step moves a row even when its
gradient is zero (Momentum, Adam, Ftrl) stay as they are: made dense, they would train something else.
"""

from __future__ import annotations

from tpugraph import ops
from tpugraph.ir import Tensor
from tpugraph.ir.walks import source_of
from tpugraph.partition import dense_steps
from tpugraph.xla.cluster_parts import Cluster


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
        rows, numbers = node.inputs[fact.value], node.inputs[fact.rows]
        total = dense_steps.added_up(graph, node.name, rows, numbers, shape, source=node, controls=[numbers.node])
        dense_steps.make_dense(graph, node, total)
        made += 1
    return made


def _variable_of(handle: Tensor) -> str:
    node = source_of(handle, ops.HANDLE_ALIASES).node
    return node.origin or node.name

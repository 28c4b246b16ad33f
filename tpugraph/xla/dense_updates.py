"""Sparse optimizer steps as dense ones, since XLA has no kernel for the sparse one.

The gradients of the rows are summed into a tensor of the variable's shape. Where an optimizer moves a row even when its gradient
is zero (Momentum, Ftrl), rows that the sparse step is not given keep what they hold. Which numbers there are is not asked:
nobody knows when a step is compiled how many of them are different ones.
"""

from __future__ import annotations

from tpugraph import ops
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of
from tpugraph.rewrite.dense_steps import added_up
from tpugraph.rewrite.dense_steps import make_dense as make_step_dense
from tpugraph.rewrite.row_updates import make_rows_dense, rows_of
from tpugraph.xla.cluster_parts import Cluster


def make_dense(found: Cluster, shapes: dict[str, tuple[str, tuple[int, ...]]]) -> int:
    """Replace the sparse steps of a cluster; returns how many.

    Args:
        found: the cluster.
        shapes: dtype and shape of each variable, by name.
    """
    graph, made = found.graph, 0

    def shape_of(step: Node) -> tuple[int, ...]:
        every = {shapes[_variable_of(step.inputs[i])][1] for i in ops.WRITES[step.op].variables}
        return every.pop() if len(every) == 1 else ()

    steps = [node for node in graph.of_type(*ops.DENSE_WRITES) if ops.WRITES[node.op].rows is not None]
    for rows in list(rows_of(steps, ops.DENSE_WRITES, shape_of)):
        if rows.unique is not None:
            make_rows_dense(graph, rows, in_loop=True)
            made += len(rows.steps)
    for node in graph.of_type(*ops.DENSE_STEPS):
        fact, shape = ops.WRITES[node.op], shapes[_variable_of(node.inputs[0])][1]
        assert fact.rows is not None  # a sparse step
        values, numbers = node.inputs[fact.value], node.inputs[fact.rows]
        total = added_up(graph, node.name, values, numbers, shape, source=node, controls=[numbers.node])
        make_step_dense(graph, node, total, numbers, shape)
        made += 1
    return made


def _variable_of(handle: Tensor) -> str:
    node = source_of(handle, ops.HANDLE_ALIASES).node
    return node.origin or node.name

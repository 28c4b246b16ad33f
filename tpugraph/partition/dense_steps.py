"""Updates of rows of a variable as updates of the whole variable, where rows of zeros change nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder

DENSE = {
    "ResourceScatterAdd": "AssignAddVariableOp",
    "ResourceScatterSub": "AssignSubVariableOp",
    **ops.DENSE_STEPS,
}
"""The dense update that does what one of rows does, where rows of zeros change nothing."""


def added_up(graph: Graph, name: str, rows: Tensor, numbers: Tensor, shape: tuple[int, ...], *, source: Node,
             controls: Sequence[Node] = ()) -> Tensor:  # fmt: skip
    """Rows added up by their number, in a tensor of the variable's shape.

    Args:
        graph: the graph.
        name: the scope of the nodes that are made.
        rows: the rows, [n, ...].
        numbers: which row of the variable each is, int32 or int64 [n].
        shape: the shape of the variable.
        source: the node for which they are made.
        controls: what the number of rows waits for, so that it is in the loop or branch of the update.
    """
    make = Builder(graph, name, marks={CLUSTER_ATTR: CLUSTER}, source=source)
    count = make.constant(np.asarray(shape[0], "int32"), name="rows", controls=controls)
    return make.add("UnsortedSegmentSum", [rows, numbers, count], shape, name="dense")


def make_dense(graph: Graph, step: Node, value: Tensor) -> None:
    """Let an update of rows be the dense one of the whole variable, with ``value`` of the variable's shape."""
    fact = ops.WRITES[step.op]
    inputs = [value if i == fact.value else t for i, t in enumerate(step.inputs) if i != fact.rows]
    if fact.kind == "scatter":
        kept = {"dtype": value.dtype}
    else:
        kept = {key: step.attr(key) for key in ("T", "use_locking", "update_slots") if step.has_attr(key)}
    graph.retype(step, DENSE[step.op], inputs=inputs, attrs=kept)

"""What TensorFlow does to the graph of a batch of one row, undone where the graph still tells.

The gradient of a broadcast sums over the dimensions that were broadcast. Of one row, or of two that are taken as one
pair, TensorFlow cannot tell the dimension of the batch from one that was broadcast: it sums over it where nothing is to be
summed, which does nothing to one row and would be wrong of more, or leaves a sum out.
"""

from __future__ import annotations

import numpy as np

from tpugraph import attrs
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sizes import follows_batch
from tpugraph.ir import Graph, Node

NOTE = (
    "a core's batch has one row, of which TensorFlow leaves out sums that gradients take over it: where the graph does not "
    "tell, the result need not be that of the whole batch; trace the graph with two rows per core or more"
)
"""What the report says of such a batch."""

_INT32 = attrs.dtype("int32")


def keep_rows(graph: Graph, dimensions: Dimensions) -> int:
    """Let sums that do nothing to one row do nothing to more rows either; returns how many were changed.

    Such a sum is read by reshapes alone, and what they make has the batch that the sum would take away.
    """
    changed = 0
    for node in dimensions.order:
        axes = _over_rows(dimensions, node)
        readers = [use.node for use in node.uses()]
        if not axes or not readers or not all(_has_rows(dimensions, reader) for reader in readers):
            continue
        numbers = dimensions.numbers(node.inputs[1]) or []
        rank = len(dimensions.dims(node.inputs[0]) or ())
        left = sorted({n % rank for n in numbers} - axes)
        kept = graph.add("Const", f"{node.name}/dimensions", attrs={"dtype": _INT32, "value": np.asarray(left, "int32"),
                         CLUSTER_ATTR: CLUSTER}, outputs=[(_INT32, (len(left),))], source=node)  # fmt: skip
        graph.set_input(node, 1, kept.out())
        graph.set_attr(node, "Tidx", _INT32)
        graph.set_attr(node, "keep_dims", True)
        shape = node.inputs[0].shape or ()
        graph.set_outputs(node, [(node.out().dtype, tuple(1 if i in left else s for i, s in enumerate(shape)))])
        graph.note(node, "summed over the one row of a core's batch, of more rows it would not")
        changed += 1
    return changed


def _over_rows(d: Dimensions, node: Node) -> set[int]:
    """The dimensions of size 1 that follow the batch and that a Sum sums over."""
    if node.op != "Sum":
        return set()
    dims, numbers = d.dims(node.inputs[0]), d.numbers(node.inputs[1])
    if not dims or numbers is None:
        return set()
    axes = {n % len(dims) for n in numbers}
    return {axis for axis in axes if follows_batch(dims[axis]) and d.sizes.at(dims[axis]) == 1}


def _has_rows(d: Dimensions, node: Node) -> bool:
    return node.op == "Reshape" and any(follows_batch(s) for s in d.dims(node.out()) or ())

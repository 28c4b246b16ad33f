"""Losses that the reported one does not contain, and in which rows of the batch meet other than in a sum or a mean.

Backpropagation shows them. In that of a mean or a sum over the rows, what the cores do not have alike stays with its
row until a variable's gradient adds the rows up; in that of any other loss a number made of all rows meets rows again.
"""

from __future__ import annotations

from collections.abc import Collection

from tpugraph import mixing, ops
from tpugraph.analysis import NodeSet, reads_host
from tpugraph.batch_dims import of_batch
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.processing import is_linear
from tpugraph.shapes import element_count

_ALONG = (ops.ALONG_LAST_AXIS | frozenset(ops.ALONG_AXES) | ops.PICKS | ops.BATCH_NORMS) - {
    "SparseSoftmaxCrossEntropyWithLogits",
    "SoftmaxCrossEntropyWithLogits",
}
_ADDS_ROWS = frozenset({"Sum", "Mean", "BiasAddGrad", "UnsortedSegmentSum"})
_CLEAN = ops.BACKPROPAGATION | {"Reshape", "ExpandDims", "Squeeze", "BroadcastGradientArgs"}


def find(graph: Graph, upstream: NodeSet, forward: NodeSet, varying: NodeSet, batch: int | None) -> mixing.Mixing:
    """What the gradients come from, other than the reported loss.

    Args:
        graph: the graph, with shapes.
        upstream: what the raw gradients are computed from.
        forward: what the reported loss is computed from.
        varying: the replica-varying nodes; what was made global already is none.
        batch: rows of one core's batch; nothing is found where it is one or unknown.
    """
    if batch is None or batch < 2:
        return mixing.Mixing()
    apart = {node: None for node in upstream if node in varying and node not in forward}
    if not any(_may_mix(node, varying, apart) for node in apart):
        return mixing.Mixing()
    nodes = {**forward, **upstream}
    walk = mixing.visited(graph, (n for n in nodes if n in varying), varying, of_batch(graph, nodes, batch))
    found = walk.found
    for node in found.divisors:
        found.faults.setdefault(node, f"({node.op}) divides rows of the batch by a number made of all rows")
    return mixing.Mixing(
        faults=dict(_cause(node, fault, found) for node, fault in found.faults.items() if node in apart),
        own_statistics=[node for node in found.own_statistics if node in apart],
    )


def _cause(node: Node, fault: str, found: mixing.Mixing) -> tuple[Node, str]:
    return found.causes.get(node, (node, fault))


def _may_mix(node: Node, varying: NodeSet, apart: Collection[Node]) -> bool:
    """Whether it takes a closer look to see that rows stay apart; quick, since few graphs have another loss."""
    operands = [t for t in node.inputs if (t.node in varying or reads_host(t)) and t.dtype.floating]
    if not operands or node.op in ops.SHAPE_OF:
        return False
    if node.op in _ALONG or any(element_count(t.shape) == 1 for t in operands):
        return True
    if node.op == "MatMul":
        transposed = bool(node.attr("transpose_a", False)), bool(node.attr("transpose_b", False))
        if len(operands) == 2:
            return transposed != (True, False) or _is_bent_later(node, apart)
        return operands[0] != node.inputs[0] or transposed[0]
    if node.op == "Transpose":
        order = node.inputs[1].node
        return order.op != "Const" or order.attr("value").ravel()[:1].tolist() != [0]
    if node.op in _ADDS_ROWS:
        return not _keeps_rows(node, operands) and _is_bent_later(node, apart)
    if node.op in _CLEAN:
        return False
    return not ((node.op in ops.ELEMENTWISE or is_linear(node, operands)) and _keeps_rows(node, operands))


def _keeps_rows(node: Node, operands: list[Tensor]) -> bool:
    """Whether row by row something is made of the same row."""
    shape = node.out().shape if node.outputs else None
    return bool(shape) and all((t.shape or ())[:1] == (shape or ())[:1] for t in operands)


def _is_bent_later(node: Node, apart: Collection[Node]) -> bool:
    """Whether a sum over rows is read by more than sums; a variable's gradient ends backpropagation."""
    return any(use.node in apart and use.node.op not in ops.LINEAR_IN_ALL for use in node.uses())

"""What every core has alike in a gradient that is summed over the cores: it counts once."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis import NodeSet
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.replicas import Replicas

_JOINS = frozenset({"ConcatV2", "AddN", "Add", "AddV2"})


def share_uniform_parts(graph: Graph, replicas: Replicas, node: Node, varying: NodeSet, forward: NodeSet) -> None:
    """What every core has alike (a regularisation term) counts once under a sum: each core gives its share of it.

    It may have joined the gradient on the way back, before an op that is linear in what comes back, as where the
    regularised value is a function of the variable.
    """
    if node.op in _JOINS:
        parts = node.inputs[:-1] if node.op == "ConcatV2" else node.inputs
        for index, part in enumerate(parts):
            if part.node not in varying:
                graph.set_input(node, index, replicas.scale_evenly(part))
            elif len(part.node.uses()) == 1:
                share_uniform_parts(graph, replicas, part.node, varying, forward)
        return
    before = _comes_back(node, varying, forward)
    if before is not None and before.node.op not in ("Add", "AddV2"):  # partial gradients meet in AddN
        share_uniform_parts(graph, replicas, before.node, varying, forward)


def _comes_back(node: Node, varying: NodeSet, forward: NodeSet) -> Tensor | None:
    """The one input of a node of backpropagation that differs between cores, if the node is linear in it."""
    differing = [i for i, t in enumerate(node.inputs) if t.node in varying]
    if node in forward or len(differing) != 1:
        return None
    [index] = differing
    linear = (
        node.op in ops.MULTILINEAR | ops.IDENTITIES | ops.BACKPROPAGATION or ops.LINEAR_OPERAND.get(node.op) == index
    )
    part = node.inputs[index]
    return part if linear and part.node not in forward and len(part.node.uses()) == 1 else None

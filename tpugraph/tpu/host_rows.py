"""What the host may compute of a core's batch: rows on their own; where rows meet, all cores' rows belong together."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph import ops
from tpugraph.analysis import NodeSet
from tpugraph.analysis.batched_input import rows_by_size
from tpugraph.analysis.placements import REPLICATE, Partial, Placement, Shard
from tpugraph.analysis.placing import Placing, Verdict
from tpugraph.ir import Graph, Node
from tpugraph.partition import analyse
from tpugraph.partition.demands import finds_distinct


def where_rows_meet(graph: Graph, nodes: Sequence[Node]) -> NodeSet:
    """The nodes that compute something of several rows of the input, or of their number.

    The host computes with one core's batch. What it made of several rows of it would be another thing than the plain graph
    makes of the whole batch, so that such nodes belong on the device, where the cores can combine their rows.

    Args:
        graph: the graph, with shapes, before anything is placed.
        nodes: the nodes between the input and the device that may run on either.
    """
    free = dict.fromkeys(nodes)
    of_input = graph.descendants(graph.of_type(*ops.INPUTS), data_only=True)
    fed = dict.fromkeys(t for n in nodes for t in n.inputs if t.node in of_input and t.node not in free)
    rows = rows_by_size(graph, fed)
    if rows is None:
        return {}
    before = graph.ancestors(nodes, data_only=True)
    placing = analyse(graph, rows, nodes={n: None for n in before if n in free or n not in of_input})
    placing.solve()
    together = {n: None for n, verdict in placing.verdicts.items() if _rows_meet(placing, n, verdict)}
    together |= _distinct_of_all(placing)
    return {n: None for n in together if n in free}


def _rows_meet(placing: Placing, node: Node, verdict: Verdict) -> bool:
    """Whether a node asks for other rows than its core's, or makes something of several rows."""
    asked = any(isinstance(placing.read(node.inputs[index]), Shard) for index in verdict.wants)
    return asked or any(not _of_own_rows(placement) for placement in verdict.outputs)


def _distinct_of_all(placing: Placing) -> NodeSet:
    """What finds distinct values that another node takes together, or counts."""
    asked = [
        n.inputs[i] for n, verdict in placing.verdicts.items() for i, want in verdict.wants.items() if want == REPLICATE
    ]
    makers = [finds_distinct(placing, tensor) for tensor in asked]
    return {maker: None for maker in makers if maker is not None}


def _of_own_rows(placement: Placement | None) -> bool:
    if isinstance(placement, Shard):
        return placement.axis == 0 and placement.outer == 1 and not placement.shift
    return not isinstance(placement, Partial)

"""Gradients of an embedding's rows summed in the shape of the embedding, where that is fewer bytes than all cores' rows."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis.step import Literals, add_literals
from tpugraph.ir import Graph, Node
from tpugraph.partition.dense_steps import DENSE, added_up, make_dense
from tpugraph.partition.row_updates import RowUpdates, row_updates
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class DenseRows(Pass):
    """Updates of rows that come from every core are dense where a dense gradient is fewer bytes than the rows of all cores.

    Each core adds its rows up in a tensor of the variable's shape, which cross-replica-sum sums over the cores. It is done
    where a row of zeros changes nothing: in plain gradient descent, in Adam, which writes all its rows anyway, in Adagrad.
    """

    num_replicas: int = 8

    requires = ("placed", "shapes_known")
    ensures = ("placed", "shapes_known")
    reads_if_given = (Literals,)
    gives = (Literals,)

    def run(self, graph: Graph) -> None:
        device = analysis.cluster_nodes(graph)
        steps = [n for n in device if n.op in DENSE and ops.WRITES[n.op].rows is not None]
        if self.num_replicas == 1 or not steps:
            return
        outside = analysis.conditional(graph).keys() | {n for n, f in analysis.frames(graph).items() if f}
        varying = analysis.replica_varying(graph)
        parts = _Parts(graph, self.num_replicas)
        for rows in list(row_updates(node for node in steps if node not in outside)):
            if rows.values.node in varying and rows.dense_bytes < rows.gathered_bytes(self.num_replicas):
                parts.make_dense(rows)
        made = [n.name for n in graph.of_type("Const") if n.made_by == self.name]
        add_literals(graph, made)


class _Parts:
    """Makes updates dense."""

    def __init__(self, graph: Graph, cores: int) -> None:
        self.graph = graph
        self.cores = cores

    def make_dense(self, rows: RowUpdates) -> None:
        """Add rows up in the shape of the variable, and let the updates read that."""
        scope = rows.steps[0].name
        dense = added_up(self.graph, scope, rows.values, rows.numbers, rows.shape, source=rows.values.node)
        gathered = rows.gathered_bytes(self.cores)
        words = f"made dense: {rows.dense_bytes:,} bytes from each core, where the rows of all would be {gathered:,}"
        if rows.total is not None:
            self.graph.replace_uses(rows.total.out(), dense)
        for node in rows.between:
            self.graph.set_outputs(node, [(node.out().dtype, rows.shape)])
        for step in rows.steps:
            make_dense(self.graph, step, dense if rows.total is None else step.inputs[ops.WRITES[step.op].value])
            self.graph.note(step, words)
        if rows.total is not None and rows.unique is not None:
            self.graph.replace_control_uses(rows.total, [dense.node])
            self._remove(rows.total)

    def _remove(self, node: Node) -> None:
        """Remove a node that nothing reads any more, and what was there for it alone."""
        pending = [node]
        while pending:
            at = pending.pop()
            if at in self.graph and not at.uses() and not at.control_uses():
                made_for_it = [p for p in at.producers() if p.op in ("Unique", "StridedSlice", *ops.SHAPE_OF)]
                self.graph.remove(at)
                pending += made_for_it

"""Makes sparse gradients of embeddings dense where an all-reduce takes fewer bytes than an all-gather of the rows."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis.step import JoinedTables
from tpugraph.ir import Graph
from tpugraph.rewrite.row_updates import DENSE, add_up_before_squares, make_rows_dense, rows_of
from tpugraph.tables.row_tables import row_tables
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class DenseRows(Pass):
    """Sparse updates are dense where an all-reduce of the gradient takes fewer bytes than an all-gather of its rows.

    Each core scatters its rows into a tensor of the variable's shape, which the partition sums over the cores. This is done for
    optimizers where a zero row changes nothing (gradient descent, Adagrad) or all rows are written anyway (Adam). Norms of rows of
    distinct ids are computed after the sum, too: two cores may have rows for the same id. Updates of tables that will be sharded
    stay sparse: where a table does not fit a core, its dense gradient does not either.
    """

    num_replicas: int = 8
    shard_tables: int = 0

    requires = ("placed", "shapes_known")
    ensures = ("placed", "shapes_known")
    reads_if_given = (JoinedTables,)

    def run(self, graph: Graph) -> None:
        device = analysis.cluster_nodes(graph)
        joined = {graph[name]: None for name in graph.kept_or_empty(JoinedTables).steps}
        for rows in list(rows_of(joined, ops.DENSE_WRITES)):
            make_rows_dense(graph, rows)
        if self.num_replicas == 1:
            return
        add_up_before_squares(graph, device)
        will_be_sharded, _ = row_tables(graph, self.num_replicas, self.shard_tables)
        kept = {*joined, *(step for table in will_be_sharded for step in table.steps), *analysis.nested(graph)}
        steps = [
            n for n in graph.of_type(*DENSE) if n in device and ops.WRITES[n.op].rows is not None and n not in kept
        ]
        varying = analysis.replica_varying(graph) if steps else {}
        for rows in list(rows_of(steps, DENSE)):
            gathered = rows.gathered_bytes
            if rows.values.node in varying and rows.dense_bytes < gathered:
                make_rows_dense(graph, rows)
                for step in rows.steps:
                    graph.note(step, f"made dense: {rows.dense_bytes:,} bytes from each core, where the rows of all would be "
                                     f"{gathered:,}")  # fmt: skip

"""Shards large tables by rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tpugraph.analysis.step import Partitioned
from tpugraph.ir import Graph
from tpugraph.rewrite.collectives import Collectives
from tpugraph.tables.row_tables import NotByRows, RowTable, row_tables
from tpugraph.tables.sharding import ShardedTable, ShardedTables, Sharding, check_updates
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class ShardTables(Pass):
    """A table of at least `shard_tables` bytes that is accessed by row index is sharded: one variable per core with its rows.

    For a lookup each core gathers its own rows for the ids of all cores, zeros for the others, and takes its slice of the
    all-reduced sum. Each core applies its own rows of a gradient; the others go to a padding row that nothing reads. Optimizer
    slots are sharded like their table. Checkpoints have the table whole, in slices.
    """

    num_replicas: int = 8
    shard_tables: int = 0

    requires = ("placed", "shapes_known")
    reads_if_given = (Partitioned,)  # in training the gradients are reduced first
    gives = (ShardedTables,)

    def run(self, graph: Graph) -> None:
        if not self.shard_tables or self.num_replicas == 1:
            return
        found, refused = row_tables(graph, self.num_replicas, self.shard_tables)
        collectives = Collectives(graph, self.num_replicas, flat=True)
        made: dict[str, ShardedTable] = {}
        for table in found:
            try:
                check_updates(graph, table)
            except NotByRows as error:
                refused[table.name] = str(error)
                continue
            made[table.name] = self._deal_out(graph, table, collectives)
        for name, why in refused.items():
            graph.note(name, f"not sharded: {why}")
        graph.keep(ShardedTables(self.shard_tables, made, refused))

    def _deal_out(self, graph: Graph, table: RowTable, collectives: Collectives) -> ShardedTable:
        names = tuple(variable.name for variable in table.variables)
        row = sum(prod(table.shape[1:]) * (variable.attr("dtype").size or 0) for variable in table.variables)
        before = graph.of_type("CrossReplicaSum")
        sharding = Sharding(graph, table, collectives)
        sharding.apply()
        for name in names:
            graph.note(name, f"sharded by rows: {sharding.layout.piece:,} on each of {self.num_replicas} cores")
        sums = [node.name for node in graph.of_type("CrossReplicaSum") if node not in before]
        held, whole = row * sharding.layout.room, row * table.shape[0]
        local = tuple(node.name for node in sharding.local)
        return ShardedTable(names, table.shape[0], sharding.layout.piece, held, whole, tuple(sums), local)

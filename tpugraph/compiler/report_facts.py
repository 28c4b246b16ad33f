"""Facts about a converted graph for its report: what the cores combine, lookups, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpugraph import ops
from tpugraph.analysis import race_order, shapes
from tpugraph.analysis.bounds import most_bytes
from tpugraph.analysis.step import (
    ClosedShapes,
    HostModels,
    JoinedTables,
    OrderedRaces,
    PaddedBatches,
    PaddedLookups,
    Partitioned,
)
from tpugraph.ir import Graph, Node
from tpugraph.tables.shards import ShardedTables, table_of

_COMBINE = (None, "partition", "shard-tables", "replica-program")
"""What makes the sums of a step: passes, or a replica program itself."""


def collectives(graph: Graph) -> dict[str, Any]:
    """What the cores combine in each step: how many sums, how many bytes of a core, which tensors, and what is gathered."""
    partitioned = graph.kept(Partitioned) or Partitioned()
    sums = [node for node in graph.of_type("CrossReplicaSum") if node.made_by in _COMBINE]
    return {
        "sums": len(sums),
        **_sizes(sums),
        "combined": partitioned.combined,
        "gathered": partitioned.gathered,
    }


def _sizes(sums: Sequence[Node]) -> dict[str, Any]:
    """The bytes of a core that sums take at most: of those with a bound, how many have none, whether all sizes are known."""
    most = [most_bytes(node.out()) for node in sums]
    exact = all(shapes.byte_size(node.out()) is not None for node in sums)
    return {"bytes": sum(size or 0 for size in most), "bytes_exact": exact, "unbounded": most.count(None)}


def lookups(graph: Graph) -> dict[str, Any]:
    """Which lists of ids are padded, to how many in a row (``by_flag``: as --max_ids says), and which tables were in pieces."""
    padded, joined = graph.kept(PaddedLookups) or PaddedLookups(), graph.kept(JoinedTables) or JoinedTables()
    return {"padded": padded.most, "by_flag": list(padded.flagged), "joined": joined.pieces}


def plain_name(graph: Graph, variable: str) -> str:
    """The name of a variable in the plain graph, where its rows may have been dealt out to the cores."""
    return table_of(graph[variable]) if variable in graph else variable


def tables(graph: Graph) -> dict[str, Any]:
    """Which tables were dealt out to the cores, with what a core holds of each and what its lookups sum; which were not, and why."""
    found = graph.kept(ShardedTables) or ShardedTables()
    sharded = {
        name: {
            "variables": list(table.variables),
            "rows": table.rows,
            "rows_per_core": table.rows_per_core,
            "bytes_per_core": table.bytes_per_core,
            "bytes": table.bytes,
            "sums": len(table.sums),
            **{f"sum_{key}": value for key, value in _sizes([graph[sum_] for sum_ in table.sums]).items()},
        }
        for name, table in found.tables.items()
    }
    return {"least_bytes": found.least_bytes, "sharded": sharded, "whole": dict(found.whole)}


def step_order(graph: Graph) -> dict[str, Any]:
    """The order of reads and writes that the plain graph leaves in none; see :func:`tpugraph.analysis.race_order.as_data`."""
    return race_order.as_data(graph.kept(OrderedRaces) or OrderedRaces())


def notes_of(graph: Graph, odd: list[str]) -> list[str]:
    """What a user should know of the conversion, ``odd`` things that were found before it among them."""
    closed, partitioned = graph.kept(ClosedShapes) or ClosedShapes(), graph.kept(Partitioned) or Partitioned()
    padded, models = graph.kept(PaddedBatches), graph.kept(HostModels) or HostModels()
    notes = [*closed.batches, *odd, *step_order(graph)["said"], *partitioned.notes]
    if padded is not None and padded.endless:
        notes.append("the dataset repeats for ever: say how many steps to run")
    notes += models.notes[:5]
    if any(graph[f.name].op in ops.DEQUEUES for f in graph.roles.inputs if f.name in graph):
        notes.append("the input is a queue: its position cannot be saved in a checkpoint")
    return notes

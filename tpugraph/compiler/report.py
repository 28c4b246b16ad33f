"""The report of a conversion: what the graph is, what the cores combine, lookups, tables, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpugraph import ops
from tpugraph.analysis import cluster_nodes, races, shapes, step
from tpugraph.analysis.bounds import bounded_bytes
from tpugraph.compiler.options import ConvertOptions
from tpugraph.ir import Graph, Node
from tpugraph.support.wording import counted
from tpugraph.tables.sharding import ShardedTables, table_of
from tpugraph.tpu.pipeline import Pipeline

_COMBINE = (None, "partition", "shard-tables", "replica-program")
"""What makes the sums of a step: passes, or a replica program itself."""


def report(
    graph: Graph, options: ConvertOptions, pipeline: Pipeline, size: int, seconds: float, notes: list[str]
) -> dict[str, Any]:
    """The report; the plain graph had ``size`` nodes, and ``notes`` were made before the passes."""
    found, device, cores = graph.roles, cluster_nodes(graph), options.num_replicas or 1
    cut, outfed = graph.kept(step.Cut) or step.Cut(), graph.kept(step.Outfed) or step.Outfed()
    per_core = cores if found.replica else 1
    naive = cut.naive_bytes
    return {
        "source": Path(graph.source).name if graph.source else "",
        "mode": options.mode,
        "num_replicas": cores,
        "iterations_per_loop": options.iterations_per_loop,
        "batch": _batch(graph, options),
        "nodes": {"input": size, "output": len(graph), "device": len(device)},
        "loss": asdict(found.loss),
        "metrics": found.values,
        "train_ops": [asdict(f) for f in found.train_ops],
        "step": None if found.step is None else asdict(found.step),
        "inputs": [asdict(f) for f in found.inputs],
        "trained": list(dict.fromkeys(_plain_name(graph, name) for name in found.trained)),
        "variables": {_plain_name(graph, n): {"key": v.key, "trained": v.trained} for n, v in found.variables.items()},
        "collectives": collectives(graph),
        "lookups": _lookups(graph),
        "tables": _tables(graph),
        "step_order": _step_order(graph),
        "varying_updates": (graph.kept(step.Partitioned) or step.Partitioned()).unified,
        "bytes_per_step": {
            "infeed": cut.bytes() * per_core,
            "infeed_naive": None if naive is None else naive * per_core,
            "infeed_tensors": cut.tensors,
            "outfeed": outfed.bytes,
            "outfeed_tensors": outfed.tensors,
        },
        "host_ops": dict(Counter(n.op for n in graph if n not in device and ops.is_host_only(n.op))),
        "dropped": cut.dropped,
        "complete": bool(graph.of_type("TPUReplicateMetadata")),
        "passes": [trace.as_dict() for trace in pipeline.trace],
        "notes": _notes_of(graph, notes),
        "why": [{"stage": n.stage, "node": n.node, "text": n.text} for n in graph.notes],
        "seconds": round(seconds, 4),
    }


def _batch(graph: Graph, options: ConvertOptions) -> dict[str, Any]:
    cores = options.num_replicas or 1
    partitioned, padded = graph.kept(step.Partitioned) or step.Partitioned(), graph.kept(step.PaddedBatches)
    rows = partitioned.rows if padded is None else padded.rows // cores
    if rows is None:
        return {"per_core": None, "global": None, "line": counted(cores, "core")}
    return {
        "per_core": rows,
        "global": rows * cores,
        "line": f"global batch {rows * cores} = {counted(cores, 'core')} x {rows}",
    }


def collectives(graph: Graph) -> dict[str, Any]:
    """The collectives of a step: sums, their bytes on a core, the tensors that are summed and those that are gathered."""
    partitioned = graph.kept(step.Partitioned) or step.Partitioned()
    sums = [node for node in graph.of_type("CrossReplicaSum") if node.made_by in _COMBINE]
    return {"sums": len(sums), **_sizes(sums), "combined": partitioned.combined, "gathered": partitioned.gathered}


def _sizes(sums: Sequence[Node]) -> dict[str, Any]:
    """The most bytes of sums on a core, how many sums have no bound, and whether all sizes are exact."""
    most = [bounded_bytes(node.out()) for node in sums]
    exact = all(shapes.byte_size(node.out()) is not None for node in sums)
    return {"bytes": sum(size or 0 for size in most), "bytes_exact": exact, "unbounded": most.count(None)}


def _lookups(graph: Graph) -> dict[str, Any]:
    """Padded lists of ids with their length (``by_flag``: by --max_ids), and lookups of tables in pieces."""
    padded, joined = (
        graph.kept(step.PaddedLookups) or step.PaddedLookups(),
        graph.kept(step.JoinedTables) or step.JoinedTables(),
    )
    return {"padded": padded.most, "by_flag": list(padded.flagged), "joined": joined.pieces}


def _plain_name(graph: Graph, variable: str) -> str:
    """The name of a variable, which may be sharded now, in the plain graph."""
    return table_of(graph[variable]) if variable in graph else variable


def _tables(graph: Graph) -> dict[str, Any]:
    """Sharded tables with the bytes of a core and of the sums of lookups, and why others are whole."""
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


def _step_order(graph: Graph) -> dict[str, Any]:
    """The order of reads and writes that the plain graph leaves in none; see :func:`tpugraph.analysis.races.as_data`."""
    return races.as_data(graph.kept(step.OrderedRaces) or step.OrderedRaces())


def _notes_of(graph: Graph, odd: list[str]) -> list[str]:
    closed, partitioned = (
        graph.kept(step.ClosedShapes) or step.ClosedShapes(),
        graph.kept(step.Partitioned) or step.Partitioned(),
    )
    padded, models = graph.kept(step.PaddedBatches), graph.kept(step.HostModels) or step.HostModels()
    notes = [*closed.batches, *odd, *_step_order(graph)["said"], *partitioned.notes]
    if padded is not None and padded.endless:
        notes.append("the dataset repeats for ever: say how many steps to run")
    notes += models.notes[:5]
    if any(graph[f.name].op in ops.DEQUEUES for f in graph.roles.inputs if f.name in graph):
        notes.append("the input is a queue: its position cannot be saved in a checkpoint")
    return notes

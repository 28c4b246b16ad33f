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
    cut, outfed = graph.kept_or_empty(step.Cut), graph.kept_or_empty(step.Outfed)
    partitioned = graph.kept_or_empty(step.Partitioned)
    per_core = cores if found.replica else 1
    naive = cut.naive_bytes
    order = races.as_data(graph.kept_or_empty(step.OrderedRaces))
    padded, rows_padded = graph.kept_or_empty(step.PaddedLookups), graph.kept(step.PaddedBatches)
    shown = [note.text for note in graph.notes if note.shown]
    return {
        "source": Path(graph.source).name if graph.source else "",
        "mode": options.mode,
        "num_replicas": cores,
        "iterations_per_loop": options.iterations_per_loop,
        "batch": batch(rows_padded.rows // cores if rows_padded else partitioned.rows, cores),
        "nodes": {"input": size, "output": len(graph), "device": len(device)},
        "loss": asdict(found.loss),
        "metrics": found.values,
        "train_ops": [asdict(f) for f in found.train_ops],
        "step": None if found.step is None else asdict(found.step),
        "inputs": [asdict(f) for f in found.inputs],
        "trained": list(dict.fromkeys(_plain_name(graph, name) for name in found.trained)),
        "variables": {_plain_name(graph, n): {"key": v.key, "trained": v.trained} for n, v in found.variables.items()},
        "collectives": collectives(graph),
        "lookups": {
            "padded": padded.most,
            "by_flag": list(padded.flagged),
            "joined": graph.kept_or_empty(step.JoinedTables).pieces,
        },
        "tables": _tables(graph),
        "step_order": order,
        "varying_updates": partitioned.unified,
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
        "notes": [*notes, *order["said"], *shown, *partitioned.notes, *_of_input(graph)],
        "why": [{"stage": n.stage, "node": n.node, "text": n.text} for n in graph.notes],
        "seconds": round(seconds, 4),
    }


def batch(rows: int | None, cores: int) -> dict[str, Any]:
    """The batch of a core and of all, such as ``global batch 128 = 8 cores x 16``; ``rows`` is None or 0 where no shape tells."""
    line = f"global batch {rows * cores} = {counted(cores, 'core')} x {rows}" if rows else counted(cores, "core")
    return {"per_core": rows or None, "global": rows * cores if rows else None, "line": line}


def collectives(graph: Graph) -> dict[str, Any]:
    """The collectives of a step: sums, their bytes on a core, the tensors that are summed and those that are gathered."""
    partitioned = graph.kept_or_empty(step.Partitioned)
    sums = [node for node in graph.of_type("CrossReplicaSum") if node.made_by in _COMBINE]
    return {"sums": len(sums), **_sizes(sums), "combined": partitioned.combined, "gathered": partitioned.gathered}


def _sizes(sums: Sequence[Node]) -> dict[str, Any]:
    """The most bytes of sums on a core, how many sums have no bound, and whether all sizes are exact."""
    most = [bounded_bytes(node.out()) for node in sums]
    exact = all(shapes.byte_size(node.out()) is not None for node in sums)
    return {"bytes": sum(size or 0 for size in most), "bytes_exact": exact, "unbounded": most.count(None)}


def _plain_name(graph: Graph, variable: str) -> str:
    """The name of a variable, which may be sharded now, in the plain graph."""
    return table_of(graph[variable]) if variable in graph else variable


def _tables(graph: Graph) -> dict[str, Any]:
    """Sharded tables with the bytes of a core and of the sums of lookups, and why others are whole."""
    found = graph.kept_or_empty(ShardedTables)
    sharded = {name: asdict(table) for name, table in found.tables.items()}
    for table in sharded.values():
        del table["local"]
        sums = [graph[name] for name in table["sums"]]
        sizes = {f"sum_{key}": value for key, value in _sizes(sums).items()}
        table |= {"variables": list(table["variables"]), "sums": len(sums), **sizes}
    return {"least_bytes": found.least_bytes, "sharded": sharded, "whole": dict(found.whole)}


def _of_input(graph: Graph) -> list[str]:
    """What is to be known of the input before a run."""
    padded = graph.kept(step.PaddedBatches)
    endless = padded is not None and padded.endless
    notes = ["the dataset repeats for ever: say how many steps to run"] if endless else []
    if any(graph[f.name].op in ops.DEQUEUES for f in graph.roles.inputs if f.name in graph):
        notes.append("the input is a queue: its position cannot be saved in a checkpoint")
    return notes

"""``tpugraph inspect``: what a graph holds, and what tpugraph makes of it. Nothing is written."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpugraph import compiler, ops
from tpugraph.analysis import in_cluster, is_tpu_graph, num_replicas
from tpugraph.analysis.step import Cut
from tpugraph.cli import programs, why
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.cli.programs import batch_line
from tpugraph.ir import Graph, Node, function_library, graphdef
from tpugraph.ir.model_files import Loaded
from tpugraph.ir.side_effects import file_names
from tpugraph.ir.text import format_output
from tpugraph.roles.findings import Finding, Roles
from tpugraph.runtime import checkpoint
from tpugraph.support.errors import TpuGraphError
from tpugraph.support.wording import counted
from tpugraph.tpu.form_check import check_form
from tpugraph.tpu.program import as_read, collective_lines

_WIDTH, _MOST = 120, 24
_ENTRY_POINTS = ("configure", "init", "restore", "enqueue", "train", "dequeue", "loss", "global_step", "summaries",
                 "state_summaries", "iterations_per_loop", "save", "shutdown")  # fmt: skip


def run(flags: Parsed, console: Console) -> Outcome:
    flags = programs.evaluated(flags)
    options = programs.options(flags)
    if flags["why"] is not None:
        found = why.explain(flags.model, flags["why"], options, everything=flags["why_all"])
        console.say(why.describe(found))
        return Outcome(found)
    loaded = graphdef.sniff(Path(flags.model))
    graph = graphdef.load(flags.model)
    found = _general(loaded, graph)
    if is_tpu_graph(graph):
        found["tpu"] = _tpu(graph)
    else:
        found |= _plain(flags.model, graph, options)
    console.say("\n".join(_lines(found)))
    return Outcome(found)


# --------------------------------------------------------------------------- facts


def _general(loaded: Loaded, graph: Graph) -> dict[str, Any]:
    tpu = is_tpu_graph(graph)
    functions = function_library.functions_named(graph)
    return {
        "model": str(loaded.path),
        "kind": loaded.kind,
        "converted": tpu,
        "bytes": loaded.path.stat().st_size,
        "nodes": len(graph),
        "functions": len(functions),
        "ops": dict(Counter(node.op for node in graph).most_common()),
        "biggest_constants": _biggest_constants(graph),
        "files": sorted(file_names(graph)),
    }


def _biggest_constants(graph: Graph, count: int = 5) -> list[str]:
    sizes = {node.name: node.raw_attrs["value"].ByteSize() for node in graph.of_type("Const")}
    biggest = sorted(sizes, key=lambda name: -sizes[name])[:count]
    return [f"{name} ({sizes[name]:,} bytes)" for name in biggest]


def _plain(model: str, graph: Graph, options: compiler.ConvertOptions) -> dict[str, Any]:
    """Roles of a plain graph, and what the passes make of it."""
    try:
        graph.roles = compiler.find_roles(graph, options)
    except TpuGraphError as error:
        return {"roles": None, "roles_error": error.as_dict()}
    found: dict[str, Any] = {"roles": _roles(graph.roles)}
    trained = graph.roles.trained
    shapes = {name: _variable_text(graph[name]) for name in trained}
    try:
        compiler.convert(graph, options)
        if options.mode == "train":
            found["collectives"] = compiler.collectives(graph)
    except TpuGraphError as error:
        found["conversion_error"] = error.as_dict()
    if any(in_cluster(node) for node in graph):
        found["placement"] = _placement(graph)
    found["trained"] = shapes
    return found


def _variable_text(node: Node) -> str:
    return format_output((node.attr("dtype"), node.attr("shape")))


def _roles(found: Roles) -> dict[str, Any]:
    def listed(findings: Sequence[Finding]) -> list[dict[str, str]]:
        return [asdict(finding) for finding in findings]

    return {
        "loss": [asdict(found.loss)] if found.loss.name else [],
        "train op": listed(found.train_ops),
        "step counter": [] if found.step is None else [asdict(found.step)],
        "input": listed(found.inputs),
        "update": listed(found.updates),
        "summary": listed(found.summaries),
        "metric": listed(found.metrics) + [asdict(Finding(text, name)) for name, text in found.values.items()],
        "prediction": [asdict(Finding(text, name)) for name, text in found.predictions.items()],
        "saver": listed(found.savers),
        "table init": [asdict(Finding(name, "fills a table")) for name in found.table_initializers],
        "iterator init": [asdict(Finding(name, "opens the input")) for name in found.iterator_initializers],
        "other candidates": {role: listed(others) for role, others in found.other_candidates.items() if others},
    }


def _placement(graph: Graph) -> dict[str, Any]:
    device = [node for node in graph if in_cluster(node)]
    host = [node for node in graph if not in_cluster(node) and node.op not in ops.RESOURCE_VARIABLES]
    cut = graph.kept(Cut) or Cut()
    return {
        "device_nodes": len(device),
        "device_ops": dict(Counter(node.op for node in device).most_common()),
        "host_nodes": len(host),
        "host_ops": dict(Counter(node.op for node in host).most_common()),
        "crossing": cut.tensors,
        "crossing_bytes": cut.bytes(),
        "naive_bytes": cut.naive_bytes,
        "dropped": cut.dropped,
    }


def _tpu(graph: Graph) -> dict[str, Any]:
    """What a converted graph, or one that TPUEstimator built, says of itself."""
    check_form(graph)
    names = [f"tpugraph/{name}" for name in _ENTRY_POINTS]
    loop = graph.get("tpugraph/iterations_per_loop/Initializer")
    infeed = [_signature(node, "shapes") for node in graph.of_type("InfeedDequeueTuple")]
    leaving = graph.of_type("OutfeedDequeueTuple", "OutfeedDequeueTupleV2")[:1]
    return {
        "num_replicas": num_replicas(graph),
        "cluster_nodes": sum(map(in_cluster, graph)),
        "batch": batch_line(graph),
        "iterations_per_loop": None if loop is None or not loop.has_attr("value") else int(loop.attr("value").item()),
        "entry_points": [name for name in names if name in graph],
        "infeed": infeed[0] if infeed else [],
        "outfeed": _signature(leaving[0], "shapes") if leaving else [],
        "saved_variables": [key for key, _, _ in checkpoint.keys_of(graph).values()],
    }


def _signature(node: Node, key: str) -> list[str]:
    return [format_output(pair) for pair in zip(node.attr("dtypes"), node.attr(key), strict=True)]


# --------------------------------------------------------------------------- readable


def _lines(found: dict[str, Any]) -> list[str]:
    kind = f"{found['kind']}, {'a TPU graph' if found['converted'] else 'a plain graph'}"
    functions = f", {counted(found['functions'], 'function')}" if found["functions"] else ""
    lines = [
        f"{found['model']}: {kind}, {found['bytes']:,} bytes, {found['nodes']:,} nodes{functions}",
        *_listed("ops", [f"{op} {count}" for op, count in found["ops"].items()], most=24),
    ]
    if "tpu" in found:
        lines += _tpu_lines(found["tpu"])
    if found.get("roles"):
        lines += ["", "roles", *_role_lines(found["roles"])]
    if found.get("roles_error"):
        lines += ["", f"roles       not found: {_one_line(found['roles_error'])}"]
    if found.get("trained"):
        lines += ["", f"trained variables ({len(found['trained'])})"]
        lines += [f"  {name} {shape}" for name, shape in found["trained"].items()]
    if found.get("collectives"):
        lines += collective_lines(found["collectives"])
        lines += [f"  {tensor}: {words}" for tensor, words in list(found["collectives"]["combined"].items())[:_MOST]]
    if found.get("placement"):
        lines += ["", *_placement_lines(found["placement"])]
    if found.get("conversion_error"):
        lines += ["", f"conversion  stops: {_one_line(found['conversion_error'])}"]
    lines += ["", *_listed("constants", found["biggest_constants"]), *_listed("files", found["files"])]
    return lines


def _one_line(error: dict[str, Any]) -> str:
    stage = f"{error['stage']}: " if error["stage"] else ""
    node = f" at {error['node']}" if error["node"] else ""
    fix = f"; {error['fix']}" if error["fix"] else ""
    return f"{stage}{error['fault']}{node}{fix}"


def _role_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for role, findings in found.items():
        if role == "other candidates":
            continue
        for finding in findings[:12]:
            lines.append(f"  {role:<14}{finding['name']} ({finding['reason']})")
        if len(findings) > 12:
            lines.append(f"  {role:<14}... and {len(findings) - 12} more")
    for role, findings in found["other candidates"].items():
        lines += [f"  {'not ' + role.replace('_', ' '):<14}{f['name']} ({f['reason']})" for f in findings]
    return lines


def _placement_lines(found: dict[str, Any]) -> list[str]:
    crossing = [f"{name} ({size:,} bytes)" for name, size in found["crossing"].items()]
    total = f"{found['crossing_bytes']:,} bytes per core and step ({as_read(found['naive_bytes'])})"
    return [
        f"device      {found['device_nodes']:,} nodes",
        *_listed("", [f"{op} {count}" for op, count in found["device_ops"].items()], most=16),
        f"host        {found['host_nodes']:,} nodes",
        *_listed("", [f"{op} {count}" for op, count in found["host_ops"].items()], most=16),
        f"crossing    {total}",
        *_listed("", crossing, most=10),
        *(f"dropped     {name}: {reason}" for name, reason in list(found["dropped"].items())[:8]),
    ]


def _tpu_lines(found: dict[str, Any]) -> list[str]:
    loop = found["iterations_per_loop"]
    return [
        f"cores       {found['num_replicas']:,}",
        f"batch       {found['batch']}",
        f"cluster     {found['cluster_nodes']:,} nodes",
        *([] if loop is None else [f"loop        {counted(loop, 'step')} per Session.run"]),
        *_listed("run by name", found["entry_points"]),
        *_listed("infeed", found["infeed"]),
        *_listed("outfeed", found["outfeed"]),
        *_listed("saved", found["saved_variables"], most=20),
    ]


def _listed(label: str, items: list[str], *, most: int = 40) -> list[str]:
    """Items after a label, wrapped; nothing where there are none."""
    if not items:
        return []
    shown = ", ".join(items[:most]) + (f" and {len(items) - most:,} more" if len(items) > most else "")
    return textwrap.wrap(shown, _WIDTH, initial_indent=f"{label:<12}", subsequent_indent=" " * 12,
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip

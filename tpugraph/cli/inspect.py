"""``tpugraph inspect``: what a graph holds and what tpugraph makes of it; ``--why`` explains one node. Nothing is written."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tpugraph import compiler, ops
from tpugraph.analysis import in_cluster, is_tpu_graph, num_replicas
from tpugraph.analysis.step import Partitioned
from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.ir import Graph, Node, function_library, graphdef
from tpugraph.ir.model_files import Loaded
from tpugraph.ir.side_effects import file_names
from tpugraph.ir.text import format_node, format_output
from tpugraph.passes.partition import Partition
from tpugraph.roles.findings import Finding, Roles
from tpugraph.runtime.variables import saved_variables
from tpugraph.spmd.explain import Explanation, Reason
from tpugraph.support.errors import ShapeError, TpuGraphError, UsageError
from tpugraph.support.suggestions import near_nodes
from tpugraph.support.wording import counted, first_few
from tpugraph.tables.sharding import ShardedTables
from tpugraph.tpu.form_check import check_form
from tpugraph.tpu.pipeline import Pass

_WIDTH = 120
_MOST_ROWS = 12  # of one label


def run(flags: Parsed, console: Console) -> Outcome:
    flags = programs.in_folder(flags)
    shardings = programs.shardings(flags)
    options = programs.options(flags, **({"num_replicas": 1} if shardings else {}))
    if flags["why"] is not None:
        found = explain(flags.model, flags["why"], options, everything=flags["why_all"])
        if found["node"] in shardings:
            found["held"] = str(shardings[found["node"]])
        console.say(describe(found))
        return Outcome(found)
    loaded = graphdef.sniff(Path(flags.model))
    graph = graphdef.from_loaded(loaded, source=flags.model)
    found = _general(loaded, graph) | ({"tpu": _tpu(graph)} if is_tpu_graph(graph) else _plain(graph, options))
    found |= {"mesh": flags["mesh"], "on_mesh": {name: str(one) for name, one in shardings.items()}}
    console.say("\n".join(_lines(found)))
    return Outcome(found)


# --------------------------------------------------------------------------- facts


def _general(loaded: Loaded, graph: Graph) -> dict[str, Any]:
    sizes = {node.name: node.raw_attrs["value"].ByteSize() for node in graph.of_type("Const")}
    biggest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    return {
        "model": str(loaded.path),
        "kind": loaded.kind,
        "converted": is_tpu_graph(graph),
        "bytes": loaded.path.stat().st_size,
        "nodes": len(graph),
        "functions": len(function_library.functions_named(graph)),
        "ops": dict(Counter(node.op for node in graph).most_common()),
        "biggest_constants": [f"{name} ({sizes[name]:,} bytes)" for name in biggest],
        "files": sorted(file_names(graph)),
    }


def _plain(graph: Graph, options: compiler.ConvertOptions) -> dict[str, Any]:
    """Roles of a plain graph, and what its conversion reports, as far as both are found."""
    found: dict[str, Any] = {"roles": None, "trained": {}, "summary": [], "report": None, "error": None}
    try:
        graph.roles = compiler.find_roles(graph, options)
        found["roles"] = _roles(graph.roles)
        found["trained"] = {name: _variable_text(graph[name]) for name in graph.roles.trained}
        program = compiler.convert(graph, options)
        found["summary"], found["report"] = program.summary().splitlines(), program.report
    except TpuGraphError as error:
        found["error"] = error.as_dict()
    return found


def _variable_text(node: Node) -> str:
    return format_output((node.attr("dtype"), node.attr("shape")))


def _roles(found: Roles) -> dict[str, Sequence[Finding]]:
    return {
        "loss": [found.loss] if found.loss.name else [],
        "train op": found.train_ops,
        "step counter": [found.step] if found.step else [],
        "input": found.inputs,
        "update": found.updates,
        "summary": found.summaries,
        "metric": [*found.metrics, *(Finding(text, name) for name, text in found.values.items())],
        "prediction": [Finding(text, name) for name, text in found.predictions.items()],
        "saver": found.savers,
        "table init": [Finding(name, "fills a table") for name in found.table_initializers],
        "iterator init": [Finding(name, "opens the input") for name in found.iterator_initializers],
        **{f"not {role.replace('_', ' ')}": others for role, others in found.other_candidates.items()},
    }


def _tpu(graph: Graph) -> dict[str, Any]:
    """What a converted graph, or one that TPUEstimator built, says of itself."""
    check_form(graph)
    loop = graph.get("tpugraph/iterations_per_loop/Initializer")
    return {
        "num_replicas": num_replicas(graph),
        "cluster_nodes": sum(map(in_cluster, graph)),
        "batch": programs.batch_of(graph)["line"],
        "iterations_per_loop": None if loop is None or not loop.has_attr("value") else int(loop.attr("value").item()),
        "entry_points": [node.name for node in graph if node.name.rpartition("/")[0] == "tpugraph"],
        "infeed": _signature(graph.of_type("InfeedDequeueTuple")),
        "outfeed": _signature(graph.of_type("OutfeedDequeueTuple", "OutfeedDequeueTupleV2")),
        "saved_variables": [saved.key for saved in saved_variables(graph).values()],
    }


def _signature(nodes: Sequence[Node]) -> list[str]:
    """What a channel between host and device takes; its nodes are alike."""
    pairs = zip(nodes[0].attr("dtypes"), nodes[0].attr("shapes"), strict=True) if nodes else ()
    return list(map(format_output, pairs))


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
        lines += ["", "roles"]
        for role, findings in found["roles"].items():
            lines += _rows(f"{role:<14}", [f"{finding.name} ({finding.reason})" for finding in findings])
        lines += ["", f"trained variables ({len(found['trained'])})"]
        lines += [f"  {name} {shape}" for name, shape in found["trained"].items()]
    if found["on_mesh"]:
        lines += ["", f"variables on the mesh {found['mesh']}"]
        lines += [f"  {name}: {one}" for name, one in found["on_mesh"].items()]
    if found.get("report"):
        sent = found["report"]["bytes_per_step"]["infeed_tensors"]
        lines += ["", *found["summary"]]
        lines += _listed("sent", [f"{name} ({size:,} bytes)" for name, size in sent.items()], most=10)
    if found.get("error"):
        lines += ["", f"conversion  stops: {_one_line(found['error'])}"]
    lines += ["", *_listed("constants", found["biggest_constants"]), *_listed("files", found["files"])]
    return lines


def _one_line(error: dict[str, Any]) -> str:
    stage = f"{error['stage']}: " if error["stage"] else ""
    node = f" at {error['node']}" if error["node"] else ""
    fix = f"; {error['fix']}" if error["fix"] else ""
    return f"{stage}{error['fault']}{node}{fix}"


def _rows(label: str, texts: Sequence[str]) -> list[str]:
    """A line for each text, and one that counts those that are left out."""
    more = [f"... and {len(texts) - _MOST_ROWS} more"] if len(texts) > _MOST_ROWS else []
    return [f"  {label}{text}" for text in [*texts[:_MOST_ROWS], *more]]


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
    return textwrap.wrap(first_few(items, most), _WIDTH, initial_indent=f"{label:<12}", subsequent_indent=" " * 12,
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


# --------------------------------------------------------------------------- one node


def explain(model: str, name: str, options: compiler.ConvertOptions, *, everything: bool = False) -> dict[str, Any]:
    """Convert a graph in memory and follow one node through it.

    With ``everything`` all reasons for where its value lives are given, else one is followed back to the input.

    Raises:
        UsageError: the node is neither in the graph nor in the converted one.
    """
    graph = graphdef.load(model)
    name = name.removeprefix("^").partition(":")[0]
    before = graph.get(name)
    found: dict[str, Any] = {"node": name, "text": before and format_node(before), "roles": [], "notes": [],
                             "removed_by": None, "held": None, "lives": [], "error": None}  # fmt: skip
    found["readers"] = [consumer.name for consumer in before.consumers()][:_MOST_ROWS] if before else []
    if not is_tpu_graph(graph):
        _follow(graph, name, options, found, everything)
    after = graph.get(name)
    if before is None and after is None:
        raise UsageError(f"there is no node '{name}' in the graph", origin=model, fix=_near(graph, name))
    return found | {
        "side": after and ("device" if in_cluster(after) else "host"),
        "converted": after and format_node(after),
        "made_by": after and after.made_by,
        "origin": after and after.origin,
        "made_for_it": [f"{node.name} ({node.made_by})" for node in graph if node.origin == name],
    }


def _follow(graph: Graph, name: str, options: compiler.ConvertOptions, found: dict[str, Any], everything: bool) -> None:
    """Run the pipeline and note when the node is lost, and where its value lives when that is decided."""
    before = graph.get(name)
    started: list[str] = []

    def note_loss() -> None:
        if before is not None and name not in graph and started and found["removed_by"] is None:
            found["removed_by"] = started[-1]

    def before_pass(step: Pass) -> None:
        note_loss()
        started.append(step.name)
        if isinstance(step, Partition):
            found["lives"] = _lives(graph, name, step, everything)

    try:
        graph.roles = compiler.find_roles(graph, options)
        found["roles"] = _roles_of(graph.roles, name)
        compiler.convert(graph, options, before=before_pass)
    except TpuGraphError as error:
        if error.node is None and isinstance(error, UsageError | ShapeError):
            raise  # a fault of the command line, not of a node
        found["error"] = error.as_dict()
    note_loss()
    for note in graph.notes:
        if note.node == name:
            found["notes"].append(f"{note.stage}: {note.text}")
        elif f"'{name}'" in note.text:
            found["notes"].append(f"{note.stage}: '{note.node}' {note.text}")
    if before is not None and before.op in ops.VARIABLES and graph.kept(Partitioned) is not None:
        found["held"] = _held(graph, name)


def _held(graph: Graph, name: str) -> str:
    tables = graph.kept(ShardedTables)
    for table in () if tables is None else tables.tables.values():
        if name in table.variables:
            return f"sharded: each of {num_replicas(graph)} cores holds {counted(table.rows_per_core, 'row')}"
    if name not in graph or not any(in_cluster(reader) for reader in graph[name].consumers()):
        return "on the host; the step on the device does not use it"
    cores = num_replicas(graph)
    return "on the core, all of it" if cores == 1 else f"replicated: each of {cores} cores holds all of it"


def _lives(graph: Graph, name: str, partition: Partition, everything: bool) -> list[dict[str, Any]]:
    """The placement of each value that a node on the device computes, and the reasons.

    A node without outputs, such as an update, has those of the values that it reads; a node that a pass took apart, those of
    the values that the cores combine.
    """
    stands = [graph[name]] if name in graph else [node for node in graph if node.origin == name]
    if partition.num_replicas == 1 or not any(map(in_cluster, stands)):
        return []
    explanation = Explanation(partition.placements(graph))
    tensors = [tensor for node in stands if in_cluster(node) for tensor in explanation.values_of(node)]
    if name not in graph:
        tensors = [tensor for tensor in tensors if explanation.collectives(tensor)] or tensors[:1]
    return [
        {
            "tensor": str(tensor),
            "is": format_output(tensor.node.output(tensor.port)),
            "everything": everything,
            "chain": explanation.chain(tensor, everything=everything),
        }
        for tensor in tensors
    ]


def _roles_of(found: Roles, name: str) -> list[str]:
    texts = [f"{role}: {finding.reason}" for role, findings in _roles(found).items() for finding in findings
             if finding.name.partition(":")[0] == name]  # fmt: skip
    variable = found.variables.get(name)
    if variable is not None:
        has_saver = any(v.key is not None for v in found.variables.values())
        key = "not saved" if variable.key is None else f"saved as '{variable.key}'"
        key = key if has_saver else f"saved as '{name}', since the graph has no saver"
        start = f", first value by '{variable.initializer}'" if variable.initializer else ""
        texts.append(f"variable: {'trained' if variable.trained else 'not trained'}, {key}{start}")
    return texts + [f"initialiser of '{v.name}'" for v in found.variables.values() if v.initializer == name]


def _near(graph: Graph, name: str) -> str:
    near = near_nodes(name, [node.name for node in graph])
    return f"did you mean {' or '.join(near)}?" if near else "`tpugraph inspect MODEL` shows the names of the roles"


def describe(found: dict[str, Any]) -> str:
    lines = []
    if found["text"]:
        lines += [found["text"], f"  read by   {', '.join(found['readers']) or 'nothing'}"]
    else:
        lines.append(f"{found['node']} is not in the plain graph")
    lines += [f"  role      {text}" for text in found["roles"]]
    if found["held"]:
        lines.append(f"  lives     {found['held']}")
    for value in found["lives"]:
        lines += _value_lines(value)
    lines += [f"  note      {text}" for text in found["notes"]]
    if found["removed_by"]:
        what = "the training step does not need it" if found["removed_by"] == "prune" else "see `tpugraph passes`"
        lines.append(f"  removed   by {found['removed_by']}: {what}")
    if found["made_by"]:
        origin = f", for '{found['origin']}'" if found["origin"] else ""
        lines.append(f"  made by   {found['made_by']}{origin}")
    if found["side"] and not found["held"]:  # a handle is of both sides
        lines.append(f"  runs on   the {found['side']}")
    if found["converted"] and found["converted"] != found["text"]:
        lines.append(f"  became    {found['converted']}")
    lines += _rows("made for it  ", found["made_for_it"])
    if found["error"]:
        lines.append(f"  conversion stops: {_one_line(found['error'])}")
    return "\n".join(lines)


def _value_lines(value: dict[str, Any]) -> list[str]:
    """Where a value lives, and the chain of reasons, from the value back to the input."""
    chain: list[Reason] = value["chain"]
    lines = [f"  value     {value['tensor']} : {value['is']}"]
    label, also = "lives", "from" if value["everything"] else "also"
    for link, next_link in zip_longest(chain, chain[1:]):
        others = ""
        if next_link is not None:
            named = [f"'{name}'" for name in link.operands if value["everything"] or name != next_link.tensor]
            others = f" ({also} {', '.join(named)})" if named else ""
        lines.append(f"    {label:<8}{link}{others}")
        lines += [f"    {'then':<8}{text}" for text in link.collectives]
        label = "since"
    return lines

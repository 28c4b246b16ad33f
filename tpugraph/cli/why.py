"""Explains one node: its roles, where its value lives and why, and what the passes did to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tpugraph import compiler, ops
from tpugraph.analysis import in_cluster, is_tpu_graph, num_replicas
from tpugraph.analysis.step import Cut, Partitioned
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.text import format_node, format_output
from tpugraph.passes.partition import Partition
from tpugraph.roles.findings import Finding, Roles
from tpugraph.spmd.explain import Explanation, Reason
from tpugraph.support.errors import ShapeError, TpuGraphError, UsageError
from tpugraph.support.suggestions import near_nodes
from tpugraph.support.wording import counted
from tpugraph.tables.sharding import ShardedTables

_MOST = 12


def explain(model: str, name: str, options: compiler.ConvertOptions, *, everything: bool = False) -> dict[str, Any]:
    """Convert a graph in memory and follow one node through it.

    With ``everything`` all reasons for where its value lives are given, else one is followed back to the input.

    Raises:
        UsageError: the node is neither in the graph nor in the converted one.
    """
    graph = graphdef.load(model)
    name = name.removeprefix("^").partition(":")[0]
    before = graph.get(name)
    found: dict[str, Any] = {"node": name, "text": None if before is None else format_node(before), "roles": [],
                             "notes": [], "removed_by": None, "converted": None, "made_by": None, "origin": None,
                             "made_for_it": [], "side": None, "held": None, "lives": [], "error": None}  # fmt: skip
    if before is not None:
        found["readers"] = [consumer.name for consumer in before.consumers()][:_MOST]
    if not is_tpu_graph(graph):
        _follow(graph, name, options, found, everything)
    after = graph.get(name)
    if before is None and after is None:
        raise UsageError(f"there is no node '{name}' in the graph", origin=model, fix=_near(graph, name))
    if after is not None:
        found["side"] = "device" if in_cluster(after) else "host"
        found["converted"] = format_node(after)
        found["made_by"], found["origin"] = after.made_by, after.origin
    found["made_for_it"] = [f"{node.name} ({node.made_by})" for node in graph if node.origin == name]
    return found


def _follow(graph: Graph, name: str, options: compiler.ConvertOptions, found: dict[str, Any], everything: bool) -> None:
    """Run the pipeline and note when the node is lost, and where its value lives when that is decided."""
    before, there = graph.get(name), name in graph
    at_work: list[str] = []
    try:
        graph.roles = compiler.find_roles(graph, options)
    except TpuGraphError as error:
        found["error"] = error.as_dict()
        return
    found["roles"] = _roles_of(graph.roles, name)

    def look(step: str, number: int, count: int) -> None:
        if there and name not in graph and at_work and found["removed_by"] is None:
            found["removed_by"] = at_work[-1]
        at_work.append(step)
        if step == Partition.name:
            passes = compiler.build_passes(compiler.with_cores(graph, options)[0])
            found["lives"] = _lives(graph, name, next(p for p in passes if isinstance(p, Partition)), everything)

    try:
        compiler.convert(graph, options, progress=look)
    except TpuGraphError as error:
        if error.node is None and isinstance(error, UsageError | ShapeError):
            raise  # a fault of the command line, not of a node
        found["error"] = error.as_dict()
    look("", 0, 0)
    for note in graph.notes:
        if note.node == name:
            found["notes"].append(f"{note.stage}: {note.text}")
        elif f"'{name}'" in note.text:
            found["notes"].append(f"{note.stage}: '{note.node}' {note.text}")
    if before is not None and before.op in ops.VARIABLES and graph.kept(Partitioned) is not None:
        found["held"] = _held(graph, name)
    cut = graph.kept(Cut)
    if cut is not None and name in cut.dropped and not any("dropped" in note for note in found["notes"]):
        found["notes"].append(f"placement: dropped: {cut.dropped[name]}")


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
            "chain": [asdict(reason) for reason in explanation.chain(tensor, everything=everything)],
        }
        for tensor in tensors
    ]


def _roles_of(found: Roles, name: str) -> list[str]:
    named: dict[str, Sequence[Finding]] = {
        "loss": [found.loss],
        "train op": found.train_ops,
        "step counter": [] if found.step is None else [found.step],
        "input": found.inputs,
        "update": found.updates,
        "summary": found.summaries,
        "metric": found.metrics,
        "saver": found.savers,
        **{f"candidate for {role}": others for role, others in found.other_candidates.items()},
    }
    texts = [f"{role}: {f.reason}" for role, findings in named.items() for f in findings if _is(f.name, name)]
    variable = found.variables.get(name)
    if variable is not None:
        key = f"saved as '{variable.key}'" if variable.key is not None else "not saved"
        start = f", first value by '{variable.initializer}'" if variable.initializer else ""
        texts.append(f"variable: {'trained' if variable.trained else 'not trained'}, {key}{start}")
    for role, names in (("initialiser of a table", found.table_initializers),
                        ("initialiser of the input", found.iterator_initializers)):  # fmt: skip
        if name in names:
            texts.append(role)
    texts += [f"initialiser of '{v.name}'" for v in found.variables.values() if v.initializer == name]
    return texts


def _is(tensor: str, name: str) -> bool:
    return tensor.partition(":")[0] == name


def _near(graph: Graph, name: str) -> str:
    near = near_nodes(name, [node.name for node in graph])
    return f"did you mean {' or '.join(near)}?" if near else "`tpugraph inspect MODEL` shows the names of the roles"


def describe(found: dict[str, Any]) -> str:
    lines = []
    if found["text"]:
        lines.append(found["text"])
        readers = found.get("readers")
        lines.append(f"  read by   {', '.join(readers)}" if readers else "  read by   nothing")
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
    made = found["made_for_it"]
    lines += [f"  made for it  {text}" for text in made[:_MOST]]
    if len(made) > _MOST:
        lines.append(f"  made for it  ... and {len(made) - _MOST} more")
    if found["error"]:
        stage = f"{found['error']['stage']}: " if found["error"]["stage"] else ""
        lines.append(f"  conversion stops: {stage}{found['error']['fault']}")
    return "\n".join(lines)


def _value_lines(value: dict[str, Any]) -> list[str]:
    """Where a value lives, and the chain of reasons, from the value back to the input."""
    chain = [Reason(**link) for link in value["chain"]]
    lines = [f"  value     {value['tensor']} : {value['is']}"]
    for place, link in enumerate(chain):
        following = {after.tensor for after in chain[place + 1 : place + 2]}
        others = [f"'{name}'" for name in link.operands if value["everything"] or name not in following]
        also = "from" if value["everything"] else "also"
        beside = f" ({also} {', '.join(others)})" if others and following else ""
        lines.append(f"    {'lives' if not place else 'since':<8}{link}{beside}")
        lines += [f"    {'then':<8}{text}" for text in link.collectives]
    return lines

"""``tpugraph report``: whether to rent a TPU for a graph, which one, and what must change first."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpugraph.analysis import shapes
from tpugraph.cli import fitting, programs, tpu_compiler
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.convert import check_page
from tpugraph.cli.flags import Parsed
from tpugraph.compiler.tpu_check import check
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime import batch_search
from tpugraph.support import files
from tpugraph.support.errors import RunError, ShapeError, TpuGraphError, UsageError
from tpugraph.tpu.program import Program
from tpugraph.views import page
from tpugraph.views.view_data import FORMAT, FindingView
from tpugraph.xla import jax_client, topologies
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import CHIPS, TOPOLOGIES

_SUMMED = "the sum over the cores"
_NOT_ASKED = "only training graphs are compiled for TPUs: there are no figures of memory and time"


@dataclass
class Target:
    """What the compiler for one TPU says of the step, or why it refuses."""

    topology: str
    cores: int
    error: str | None = None
    fix: str | None = None
    compiled: dict[str, Any] | None = None  # as `tpugraph compile --json` prints it; None where it refuses
    examples_per_second: float = 0.0  # rows of the global batch in the least time; 0 where the batch is not known
    largest_batch: int | None = None  # rows of a core that fit; None where that was not searched
    ways: list[dict[str, Any]] = field(default_factory=list)  # that fit, as `tpugraph compile --fit --json` prints them


@dataclass
class Collective:
    """What the cores combine, why and how; bytes of each core in a step, None where a shape is open."""

    tensor: str
    how: str
    bytes: int | None


@dataclass
class Report:
    """All that the page shows; findings in the order of their causes, facts of the conversion line by line."""

    title: str
    runs: bool  # on a TPU
    verdict: str
    findings: list[FindingView]
    facts: list[str] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    format: int = FORMAT


def run(flags: Parsed, console: Console) -> Outcome:
    output = check_page(flags["output"] or Path(flags.model).stem + ".report.html", "--output")
    for name in flags["topology"]:
        if name not in CHIPS and name not in TOPOLOGIES:
            raise topologies.unknown(name, [*CHIPS, *TOPOLOGIES])
    found = check(programs.graph_of(flags), programs.options(flags))
    report = Report(Path(flags.model).name, found.compiles, found.verdict, found.shown())
    console.say(report.verdict)
    if report.runs:
        _add_targets(report, flags, console)
    figures = output.with_suffix(".json")
    files.write_together({output: page.make("report", report.title, report).encode(),
                          figures: (json.dumps(report, indent=1, default=vars) + "\n").encode()})  # fmt: skip
    console.say(f"wrote {output} and {figures}")
    return Outcome({**vars(report), "written": [str(output), str(figures)]}, code=0 if report.runs else 1)


def _add_targets(report: Report, flags: Parsed, console: Console) -> None:
    """Ask the compiler of each TPU, and say each answer."""
    program = programs.load(flags, console)
    graph = graphdef.from_graph_def(program.graph_def, source=flags.model)
    if "nodes" in program.report:
        report.facts = program.summary().splitlines()
    if programs.mode_of(flags) != "train":
        report.facts.append(_NOT_ASKED)
        console.note(_NOT_ASKED)
        return
    report.collectives = _collectives(graph, program)
    module = tpu_compiler.lower(graph, console)
    for name in flags["topology"]:
        target = _target(_topology(name, module.num_replicas), graph, module, flags, console)
        console.say(_line(target))
        target.ways = _ways(target.topology, flags, console) if flags["fit"] else []
        report.targets.append(target)


def _topology(name: str, cores: int) -> str:
    """A topology of a generation: the smallest that has a core for each replica; one with its size stays as it is."""
    if name in TOPOLOGIES:
        return name
    sizes = {topology: count for topology, count in TOPOLOGIES.items() if topology.partition(":")[0] == name}
    enough = [topology for topology in sizes if sizes[topology] >= cores]
    return min(enough, key=sizes.__getitem__) if enough else max(sizes, key=sizes.__getitem__)


def _target(topology: str, graph: Graph, module: Module, flags: Parsed, console: Console) -> Target:
    """What the compiler for a TPU says; that it refuses is an answer too."""
    try:
        jax_client.need("tpu", "libtpu", "jax")
        compiled = tpu_compiler.ask(module, topology, console)
    except (RunError, UsageError) as error:
        node = f" ({error.node})" if error.node else ""
        return Target(topology, TOPOLOGIES[topology], error.fault + node, error.fix)
    rows, least = batch_search.rows_of(graph) * compiled.num_replicas, compiled.step_seconds
    target = Target(
        topology, compiled.cores, compiled=compiled.as_dict(), examples_per_second=rows / least if least else 0.0
    )
    if flags["largest_batch"]:
        try:
            target.largest_batch = tpu_compiler.largest_batch(graph, flags, topology, console)
        except (ShapeError, UsageError) as uncertain:
            console.note(uncertain.fault)
    return target


def _ways(topology: str, flags: Parsed, console: Console) -> list[dict[str, Any]]:
    try:
        tried = fitting.search(flags, console, fitting.on_topology(topology, flags, console), every=True)
    except TpuGraphError as error:
        console.note(error.fault)
        return []
    return [one.as_dict() for one in tried if one.fits]


def _line(target: Target) -> str:
    if target.compiled is None:
        return f"{target.topology:<10} refused: {target.error}"
    compiled = target.compiled
    peak, memory = tpu_compiler.size_text(compiled["peak"]), tpu_compiler.size_text(compiled["hbm"])
    return (f"{target.topology:<10} compiles, {peak} of {memory} per core, at least "
            f"{compiled['step_seconds'] * 1e6:,.1f} us a step, bound by {compiled['bound_by']}")  # fmt: skip


def _collectives(graph: Graph, program: Program) -> list[Collective]:
    """What the cores combine in each step, largest first, without the loss, which they combine once, after the loop."""
    shapes.infer(graph)
    reasons = program.report.get("collectives", {}).get("combined", {})
    last = {tensor.node for node in graph.with_attr("_tpu_output_identity") for tensor in node.inputs}
    found = [
        Collective(str(node.inputs[0]), reasons.get(str(node.inputs[0]), _SUMMED), shapes.byte_size(node.out()))
        for node in graph.of_type("CrossReplicaSum")
        if node not in last
    ]
    return sorted(found, key=lambda c: (-(c.bytes or 0), c.tensor))

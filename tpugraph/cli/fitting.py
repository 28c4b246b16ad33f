"""``--fit``: the first way to lay a step on a mesh that fits the memory of a core, as the real TPU compiler says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpugraph.cli import programs, tpu_compiler
from tpugraph.cli.console import Console
from tpugraph.cli.flags import Parsed
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime import batch_search
from tpugraph.support.errors import RunError, ShapeError
from tpugraph.xla import fit, stablehlo
from tpugraph.xla.fit import Way
from tpugraph.xla.jax_client import TooLarge
from tpugraph.xla.mesh import DATA
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import CHIPS, TOPOLOGIES


@dataclass(frozen=True)
class Fit:
    """A way that fits.

    Attributes:
        flags: of a command line that takes it.
        tried: what each way costs (JSON).
    """

    flags: str
    tried: list[dict[str, Any]]


def search(flags: Parsed, console: Console) -> Fit:
    """Try one way after another for ``--topology``, and say what each costs.

    Raises:
        RunError: none fits.
        UsageError: MODEL was converted for several cores and keeps no plain graph.
    """
    topology = flags["topology"]
    tried: list[dict[str, Any]] = []
    graph, module = _lowered(flags, 0)
    devices, rows = TOPOLOGIES[topology], batch_search.rows_of(graph)
    while rows % devices:
        devices //= 2
    found = list(fit.ways(module, fit.tables_of(graph), devices))
    for way in found:
        if _fits(way, module, "", topology, tried, flags, console):
            return Fit(" ".join(way.flags), tried)
    least = min(range(len(found)), key=lambda number: tried[number]["needed"])
    best, smaller = found[least], rows // 2
    while smaller and smaller % best.layout.mesh.axes[DATA] == 0:
        try:
            _, module = _lowered(flags, smaller)
        except ShapeError as refusal:
            console.say(f"note: {refusal.fault}")
            break
        if _fits(best, module, f", global batch {smaller:,}", topology, tried, flags, console):
            return Fit(" ".join((*best.flags, f"--global_batch={smaller}")), tried)
        smaller //= 2
    raise RunError(
        f"no way was found that fits a core of {topology}",
        fix="a topology with more cores: `tpugraph compile --topologies`",
    )


def _lowered(flags: Parsed, batch: int) -> tuple[Graph, Module]:
    """The plain step, lowered for one core."""
    asked = programs.options(flags, num_replicas=1, **({"global_batch": batch} if batch else {}))
    program = convert(programs.plain_model(flags), asked)
    graph = graphdef.from_graph_def(program.graph_def, source=flags.model)
    return graph, stablehlo.lower(batch_search.without_hints(graph))


def _fits(
    way: Way, module: Module, more: str, topology: str, tried: list[dict[str, Any]], flags: Parsed, console: Console
) -> bool:
    memory = CHIPS[topology.partition(":")[0]].hbm
    entry: dict[str, Any] = {"what": way.what + more, "flags": list(way.flags)}
    costs = ""
    try:
        compiled, _ = tpu_compiler.ask(module, topology, console, layout=way.layout, loud=flags["traceback"])
        needed, fits = compiled.peak, compiled.peak <= memory
        entry |= {"step_seconds": compiled.step_seconds, "collectives": compiled.collectives}
        moved = ", ".join(f"{kind} {tpu_compiler.size_text(size)}" for kind, size in compiled.collectives.items())
        costs = f", at least {compiled.step_seconds * 1e3:,.2f} ms a step{', ' + moved if moved else ''}"
    except TooLarge as error:
        needed, fits = error.needed, False
    entry |= {"needed": needed, "fits": fits}
    tried.append(entry)
    console.say(f"{'fits' if fits else 'too large':<11} {entry['what']}: {tpu_compiler.size_text(needed)} of "
                f"{tpu_compiler.size_text(memory)} per core{costs}")  # fmt: skip
    return fits

"""Compiling for a TPU from a command: lowering, the compiler's answer, the largest batch that fits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from tpugraph.analysis import num_replicas
from tpugraph.cli import programs
from tpugraph.cli.console import Console, interruptible
from tpugraph.cli.flags import Parsed
from tpugraph.compiler import adopt_tpu_estimator
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime import batch_search
from tpugraph.support.tensorflow_log import stderr_held_back
from tpugraph.support.wording import counted, first_few
from tpugraph.xla import stablehlo, topologies
from tpugraph.xla.jax_client import TooLarge
from tpugraph.xla.mesh import Layout
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import CHIPS, Compiled


def lower(graph: Graph, console: Console) -> Module:
    """The step of a TPU graph, which may be one of TPUEstimator, as StableHLO; prints how long that took."""
    adopt_tpu_estimator.add_entry_points(graph)
    module = stablehlo.lower(batch_search.without_hints(graph))
    counts = f"{counted(module.facts['all_reduces'], 'all-reduce')}, {counted(module.facts['loops'], 'loop')}"
    console.say(f"lowered to StableHLO in {sum(module.seconds.values()):.1f} s: {len(module.code):,} bytes, {counts}")
    return module


def ask(module: Module, topology: str, console: Console, *, layout: Layout | None = None, what: str = "") -> Compiled:
    """The compiler's answer; libtpu's own log is shown with ``--traceback`` only.

    With LIBTPU_INIT_ARGS it is shown too: a flag that libtpu does not know ends the process with no other word.
    """
    on = f"{module.num_replicas} replicas" if layout is None else f"the mesh {layout.mesh}"
    console.say(f"compiling{what} for {on} on {topology} ...")
    quiet = not console.verbose and "LIBTPU_INIT_ARGS" not in os.environ
    with stderr_held_back() if quiet else contextlib.nullcontext():
        return interruptible(lambda: topologies.compile_for(module, topology, layout))


def largest_batch(graph: Graph, flags: Parsed, topology: str, console: Console) -> int:
    """Search the largest batch of a core, and say each try, which converts the plain graph anew; ``graph`` is MODEL, converted."""
    memory, cores = CHIPS[topology.partition(":")[0]].hbm, num_replicas(graph)

    def attempt(rows: int) -> batch_search.Try:
        made = programs.convert_plain(flags, num_replicas=cores, global_batch=rows * cores)
        module = stablehlo.lower(graphdef.from_graph_def(made.graph_def, source=flags.model))
        try:
            compiled = ask(module, topology, console, what=f" a batch of {rows:,} rows per core")
            size, fits = compiled.peak, compiled.peak <= memory
        except TooLarge as error:
            size, fits = error.needed, False
        console.say(f"batch       {rows:,} rows per core need {size_text(size)}: {'fits' if fits else 'too large'}")
        return batch_search.Try(rows, size, fits)

    found = batch_search.search(batch_search.rows_of(graph), attempt, memory)
    least = "at least " if found == batch_search.MOST else ""
    console.say(f"largest     {least}{found:,} rows per core, {found * cores:,} on {cores} cores")
    return found


def size_text(count: int) -> str:
    """A number of bytes, such as ``2.3 MiB``."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} bytes" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.2f} GiB"


def gathered_note(gathered: Mapping[str, int]) -> list[str]:
    """A line on the sharded variables that XLA makes whole on each core, if there are any."""
    shown = first_few([f"'{name}' {size_text(size)}" for name, size in gathered.items()], 3)
    return [f"note: each core gathers the whole of sharded variables in each step: {shown}"] if gathered else []

"""``tpugraph compile``: the real TPU compiler on a converted graph, or on a plain one that is converted first."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tpugraph.analysis import num_replicas
from tpugraph.cli import fitting, programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.convert import check_writable
from tpugraph.cli.flags import Parsed, rebinds
from tpugraph.cli.tpu_compiler import ask, gathered_note, largest_batch, lower, size_text
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.pjrt import bundling
from tpugraph.support.errors import ShapeError, UsageError
from tpugraph.support.wording import counted
from tpugraph.tpu.program import Program
from tpugraph.xla import jax_client, topologies
from tpugraph.xla.jax_client import TooLarge
from tpugraph.xla.mesh import Layout, Sharding
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import CHIPS, TOPOLOGIES, Compiled


def run(flags: Parsed, console: Console) -> Outcome:
    if flags["topologies"]:
        return _list(console)
    if flags["checkpoint"] and flags["output"] is None:
        raise UsageError("--checkpoint is for the variables of a bundle", fix="give -o FILE.tpugraph too")
    if programs.mode_of(flags) != "train":
        raise UsageError("only training graphs are compiled for a TPU",
                         fix="`tpugraph check` says whether a graph that evaluates or predicts can run")  # fmt: skip
    topologies.check(flags["topology"], 1)
    if flags["fit"]:
        return fitting.run(flags, console)
    layout = programs.layout_of(flags)
    if layout is not None:
        if flags["largest_batch"]:
            raise UsageError(
                "--largest_batch searches the batch of cores, not of a mesh",
                fix="leave out --mesh, or try --global_batch=N",
            )
        topologies.check(flags["topology"], 1, layout.mesh)
    for_tpu = flags["output"] is None or flags["largest_batch"] or "topology" in flags.given
    if for_tpu:
        jax_client.need("tpu", "libtpu", "jax")
    if flags["output"] is not None:
        check_writable(Path(flags["output"]), "--output")
    program = programs.load(flags, console)
    graph = graphdef.from_graph_def(program.graph_def, source=flags.model)
    if for_tpu:
        topologies.check(flags["topology"], num_replicas(graph))
    module = lower(graph, console)
    found = _write_bundle(program, module, flags, console) if flags["output"] is not None else {}
    if for_tpu:
        found |= _compile(graph, module, layout, flags, console)
    if flags["largest_batch"]:
        found["largest_batch"] = largest_batch(graph, flags, flags["topology"], console)
    return Outcome(found)


def _write_bundle(program: Program, module: Module, flags: Parsed, console: Console) -> dict[str, Any]:
    made = bundling.make(program, module=module, checkpoint=flags["checkpoint"], rebind=rebinds(flags["rebind"]))
    size = made.save(flags["output"])
    console.say(
        f"wrote {flags['output']} ({size:,} bytes): {counted(len(made.variables), 'variable')} at step {made.trained:,}"
    )
    return {"output": flags["output"], "bytes": size, "inputs": list(made.inputs), "trained": made.trained}


def _compile(graph: Graph, module: Module, layout: Layout | None, flags: Parsed, console: Console) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        compiled = ask(module, flags["topology"], console, layout=layout)
    except TooLarge as error:
        if flags["largest_batch"]:
            console.note(error.fault)
            return {}
        error.fix = _what_fits(graph, flags, console, error) if layout is None else error.fix
        raise
    variables = {} if layout is None else layout.shardings(module)
    console.say(*_lines(compiled, module), *_sharding_lines(variables.values()), *gathered_note(compiled.gathered))
    sharded = {name: one.spec for name, one in variables.items() if any(one.spec)}
    return {
        **compiled.as_dict(),
        "lowering": {**module.facts, "seconds": module.seconds, "bytes": len(module.code)},
        "sharded": sharded,
        "total_seconds": time.perf_counter() - started,
    }


def _what_fits(graph: Graph, flags: Parsed, console: Console, error: TooLarge) -> str:
    """The fix for a step that does not fit."""
    try:
        rows = largest_batch(graph, flags, flags["topology"], console)
    except (ShapeError, UsageError) as uncertain:
        console.note(uncertain.fault)
        return str(error.fix)
    if not rows:
        return ("not even a batch of one row fits: fewer steps per call (--iterations_per_loop), --shard_tables=BYTES where "
                "tables of embeddings are large, or a smaller model")  # fmt: skip
    return (f"a batch of at most {rows:,} rows per core fits; or fewer steps per call: --iterations_per_loop; or --fit, which "
            f"looks for a mesh")  # fmt: skip


def _list(console: Console) -> Outcome:
    for name, cores in TOPOLOGIES.items():
        chip = CHIPS[name.partition(":")[0]]
        console.say(f"{name:<10} {cores:>4} core{'s, each' if cores > 1 else ','} {chip.hbm / topologies.GIB:g} GiB and "
                    f"{chip.flops / 1e12:g} teraflops in bfloat16")  # fmt: skip
    return Outcome({"topologies": TOPOLOGIES})


def _lines(compiled: Compiled, module: Module) -> list[str]:
    memory, chip = compiled.memory, compiled.chip
    held = ", ".join(f"{name} {size_text(size)}" for name, size in memory.items())
    lines = [
        f"compiled for {compiled.topology} in {compiled.seconds:.1f} s",
        f"memory      {size_text(compiled.peak)} of {size_text(chip.hbm)} per core ({held}), "
        f"{size_text(compiled.most_live)} live at once",
        f"step        {compiled.flops:,.0f} flops, {size_text(int(compiled.bytes_accessed))} read and written; at least "
        f"{compiled.step_seconds * 1e6:,.1f} us ({100 * compiled.share_of_peak:.2g} % of the peak), bound by "
        f"{compiled.bound_by}",
        f"traffic     per step and core: infeed {size_text(compiled.infeed_bytes)}, "
        + (", ".join(f"{kind} {size_text(size)}" for kind, size in compiled.collectives.items()) or "no collective"),
        f"staged      {counted(module.iterations, 'step')} per call",
    ]
    lines.extend(f"tensor      {size_text(t.bytes)} {t.shape} {t.node or 'of the compiler'} "
                 f"(elements {size_text(t.elements)}{', on chip' if t.on_chip else ''})" for t in compiled.tensors)  # fmt: skip
    return lines


def _sharding_lines(variables: Iterable[Sharding]) -> list[str]:
    """A line for each sharding that variables have."""
    alike = defaultdict[str, list[Sharding]](list)
    for one in variables:
        alike[one.kind].append(one)
    lines = []
    for kind, same in alike.items():
        most = max((one.variable for one in same), key=lambda value: value.bytes)
        lines.append(f"variables   {len(same):,} {kind}, {size_text(sum(one.bytes for one in same))} per core, the largest "
                     f"'{most.name}' {list(most.shape)}")  # fmt: skip
    return lines

"""``--fit``: the first way to lay a step on a mesh that fits the memory of a core, as the compiler says."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tpugraph.cli import programs, tpu_compiler
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.cli.tpu_compiler import size_text
from tpugraph.runtime import batch_search
from tpugraph.runtime.engines import device_count, device_memory
from tpugraph.runtime.pjrt.partitioned import PartitionedDevices
from tpugraph.support.errors import RunError, ShapeError, UsageError
from tpugraph.xla import fit, jax_client, topologies
from tpugraph.xla.fit import Way
from tpugraph.xla.jax_client import TooLarge
from tpugraph.xla.mesh import DATA, Layout, Mesh
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import CHIPS, TOPOLOGIES


@dataclass
class Try:
    """What a way costs a core."""

    what: str  # in words
    flags: str  # of a command line that takes it
    way: Way
    global_batch: int  # 0 where it is that of the plain graph
    needed: int = 0  # bytes of memory
    fits: bool = False
    # bytes by kind; where they do not fit, arguments without padding, and temporaries with all the rest
    memory: dict[str, int] = field(default_factory=dict)
    collectives: dict[str, int] = field(default_factory=dict)  # bytes of a step by kind
    gathered: dict[str, int] = field(default_factory=dict)  # of sharded variables, by name, the bytes of the whole
    step_seconds: float | None = None  # the least that a step takes, where the compiler tells


@dataclass(frozen=True)
class Place:
    """Where a step shall fit: cores of a TPU that need not be there, or the devices of this machine."""

    devices: int
    memory: int  # of a device, in bytes
    fill: Callable[[Try, Module, Layout], None]  # with what the compiler says


def run(flags: Parsed, console: Console) -> Outcome:
    """``tpugraph compile --fit``; the exit code is 1 where nothing fits."""
    tried = search(flags, console, on_topology(flags["topology"], flags, console))
    best, table = tried[-1], [asdict(one) for one in tried]
    if not best.fits:
        console.say(
            f"no way was found that fits a core of {flags['topology']}: `tpugraph compile --topologies` lists larger ones"
        )
        return Outcome({"fit": table, "flags": None}, 1)
    console.say(_command(best, flags) + " --steps=100")
    return Outcome({"fit": table, "flags": best.flags})


def _command(best: Try, flags: Parsed) -> str:
    """The command line that trains by a way, with the other flags that were given."""
    ours = {"fit", "topology", "partitioner", "json", "traceback", *(["global_batch"] if best.global_batch else [])}
    others = [words for name, words in flags.words.items() if name not in ours]
    return " ".join(["tpugraph run", flags.model, *others, best.flags])


def chosen(flags: Parsed, console: Console) -> Parsed:
    """The flags of ``tpugraph run --fit`` with those of the first way that fits."""
    if "engine" in flags.given and not programs.by_xla(flags):
        raise UsageError("--fit is for XLA's own partitioner", fix="--engine=xla")
    platform = flags["platform"] or "cpu"
    joins = flags["coordinator"] or flags["distributed"] != "off"
    memory = None if joins else device_memory(platform)  # asking starts the devices, which processes do once joined
    if memory is None and flags["topology"] is None:
        raise UsageError(f"devices of the platform '{platform}' do not say how much memory they have",
                         fix="--topology=v5e:2x4, for whose cores it shall fit")  # fmt: skip
    best = search(flags, console, on_topology(flags["topology"], flags, console) if memory is None else
                  _on_devices(platform, memory, flags, console))[-1]  # fmt: skip
    if not best.fits:
        raise RunError("no way was found that fits the memory of a device", fix="more devices, or a smaller model")
    console.say(_command(best, flags))
    way = best.way
    told: dict[str, Any] = {"mesh": way.mesh, "shard": list(way.shard), "shard_optimizer": way.shard_optimizer}
    told |= {"global_batch": best.global_batch} if best.global_batch else {}
    return replace(flags, values={**flags.values, **told}, given=flags.given | told.keys())


def search(flags: Parsed, console: Console, place: Place, *, every: bool = False) -> list[Try]:
    """Try one way after another, the others too where ``every`` is asked for; the last one fits, if any does."""
    other = sorted({"mesh", "shard", "shard_optimizer", "output", "largest_batch"} & flags.given)
    if other and not every:
        raise UsageError(
            f"--fit looks for a mesh by itself, and --{other[0]} says something else", fix=f"leave --{other[0]} out"
        )
    tried: list[Try] = []
    graph, module = programs.plain_step(flags)
    rows = batch_search.rows_of(graph)
    found = fit.ways(module, fit.tables_of(graph), place.devices, rows)
    with contextlib.suppress(StopIteration):
        way = next(found)
        while True:
            least = min((one.needed for one in tried), default=math.inf)
            tried.append(_tried(way, module, 0, place, flags, console))
            if tried[-1].fits and not every:
                return tried
            way = found.send(tried[-1].needed < least)
    best, smaller = min(tried, key=lambda one: one.needed).way, rows // 2
    data = Mesh.parse(best.mesh).axes[DATA]
    while smaller and smaller % data == 0 and not any(one.fits for one in tried):
        try:
            _, module = programs.plain_step(flags, smaller)
        except ShapeError as refusal:
            console.say(f"note: {refusal.fault}")
            break
        tried.append(_tried(best, module, smaller, place, flags, console))
        smaller //= 2
    return tried


def _tried(way: Way, module: Module, batch: int, place: Place, flags: Parsed, console: Console) -> Try:
    partitioner = flags.values.get("partitioner", "shardy")
    layout = Layout.parse(way.mesh, way.shard, way.shard_optimizer, partitioner)
    batch_flag = f" --global_batch={batch}" if batch else ""
    other = f" --partitioner={partitioner}" if partitioner != "shardy" else ""
    found = Try(way.what + (f", global batch {batch:,}" if batch else ""), way.flags + batch_flag + other, way, batch)
    try:
        place.fill(found, module, layout)
        found.needed = topologies.peak_of(found.memory)
        found.fits = found.needed <= place.memory
    except TooLarge as error:
        specs, found.needed = layout.specs(module), error.needed
        held = sum(value.bytes // layout.mesh.pieces(specs[value]) for value in module.arguments)
        found.memory = {"arguments": held, "temporaries": max(error.needed - held, 0)}
    kinds = ", ".join(f"{kind} {size_text(found.memory[kind])}" for kind in ("arguments", "temporaries"))
    least = [] if found.step_seconds is None else [f"at least {found.step_seconds * 1e6:,.1f} us a step"]
    moved = [f"{kind} {size_text(size)}" for kind, size in found.collectives.items()]
    costs = [f"{size_text(found.needed)} of {size_text(place.memory)} per core ({kinds})", *least, *moved]
    console.say(f"{'fits' if found.fits else 'too large':<11} {found.what}: {', '.join(costs)}")
    for line in tpu_compiler.gathered_note(found.gathered):
        console.say(line)
    return found


def on_topology(name: str, flags: Parsed, console: Console) -> Place:
    """The cores of a TPU that need not be there."""
    topologies.check(name, 1)
    jax_client.need("tpu", "libtpu", "jax")

    def fill(found: Try, module: Module, layout: Layout) -> None:
        said, _ = tpu_compiler.ask(module, name, console, layout=layout, loud=flags["traceback"])
        found.memory, found.collectives, found.gathered = said.memory, said.collectives, said.gathered
        found.step_seconds = said.step_seconds

    return Place(flags["num_replicas"] or TOPOLOGIES[name], CHIPS[name.partition(":")[0]].hbm, fill)


def _on_devices(platform: str, memory: int, flags: Parsed, console: Console) -> Place:
    def fill(found: Try, module: Module, layout: Layout) -> None:
        console.say(f"compiling for the mesh {layout.mesh} on {platform} ...")
        made = PartitionedDevices(module, layout, platform=platform)
        found.memory, found.collectives, found.gathered = made.memory, made.collectives, made.gathered

    return Place(flags["num_replicas"] or device_count(platform), memory, fill)

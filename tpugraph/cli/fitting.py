"""``--fit``: search a mesh, and shardings on it, with which the step fits the memory of a core, by compiling it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from tpugraph.cli import programs, tpu_compiler
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.cli.tpu_compiler import size_text
from tpugraph.runtime import batch_search
from tpugraph.runtime.engines import device_count, device_memory
from tpugraph.runtime.pjrt.devices import Devices
from tpugraph.support.errors import RunError, ShapeError, UsageError
from tpugraph.xla import fit, jax_client, topologies
from tpugraph.xla.fit import Way
from tpugraph.xla.jax_client import TooLarge
from tpugraph.xla.mesh import DATA, Layout, Mesh
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import CHIPS, TOPOLOGIES, Cost


@dataclass(frozen=True)
class Try:
    """A mesh with shardings that was compiled: the flags that select it, and what it costs a core."""

    way: Way
    global_batch: int  # 0 where it is that of the plain graph
    flags: str
    cost: Cost  # where it is too large, arguments without padding, and temporaries with all the rest
    fits: bool

    @property
    def what(self) -> str:
        return self.way.what + (f", global batch {self.global_batch:,}" if self.global_batch else "")

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self) | {"what": self.what, "cost": self.cost.as_dict()}


@dataclass(frozen=True)
class Place:
    """The devices that a step must fit: cores of a TPU that need not be there, or the devices of this machine."""

    devices: int
    memory: int  # of a device that a program may take, in bytes
    cost: Callable[[Module, Layout], Cost]  # as the compiler says; raises TooLarge where it refuses


def run(flags: Parsed, console: Console) -> Outcome:
    """``tpugraph compile --fit``; the exit code is 1 where nothing fits."""
    tried = search(flags, console, on_topology(flags["topology"], flags, console))
    best, table = tried[-1], [one.as_dict() for one in tried]
    if not best.fits:
        console.say(
            f"no mesh was found that fits {flags['topology']}: `tpugraph compile --topologies` lists larger ones"
        )
        return Outcome({"fit": table, "flags": None}, 1)
    console.say(_command(best, flags) + " --steps=100")
    return Outcome({"fit": table, "flags": best.flags})


def _command(best: Try, flags: Parsed) -> str:
    """The command line that trains on the mesh that was found, with the other flags that were given."""
    ours = {"fit", "topology", "partitioner", "json", "traceback", *(["global_batch"] if best.global_batch else [])}
    others = [words for name, words in flags.words.items() if name not in ours]
    return " ".join(["tpugraph run", flags.model, *others, best.flags])


def chosen(flags: Parsed, console: Console) -> Parsed:
    """The flags of ``tpugraph run --fit`` with those of the first mesh that fits."""
    if "engine" in flags.given and not programs.by_xla(flags):
        raise UsageError("--fit is for XLA's own partitioner", fix="--engine=xla")
    platform = flags["platform"] or "cpu"
    joins = flags["coordinator"] or flags["distributed"] != "off"
    memory = None if joins else device_memory(platform)  # asking starts the devices, which processes do once joined
    if memory is None and flags["topology"] is None:
        raise UsageError(f"devices of the platform '{platform}' do not say how much memory they have",
                         fix="--topology=v5e:2x4, the TPU whose memory the step must fit")  # fmt: skip
    best = search(flags, console, on_topology(flags["topology"], flags, console) if memory is None else
                  _on_devices(platform, memory, flags, console))[-1]  # fmt: skip
    if not best.fits:
        raise RunError(
            "no mesh was found on which the step fits the memory of a device", fix="more devices, or a smaller model"
        )
    console.say(_command(best, flags))
    way = best.way
    told: dict[str, Any] = {"mesh": way.mesh, "shard": list(way.shard), "shard_optimizer": way.shard_optimizer}
    told |= {"global_batch": best.global_batch} if best.global_batch else {}
    return replace(flags, values={**flags.values, **told}, given=flags.given | told.keys())


def search(flags: Parsed, console: Console, place: Place, *, every: bool = False) -> list[Try]:
    """Try one way after another until one fits, which is then the last; all ways where ``every`` is asked for.

    A measure that took no less memory than all ways before it is left out of those after it.
    """
    other = sorted({"mesh", "shard", "shard_optimizer", "output", "largest_batch"} & flags.given)
    if other and not every:
        raise UsageError(
            f"--fit searches the mesh and the shardings itself, and goes without --{other[0]}",
            fix=f"leave --{other[0]} out",
        )
    graph, module = programs.plain_step(flags)
    rows = batch_search.rows_of(graph)
    step = module, fit.tables_of(graph), place.devices, rows
    tried: list[Try] = []
    kept: list[str] = []
    for measure in fit.MEASURES:
        way = fit.way([*kept, measure], *step)
        if way is None:
            continue
        least = min((one.cost.peak for one in tried), default=math.inf)
        tried.append(_tried(way, module, 0, place, flags, console))
        if tried[-1].fits and not every:
            return tried
        if tried[-1].cost.peak < least:
            kept.append(measure)
    best, smaller = min(tried, key=lambda one: one.cost.peak).way, rows // 2
    data = Mesh.parse(best.mesh).axes[DATA]
    while smaller and smaller % data == 0 and not any(one.fits for one in tried):
        try:
            _, module = programs.plain_step(flags, smaller)
        except ShapeError as refusal:
            console.note(refusal.fault)
            break
        tried.append(_tried(best, module, smaller, place, flags, console))
        smaller //= 2
    return tried


def _tried(way: Way, module: Module, batch: int, place: Place, flags: Parsed, console: Console) -> Try:
    partitioner = flags.values.get("partitioner", "shardy")
    layout = Layout.parse(way.mesh, way.shard, way.shard_optimizer, partitioner)
    try:
        cost = place.cost(module, layout)
        fits = cost.peak <= place.memory
    except TooLarge as error:
        specs, fits = layout.specs(module), False
        held = sum(value.bytes // layout.mesh.pieces(specs[value]) for value in module.arguments)
        memory = {"arguments": held, "outputs": 0, "aliased": 0, "temporaries": max(error.needed - held, 0), "code": 0}
        cost = Cost(memory, {}, {})
    batch_flag = f" --global_batch={batch}" if batch else ""
    other = f" --partitioner={partitioner}" if partitioner != "shardy" else ""
    found = Try(way, batch, way.flags + batch_flag + other, cost, fits)
    kinds = ", ".join(f"{kind} {size_text(cost.memory[kind])}" for kind in ("arguments", "temporaries"))
    least = [] if cost.step_seconds is None else [f"at least {cost.step_seconds * 1e6:,.1f} us a step"]
    moved = [f"{kind} {size_text(size)}" for kind, size in cost.collectives.items()]
    costs = [f"{size_text(cost.peak)} of {size_text(place.memory)} per core ({kinds})", *least, *moved]
    console.say(f"{'fits' if fits else 'too large':<11} {found.what}: {', '.join(costs)}")
    console.say(*tpu_compiler.gathered_note(cost.gathered))
    return found


def on_topology(name: str, flags: Parsed, console: Console) -> Place:
    """The cores of a TPU that need not be there."""
    topologies.check(name, 1)
    jax_client.need("tpu", "libtpu", "jax")

    def cost(module: Module, layout: Layout) -> Cost:
        return tpu_compiler.ask(module, name, console, layout=layout)

    return Place(flags["num_replicas"] or TOPOLOGIES[name], CHIPS[name.partition(":")[0]].hbm, cost)


def _on_devices(platform: str, memory: int, flags: Parsed, console: Console) -> Place:
    def cost(module: Module, layout: Layout) -> Cost:
        console.say(f"compiling for the mesh {layout.mesh} on {platform} ...")
        return Devices(module, layout, platform=platform).cost

    return Place(flags["num_replicas"] or device_count(platform), memory, cost)

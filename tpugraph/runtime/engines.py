"""Chooses and creates the engine of a TPU graph: a TPU master, PJRT devices, or the emulator."""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import dataclass, replace

from tpugraph.ir import Graph
from tpugraph.runtime.emulator.emulation import SpreadLoop, emulate
from tpugraph.runtime.engine import Engine, ThreeParts
from tpugraph.runtime.masters import Master, place_on_master
from tpugraph.runtime.pipelines import run_as_written
from tpugraph.runtime.pjrt.compiled import CompiledLoop, compile_cluster
from tpugraph.runtime.timeline import Timeline
from tpugraph.support.errors import RunError, TpuGraphError, UsageError
from tpugraph.support.tensorflow_log import stderr_held_back
from tpugraph.xla import jax_client
from tpugraph.xla.mesh import DATA, Layout, Mesh

ENGINES = ("emulator", "pjrt", "xla", "auto")
PLATFORMS = ("cpu", "gpu", "tpu")
VIRTUAL_DEVICES = 8  # of the platform "cpu", by default


@dataclass(frozen=True)
class Choice:
    engine: str  # "master" (the TPU of a master runs the graph as it is), "pjrt", "xla" or "emulator"
    reason: str
    platform: str | None = None  # of the devices of "pjrt" and "xla"

    def after(self, other: Choice, error: TpuGraphError) -> Choice:
        """This choice as the fallback for another engine that cannot run the graph."""
        what = "XLA does not divide the plain step" if other.engine == "xla" else "the devices cannot run the graph"
        return replace(self, reason=f"{what}: {error.fault}" + (f" ('{error.node}')" if error.node else ""))


def to_try(engine: str | None, platform: str | None, *, on_tpu: bool, hosts: int, trains: bool,
           layout: Layout | None = None) -> list[Choice]:  # fmt: skip
    """The engines for a graph, in the order in which they are tried.

    Without an engine, a ``platform`` or ``layout`` means ``xla``, then ``pjrt`` for steps that XLA cannot divide; a ``layout``
    that the user gave means ``xla`` alone. ``auto`` takes accelerators in the same order, then the emulator. A master with TPU
    devices runs the graph unless other devices are named.
    """
    if engine not in (None, *ENGINES):
        raise UsageError(f"there is no engine '{engine}'", fix=f"one of {', '.join(ENGINES)}")
    if platform not in (None, *PLATFORMS):
        raise UsageError(f"there is no platform '{platform}'", fix=f"one of {', '.join(PLATFORMS)}")
    if platform is not None and engine == "emulator":
        raise UsageError(f"platform '{platform}' is for PJRT, and the emulator takes none", fix="leave one of them out")
    if layout is not None and engine in ("emulator", "pjrt"):
        raise UsageError(f"a mesh is for XLA's own partitioner, and the engine is '{engine}'", fix="engine='xla'")
    named = engine or ("emulator" if platform is None and layout is None else "xla")
    if named in ("pjrt", "xla"):
        if on_tpu or hosts > 1:
            raise UsageError(f"engine '{named}' runs on devices of this machine, not on those of a master or cluster",
                             fix="leave master and cluster out; processes are joined by jax.distributed.initialize")  # fmt: skip
        if not trains:
            raise UsageError(f"engine '{named}' runs training graphs alone", fix="engine='emulator'")
        found = [Choice(named, "asked for", platform or "cpu")]
        fixed = engine or (layout is not None and not layout.shrinks)
        return found if fixed else [*found, Choice("pjrt", "", platform or "cpu")]
    if on_tpu:
        return [Choice("master", "the master has TPU devices")]
    if named == "emulator":
        return [Choice("emulator", "the master has no TPU devices")]
    if hosts > 1:
        return [Choice("emulator", f"the cores are spread over {hosts} TensorFlow workers")]
    if not trains:
        return [Choice("emulator", "the graph does not train")]
    seen = platform or accelerator()
    if seen is None:
        return [Choice("emulator", "jax sees no accelerator")]
    why = (
        f"devices of the platform '{seen}' were asked for" if platform else f"jax sees devices of the platform '{seen}'"
    )
    return [Choice("xla", why, seen), Choice("pjrt", why, seen), Choice("emulator", why)]


def create(graph: Graph, choice: Choice, master: Master, *, layout: Layout | None, seed: int, queues: bool, literal: bool,
           timeline: Timeline) -> Engine:  # fmt: skip
    """Create the chosen engine; the graph is rewritten in place to the part that TensorFlow runs.

    Without a ``layout``, ``xla`` shards rows over all devices, or as many as divide the batch.
    """
    if choice.engine == "master":
        return ThreeParts(place_on_master(graph, master.devices), timeline)
    run_as_written(graph)
    if choice.platform is not None:
        every = Layout(Mesh({DATA: device_count(choice.platform)}), shrinks=True) if choice.engine == "xla" else None
        devices = compile_cluster(graph, choice.platform, (layout or every) if every else None)
        return CompiledLoop(graph, devices, seed=seed, timeline=timeline)
    hosts = master.hosts_for(graph)
    return SpreadLoop(graph, hosts) if hosts else emulate(graph, queues=queues, literal=literal, timeline=timeline)


def accelerator() -> str | None:
    """The platform of jax's accelerators; None without any, or without jax."""
    there = importlib.util.find_spec("jax") is not None
    with stderr_held_back() if there else contextlib.nullcontext():  # jax logs warnings about missing platforms
        return next((name for name in ("tpu", "gpu") if there and _sees(name)), None)


def device_count(platform: str) -> int:
    """The default number of devices."""
    return VIRTUAL_DEVICES if platform == "cpu" else len(jax_client.devices(platform))


def device_memory(platform: str) -> int | None:
    """The bytes of memory of a device; None where unknown, as for virtual ones."""
    if platform == "cpu":
        return None
    stats = jax_client.devices(platform)[0].memory_stats() or {}
    return int(stats["bytes_limit"]) if "bytes_limit" in stats else None


def _sees(platform: str) -> bool:
    try:
        return bool(jax_client.devices(platform))
    except RunError:
        return False

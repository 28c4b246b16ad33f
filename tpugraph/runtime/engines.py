"""Chooses the engine that runs a TPU graph, and creates it: a TPU master's, PJRT devices, or the emulator."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from tpugraph.ir import Graph
from tpugraph.runtime.emulator.emulation import SpreadLoop, emulate
from tpugraph.runtime.engine import Engine
from tpugraph.runtime.masters import Master, TPUMaster
from tpugraph.runtime.pipelines import run_as_written
from tpugraph.runtime.pjrt.compiled import CompiledLoop, compile_cluster
from tpugraph.runtime.timeline import Timeline
from tpugraph.support.errors import TpuGraphError, UsageError
from tpugraph.xla import jax_client
from tpugraph.xla.jax_client import joined
from tpugraph.xla.mesh import DATA, Layout, Mesh

ENGINES = ("emulator", "pjrt", "xla", "auto")
PLATFORMS = ("cpu", "gpu", "tpu")
VIRTUAL_DEVICES = 8  # of the platform "cpu", where no flag says how many


@dataclass(frozen=True)
class Choice:
    engine: str  # "master" (the TPU of a master runs the graph as it is), "pjrt", "xla" or "emulator"
    reason: str
    platform: str | None = None  # of the devices of "pjrt" and "xla"
    asked_for: bool = False  # whether the engine was named, so that no other may run the steps
    layout: Layout | None = None  # of "xla", how values lie on the mesh

    def instead(self, error: TpuGraphError) -> Choice:
        """The emulator, where the devices that were chosen cannot run the graph."""
        node = f" ('{error.node}')" if error.node else ""
        return Choice("emulator", f"{self.reason}, but they cannot run the graph: {error.fault}{node}")

    def as_dict(self) -> dict[str, Any]:
        return {"engine": self.engine, "reason": self.reason, "platform": self.platform}


def create(
    graph: Graph, choice: Choice, master: Master, *, seed: int, queues: bool, literal: bool, timeline: Timeline
) -> tuple[Choice, Engine]:
    """The engine that was chosen, or the emulator where devices cannot run the graph; returns the choice with it.

    The graph is changed in place to what TensorFlow runs of it.
    """
    if choice.engine == "master":
        return choice, TPUMaster(graph, master.devices, timeline)
    run_as_written(graph)
    if choice.engine in ("pjrt", "xla"):
        try:
            devices = compile_cluster(graph, choice.platform or "cpu", choice.layout)
        except TpuGraphError as error:
            if choice.asked_for or joined():
                raise
            choice = choice.instead(error)
        else:
            return choice, CompiledLoop(graph, devices, seed=seed, timeline=timeline)
    hosts = master.hosts_for(graph)
    if hosts is not None:
        return choice, SpreadLoop(graph, hosts)
    return choice, emulate(graph, queues=queues, literal=literal, timeline=timeline)


def choose(engine: str, platform: str | None, *, num_replicas: int, on_tpu: bool, hosts: int, trains: bool,
           layout: Layout | None = None, why: str = "asked for") -> Choice:  # fmt: skip
    """Choose one of ``ENGINES``: ``emulator`` and ``auto`` leave the graph to a master that has TPU devices.

    A ``platform`` of None is any accelerator for ``auto``, and ``cpu`` for ``pjrt`` and ``xla``, which run training graphs alone.
    A ``layout`` of None has all devices of ``xla`` along the rows, or as many as divide the batch. ``why`` says why an engine
    of devices was named.
    """
    if engine not in ENGINES:
        raise UsageError(f"there is no engine '{engine}'", fix=f"one of {', '.join(ENGINES)}")
    if platform is not None and platform not in PLATFORMS:
        raise UsageError(f"there is no platform '{platform}'", fix=f"one of {', '.join(PLATFORMS)}")
    if platform is not None and engine == "emulator":
        raise UsageError(f"platform '{platform}' is for PJRT, and the emulator takes none", fix="leave one of them out")
    if layout is not None and engine != "xla":
        raise UsageError(f"a mesh is for XLA's own partitioner, and the engine is '{engine}'", fix="engine='xla'")
    if engine in ("pjrt", "xla"):
        if on_tpu or hosts > 1:
            raise UsageError(f"engine '{engine}' runs on devices of this machine, not on those of a master or cluster",
                             fix="leave master and cluster out; processes are joined by jax.distributed.initialize")  # fmt: skip
        if not trains:
            raise UsageError(f"engine '{engine}' runs training graphs alone", fix="engine='emulator'")
        if engine == "xla" and num_replicas != 1:
            raise UsageError(f"the graph was converted for {num_replicas} cores, and XLA divides the step of one",
                             fix="run the plain graph, or convert it with --num_replicas=1")  # fmt: skip
        every = Layout(Mesh({DATA: device_count(platform or "cpu")}), fits=True) if engine == "xla" else None
        made = layout or every
        return Choice(engine, why, platform or "cpu", asked_for=True, layout=made)
    if on_tpu:
        return Choice("master", "the master has TPU devices")
    if engine == "emulator":
        return Choice("emulator", "the master has no TPU devices")
    if hosts > 1:
        return Choice("emulator", f"the cores are spread over {hosts} TensorFlow workers")
    if not trains:
        return Choice("emulator", "the graph does not train")
    return _by_devices(platform, num_replicas)


def accelerator() -> str | None:
    """The platform of the accelerators that jax sees; None where it sees none, or is not installed."""
    there = importlib.util.find_spec("jax") is not None
    return next((name for name in ("tpu", "gpu") if there and _count(name)), None)


def device_count(platform: str) -> int:
    """The number of devices of a mesh that no flag names."""
    return VIRTUAL_DEVICES if platform == "cpu" else max(1, _count(platform))


def device_memory(platform: str) -> int | None:
    """The bytes of memory of a device; None where it does not say them, as virtual ones do not."""
    if platform == "cpu" or not _count(platform):
        return None
    stats = jax_client.load("jax", "pjrt").devices(platform)[0].memory_stats() or {}
    return int(stats["bytes_limit"]) if "bytes_limit" in stats else None


def _by_devices(platform: str | None, num_replicas: int) -> Choice:
    if platform == "cpu":
        return Choice("pjrt", "devices of the platform 'cpu' were asked for", "cpu")
    if importlib.util.find_spec("jax") is None:
        return Choice("emulator", "jax, which would tell of accelerators, is not installed")
    seen = {name: count for name in ([platform] if platform else ["tpu", "gpu"]) if (count := _count(name))}
    for name, count in seen.items():
        if count >= num_replicas:
            return Choice("pjrt", f"jax sees {count} {name} devices for {num_replicas} cores", name)
    if not seen:
        return Choice("emulator", "jax sees no accelerator")
    few = " and ".join(f"{count} {name}" for name, count in seen.items())
    return Choice("emulator", f"jax sees {few} for {num_replicas} cores, which is too few")


def _count(platform: str) -> int:
    jax = jax_client.load("jax", "pjrt")
    try:
        return len(jax.devices(platform))
    except RuntimeError:  # jax's way to say that it has no such backend
        return 0

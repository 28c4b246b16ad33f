"""Compiles a module for TPUs that need not be there: libtpu from PyPI holds their compiler."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tpugraph.support.errors import RunError, UsageError
from tpugraph.support.suggestions import did_you_mean
from tpugraph.xla import jax_client, memory_layouts, mesh
from tpugraph.xla.mesh import DATA, Layout, Mesh, Spec
from tpugraph.xla.module import Module, Value

GIB = 2**30
LIBRARY = "TPU_LIBRARY_PATH"
"""Environment variable: the file of another libtpu than the installed one."""


@dataclass(frozen=True)
class Chip:
    """The memory in bytes and the peaks of one core, which runs one replica."""

    hbm: int  # that a program may take: what the core has, without what libtpu keeps
    flops: float  # per second, in bfloat16
    bandwidth: float  # bytes per second of HBM


CHIPS = {
    "v2": Chip(int(7.48 * GIB), 23e12, 350e9),
    "v3": Chip(int(15.48 * GIB), 61.5e12, 450e9),
    "v4": Chip(int(15.25 * GIB), 137.5e12, 614e9),
    "v5e": Chip(int(15.75 * GIB), 197e12, 819e9),
    "v5p": Chip(int(95.73 * GIB), 459e12, 2765e9),
    "v6e": Chip(int(31.24 * GIB), 918e12, 1640e9),
}
"""By generation. v2 to v4 have two cores per chip, so these are halves of what a chip has.

The memory is the limit that libtpu 0.0.52 states when it refuses a step. The peaks are from the pages of each
generation in the Cloud TPU documentation (cloud.google.com/tpu/docs/v3 and so on), per chip: v2 46 teraflops in bfloat16 and
700 GB/s; v3 123, 900; v4 275, 1228; v5e 197, 819; v5p 459, 2765; v6e 918, 1640.
"""

TOPOLOGIES: dict[str, int] = {
    "v2:2x2": 8, "v2:4x4": 32,
    "v3:2x2": 8, "v3:4x4": 32, "v3:4x8": 64, "v3:8x8": 128,
    "v4:1x1x1": 2, "v4:2x2x1": 8, "v4:2x2x2": 16, "v4:2x2x4": 32, "v4:2x4x4": 64, "v4:4x4x4": 128,
    "v5e:1x1": 1, "v5e:2x2": 4, "v5e:2x4": 8, "v5e:4x4": 16, "v5e:4x8": 32, "v5e:8x8": 64, "v5e:8x16": 128,
    "v5e:16x16": 256,
    "v5p:1x1x1": 1, "v5p:2x2x1": 4, "v5p:2x2x2": 8, "v5p:2x2x4": 16, "v5p:2x4x4": 32, "v5p:4x4x4": 64,
    "v6e:1x1": 1, "v6e:2x2": 4, "v6e:2x4": 8, "v6e:4x4": 16, "v6e:4x8": 32, "v6e:8x8": 64, "v6e:8x16": 128,
    "v6e:16x16": 256,
}  # fmt: skip
"""The topologies that libtpu 0.0.52 was seen to compile for, with their cores."""


@dataclass(frozen=True)
class Cost:
    """What a compiled step takes of one core, in bytes; of a step, the loop's body is counted once."""

    # by kind: arguments, outputs, aliased (outputs in the place of arguments), temporaries, code
    memory: dict[str, int]
    collectives: dict[str, int]  # by kind, what collectives make on each core in one step
    gathered: dict[str, int]  # of sharded variables, by name, the whole that each core gathers in one step

    @classmethod
    def of(cls, executable: Any, text: str, sharded: Mapping[str, Sequence[int]]) -> Cost:
        """The cost of an executable, whose HLO is ``text``; ``sharded`` has the shapes of sharded variables."""
        stats = executable.get_compiled_memory_stats()
        memory = {
            "arguments": stats.argument_size_in_bytes,
            "outputs": stats.output_size_in_bytes,
            "aliased": stats.alias_size_in_bytes,
            "temporaries": stats.temp_size_in_bytes,
            "code": stats.generated_code_size_in_bytes,
        }
        return cls(memory, memory_layouts.collectives(text), memory_layouts.gathered(text, sharded))

    @property
    def peak(self) -> int:
        """Bytes of memory that one core needs."""
        return sum(self.memory.values()) - 2 * self.memory["aliased"]

    @property
    def step_seconds(self) -> float | None:
        """The least time of one step; None of devices whose peaks are not known."""
        return None

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it, with what follows from it."""
        return {**asdict(self), "peak": self.peak, "step_seconds": self.step_seconds}


@dataclass(frozen=True)
class Compiled(Cost):
    """The TPU compiler's figures."""

    topology: str
    cores: int  # all of the topology; the module runs on num_replicas of them
    num_replicas: int
    seconds: float  # how long it took to compile
    flops: float  # of one step
    bytes_accessed: float  # bytes read and written in one step
    infeed_bytes: int  # bytes of one step's batch on one core
    tensors: tuple[memory_layouts.Placed, ...]  # the largest tensors, as the core lays them out
    most_live: int = 0  # the most bytes that are live at once, on the chip and in HBM

    @property
    def chip(self) -> Chip:
        return CHIPS[self.topology.partition(":")[0]]

    @property
    def step_seconds(self) -> float:
        """The least time of one step that the peaks of the core allow."""
        return max(self.flops / self.chip.flops, self.bytes_accessed / self.chip.bandwidth)

    @property
    def share_of_peak(self) -> float:
        """The share of the core's peak operations per second that a step of that time makes use of, 0 to 1."""
        return self.flops / self.chip.flops / self.step_seconds if self.step_seconds else 0.0

    @property
    def bound_by(self) -> str:
        """What the least time comes from: ``compute`` or ``memory``."""
        slower = self.flops / self.chip.flops > self.bytes_accessed / self.chip.bandwidth
        return "compute" if slower else "memory"

    def as_dict(self) -> dict[str, Any]:
        chip, tensors = self.chip, [asdict(tensor) | {"on_chip": tensor.on_chip} for tensor in self.tensors]
        return {**super().as_dict(), "tensors": tensors, "hbm": chip.hbm, "peak_flops": chip.flops, "bandwidth": chip.bandwidth,
                "share_of_peak": self.share_of_peak, "bound_by": self.bound_by,
                "all_reduce_bytes": self.collectives.get("all-reduce", 0)}  # fmt: skip


def unknown(topology: str, known: Iterable[str]) -> UsageError:
    question = did_you_mean(topology, known, "")
    return UsageError(f"there is no topology '{topology}'",
                      fix=f"{question} `tpugraph compile --topologies` lists them".strip())  # fmt: skip


def check(topology: str, num_replicas: int, mesh: Mesh | None = None) -> None:
    """Raise a UsageError where a topology is unknown or has too few cores for the replicas, or for a mesh."""
    if topology not in TOPOLOGIES:
        raise unknown(topology, TOPOLOGIES)
    cores, wanted = TOPOLOGIES[topology], num_replicas if mesh is None else mesh.size
    if wanted > cores:
        enough = [t for t, n in TOPOLOGIES.items() if n >= wanted and t.split(":")[0] == topology.split(":")[0]]
        larger = f"--topology={enough[0]}, or " if enough else ""
        what = f"the graph has {wanted} replicas" if mesh is None else f"the mesh {mesh} has {wanted} devices"
        smaller = f"convert with --num_replicas={cores}" if mesh is None else f"--mesh={DATA}:{cores}"
        raise UsageError(f"{topology} has {cores} cores, and {what}", fix=larger + smaller)


def compile_for(module: Module, topology: str, layout: Layout | None = None) -> Compiled:
    """Compile the step of a core with the real compiler for a TPU that need not be there; ``layout`` has XLA divide it."""
    cores = module.num_replicas if layout is None else layout.mesh.size
    check(topology, cores, layout.mesh if layout else None)
    devices = _devices(topology)
    used = devices[:cores]
    client = jax_client.load("jaxlib.xla_client", "tpu")
    specs: dict[Value, Spec] = {}
    if layout is None:
        parsed, options = jax_client.parse(module.code), jax_client.options(cores, used)
    else:
        specs = layout.specs(module)
        parsed, options = mesh.annotated(module, layout, specs), mesh.options(layout, used)
    started = time.perf_counter()
    try:
        executable = used[0].client.compile(parsed, client.DeviceList(tuple(used)), options)
    except jax_client.load("jax", "tpu").errors.JaxRuntimeError as error:
        raise jax_client.refused(error, topology) from error
    seconds = time.perf_counter() - started
    costs, text = executable.cost_analysis(), executable.hlo_modules()[0].to_string()
    names = tuple(v.name if v.kind == "variable" else f"{v.kind} {v.name}" for v in module.arguments)
    of_core = {v: v.bytes if layout is None else v.bytes // layout.mesh.pieces(specs[v]) for v in module.arguments}
    infeed = sum(of_core[v] for v in module.arguments if v.kind == "infeed") // module.iterations
    cost = Cost.of(executable, text, mesh.sharded_shapes(module, specs))
    return Compiled(
        **vars(cost), topology=topology, cores=len(devices), num_replicas=cores, seconds=seconds,
        flops=float(costs.get("flops", 0)), bytes_accessed=float(costs.get("bytes accessed", 0)),
        infeed_bytes=infeed, tensors=memory_layouts.largest(text, names),
        most_live=executable.get_compiled_memory_stats().peak_memory_in_bytes,
    )  # fmt: skip


def _devices(topology: str) -> list[Any]:
    jax_client.load("libtpu", "tpu")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # do not look for a TPU machine's metadata server
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # only devices must not be shared, and none is used
    found = jax_client.load("jax.experimental.topologies", "tpu")
    try:
        return list(found.get_topology_desc(platform="tpu", topology_name=topology).devices)
    except jax_client.load("jax", "tpu").errors.JaxRuntimeError as error:
        said = str(error).splitlines()[0][:200]
        if own := os.environ.get(LIBRARY):
            raise RunError(f"the compiler that {LIBRARY}={own} names has no topology '{topology}': {said}",
                           fix=f"unset {LIBRARY}: the installed libtpu is taken") from error  # fmt: skip
        raise RunError(f"libtpu has no topology '{topology}': {said}",
                       fix="python -m pip install -U libtpu") from error  # fmt: skip

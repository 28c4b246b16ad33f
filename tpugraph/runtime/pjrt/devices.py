"""A compiled module on the devices of a PJRT client: jax and NumPy only, no TensorFlow.

Processes that were joined, by :mod:`tpugraph.runtime.pjrt.processes` or ``jax.distributed.initialize``, run one module on the
devices of all. Each provides the batches of its own cores, and all get the outputs of every core.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tpugraph.runtime.pjrt.processes import explaining_errors
from tpugraph.support.errors import RunError
from tpugraph.support.process import in_thread
from tpugraph.xla import jax_client, mesh
from tpugraph.xla.mesh import Layout, Spec
from tpugraph.xla.module import HELD, Module, Value
from tpugraph.xla.topologies import Cost

Array = np.ndarray[Any, Any]
Placed = list[Any]  # for each infeed argument a jax.Array over the cores
_PIECE = 1 << 26  # bytes
_CORE = "core"  # the axis of the devices without a layout
_PER_CORE = ("infeed", "outfeed", "shard")  # the kinds of values that differ between cores


class Devices:
    """A module compiled for devices, and its variables on them. Each device runs the program of a core; with a ``layout``, XLA
    partitions the program of one core over all devices.

    Attributes:
        seconds: the compile time.
        own: the indices of the cores that this process drives; with a layout there is one.
        first: whether this process drives the first device.
        kind: the devices' own name for their kind.
        specs: the sharding of each argument and result.
        notes: sentences for the report.
    """

    notes: Sequence[str] = ()

    def __init__(self, module: Module, layout: Layout | None = None, *, platform: str = "cpu") -> None:
        self.module = module
        self._jax = jax_client.load("jax", "pjrt")
        client = jax_client.load("jaxlib.xla_client", "pjrt")
        self.layout: Layout | None = None
        self.specs: Mapping[Value, Spec]
        if layout is None:
            values = (*module.arguments, *module.results)
            self.specs = {value: ((_CORE,),) if value.kind in _PER_CORE else () for value in values}
            axes: Mapping[str, int] = {_CORE: module.num_replicas}
            self._devices = self._find(client, platform, module.num_replicas)
            code, options = jax_client.parse(module.code), jax_client.options(module.num_replicas, self._devices)
        else:
            self.layout = layout.shrunk(module)
            self.specs, axes = self.layout.specs(module), self.layout.mesh.axes
            self._devices = self._find(client, platform, self.layout.mesh.size)
            code = mesh.annotated(module, self.layout, self.specs)
            options = mesh.options(self.layout, self._devices)
            if len(self._devices) < layout.mesh.size:
                self.notes = [f"{len(self._devices)} of {layout.mesh.size} devices train: more do not divide the batch"]
        self._mesh = self._jax.sharding.Mesh(np.array(self._devices).reshape([*axes.values()]), tuple(axes))
        here = self._devices[0].client.process_index()
        driven = [number for number, device in enumerate(self._devices) if device.process_index == here]
        self.first = 0 in driven
        self.own = driven if layout is None else [0]
        self.kind = str(self._devices[0].device_kind)
        shared = next((value for value in module.arguments if value.kind == "shard"), None)
        if shared is not None and self.processes > 1:
            raise RunError(f"the cores share the rows of '{shared.name}', and no process has all of them to write a checkpoint",
                           fix="convert without --shard_tables, or train in one process")  # fmt: skip
        self._variables: dict[str, Any] = {}
        self._compile(client, code, options, platform)

    def _compile(self, client: Any, code: Any, options: Any, platform: str) -> None:
        specs = [self.specs[value] for value in (*self.module.arguments, *self.module.results)]
        checksum = zlib.crc32(repr(specs).encode(), zlib.crc32(self.module.code))
        if len(set(self._of_all(np.asarray([checksum])))) > 1:
            raise RunError("the processes do not compile the same step",
                           fix="give all of them the same model and options, and the same versions of tpugraph, TensorFlow and "
                           "jax")  # fmt: skip
        started = time.perf_counter()
        if platform == "cpu":
            jax_client.order_convolutions(code)
        elif platform == "gpu" and not (self.layout and self.layout.tf32):
            jax_client.exact_products(code)
        try:
            self._run = self._devices[0].client.compile_and_load(code, client.DeviceList(tuple(self._devices)), options)
        except self._jax.errors.JaxRuntimeError as error:
            raise jax_client.refused(error, platform) from error
        self.seconds = time.perf_counter() - started

    def _find(self, client: Any, platform: str, count: int) -> list[Any]:
        if platform == "cpu" and not jax_client.joined():
            return list(client.make_cpu_client(num_devices=count).devices())
        found = jax_client.devices(platform)
        if len(found) < count or (jax_client.joined() and len(found) != count):
            there = "is 1 device" if len(found) == 1 else f"are {len(found)} devices"
            fix = f"--mesh={mesh.DATA}:{len(found)}" if self.layout else f"convert with --num_replicas={len(found)}"
            raise RunError(f"the step is for {count} devices, and there {there}", fix=fix)
        return sorted(found, key=lambda device: (device.process_index, device.id))[:count]

    @cached_property
    def cost(self) -> Cost:
        """Memory and collectives of the step on a device."""
        sharded = mesh.sharded_shapes(self.module, self.specs)
        return Cost.of(self._run, self._run.hlo_modules()[0].to_string(), sharded)

    def about(self) -> dict[str, Any]:
        """The layout for the report, by variable: ``sharded`` has the mesh axes of each dimension, ``gathered`` the bytes that each
        device gathers of it in a step.
        """
        if self.layout is None:
            return {}
        sharded = {name: [list(axes) for axes in spec] for name, spec in mesh.sharded(self.module, self.specs).items()}
        return {"mesh": str(self.layout.mesh), "collectives": self.cost.collectives, "gathered": self.cost.gathered,
                "sharded": sharded}  # fmt: skip

    @property
    def processes(self) -> int:
        return len({device.process_index for device in self._devices})

    # ------------------------------------------------------------------ variables

    def put(self, values: Mapping[str, Array]) -> None:
        for value in self._arguments(*HELD):
            if value.name in values:
                self._variables[value.name] = self._place(
                    value, np.asarray(values[value.name], value.dtype).__getitem__
                )

    def get(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        """The values of variables; that of a table that the cores share has the shards of all cores."""
        return {name: self._whole(self._variables[name]) for name in (self._variables if names is None else names)}

    @property
    def written(self) -> list[str]:
        return [value.name for value in self.module.results if value.kind in HELD]

    # ------------------------------------------------------------------ running

    def stage(self, infeed: Sequence[Sequence[Array]]) -> Placed:
        """Put the batches of each core of this process, each [iterations, ...], on the devices, from any thread."""
        placed = []
        for value, parts in zip(self._arguments("infeed"), zip(*infeed, strict=True), strict=True):
            own = {core: np.asarray(part, value.dtype) for core, part in zip(self.own, parts, strict=True)}
            placed.append(self._place(value, partial(_at, own, value.shape[0])))
        return placed

    def run(self, count: int, seed: tuple[int, int], infeed: Placed, host: Mapping[str, Array] | None = None
            ) -> tuple[list[list[Array]], dict[str, Array]]:  # fmt: skip
        """Run steps; returns the outfeed of every core, each [iterations, ...], and the cluster's results, equal on all cores."""
        staged = iter(infeed)
        arguments = []
        for value in self.module.arguments:
            if value.kind in HELD:
                arguments.append(self._variables[value.name])
            elif value.kind == "infeed":
                arguments.append(next(staged))
            else:
                given = {"count": count, "seed": seed}.get(value.kind)
                whole = np.asarray((host or {})[value.name] if given is None else given, value.dtype)
                arguments.append(self._place(value, whole.__getitem__))
        with explaining_errors():
            return self._results(self._run.execute_sharded(arguments).disassemble_into_single_device_arrays())

    def _results(self, found: Sequence[Sequence[Any]]) -> tuple[list[list[Array]], dict[str, Array]]:
        with self._jax.enable_x64(True):
            join = self._jax.make_array_from_single_device_arrays
            made = {value: join(self._shape(value), self._sharding(value), list(arrays))
                    for value, arrays in zip(self.module.results, found, strict=True)}  # fmt: skip
        self._variables |= {value.name: array for value, array in made.items() if value.kind in HELD}
        sent = [self._whole(array).reshape(self.module.num_replicas, *value.shape) for value, array in made.items()
                if value.kind == "outfeed"]  # fmt: skip
        outputs = {value.name: self._whole(array) for value, array in made.items() if value.kind == "output"}
        return [list(of_core) for of_core in zip(*sent, strict=True)], outputs

    def _whole(self, array: Any) -> Array:
        """The whole value of an array on the devices; its shards are gathered from all processes where it is sharded over them."""
        own = array.is_fully_addressable or array.is_fully_replicated
        return np.asarray(array) if own else self._allgather(array)

    def _of_all(self, own: Array) -> Array:
        """Arrays of all processes along dimension 0."""
        return own if self.processes == 1 else self._allgather(own)

    def _allgather(self, array: Any) -> Array:
        """All-gather over the processes: the whole value of a sharded array, or their arrays along dimension 0."""
        gather = jax_client.load("jax.experimental.multihost_utils", "pjrt").process_allgather
        with explaining_errors(), self._jax.enable_x64(True):
            return np.asarray(gather(array, tiled=True))

    def agree(self, number: int) -> int:
        """The maximum over the processes."""
        return int(self._of_all(np.asarray([number], np.int64)).max())

    def values_of_first(self, step: int, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """The initial values of the first process, for all: each may have drawn its own weights.

        Raises:
            RunError: the processes start at different steps.
        """
        names = sorted(values) if self.processes > 1 else []
        sums = [zlib.crc32(_bytes_of(values[name]).data) for name in names]
        of_all = self._of_all(np.asarray([[step, *sums]], np.int64))
        if len(set(of_all[:, 0])) > 1:
            raise RunError(f"the processes begin with different steps: {', '.join(map(str, of_all[:, 0]))}",
                           fix="a --model_dir, or a --checkpoint, in a folder that all hosts share")  # fmt: skip
        differ = [name for name, column in zip(names, of_all.T[1:], strict=True) if len(set(column)) > 1]
        return {**values, **{name: self._of_first(values[name]) for name in differ}}

    def _of_first(self, array: Array) -> Array:
        """Broadcast from the first process, piece by piece, since a whole table need not fit a device."""
        send = jax_client.load("jax.experimental.multihost_utils", "pjrt").broadcast_one_to_all
        parts = np.array_split(_bytes_of(array), -(-array.nbytes // _PIECE) or 1)
        with explaining_errors():
            return np.concatenate([send(part, self.first) for part in parts]).view(array.dtype).reshape(array.shape)

    def _place(self, value: Value, shard: Callable[[Any], Array]) -> Any:
        """Put an argument on the devices; ``shard`` gives the part of it at an index."""
        with self._jax.enable_x64(True):
            return self._jax.make_array_from_callback(self._shape(value), self._sharding(value), shard)

    def _shape(self, value: Value) -> tuple[int, ...]:
        return (self.module.num_replicas * value.shape[0], *value.shape[1:]) if value.kind in _PER_CORE else value.shape

    def _sharding(self, value: Value) -> Any:
        spec = self._jax.sharding.PartitionSpec(*(axes or None for axes in self.specs[value]))
        return self._jax.sharding.NamedSharding(self._mesh, spec)

    def _arguments(self, *kinds: str) -> list[Value]:
        return [value for value in self.module.arguments if value.kind in kinds]


def _at(own: Mapping[int, Array], rows: int, index: Sequence[slice]) -> Array:
    """A slice of the cores' values concatenated along dimension 0, each of so many rows; it lies within the value of one core."""
    return own[(index[0].start or 0) // rows][:, *index[1:]]


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


Read = Callable[[int], tuple[int, list[list[Array]]]]
"""Reads the batches of a number of steps; returns the number of steps before the end of the data, and each core's batches."""
Stage = Callable[[list[list[Array]]], list[Any]]  # puts batches on the devices


@dataclass(frozen=True)
class Staged:
    steps: int  # the steps read; fewer than requested where the data ended
    infeed: list[list[Array]]  # for each core of this process its batches, each [iterations, ...]
    placed: list[Any]  # the same on the devices


class Prefetcher:
    """Batches read at most one loop ahead.

    Attributes:
        partly_taken: whether a loop has taken some of the prefetched batches and others are left.
    """

    def __init__(self, stage: Stage, read: Read, before: Callable[[], None]) -> None:
        self._place = stage
        self._read = read
        self._before = before
        self.partly_taken = False
        self._next: Future[Staged] | None = None
        self._wanted = 0  # the steps that were requested of the next batches

    def take(self, count: int) -> Staged:
        """The batches of at most ``count`` steps: the prefetched ones, else read now."""
        if self._next is None:
            return self._stage(count)
        ready, self._next = self._next, None
        found = ready.result()
        self._wanted -= count
        self.partly_taken = self._wanted > 0
        if self.partly_taken:
            self._next = Future()
            self._next.set_result(self._rest(found, count))
        return replace(found, steps=min(found.steps, count))

    def available(self, count: int) -> int:
        """The number of steps, at most ``count``, that the next loop has batches for."""
        return count if self._next is None else min(count, self._wanted)

    def begin(self, count: int) -> None:
        """Start to read the next loop's batches, unless some are prefetched."""
        if count and self._next is None:
            self._wanted = count
            self._next = in_thread(partial(self._stage_ahead, count), "tpugraph-input")

    @property
    def waiting(self) -> bool:
        """Whether batches are prefetched or being read."""
        return self._next is not None

    def forget(self) -> None:
        """Drop the prefetched batches, after reading has finished."""
        if self._next is not None:
            self._next.exception()  # waits
            self._next, self.partly_taken = None, False

    def _stage_ahead(self, count: int) -> Staged:
        self._before()
        return self._stage(count)

    def _stage(self, count: int) -> Staged:
        steps, infeed = self._read(count)
        return Staged(steps, infeed, self._place(infeed))

    def _rest(self, staged: Staged, taken: int) -> Staged:
        """The remaining batches after a shorter loop has taken the first."""
        infeed = [[np.roll(rows, -taken, axis=0) for rows in batches] for batches in staged.infeed]
        return Staged(max(staged.steps - taken, 0), infeed, self._place(infeed))

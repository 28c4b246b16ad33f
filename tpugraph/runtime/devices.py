"""A compiled module on the devices of a PJRT client: jax and NumPy only, no TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tpugraph.errors import RunError
from tpugraph.runtime import xla
from tpugraph.runtime.module import Module, Value

Array = np.ndarray[Any, Any]


class Devices:
    """A module compiled for N devices, and its variables on them.

    Args:
        module: the program of each core.
        platform: ``cpu`` makes as many virtual devices as the module has cores; ``gpu`` and ``tpu`` take real ones.

    Attributes:
        seconds: how long the compiler took.

    Raises:
        RunError: jax is not installed, there are too few devices, or the compiler refuses the module.
    """

    def __init__(self, module: Module, *, platform: str = "cpu") -> None:
        self.module = module
        self._jax = xla.load("jax", "pjrt")
        self._xc = xla.load("jaxlib.xla_client", "pjrt")
        count = module.num_replicas
        self._devices = self._find(platform, count)
        mesh = self._jax.sharding.Mesh(np.array(self._devices), ("core",))
        spec = self._jax.sharding.PartitionSpec
        self._same = self._jax.sharding.NamedSharding(mesh, spec())
        self._split = self._jax.sharding.NamedSharding(mesh, spec("core"))
        self._variables: dict[str, Any] = {}
        started = time.perf_counter()
        devices = self._xc.DeviceList(tuple(self._devices))
        try:
            self._run = self._devices[0].client.compile_and_load(
                xla.parse(module.code), devices, xla.options(count, self._devices)
            )
        except self._jax.errors.JaxRuntimeError as error:
            raise xla.refused(error, platform) from error
        self.seconds = time.perf_counter() - started

    def _find(self, platform: str, count: int) -> list[Any]:
        if platform == "cpu":
            return list(self._xc.make_cpu_client(num_devices=count).devices())
        try:
            found = self._jax.devices(platform)
        except RuntimeError as error:
            raise RunError(f"jax finds no {platform}: {str(error).splitlines()[0]}", fix="platform='cpu'") from error
        if len(found) < count:
            raise RunError(f"the program is for {count} cores, and there are {len(found)} devices",
                           fix=f"convert with --num_replicas={len(found)}")  # fmt: skip
        return list(found[:count])

    # ------------------------------------------------------------------ variables

    def put(self, values: Mapping[str, Array]) -> None:
        """Give every core these values of variables."""
        for value in self._of("variable"):
            array = np.asarray(values[value.name], value.dtype, order="C")
            self._variables[value.name] = self._place(array, [array] * len(self._devices), self._same, array.shape)

    def get(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        """The values of variables, as core 0 has them."""
        wanted = [v.name for v in self._of("variable")] if names is None else names
        return {name: np.asarray(self._variables[name].addressable_shards[0].data) for name in wanted}

    @property
    def written(self) -> list[str]:
        """The variables that a run changes."""
        return [value.name for value in self.module.results if value.kind == "variable"]

    # ------------------------------------------------------------------ running

    def run(
        self,
        count: int,
        seed: tuple[int, int],
        infeed: Sequence[Sequence[Array]],
        host: Mapping[str, Array] | None = None,
    ) -> tuple[list[list[Array]], dict[str, Array]]:
        """Run steps.

        Args:
            count: number of steps, at most the module's iterations.
            seed: of the random streams: a seed and the number of the first step.
            infeed: of each core, its staged batches, each [iterations, ...].
            host: values of the host by name.

        Returns:
            Of each core what it sent, each [iterations, ...]; and what the cluster returned, as core 0 has it.
        """
        fed = iter(zip(*infeed, strict=True))
        cores = len(self._devices)
        arguments = []
        for value in self.module.arguments:
            if value.kind == "variable":
                arguments.append(self._variables[value.name])
            elif value.kind == "infeed":
                parts = [np.asarray(part, order="C") for part in next(fed)]
                arguments.append(self._place(parts[0], parts, self._split, (cores * value.shape[0], *value.shape[1:])))
            else:
                plain = {"count": count, "seed": seed}.get(value.kind)
                array = np.asarray((host or {})[value.name] if plain is None else plain, value.dtype)
                arguments.append(self._place(array, [array] * cores, self._same, array.shape))
        return self._results(self._run.execute_sharded(arguments).disassemble_into_single_device_arrays())

    def _results(self, found: Sequence[Sequence[Any]]) -> tuple[list[list[Array]], dict[str, Array]]:
        sent: list[list[Array]] = [[] for _ in self._devices]
        outputs: dict[str, Array] = {}
        for value, arrays in zip(self.module.results, found, strict=True):
            if value.kind == "outfeed":
                for core, array in enumerate(arrays):
                    sent[core].append(np.asarray(array))
            elif value.kind == "output":
                outputs[value.name] = np.asarray(arrays[0])
            else:
                self._variables[value.name] = self._join(value, arrays)
        return sent, outputs

    def _join(self, value: Value, arrays: Sequence[Any]) -> Any:
        with self._jax.enable_x64(True):
            return self._jax.make_array_from_single_device_arrays(value.shape, self._same, list(arrays))

    def _place(self, like: Array, parts: Sequence[Array], sharding: Any, shape: tuple[int, ...]) -> Any:
        with self._jax.enable_x64(True):
            aval = self._jax.core.ShapedArray(shape, like.dtype)
            return self._xc.batched_device_put(aval, sharding, list(parts), self._devices)

    def _of(self, kind: str) -> list[Value]:
        return [value for value in self.module.arguments if value.kind == kind]

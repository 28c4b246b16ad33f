"""A step that XLA's own partitioner divides among the devices of a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tpugraph.runtime.pjrt.devices import Array, Devices, Placed
from tpugraph.xla import jax_client, mesh
from tpugraph.xla.mesh import Layout
from tpugraph.xla.module import HELD, Module, Value
from tpugraph.xla.topologies import Cost


class PartitionedDevices(Devices):
    """A module for one core, compiled for all devices of a mesh.

    Attributes:
        specs: the sharding of each argument and result.
        cost: memory and collectives of the step on a device.
    """

    fewer = "--mesh=data:{}"

    def __init__(self, module: Module, layout: Layout, *, platform: str = "cpu") -> None:
        self.module, self.layout = module, layout.shrunk(module)
        if self.layout.mesh.size < layout.mesh.size:
            self.notes = [f"{self.layout.mesh.size} of {layout.mesh.size} devices train: more do not divide the batch"]
        layout, self.specs, self.tf32 = self.layout, self.layout.specs(module), layout.tf32
        self._jax = jax_client.load("jax", "pjrt")
        client = jax_client.load("jaxlib.xla_client", "pjrt")
        self._devices = self._find(client, platform, layout.mesh.size)
        here = self._devices[0].client.process_index()
        self._local = [device for device in self._devices if device.process_index == here]
        self.own, self.first, self.kind = [0], self._devices[0] in self._local, str(self._devices[0].device_kind)
        grid = np.array(self._devices).reshape(list(layout.mesh.axes.values()))
        self._mesh = self._jax.sharding.Mesh(grid, tuple(layout.mesh.axes))
        self._same = self._jax.sharding.NamedSharding(self._mesh, self._jax.sharding.PartitionSpec())
        self._variables: dict[str, Any] = {}
        self._compile(client, mesh.annotated(module, layout, self.specs), mesh.options(layout, self._devices), platform)
        self.cost = Cost.of(self._run, self._run.hlo_modules()[0].to_string(), mesh.sharded_shapes(module, self.specs))

    def _sharding(self, value: Value) -> Any:
        axes = [of or None for of in self.specs[value]]
        return self._jax.sharding.NamedSharding(self._mesh, self._jax.sharding.PartitionSpec(*axes))

    def _spread(self, array: Array, value: Value) -> Any:
        with self._jax.enable_x64(True):
            return self._jax.make_array_from_callback(array.shape, self._sharding(value), lambda index: array[index])

    def about(self) -> dict[str, Any]:
        """The mesh, XLA's collectives, the sharded variables that they gather whole, and the shardings of variables."""
        lie = {name: [list(axes) for axes in spec] for name, spec in mesh.sharded(self.module, self.specs).items()}
        return {
            "mesh": str(self.layout.mesh),
            "collectives": self.cost.collectives,
            "gathered": self.cost.gathered,
            "sharded": lie,
        }

    def put(self, values: Mapping[str, Array]) -> None:
        for value in self._of(*HELD):
            if value.name in values:
                self._variables[value.name] = self._spread(np.asarray(values[value.name], value.dtype), value)

    def get(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        return {name: self._whole(self._variables[name]) for name in (self._variables if names is None else names)}

    def _whole(self, array: Any) -> Array:
        own = array.is_fully_addressable or array.is_fully_replicated
        return np.asarray(array) if own else self._allgather(array)

    def stage(self, infeed: Sequence[Sequence[Array]]) -> Placed:
        """Put global batches on the devices, each device's rows on it."""
        values = zip(self._of("infeed"), infeed[0], strict=True)
        return [self._spread(np.asarray(part, value.dtype), value) for value, part in values]

    def _results(self, found: Sequence[Sequence[Any]]) -> tuple[list[list[Array]], dict[str, Array]]:
        sent: list[Array] = []
        outputs: dict[str, Array] = {}
        for value, arrays in zip(self.module.results, found, strict=True):
            if value.kind in HELD:
                self._variables[value.name] = self._join(value.shape, self._sharding(value), arrays)
            elif value.kind == "outfeed":
                sent.append(np.asarray(arrays[0]))
            elif value.kind == "output":
                outputs[value.name] = np.asarray(arrays[0])
        return [sent], outputs

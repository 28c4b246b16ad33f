"""Trains a bundle with jax and NumPy alone, on a machine that may have no TensorFlow.

from tpugraph.runtime import pjrt

step = pjrt.load("step.tpugraph", platform="gpu")
for name, spec in step.inputs.items():
    print(name, spec.dtype, spec.shape)  # of one core and step
losses = step.train(batches)
step.save("step.tpugraph")
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tpugraph.runtime.pjrt import bundle
from tpugraph.runtime.pjrt.bundle import Bundle
from tpugraph.runtime.pjrt.devices import Devices
from tpugraph.runtime.pjrt.module_trial import try_apart
from tpugraph.runtime.pjrt.prefetch import Ahead
from tpugraph.support.errors import RunError
from tpugraph.xla.module import Value

Array = np.ndarray[Any, Any]
Batch = Sequence[Array]
"""The global batch of a step: an array for each input, [cores, ...] or with the rows of all cores one after the other."""


def load(path: str | os.PathLike[str], *, platform: str = "cpu", seed: int = 0) -> CompiledStep:
    """Read a bundle that ``tpugraph compile -o`` wrote, and compile it for the devices at hand.

    Args:
        path: the bundle.
        platform: ``cpu`` for virtual devices of this machine, ``gpu`` or ``tpu`` for real ones.
        seed: of the random streams of the cores.

    Raises:
        LoadError: no bundle, or a damaged one; its module is tried in another process first.
        RunError: jax is not installed, there are too few devices, or the compiler refuses the module.
    """
    held = bundle.read(path)
    try_apart(held.module, platform=platform)
    return CompiledStep(held, platform=platform, seed=seed)


class CompiledStep:
    """The training step of a bundle, compiled, with its variables on the devices.

    Args:
        held: the bundle.
        platform: see :func:`load`.
        seed: of the random streams of the cores.

    Attributes:
        num_replicas: the number of cores.
        iterations: the most steps of one call of the devices.
        trained: steps that the variables were trained.
    """

    def __init__(self, held: Bundle, *, platform: str = "cpu", seed: int = 0) -> None:
        self._bundle = held
        self._seed = seed
        self.num_replicas = held.module.num_replicas
        self.iterations = held.module.iterations
        self.trained = held.trained
        self._devices = Devices(held.module, platform=platform)
        self._devices.put(held.variables)

    @property
    def inputs(self) -> dict[str, Value]:
        """What a step takes on one core, by the name of the tensor that core 0 is fed: dtype and shape."""
        found = [v for v in self._bundle.module.arguments if v.kind == "infeed"]
        return {name: Value(v.kind, name, v.dtype, v.shape[1:])
                for name, v in zip(self._bundle.inputs, found, strict=True)}  # fmt: skip

    def train(self, batches: Iterable[Batch]) -> list[float]:
        """Train a step for each batch; the batches of the next loop are taken while the devices run.

        Returns:
            The loss of each step over the global batch; nothing where the bundle does not know which output it is.

        Raises:
            RunError: a batch of another shape or dtype.
        """
        source = iter(batches)
        ahead = Ahead(self._devices.stage, lambda count: self._gather(source, count), lambda: None)
        losses: list[float] = []
        try:
            while (staged := ahead.take(self.iterations)).steps:
                if staged.steps == self.iterations:
                    ahead.begin(self.iterations)
                sent, _ = self._devices.run(staged.steps, (self._seed, self.trained), staged.placed)
                self.trained += staged.steps
                losses += self._losses(sent, staged.steps)
                if staged.steps < self.iterations:
                    break
        finally:
            ahead.close()
        return losses

    def variables(self) -> dict[str, Array]:
        """The value of each variable, by name."""
        return self._devices.get()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a bundle with the variables as they are now, to go on from."""
        self._bundle.with_variables(self.variables(), self.trained).save(path)

    def _losses(self, sent: list[list[Array]], steps: int) -> list[float]:
        if self._bundle.loss is None:
            return []
        shares = [core[self._bundle.loss][:steps].reshape(steps, -1).sum(1) for core in sent]
        return [float(total) for total in np.sum(shares, axis=0)]

    def _gather(self, source: Iterator[Batch], count: int) -> tuple[int, list[list[Array]]]:
        """The next batches as the devices take them: of each core of this process, a buffer for each input."""
        specs = list(self.inputs.values())
        buffers = [[np.zeros((self.iterations, *spec.shape), spec.dtype) for spec in specs] for _ in self._devices.own]
        steps = 0
        for row, batch in enumerate(itertools.islice(source, count)):
            if len(batch) != len(specs):
                raise RunError(f"a batch has {len(batch)} arrays, and a step takes {len(specs)}",
                               fix=f"one each for {', '.join(self.inputs)}")  # fmt: skip
            for index, (spec, array) in enumerate(zip(specs, batch, strict=True)):
                parts = self._parts(spec, np.asarray(array))
                for buffer, core in zip(buffers, self._devices.own, strict=True):
                    buffer[index][row] = parts[core]
            steps = row + 1
        return steps, buffers

    def _parts(self, spec: Value, array: Array) -> Array:
        """The parts of the cores, [cores, ...]."""
        cores = self.num_replicas
        shapes = [(cores, *spec.shape), *([(cores * spec.shape[0], *spec.shape[1:])] if spec.shape else [])]
        if array.shape not in shapes or array.dtype.name != spec.dtype:
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise RunError(f"the batch for '{spec.name}' is {array.dtype}{list(array.shape)}, not {spec.dtype} {wanted}",
                           fix=f"{cores} cores take {list(spec.shape)} each")  # fmt: skip
        return array.reshape(shapes[0])

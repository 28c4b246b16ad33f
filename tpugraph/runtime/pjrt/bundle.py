"""A bundle: a training step that runs with jax and NumPy alone, on a machine that may have no TensorFlow.

from tpugraph.runtime import pjrt

step = pjrt.load("step.tpugraph", platform="gpu")
for name, spec in step.inputs.items():
    print(name, spec.dtype, spec.shape)  # of one core and step
losses = step.train(batches)
step.save("step.tpugraph")

``numpy.savez`` writes the file: ``manifest`` has the step's inputs and outputs as JSON, ``module`` is the StableHLO module as
MLIR bytecode, and the others are the values of the variables in their order (bfloat16, which NumPy's files lack, as its bits).
Each has a CRC-32, which tells a damaged file.
"""

from __future__ import annotations

import io
import itertools
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from tpugraph.runtime.pjrt.devices import Array, Devices, Prefetcher
from tpugraph.support.errors import LoadError, RunError
from tpugraph.support.files import write_atomically
from tpugraph.xla import jax_client
from tpugraph.xla.module import Module, Value

Batch = Sequence[Array]
"""The global batch of a step: an array per input, [cores, ...] or with the rows of all cores concatenated."""

VERSION = 3

BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError, TypeError,
          KeyError)  # fmt: skip
"""Errors of reading damaged content: a flipped bit may change the compression method, or ask for a password."""

_FIX = "write it again: tpugraph compile MODEL -o FILE"


@dataclass(frozen=True)
class Bundle:
    module: Module  # the same for every core
    variables: dict[str, Array]
    inputs: tuple[str, ...]  # the tensors fed to core 0, in order
    loss: int | None  # the index of the core's share of the loss in the outfeed; None where unknown
    trained: int = 0  # steps that the variables have been trained

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the file atomically; returns its bytes.

        Raises:
            LoadError: the place cannot be written.
        """
        arrays = [np.asarray(value) for value in self.variables.values()]
        held = {
            "format": "tpugraph bundle", "version": VERSION, "num_replicas": self.module.num_replicas,
            "iterations": self.module.iterations, "trained": self.trained, "loss": self.loss, "inputs": list(self.inputs),
            "arguments": [asdict(value) for value in self.module.arguments],
            "results": [asdict(value) for value in self.module.results],
            "variables": {name: array.dtype.name for name, array in zip(self.variables, arrays, strict=True)},
        }  # fmt: skip
        manifest, module = (np.frombuffer(data, np.uint8) for data in (json.dumps(held).encode(), self.module.code))
        packed = io.BytesIO()
        bits = (array.view(np.uint16) if array.dtype.name == "bfloat16" else array for array in arrays)
        np.savez_compressed(packed, *bits, manifest=manifest, module=module)
        write_atomically(Path(path), packed.getvalue())
        return packed.getbuffer().nbytes


def read(path: str | os.PathLike[str]) -> Bundle:
    try:
        with open(path, "rb") as file, np.load(file) as stored:  # np.load leaves a file open that is no zip file
            arrays = {name: stored[name] for name in stored.files}
        held = json.loads(arrays["manifest"].tobytes())
        if held["format"] == "tpugraph bundle" and held["version"] != VERSION:
            raise LoadError(f"the bundle '{path}' is of version {repr(held['version'])[:40]}, and this tpugraph reads {VERSION}",
                            fix="write it with this version: tpugraph compile MODEL -o FILE")  # fmt: skip
        code = arrays["module"].tobytes()
        arguments, results = (tuple(Value(**{**v, "shape": tuple(v["shape"])}) for v in held[kind])
                              for kind in ("arguments", "results"))  # fmt: skip
        variables = {name: _of_dtype(arrays[f"arr_{number}"], kind)
                     for number, (name, kind) in enumerate(held["variables"].items())}  # fmt: skip
    except FileNotFoundError:
        raise LoadError(f"there is no file '{path}'", fix="check the path") from None
    except OSError as error:
        raise LoadError(f"'{path}' cannot be read: {error.strerror or error}", fix="check the path") from error
    except BROKEN as error:
        words = str(error)[:200] or type(error).__name__
        raise LoadError(f"'{path}' is no bundle, or a damaged one: {words}", fix=_FIX) from error
    module = Module(code, held["num_replicas"], held["iterations"], arguments, results)
    return Bundle(module, variables, tuple(held["inputs"]), held["loss"], held["trained"])


def _of_dtype(array: Array, dtype: str) -> Array:
    return array.view(jax_client.load("ml_dtypes", "pjrt").bfloat16) if dtype == "bfloat16" else array


# --------------------------------------------------------------------------- training


def load(path: str | os.PathLike[str], *, platform: str = "cpu", seed: int = 0) -> CompiledStep:
    """Read a bundle that ``tpugraph compile -o`` wrote, and compile it for the devices at hand.

    Args:
        path: the bundle.
        platform: ``cpu`` for virtual devices of this machine, ``gpu`` or ``tpu`` for real ones.
        seed: of the random streams of the cores.

    Raises:
        LoadError: no bundle, or a damaged one.
        RunError: jax is not installed, there are too few devices, or the compiler refuses the module.
    """
    return CompiledStep(read(path), platform=platform, seed=seed)


class CompiledStep:
    """The training step of a bundle, compiled, with its variables on the devices.

    Args:
        bundle: what :func:`read` gives.
        platform: see :func:`load`.
        seed: of the random streams of the cores.

    Attributes:
        num_replicas: the number of cores.
        iterations: the most steps of one call of the devices.
        trained: steps that the variables were trained.
    """

    def __init__(self, bundle: Bundle, *, platform: str = "cpu", seed: int = 0) -> None:
        self._bundle = bundle
        self._seed = seed
        self.num_replicas = bundle.module.num_replicas
        self.iterations = bundle.module.iterations
        self.trained = bundle.trained
        self._devices = Devices(bundle.module, platform=platform)
        self._devices.put(bundle.variables)

    @property
    def inputs(self) -> dict[str, Value]:
        """The inputs of a step on one core, dtype and shape, by the name of the tensor fed to core 0."""
        found = [v for v in self._bundle.module.arguments if v.kind == "infeed"]
        return {
            name: replace(v, name=name, shape=v.shape[1:]) for name, v in zip(self._bundle.inputs, found, strict=True)
        }

    def train(self, batches: Iterable[Batch]) -> list[float]:
        """Train one step per batch; the next loop's batches are read while the devices run.

        Returns:
            The loss of each step over the global batch; empty where the bundle does not know the loss.

        Raises:
            RunError: a batch of another shape or dtype.
        """
        source = iter(batches)
        ahead = Prefetcher(self._devices.stage, lambda count: self._gather(source, count), lambda: None)
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
            ahead.forget()
        return losses

    def variables(self) -> dict[str, Array]:
        """The value of each variable, by name."""
        return self._devices.get()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a bundle with the current values of the variables, to resume from."""
        replace(self._bundle, variables={**self._bundle.variables, **self.variables()}, trained=self.trained).save(path)

    def _losses(self, sent: list[list[Array]], steps: int) -> list[float]:
        if self._bundle.loss is None:
            return []
        shares = [core[self._bundle.loss][:steps].reshape(steps, -1).sum(1) for core in sent]
        return [float(total) for total in np.sum(shares, axis=0)]

    def _gather(self, source: Iterator[Batch], count: int) -> tuple[int, list[list[Array]]]:
        """The next batches, for each core of this process a buffer per input."""
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

"""A session whose steps run on PJRT devices: the whole loop compiled, real all-reduces between cores.

TensorFlow reads the input and keeps the variables for checkpoints; the devices do the steps. Variables are moved only
when one side needs what the other has changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import graphdef, shapes
from tpugraph.ir import Graph
from tpugraph.program import Program
from tpugraph.runtime import checkpoint, stablehlo
from tpugraph.runtime.devices import Devices
from tpugraph.runtime.emulator import Lowered
from tpugraph.runtime.host_part import COUNT, take_host_part
from tpugraph.runtime.placement import Placement
from tpugraph.runtime.session import TPUSession


class PjrtSession(TPUSession):
    """A session on a converted graph whose cluster runs compiled, on one device per core.

    It is used as :class:`~tpugraph.runtime.session.TPUSession` is, and reads and writes the same checkpoints.

    Args:
        program: a Program, the path of a converted graph, or a GraphDef. Graphs that TPUEstimator built run as well.
        platform: ``cpu`` for virtual devices of this machine, ``gpu`` or ``tpu`` for real ones.
        rebind: file names in the graph to replace, old name to new.
        seed: of the random streams of the cores.

    Raises:
        ConversionError: control flow that no compiler takes.
        RunError: jax is not installed, or a compiler refuses the graph; the node is named.
    """

    def __init__(
        self,
        program: Program | str | os.PathLike[str] | Any,
        *,
        platform: str = "cpu",
        rebind: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        self._platform = platform
        self._seed = seed
        self._on_devices = False  # the devices have the newest values
        self._on_host = True  # TensorFlow has them
        super().__init__(program, rebind=rebind)
        self._add_variable_access()

    def _lower(self, graph: Graph, *, queues: bool, placement: Placement | None) -> Lowered:
        del queues, placement
        if any(node.outputs is None for node in graph):
            shapes.infer(graph)
        copy = graphdef.from_graph_def(graphdef.to_graph_def(graph), source=graph.source)
        self.module = stablehlo.lower(copy)
        self.devices = Devices(self.module, platform=self._platform)
        self._host = take_host_part(graph, self.module.iterations)
        return Lowered(graph, self.module.num_replicas, True, 0, 0)

    # ------------------------------------------------------------------ variables on both sides

    def _add_variable_access(self) -> None:
        """Reads and writes of the variables that the devices hold."""
        self._read: dict[str, Any] = {}
        self._feed: dict[str, Any] = {}
        writes = []
        with self._graph.as_default():
            for value in self.module.arguments:
                if value.kind != "variable":
                    continue
                handle = self._graph.get_operation_by_name(value.name).outputs[0]
                kind = tf.as_dtype(value.dtype)
                self._read[value.name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=kind)
                if value.name in self.devices.written:
                    self._feed[value.name] = tf.compat.v1.placeholder(kind, value.shape)
                    writes.append(tf.raw_ops.AssignVariableOp(resource=handle, value=self._feed[value.name]))
            self._write_all = tf.group(*writes)

    def _to_devices(self) -> None:
        if not self._on_devices:
            self.devices.put(self._session.run(self._read))
            self._on_devices = True

    def _to_host(self) -> None:
        if not self._on_host:
            values = self.devices.get(self.devices.written)
            self._session.run(self._write_all, {self._feed[name]: value for name, value in values.items()})
            self._on_host = True

    def _run(self, fetch: Any, feed: Mapping[str, Any] | None = None) -> Any:
        self._to_host()
        return super()._run(fetch, feed)

    def initialize(self) -> None:
        """Give every variable its first value and open the input."""
        super().initialize()
        self._on_devices = False

    def restore(self, path: str | os.PathLike[str], *, with_input: bool = True) -> int:
        """Restore variables, and the position of the input where the checkpoint has it; see TPUSession."""
        step = super().restore(path, with_input=with_input)
        self._on_devices = False
        return step

    def save(self, path: str | os.PathLike[str], *, with_input: bool = True, keep: int | None = checkpoint.KEEP) -> str:
        """Write a checkpoint; see TPUSession."""
        self._to_host()
        return super().save(path, with_input=with_input, keep=keep)

    # ------------------------------------------------------------------ training

    def _loop(self, count: int, *, summaries: bool = False) -> list[float]:
        self._require_open()
        self._set_limit(count)
        self._to_devices()
        staged = self._fetch([COUNT + ":0", *(name for names in self._host.staged for name in names)])
        steps = int(staged[0])
        if not steps:
            return []
        width = len(self._host.staged[0])
        infeed = [staged[1 + core * width : 1 + (core + 1) * width] for core in range(self.num_replicas)]
        sent, outputs = self.devices.run(steps, (self._seed, self._trained), infeed)
        self._on_host = False
        self._set_limit(steps)
        return self._deliver(sent, outputs, summaries=summaries)

    def _deliver(
        self, sent: list[list[np.ndarray[Any, Any]]], outputs: dict[str, np.ndarray[Any, Any]], *, summaries: bool
    ) -> list[float]:
        """Let the host's part read what the cores sent."""
        feed = {name: array for names, arrays in zip(self._host.outfeed, sent, strict=True)
                for name, array in zip(names, arrays, strict=True)}  # fmt: skip
        first = next(iter(outputs.values()), np.zeros((), np.float32))
        feed |= {place: outputs.get(name, first) for name, place in self._host.outputs.items()}
        names = ["tpugraph/dequeue:0"]
        if summaries and self._has_summaries:
            names.append("tpugraph/summaries:0")
        results = self._fetch(names, feed)
        if len(names) > 1:
            self._last_summary = results[1]
        return [float(v) for v in results[0]]

    def _fetch(self, names: list[str], feed: Mapping[str, Any] | None = None) -> list[Any]:
        """Run without moving variables."""
        return list(super()._run(names, feed))

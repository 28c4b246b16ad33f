"""The engine ``pjrt`` of a TPUSession: the loop compiled for PJRT devices, with all-reduces between cores.

TensorFlow reads the input and keeps the variables for checkpoints; the devices run the steps. The host's input loop stages the
batches of a whole loop in place of the infeed, one loop ahead, and its output loop reads the devices' results in place of the
outfeed. Variables are copied only when one side needs a value that the other has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.engine import LOSSES, SUMMARIES, Engine, Trained, TrainingLoop, trained
from tpugraph.runtime.graph_session import GraphSession
from tpugraph.runtime.host_part import COUNT, LIMIT, take_host_part
from tpugraph.runtime.pjrt.devices import Devices, Prefetcher
from tpugraph.runtime.timeline import DEVICE, INFEED, INPUT, OFF, OUTFEED, Timeline
from tpugraph.support.errors import RunError
from tpugraph.tables.sharding import shards_of
from tpugraph.xla import stablehlo
from tpugraph.xla.mesh import Layout
from tpugraph.xla.module import HELD, Value

Array = np.ndarray[Any, Any]

GLOBAL_STEP = "tpugraph/global_step:0"


def compile_cluster(graph: Graph, platform: str, layout: Layout | None) -> Devices:
    """The cluster of a TPU graph, compiled for devices; the graph is not changed."""
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    return Devices(stablehlo.lower(graphdef.copy(graph)), layout, platform=platform)


class CompiledLoop(Engine):
    """A TPU graph's loop on PJRT devices, one per core, and its host part in TensorFlow."""

    def __init__(self, graph: Graph, devices: Devices, *, seed: int, timeline: Timeline = OFF) -> None:
        super().__init__(devices.notes)
        self.writes_files = devices.first
        self.module = devices.module
        self.devices = devices
        self._seed = seed
        self._timeline = timeline
        self._host = take_host_part(graph, self.module.iterations)
        self._host_values = [value.name for value in self.module.arguments if value.kind == "host"]
        before = graph.ancestors([graph.tensor(GLOBAL_STEP).node])
        self._counts = {node.name for node in before if node.op in ops.RESOURCE_VARIABLES}
        self._shards = {name: [shard.name for shard in shards] for name, shards in shards_of(graph).items()}
        self._on_devices = False  # the devices have the values of TensorFlow, or newer ones
        self._stale: set[str] = set()  # variables with newer values on the devices
        self._no_position = ""  # why the input's position cannot be saved
        self._ahead = Prefetcher(self._stage, self._read, self._hold)

    def attach(self, host: GraphSession) -> None:
        self._session = host
        self._reads: dict[str, Any] = {}
        self._writes: dict[str, tuple[Any, list[Any]]] = {}
        with host.graph.as_default():
            for value in self.module.arguments:
                if value.kind in HELD:
                    names = self._shards.get(value.name, [value.name])
                    handles = [host.graph.get_operation_by_name(name).outputs[0] for name in names]
                    self._reads[value.name], write = _access(value, handles)
                    if value.name in self.devices.written:
                        self._writes[value.name] = write

    def report(self) -> dict[str, Any]:
        return {**self.devices.about(), "devices": self.devices.kind, "processes": self.devices.processes,
                "own_streams": self.module.facts.get("own_streams", []),
                "lowering_seconds": round(sum(self.module.seconds.values()), 3),
                "compile_seconds": round(self.devices.seconds, 3)}  # fmt: skip

    # ------------------------------------------------------------------ variables on both sides

    def flush_variables(self, fetch: Any = None) -> None:
        """Copy the newest values to TensorFlow for a fetch: all variables, unless it is the step counter alone."""
        counts = isinstance(fetch, str) and fetch == GLOBAL_STEP
        names = self._stale & self._counts if counts else set(self._stale)
        if names:
            values = self.devices.get(sorted(names))
            feed = {self._writes[name][0]: value for name, value in values.items()}
            self._session.run([self._writes[name][1] for name in values], feed)
            self._stale -= names

    def agree(self, number: int) -> int:
        return self.devices.agree(number)

    def variables_changed(self) -> None:
        self._on_devices = False

    def input_changed(self) -> None:
        self._ahead.forget()

    def close(self) -> None:
        self._ahead.forget()

    # ------------------------------------------------------------------ input

    def available(self, steps: int) -> int:
        return self._ahead.available(steps)

    def save_position(self) -> str:
        if self._ahead.partly_taken:
            return "a loop took a part of what was read for it"
        if not self._ahead.waiting:  # else it was saved before more was read
            self._hold()
        return self._no_position

    def _hold(self) -> None:
        if self._host.positions and not self._no_position:
            try:
                self._session.run(self._host.positions)
            except RunError as error:  # an input whose state cannot be saved, which training does not need
                self._no_position = error.fault

    def _read(self, count: int) -> tuple[int, list[list[Array]]]:
        """The batches of ``count`` steps for the cores of this process; the others' are read and dropped."""
        if not self._host.staged:
            return count, [[] for _ in self.devices.own]
        names = [f"{batch.node.name}:{batch.port}" for core in self.devices.own for batch in self._host.staged[core]]
        with self._timeline.span(INPUT):
            steps, *found = self._session.run([COUNT + ":0", *names], {LIMIT + ":0": count})
        width = len(self._host.staged[0])
        return int(steps), [found[start : start + width] for start in range(0, len(found), width)]

    def _stage(self, infeed: list[list[Array]]) -> list[Any]:
        with self._timeline.span(INFEED):
            return self.devices.stage(infeed)

    # ------------------------------------------------------------------ steps

    def train(self, loop: TrainingLoop) -> Trained:
        """Run a training loop, and read the input of the next one meanwhile."""
        if not self._on_devices:
            self.devices.put(self.devices.values_of_first(loop.trained, self._session.run(self._reads)))
            self._on_devices = True
        staged = self._ahead.take(loop.steps)
        steps = -self.agree(-staged.steps)  # several processes all end with the shortest input
        if not steps:
            return Trained([])
        if steps == loop.steps:
            self._ahead.begin(loop.following)
        names = [name if ":" in name else f"{name}:0" for name in self._host_values]  # else it is an operation
        host = dict(zip(self._host_values, self._session.run(names), strict=True)) if names else {}
        with self._timeline.span(DEVICE):
            sent, outputs = self.devices.run(steps, (self._seed, loop.trained), staged.placed, host)
        self._stale.update(self.devices.written)
        self._session.set_steps(steps)
        with self._timeline.span(OUTFEED):
            return self._deliver(sent, outputs, loop)

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Refuse: evaluation and prediction run on other engines, which :mod:`tpugraph.runtime.engines` chooses."""
        raise RunError(f"a loop of '{device}' cannot run on PJRT devices, which train alone", fix="engine='emulator'")

    def _deliver(self, sent: list[list[Array]], outputs: dict[str, Array], loop: TrainingLoop) -> Trained:
        """Feed the host's part with the cores' outputs."""
        feed = {f"{place.node.name}:0": array for places, arrays in zip(self._host.outfeed, sent, strict=True)
                for place, array in zip(places, arrays, strict=True)}  # fmt: skip
        first = next(iter(outputs.values()), np.zeros((), np.float32))
        feed |= {f"{place.node.name}:0": outputs.get(name, first) for name, place in self._host.outputs.items()}
        losses, *summaries = self._session.run([LOSSES, SUMMARIES] if loop.summaries else [LOSSES], feed)
        return trained(losses, loop, *summaries)


def _access(value: Value, handles: Sequence[Any]) -> tuple[Any, tuple[Any, list[Any]]]:
    """The tensor with the value of a variable, or of a table's concatenated shards; and the placeholder and ops to write it."""
    kind, count = tf.as_dtype(value.dtype), len(handles)
    parts = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=kind) for handle in handles]
    if value.kind == "variable":
        fed = tf.compat.v1.placeholder(kind, value.shape)
        return parts[0], (fed, [tf.raw_ops.AssignVariableOp(resource=handles[0], value=fed)])
    fed = tf.compat.v1.placeholder(kind, (count * value.shape[0], *value.shape[1:]))
    given = zip(handles, tf.split(fed, count), strict=True)
    writes = [tf.raw_ops.AssignVariableOp(resource=handle, value=part) for handle, part in given]
    return tf.concat(parts, 0), (fed, writes)

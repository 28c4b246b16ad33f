"""The engine ``pjrt`` of a TPUSession: the loop compiled for PJRT devices, with all-reduces between cores.

TensorFlow reads the input and keeps the variables for checkpoints; the devices do the steps. The host's input loop stages the batches
of a whole loop in place of the infeed, one loop ahead, and its output loop reads what the devices gave in place of the outfeed.
Variables are copied only when one side needs what the other has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import analysis, ops
from tpugraph.analysis import in_cluster, shapes
from tpugraph.control_flow.loop_lists import stack_iterations
from tpugraph.ir import Graph, Node, Tensor, attrs, graphdef
from tpugraph.ir.builder import Builder
from tpugraph.runtime.emulator.emulation import clear_places, lower_system
from tpugraph.runtime.emulator.end_of_data import stop_at_end_of_data
from tpugraph.runtime.emulator.reads import read_together
from tpugraph.runtime.engine import LOSSES, SUMMARIES, Trained, TrainingLoop, trained
from tpugraph.runtime.engine_choice import Choice
from tpugraph.runtime.graph_session import GraphSession
from tpugraph.runtime.pjrt.devices import Devices, joined
from tpugraph.runtime.pjrt.prefetch import Ahead
from tpugraph.runtime.timeline import DEVICE, INFEED, INPUT, OFF, OUTFEED, Timeline
from tpugraph.support.errors import RunError, TpuGraphError
from tpugraph.tables.sharding import shards_of
from tpugraph.xla import stablehlo
from tpugraph.xla.module import HELD, Value

COUNT = "tpugraph/staged/count"
"""The number of whole steps that were staged, int32 []."""

LIMIT = "tpugraph/staged/limit"
"""Fed with the number of steps to stage, int32 []: they may be those of a later loop than the one whose results are read."""

_INT32 = attrs.dtype("int32")
_VARIANT = attrs.dtype("variant")


@dataclass
class HostPart:
    """What to fetch and what to feed, by tensor name.

    Attributes:
        staged: of each core, the batches for its infeed, each [iterations, ...].
        outfeed: of each core, where to feed what it sent, each [iterations, ...].
        outputs: where to feed what the cluster returned, by the name of the tensor that it was.
        positions: ops that hold the position of the input for the next checkpoint, whatever is read after them.
    """

    staged: list[list[str]] = field(default_factory=list)
    outfeed: list[list[str]] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    positions: list[str] = field(default_factory=list)


def take_host_part(graph: Graph, iterations: int) -> HostPart:
    """Cut the cluster out of a TPU graph that has its entry points, and leave the host's part, in place.

    Args:
        graph: the TPU graph, with shapes.
        iterations: the most steps of a loop.

    Raises:
        RunError: infeed or outfeed are not handled in a loop.
    """
    found = HostPart()
    puts = analysis.by_core(graph.of_type("InfeedEnqueueTuple"))
    if puts:
        loop = _loop_of(graph, puts[0])
        found.staged = [
            [
                _stage(graph, loop, tensor, shape, iterations)
                for tensor, shape in zip(put.inputs, put.attr("shapes"), strict=True)
            ]
            for put in puts
        ]
        _count(graph, loop)
        _own_limit(graph, loop)
        for put in puts:
            graph.replace_control_uses(put, [*put.controls, *(t.node for t in put.inputs)])
            graph.remove(put)
        frame_of = analysis.frames(graph)
        takes = [node for node in graph.of_type("IteratorGetNext") if frame_of[node] == loop.frame]
        if takes:
            read_together(graph, takes)  # as the emulator does: positions of the input mean the same to both
        stop_at_end_of_data(graph, loop.condition)
    gets = analysis.by_core(graph.of_type("OutfeedDequeueTuple"))
    if gets:
        loop = _loop_of(graph, gets[0])
        found.outfeed = [_read_back(graph, loop, get, iterations) for get in gets]
    for node in graph.of_type("TPUReplicatedOutput"):
        for port in node.used_ports():
            kind = node.out(port).dtype
            fed = Builder(graph, "tpugraph/staged").placeholder(kind, ())
            found.outputs[str(node.out(port))] = f"{fed.node.name}:0"
            graph.replace_uses(node.out(port), fed)
    found.positions = _hold_positions(graph)
    _remove_cluster(graph)
    lower_system(graph)
    clear_places(graph)
    return found


def _remove_cluster(graph: Graph) -> None:
    doomed = {node for node in graph if in_cluster(node)}
    doomed |= set(graph.of_type("TPUReplicatedInput", "TPUReplicatedOutput", "TPUReplicateMetadata"))
    for node in doomed:
        for waiting in node.control_uses():
            if waiting not in doomed:
                graph.remove_control(waiting, node)
    reader = next((u.node for n in doomed for u in n.uses() if u.node not in doomed), None)
    if reader is not None:
        raise RunError("the host reads a value of the cluster that is no output of it", node=reader)
    graph.remove_all(doomed)


# --------------------------------------------------------------------------- loops of the host


@dataclass(frozen=True)
class _Loop:
    frame: str
    condition: Node
    counter: Node
    number: Tensor
    pivot: Node


def _loop_of(graph: Graph, node: Node) -> _Loop:
    frame_of = analysis.frames(graph)
    frame = frame_of[node]
    condition = next((n for n in graph.of_type(*ops.LOOP_COND) if frame and frame_of[n] == frame), None)
    counter = None if condition is None else condition.inputs[0].node.inputs[0].node
    if condition is None or counter is None or counter.op not in ops.MERGE:
        raise RunError("the host's side of infeed or outfeed is in no loop over the steps", node=node)
    switch = next(u.node for u in counter.uses(0) if u.node.op in ops.SWITCH)
    pivot = Builder(graph, "tpugraph/staged").identity(switch.out(1), name="pivot").node
    return _Loop(frame, condition, switch, switch.out(1), pivot)


def _count(graph: Graph, loop: _Loop) -> None:
    leave = Builder(graph, "tpugraph/staged").add("Exit", [loop.counter.out(0)], ())
    Builder(graph).identity(leave, name=COUNT)


def _own_limit(graph: Graph, loop: _Loop) -> None:
    """Let the loop run to what is fed instead of to the variable that the loop over the outfeed reads as well."""
    limit = Builder(graph).placeholder(_INT32, (), name=LIMIT)
    graph.set_input(loop.condition.inputs[0].node, 1, Builder(graph, "tpugraph/staged").enter(limit, loop.frame))


def _hold_positions(graph: Graph) -> list[str]:
    """Let checkpoints save the input's position that was held last; returns the ops that hold the one of now."""
    holds, make = [], Builder(graph)
    for state in graph.of_type("SerializeIterator"):
        name = graph.fresh_name("tpugraph/staged/position")
        held = make.variable(_VARIANT, (None,), name=name).out()
        read = make.add("ReadVariableOp", [held], (None,), name="tpugraph/staged/ReadVariableOp", dtype=_VARIANT)
        graph.replace_uses(state.out(), read)
        holds.append(make.node("AssignVariableOp", [held, state.out()], name=f"{name}/hold").name)
    return holds


def _stage(graph: Graph, loop: _Loop, tensor: Tensor, shape: tuple[int | None, ...], iterations: int) -> str:
    """The name of the tensor with the values of all iterations, zeros where one did not take place."""
    stacked = stack_iterations(Builder(graph, "tpugraph/staged"), tensor, shape, frame=loop.frame, condition=loop.condition,
                               number=loop.number, iterations=iterations)  # fmt: skip
    return f"{stacked.node.name}:0"


def _read_back(graph: Graph, loop: _Loop, get: Node, iterations: int) -> list[str]:
    """Let the loop read row i of what is fed in its iteration i; returns the names to feed."""
    names, make = [], Builder(graph, "tpugraph/staged")
    for port, (kind, shape) in enumerate(get.outputs or ()):
        fed = make.placeholder(kind, (iterations, *(shape or ())))
        names.append(f"{fed.node.name}:0")
        axis = make.constant(np.int32(0), controls=[loop.pivot])
        row = make.add("GatherV2", [make.enter(fed, loop.frame), loop.number, axis], shape, batch_dims=0)
        graph.replace_uses(get.out(port), row)
    graph.replace_control_uses(get, [loop.pivot])
    graph.remove(get)
    return names


Array = np.ndarray[Any, Any]

GLOBAL_STEP = "tpugraph/global_step:0"


def compile_loop(
    graph: Graph, chosen: Choice, *, seed: int, timeline: Timeline = OFF
) -> tuple[Choice, CompiledLoop | None]:
    """The loop of a TPU graph that has its entry points, on the devices that were chosen.

    Args:
        graph: the graph; what is left of it is the host's part.
        chosen: the engine ``pjrt`` and a platform.
        seed: of the random streams of the cores.
        timeline: takes note of what each loop spends its time on.

    Returns:
        The choice and the loop. Where the devices cannot run the graph and nobody named the engine: the emulator as the
        choice, with the reason, and None; the graph is as it was.

    Raises:
        ConversionError: control flow that no compiler takes.
        RunError: jax is not installed, or a compiler refuses the graph; the node is named. Both only where the engine was
            named, or processes were joined: the emulator would let each train for itself.
    """
    try:
        devices = _compile(graph, chosen.platform or "cpu")
    except TpuGraphError as error:
        if chosen.asked_for or joined():
            raise
        return chosen.instead(error), None
    return chosen, CompiledLoop(graph, devices, seed=seed, timeline=timeline)


def _compile(graph: Graph, platform: str) -> Devices:
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    copy = graphdef.copy(graph)
    return Devices(stablehlo.lower(copy), platform=platform)


class CompiledLoop:
    """A TPU graph's loop on PJRT devices, one per core, and its host part in TensorFlow.

    Args:
        graph: the TPU graph with its entry points and shapes; what is left of it is the host's part.
        devices: its cluster, compiled.
        seed: of the random streams of the cores.
        timeline: takes note of what each loop spends its time on.

    Raises:
        RunError: the host's part has another form than tpugraph and TPUEstimator give it.
    """

    def __init__(self, graph: Graph, devices: Devices, *, seed: int, timeline: Timeline = OFF) -> None:
        self.notes: Sequence[str] = ()
        self.costs: Any = None
        self.writes_files = devices.first
        self.module = devices.module
        self.devices = devices
        self._seed = seed
        self._timeline = timeline
        self._host = take_host_part(graph, self.module.iterations)
        self._host_values = [value.name for value in self.module.arguments if value.kind == "host"]
        self._counts = _variables_behind(graph, GLOBAL_STEP)
        self._shards = {name: [shard.name for shard in shards] for name, shards in shards_of(graph).items()}
        self._on_devices = False  # the devices have what TensorFlow has, or newer
        self._stale: set[str] = set()  # what the devices have newer than TensorFlow
        self._no_position = ""  # why the input's position cannot be held
        self._ahead = Ahead(self._stage, self._read, self._hold)

    def attach(self, host: GraphSession) -> None:
        """Take the session of the host's part."""
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
        """What runs the steps, for the session's report."""
        return {
            "devices": self.devices.kind,
            "processes": self.devices.processes,
            "lowering_seconds": round(sum(self.module.seconds.values()), 3),
            "compile_seconds": round(self.devices.seconds, 3),
        }

    # ------------------------------------------------------------------ variables on both sides

    def give_back(self, fetch: Any = None) -> None:
        """Let TensorFlow have the newest values of the variables that a fetch needs: all, but for the step counter."""
        counts = isinstance(fetch, str) and fetch == GLOBAL_STEP
        names = self._stale & self._counts if counts else set(self._stale)
        if names:
            values = self.devices.get(sorted(names))
            feed = {self._writes[name][0]: value for name, value in values.items()}
            self._session.run([self._writes[name][1] for name in values], feed)
            self._stale -= names

    def variables_changed(self) -> None:
        """TensorFlow has given variables other values."""
        self._on_devices = False

    def input_changed(self) -> None:
        """The input is at another position."""
        self._ahead.forget()

    def close(self) -> None:
        """End what reads the input."""
        self._ahead.close()

    def _to_devices(self) -> None:
        if not self._on_devices:
            self.devices.put(self._session.run(self._reads))
            self._on_devices = True

    # ------------------------------------------------------------------ input

    def fitting(self, steps: int) -> int:
        """How many of so many steps the next loop has: what was read ahead is used up first."""
        return self._ahead.fitting(steps)

    def hold_position(self) -> str:
        """See that a checkpoint holds the input's position behind the last loop; returns why it cannot, else ""."""
        if self._ahead.parted:
            return "a loop took a part of what was read for it"
        if not self._ahead.waiting:  # else it was held before more was read
            self._hold()
        return self._no_position

    def _hold(self) -> None:
        if self._host.positions and not self._no_position:
            try:
                self._session.run(self._host.positions)
            except RunError as error:  # an input without a state that can be written, which training does not need
                self._no_position = error.fault

    def _read(self, count: int) -> tuple[int, list[list[Array]]]:
        """The batches of so many steps, for the cores of this process; the others' are read and left."""
        if not self._host.staged:
            return count, [[] for _ in self.devices.own]
        names = [name for core in self.devices.own for name in self._host.staged[core]]
        with self._timeline.span(INPUT):
            steps, *found = self._session.run([COUNT + ":0", *names], {LIMIT + ":0": count})
        width = len(self._host.staged[0])
        return int(steps), [found[start : start + width] for start in range(0, len(found), width)]

    def _stage(self, infeed: list[list[Array]]) -> list[Any]:
        """Put batches on the devices."""
        with self._timeline.span(INFEED):
            return self.devices.stage(infeed)

    # ------------------------------------------------------------------ steps

    def train(self, loop: TrainingLoop) -> Trained:
        """Run a training loop, and read the input of the next one meanwhile.

        Raises:
            RunError: a step failed.
        """
        self._to_devices()
        staged = self._ahead.take(loop.steps)
        if not staged.steps:
            return Trained([])
        if staged.steps == loop.steps:
            self._ahead.begin(loop.following)
        names = [name if ":" in name else f"{name}:0" for name in self._host_values]  # else it is an operation
        host = dict(zip(self._host_values, self._session.run(names), strict=True)) if names else {}
        with self._timeline.span(DEVICE):
            sent, outputs = self.devices.run(staged.steps, (self._seed, loop.trained), staged.placed, host)
        self._stale.update(self.devices.written)
        self._session.set_steps(staged.steps)
        with self._timeline.span(OUTFEED):
            return self._deliver(sent, outputs, loop)

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Refuse: loops that do not train are left to other engines, which :mod:`tpugraph.runtime.engine_choice` sees to.

        Raises:
            RunError: always.
        """
        raise RunError(f"a loop of '{device}' cannot run on PJRT devices, which train alone", fix="engine='emulator'")

    def _deliver(self, sent: list[list[Array]], outputs: dict[str, Array], loop: TrainingLoop) -> Trained:
        """Let the host's part read what the cores sent."""
        feed = {name: array for names, arrays in zip(self._host.outfeed, sent, strict=True)
                for name, array in zip(names, arrays, strict=True)}  # fmt: skip
        first = next(iter(outputs.values()), np.zeros((), np.float32))
        feed |= {place: outputs.get(name, first) for name, place in self._host.outputs.items()}
        losses, *summaries = self._session.run([LOSSES, SUMMARIES] if loop.summaries else [LOSSES], feed)
        return trained(losses, loop, *summaries)


def _access(value: Value, handles: Sequence[Any]) -> tuple[Any, tuple[Any, list[Any]]]:
    """What reads a variable, or the shards of a table one after the other; and what is fed to write it, with the ops that do."""
    kind, count = tf.as_dtype(value.dtype), len(handles)
    parts = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=kind) for handle in handles]
    if value.kind == "variable":
        fed = tf.compat.v1.placeholder(kind, value.shape)
        return parts[0], (fed, [tf.raw_ops.AssignVariableOp(resource=handles[0], value=fed)])
    fed = tf.compat.v1.placeholder(kind, (count * value.shape[0], *value.shape[1:]))
    given = zip(handles, tf.split(fed, count), strict=True)
    return tf.concat(parts, 0), (
        fed,
        [tf.raw_ops.AssignVariableOp(resource=handle, value=part) for handle, part in given],
    )


def _variables_behind(graph: Graph, tensor: str) -> set[str]:
    """The names of the variables that a tensor is made of."""
    before = graph.ancestors([graph.tensor(tensor).node])
    return {node.name for node in before if node.op in ops.RESOURCE_VARIABLES}

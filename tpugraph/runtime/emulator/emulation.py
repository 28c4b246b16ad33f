"""Lowers a TPU graph to ordinary TensorFlow ops, so that N cores run on this machine, and the engine that runs it.

What is replicated exists once; what varies between cores exists once per core. CrossReplicaSum becomes a sum over the
copies. Infeed and outfeed become direct dataflow where the loops on both sides have the same trip count, else queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph import analysis
from tpugraph.analysis import shapes
from tpugraph.ir import Graph
from tpugraph.runtime.emulator.copies import clear_places, copy_per_core, lower_boundary, lower_sums, lower_system
from tpugraph.runtime.emulator.hosts import MIRROR, Hosts, spread
from tpugraph.runtime.emulator.infeed_outfeed import connect
from tpugraph.runtime.emulator.xla_loop import compile_loop
from tpugraph.runtime.engine import Engine, ThreeParts
from tpugraph.runtime.timeline import OpTimes, Timeline
from tpugraph.support.errors import RunError
from tpugraph.tables.sharding import shards_of
from tpugraph.tpu.program import mode_of
from tpugraph.xla.cut_cluster import only_metadata


@dataclass(frozen=True)
class Lowered:
    graph: Graph  # the lowered graph
    fused: bool  # whether one Session.run does infeed, step and outfeed
    compiled_nodes: int = 0  # nodes of the device's loop where it is one XLA computation, else 0


def lower(graph: Graph, *, queues: bool = False, literal: bool = False, hosts: Hosts | None = None) -> Lowered:
    """Lower a TPU graph in place: to one loop or, with ``queues``, to three parts; over the ``hosts``, or in this process.

    With ``literal`` it runs op by op also what would be quick as one XLA computation.
    """
    graph.stage = "emulator"
    count = only_metadata(graph).attr("num_replicas")
    if any(node.outputs is None for node in graph):
        shapes.infer(graph)
    trains = mode_of(graph) == "train"
    compiled = compile_loop(graph, count) if trains and hosts is None and not queues and not literal else 0
    if compiled:
        graph.stage = None
        return Lowered(graph, fused=True, compiled_nodes=compiled)
    copies = copy_per_core(graph, analysis.replica_varying(graph), count)
    fused = connect(graph, copies, queues=queues, hosts=hosts)
    sums = graph.of_type("CrossReplicaSum")
    lower_sums(graph, copies, sums)
    lower_boundary(graph, copies, graph.of_type("TPUReplicatedInput"), graph.of_type("TPUReplicatedOutput"))
    lower_system(graph)
    if hosts is not None:
        if not fused:
            raise RunError("infeed, step and outfeed are no single loop, so that they cannot be shared among hosts",
                           origin=graph.source, fix="convert the graph with tpugraph, and leave queues=True away")  # fmt: skip
        for shared in shards_of(graph):
            raise RunError(f"the cores share the rows of '{shared}', and workers share none: each has every variable whole",
                           origin=graph.source, fix="convert without --shard_tables, or with TPUConfig(shard_tables=0)")  # fmt: skip
        spread(graph, copies, sums, hosts)
    clear_places(graph, devices=hosts is None)
    graph.stage = None
    return Lowered(graph, fused)


def emulate(graph: Graph, *, queues: bool, timeline: Timeline, literal: bool = False) -> EmulatedLoop | ThreeParts:
    """The engine that runs a TPU graph on emulated cores in this process; the graph is lowered in place."""
    times = OpTimes(graph, timeline) if timeline.recording else None
    lowered = lower(graph, queues=queues, literal=literal)
    return EmulatedLoop(lowered, times) if lowered.fused else ThreeParts(timeline=timeline)


class EmulatedLoop(Engine):
    """Emulated cores by direct dataflow: infeed and outfeed are edges of the graph."""

    def __init__(self, lowered: Lowered, times: OpTimes | None = None) -> None:
        super().__init__()
        self.lowered = lowered
        self._times = times

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop; measured op by op where someone wants to know, and for as long as that is cheap."""
        self.host.set_steps(steps)
        names = (*fetches, f"{device}:0")
        if self._times is None or self._times.left <= 0:
            return self.host.call(*names)[:-1]
        return self._measured(names, self._times)[:-1]

    def _measured(self, names: tuple[str, ...], times: OpTimes) -> list[Any]:
        options, metadata = tf.compat.v1.RunOptions(), tf.compat.v1.RunMetadata()
        options.trace_level = tf.compat.v1.RunOptions.SOFTWARE_TRACE
        with self.host.translated():
            found = self.host.session.run(names, options=options, run_metadata=metadata)
        times.read(metadata)
        self.costs = times.costs
        return list(found)


class SpreadLoop(EmulatedLoop):
    """Emulated cores on several hosts, each of which has variables of its own that hold the same.

    Its ops are not measured one by one: the session of a cluster hands out no measurements.
    """

    def __init__(self, graph: Graph, hosts: Hosts) -> None:
        super().__init__(lower(graph, hosts=hosts))

    def variables_changed(self) -> None:
        """Let the variables of all hosts follow those of the first."""
        if MIRROR in self.host.names:
            self.host.run([MIRROR])

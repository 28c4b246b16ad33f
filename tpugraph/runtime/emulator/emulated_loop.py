"""The engine of the emulator: a graph lowered to ordinary ops, of which one run does input, step and outfeed of a whole loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpugraph.ir import Graph
from tpugraph.runtime.emulator import emulation
from tpugraph.runtime.engine import TensorFlowEngine
from tpugraph.runtime.op_times import OpTimes
from tpugraph.runtime.three_parts import ThreeParts
from tpugraph.runtime.timeline import Timeline


def emulate(graph: Graph, *, queues: bool, timeline: Timeline) -> EmulatedLoop | ThreeParts:
    """The engine that runs a TPU graph on emulated cores in this process; the graph is lowered in place.

    Args:
        graph: the TPU graph with its entry points.
        queues: join host and device by queues, as three parts. It is so too where their loops differ in length.
        timeline: takes note of what each loop spends its time on.

    Raises:
        RunError: the graph has what is not emulated.
    """
    times = OpTimes(graph, timeline) if timeline.recording else None
    lowered = emulation.lower(graph, queues=queues)
    return EmulatedLoop(lowered, times) if lowered.fused else Queues(lowered, timeline)


class Queues(ThreeParts):
    """Emulated cores behind queues in the place of infeed and outfeed.

    Args:
        lowered: the lowered graph.
        timeline: takes note of how long each part takes.
    """

    def __init__(self, lowered: emulation.Lowered, timeline: Timeline) -> None:
        super().__init__(timeline=timeline)
        self.lowered = lowered


class EmulatedLoop(TensorFlowEngine):
    """Emulated cores by direct dataflow: infeed and outfeed are edges of the graph.

    Args:
        lowered: the lowered graph.
        times: reads the measurements of loops; None where nobody wants to know.
        notes: what is worth knowing, as sentences.
    """

    def __init__(self, lowered: emulation.Lowered, times: OpTimes | None = None, *, notes: Sequence[str] = ()) -> None:
        super().__init__(notes)
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

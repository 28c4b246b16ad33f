"""Makes the engine that runs a TPU graph: there is one for each way that a step can run, and the session sees none of them."""

from __future__ import annotations

from tpugraph.ir import Graph
from tpugraph.runtime.cluster.masters import Master
from tpugraph.runtime.cluster.tpu_master import TPUMaster
from tpugraph.runtime.emulator.emulation import SpreadLoop, emulate
from tpugraph.runtime.engine import Engine
from tpugraph.runtime.engine_choice import Choice
from tpugraph.runtime.pipelines import run_as_written
from tpugraph.runtime.pjrt.compiled import compile_loop
from tpugraph.runtime.timeline import Timeline


def make(
    graph: Graph, chosen: Choice, place: Master, *, seed: int, queues: bool, literal: bool, timeline: Timeline
) -> tuple[Choice, Engine]:
    """The engine that was chosen, or the emulator where devices cannot run the graph; returns the choice with it.

    Args:
        graph: the TPU graph with its entry points; it is changed in place to what TensorFlow runs of it.
        chosen: which engine.
        place: where the TensorFlow session runs.
        seed: of the random streams of PJRT's cores.
        queues: whether infeed, step and outfeed run in threads of their own, joined by queues.
        literal: whether emulated cores run op by op in any case.
        timeline: records what each loop spends its time on.

    Raises:
        RunError: the engine cannot run the graph.
        ConversionError: it has control flow that no compiler takes, and PJRT was asked for.
    """
    if chosen.engine == "master":
        return chosen, TPUMaster(graph, place.devices, timeline)
    run_as_written(graph)
    if chosen.engine in ("pjrt", "xla"):
        chosen, compiled = compile_loop(graph, chosen, seed=seed, timeline=timeline)
        if compiled is not None:
            return chosen, compiled
    hosts = place.hosts_for(graph)
    if hosts is not None:
        return chosen, SpreadLoop(graph, hosts, place.notes)
    return chosen, emulate(graph, queues=queues, literal=literal, timeline=timeline)

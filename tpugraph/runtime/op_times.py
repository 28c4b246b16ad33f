"""What TensorFlow measured of each op of a loop, told apart by the part of the loop that the op belongs to."""

from __future__ import annotations

import re
import time
from typing import Any

from tpugraph.analysis import in_cluster
from tpugraph.ir import Graph
from tpugraph.runtime.timeline import DEVICE, INFEED, INPUT, MEASURING, OUTFEED, Interval, Timeline

MOST_OPS = 200_000
"""How many executions of ops are read in all; the loops behind them are timed as a whole."""
_COPY = re.compile(r"/replica_\d+$")


class OpTimes:
    """Reads the measurements of loops in which one Session.run does input, step and outfeed.

    Args:
        graph: the TPU graph, before it is lowered.
        timeline: where the times go.

    Attributes:
        left: how many more executions of ops are read.
        costs: the RunMetadata of the last loop that was read, unless it is very large; else None.
    """

    def __init__(self, graph: Graph, timeline: Timeline) -> None:
        self._timeline = timeline
        self._part_of = _parts(graph)
        self.left = MOST_OPS
        self.costs: Any = None

    def read(self, metadata: Any) -> None:
        """Note the times in the RunMetadata of a loop."""
        times: dict[str, list[Interval]] = {}
        if sum(len(device.node_stats) for device in metadata.step_stats.dev_stats) <= MOST_OPS:
            self.costs = metadata
        for device in metadata.step_stats.dev_stats:
            self.left -= len(device.node_stats)
            for op in device.node_stats:
                start = op.all_start_micros * 1e-6
                interval = start, start + max(op.all_end_rel_micros, 1) * 1e-6
                times.setdefault(self._part(op.node_name), []).append(interval)
        for part, work in times.items():
            self._timeline.add(part, work)
        last = max((end for work in times.values() for _, end in work), default=time.time())
        self._timeline.add(MEASURING, [(last, time.time())])

    def _part(self, name: str) -> str:
        """The part of a node of the lowered graph: that of the node it was made of, or of the scope that it was made in."""
        while name:
            found = self._part_of.get(_COPY.sub("", name))
            if found is not None:
                return found
            name = name.rpartition("/")[0]
        return DEVICE


def _parts(graph: Graph) -> dict[str, str]:
    """The part of each node that works in a loop: what goes to the infeed, what comes from the outfeed, the cluster."""
    enqueues = graph.of_type("InfeedEnqueueTuple")
    dequeues = graph.of_type("OutfeedDequeueTuple", "OutfeedDequeueTupleV2")
    found = {node.name: OUTFEED for node in graph.descendants(dequeues)}
    found |= {node.name: INPUT for node in graph.ancestors(enqueues)}
    found |= {node.name: INFEED for node in enqueues}
    return found | {node.name: DEVICE for node in graph if in_cluster(node)}

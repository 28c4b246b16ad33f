"""A timeline of training: the work of host and devices over time, the run's bottleneck, and TensorFlow's profile of each op."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tpugraph.analysis import in_cluster
from tpugraph.ir import Graph

Interval = tuple[float, float]

INPUT, INFEED, DEVICE, OUTFEED, SAVE = "host input", "infeed", "device loop", "outfeed", "save"
PARTS = (DEVICE, SAVE, OUTFEED, INFEED, INPUT)
"""The parts of a loop. Time in which several are busy counts for the first of them: a busy device is the bottleneck."""
MEASURING = "measuring"  # the overhead of profiling, left out of the shares
_LOOP = "loop"
_SHORT = {INPUT: "input", DEVICE: "device"}
_BOUND = {SAVE: "saving"}
_JOINED = 20e-6  # spans of one part with a shorter gap, in seconds, are merged


@dataclass(frozen=True)
class Span:
    """A span of one part's work, in seconds of wall-clock time, in a loop (from 1)."""

    part: str
    start: float
    end: float
    loop: int


class Timeline:
    """Records the spans of each part; a disabled one costs nothing.

    Times are wall-clock times, as in TensorFlow's own profile.
    """

    def __init__(self, *, recording: bool = True) -> None:
        self.recording = recording
        self.spans: list[Span] = []
        self._loop = 0

    @contextmanager
    def loop(self) -> Iterator[None]:
        """A loop: later spans belong to it."""
        self._loop += 1
        with self.span(_LOOP):
            yield

    @contextmanager
    def span(self, part: str) -> Iterator[None]:
        """Record the block as a span, even if it raises."""
        started = time.time()
        try:
            yield
        finally:
            self.add(part, [(started, time.time())])

    def add(self, part: str, work: Sequence[Interval]) -> None:
        """Add spans that were measured elsewhere; spans that overlap or nearly touch are merged."""
        if self.recording:
            self.spans += [Span(part, start, end, self._loop) for start, end in union(work, gap=_JOINED)]

    def shares(self) -> dict[str, float]:
        """The share of time of each part, and of all else as ``host``; empty without spans.

        The first loop is left out where there are others: programs are compiled and buffers are filled in it.
        """
        measured = sorted({span.loop for span in self.spans if span.part in PARTS and span.part != SAVE and span.loop})
        counted, loop = set(measured[1:] or measured), 0
        edges = [(at, change, span) for span in self.spans for at, change in ((span.start, 1), (span.end, -1))]
        at_work, took = Counter[str](), dict.fromkeys((*PARTS, "host"), 0.0)
        for (now, change, span), (then, *_) in pairwise(sorted(edges, key=lambda edge: edge[0])):
            at_work[span.part] += change
            if span.part == _LOOP and change > 0:
                loop = span.loop
            if loop in counted and not at_work[MEASURING]:
                took[next((part for part in PARTS if at_work[part]), "host")] += then - now
        total = sum(took.values())
        return {part: seconds / total for part, seconds in took.items()} if total else {}

    def bound(self) -> str:
        """What bound the run in one line, such as ``input 71 %, device 22 %, save 7 %: bound by the input``."""
        shares = sorted(self.shares().items(), key=lambda item: -item[1])
        if not shares:
            return "nothing was measured: no loop has ended"
        told = [f"{_SHORT.get(part, part)} {100 * share:.0f} %" for part, share in shares if share >= 0.005]
        most = shares[0][0]
        return f"{', '.join(told)}: bound by {_BOUND.get(most, f'the {_SHORT.get(most, most)}')}"

    def as_chrome(self) -> dict[str, Any]:
        """The timeline in the form that Perfetto and chrome://tracing open: a row for each part, times in microseconds."""
        rows = {part: row for row, part in enumerate((_LOOP, INPUT, INFEED, DEVICE, OUTFEED, SAVE, MEASURING), 1)}
        began = min((span.start for span in self.spans), default=0.0)
        named: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "tpugraph run"}}
        ]
        for part, row in rows.items():
            named.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": part}})
            named.append({"name": "thread_sort_index", "ph": "M", "pid": 1, "tid": row, "args": {"sort_index": row}})
        done = [
            {"name": span.part, "cat": "run", "ph": "X", "pid": 1, "tid": rows[span.part],
             "ts": round(1e6 * (span.start - began), 1), "dur": round(1e6 * (span.end - span.start), 1),
             "args": {"loop": span.loop}}
            for span in sorted(self.spans, key=lambda span: span.start)
        ]  # fmt: skip
        return {"traceEvents": named + done, "displayTimeUnit": "ms",
                "otherData": {"shares": {part: round(share, 4) for part, share in self.shares().items()}}}  # fmt: skip


OFF = Timeline(recording=False)  # the timeline of who wants none


def union(work: Sequence[Interval], *, gap: float = 0.0) -> list[Interval]:
    """The time in which some of the work goes on, in order; pieces at most ``gap`` seconds apart become one."""
    joined: list[Interval] = []
    for start, end in sorted(work):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


MOST_OPS = 200_000  # how many executions of ops are read in all; the loops behind them are timed as a whole
_COPY = re.compile(r"/replica_\d+$")


class OpTimes:
    """Reads the measurements of loops in which one Session.run does input, step and outfeed.

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

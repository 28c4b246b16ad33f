"""A pipeline's run recorded pass by pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tpugraph.ir import Graph
from tpugraph.passes.partition import Partition
from tpugraph.spmd.explain import Explanation
from tpugraph.support.errors import TpuGraphError
from tpugraph.tpu.pipeline import Pipeline
from tpugraph.views.history import History


class Recording:
    """Records each pass of a pipeline in a history, and the one that fails.

    A context; the pipeline calls :meth:`before` as its ``progress``, which calls ``progress``.
    """

    def __init__(
        self, history: History, graph: Graph, pipeline: Pipeline, progress: Callable[[str, int, int], None] | None
    ) -> None:
        self._history = history
        self._graph = graph
        self._pipeline = pipeline
        self._progress = progress

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ended()
        if isinstance(error, TpuGraphError):
            name = error.stage or "checks"
            self._history.record(self._graph, name, summary=f"The conversion stops here: {error.fault}")

    def before(self, name: str, number: int, count: int) -> None:
        """Record the pass that has ended, and where values live before the step is partitioned."""
        if self._progress is not None:
            self._progress(name, number, count)
        self._ended()
        step = self._pipeline.passes[number - 1]
        if isinstance(step, Partition) and step.num_replicas > 1:
            with contextlib.suppress(TpuGraphError):  # which the pass raises again, with its name
                self._history.place(Explanation(step.placements(self._graph)))

    def _ended(self) -> None:
        """Record the pass that ran last, once."""
        ran = self._pipeline.trace[len(self._history.view.stages) - 1 :]
        for trace, step in zip(ran, self._pipeline.passes[len(self._pipeline.trace) - len(ran) :], strict=False):
            self._history.record(self._graph, trace.name, summary=step.summary(), seconds=trace.seconds)

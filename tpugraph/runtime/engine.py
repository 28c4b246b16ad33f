"""``Engine``, the interface of a session to its engine, and the engines that run the whole graph in TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf

from tpugraph.runtime.graph_session import GraphSession
from tpugraph.runtime.timeline import DEVICE, OFF, Timeline
from tpugraph.support.errors import RunError, TpuGraphError
from tpugraph.support.process import in_thread

TRAIN = "tpugraph/train"  # the node of the device's training loop
LOSSES = "tpugraph/dequeue:0"  # the loss of each step of a loop, float32 [steps]
SUMMARIES = "tpugraph/summaries:0"  # the merged summaries of a loop's last step, serialised
STATE_SUMMARIES = "tpugraph/state_summaries:0"
"""The merged summaries of variables, serialised; fetched in a separate run after the loop."""

_END_SECONDS = 10.0  # the time for a part to end after the session is closed


@dataclass(frozen=True)
class TrainingLoop:
    steps: int
    following: int  # steps of the next loop, 0 where unknown; an engine may prefetch their input
    trained: int  # steps trained before it
    summaries: bool  # whether the last step's merged summaries are fetched


class Trained(NamedTuple):
    """The results of a training loop: the loss of each step, fewer than requested where the data ended."""

    losses: list[float]
    summaries: bytes | None = None  # merged and serialised, of the last step; None where the engine has none


class Engine:
    """Runs the loops of one TPU graph; this one holds neither variables nor input outside of TensorFlow.

    An engine rewrites the graph in place to the part that TensorFlow still runs. The session imports that and calls
    :meth:`attach` before anything else. Variables live in TensorFlow, where checkpoints are read and written; an engine may
    hold newer values until they are requested.

    Attributes:
        notes: sentences for the user about how it runs.
        costs: TensorFlow's RunMetadata of the last loop that was profiled per op; None without one.
        writes_files: whether this process writes checkpoints and event files; True for one of several joined processes.
    """

    writes_files = True

    def __init__(self, notes: Sequence[str] = ()) -> None:
        self.notes = notes
        self.costs: Any = None

    def attach(self, host: GraphSession) -> None:
        """Set the session on the graph that TensorFlow runs."""
        self.host = host

    def report(self) -> dict[str, Any]:
        """A description of the engine for the session's report (JSON)."""
        return {}

    def available(self, steps: int) -> int:
        """The steps of the next loop, at most ``steps``: fewer where only some prefetched batches are left."""
        return steps

    def train(self, loop: TrainingLoop) -> Trained:
        wanted = [LOSSES, SUMMARIES] if loop.summaries else [LOSSES]
        losses, *summaries = self.run_loop(loop.steps, TRAIN, wanted)
        return trained(losses, loop, *summaries)

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop with the device node ``device``; returns the values of fetches of the host's part."""
        raise NotImplementedError

    def flush_variables(self, fetch: Any = None) -> None:
        """Copy the newest values of the variables that a fetch needs to TensorFlow; of all when None."""

    def save_position(self) -> str:
        """Prepare the input's position after the last loop for a checkpoint; returns why that is impossible, or ""."""
        return ""

    def agree(self, number: int) -> int:
        """The maximum over joined processes, each at the end of the same loop."""
        return number

    def variables_changed(self) -> None:
        """Called after TensorFlow has changed variables."""

    def input_changed(self) -> None:
        """Called after the input's position has changed."""

    def close(self) -> None:
        """Release resources; the TensorFlow session is closed already."""


def trained(losses: Any, loop: TrainingLoop, summaries: bytes | None = None) -> Trained:
    """The results of a loop from fetched losses; only the first ``loop.steps`` are losses of its steps."""
    return Trained([float(loss) for loss in losses][: loop.steps], summaries)


# --------------------------------------------------------------------------- three parts


class ThreeParts(Engine):
    """Runs infeed, device and outfeed concurrently in separate runs, as on a TPU, connected by a master's hardware or by queues."""

    def __init__(self, notes: Sequence[str] = (), timeline: Timeline = OFF) -> None:
        super().__init__(notes)
        self._timeline = timeline

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop; an error in one part stops the others, and the first is reported."""
        self.host.set_steps(steps)
        ends = self.host.graph.get_operation_by_name("tpugraph/enqueue").control_inputs
        # fetching an op raises nothing where the loop ends early
        fed = [op.outputs[0] if op.outputs else op for op in ends]
        parts: dict[str, Any] = {"infeed": fed, "device": f"{device}:0", "outfeed": fetches}
        with self.host.watch.during():
            results, failure = _run_together(self.host.session, parts, self._timeline)
        if failure is None:
            return list(results["outfeed"])
        self.host.fail()
        raise self._error(failure)

    def _error(self, failure: _Failure) -> TpuGraphError:
        if isinstance(failure.error, tf.errors.OutOfRangeError) and failure.part == "infeed":
            self.host.raise_failure_of_input()
            return RunError(
                "the data ended in the middle of a loop", origin=self.host.source, stage=failure.part,
                fix="repeat the dataset, train fewer steps, or convert with a shorter --iterations_per_loop",
            )  # fmt: skip
        found = self.host.translate(failure.error)
        found.stage = failure.part
        return found


class _Failure(NamedTuple):
    part: str
    error: BaseException


def _run_together(
    session: Any, fetches: Mapping[str, Any], timeline: Timeline
) -> tuple[dict[str, Any], _Failure | None]:
    """Run several fetches concurrently; when one fails, the session is closed, which cancels the others.

    Returns the results by name, and the first failure that is not a consequence of another.
    """
    results: dict[str, Any] = {}
    failures: list[_Failure] = []

    def run(name: str, fetch: Any) -> None:
        try:
            with timeline.span(DEVICE if name == "device" else name):
                results[name] = session.run(fetch)
        except Exception as error:
            failures.append(_Failure(name, error))

    parts = [in_thread(partial(run, *part), "tpugraph-part") for part in fetches.items()]
    while not failures and wait(parts, 0.05).not_done:
        pass
    if failures:
        time.sleep(0.05)  # the cause may come just after its consequence
        session.close()
    wait(parts, _END_SECONDS)  # a thread that does not end is abandoned
    consequences = (tf.errors.CancelledError, tf.errors.AbortedError)
    failures.sort(key=lambda found: isinstance(found.error, consequences))
    return results, failures[0] if failures else None

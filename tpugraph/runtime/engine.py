"""What a session asks of what runs its steps: ``Engine``, and the engines whose whole graph runs in TensorFlow."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from tpugraph.runtime.graph_session import GraphSession
from tpugraph.runtime.timeline import DEVICE, OFF, Timeline
from tpugraph.support.errors import RunError, TpuGraphError

TRAIN = "tpugraph/train"  # the node that is the device's part of a training loop
LOSSES = "tpugraph/dequeue:0"  # the loss of each step of a loop, float32 [steps]
SUMMARIES = "tpugraph/summaries:0"  # the merged summaries of a loop's last step, serialised
STATE_SUMMARIES = "tpugraph/state_summaries:0"
"""The merged summaries of variables alone, serialised; read in a run of its own, when the loop has ended."""

_END_SECONDS = 10.0  # how long a part may take to end after the session was closed


@dataclass(frozen=True)
class TrainingLoop:
    steps: int
    following: int  # steps of the loop after it, 0 where none is known; an engine may read their input meanwhile
    trained: int  # steps that were trained before
    summaries: bool  # whether the graph's merged summaries of the last step are wanted


class Trained(NamedTuple):
    """What a training loop gave: the loss of each step, fewer than were asked for where the data ended."""

    losses: list[float]
    summaries: bytes | None = None  # merged, of the last step, serialised; None where the engine has none


class Engine:
    """Runs the loops of one TPU graph; this one holds neither variables nor input outside of TensorFlow.

    An engine is made from the graph, which it changes in place to what TensorFlow is left to run of it. The session imports
    that and hands it back by :meth:`attach`, before anything else is asked. Variables live in TensorFlow, where checkpoints are
    read and written; an engine may hold newer values elsewhere while nobody asks for them.

    Attributes:
        notes: what is worth knowing about how it runs, as sentences.
        costs: TensorFlow's RunMetadata of the last loop that it measured op by op; None where it measured none.
        writes_files: whether this process writes checkpoints and event files; False for all but one of joined processes.
    """

    writes_files = True

    def __init__(self, notes: Sequence[str] = ()) -> None:
        self.notes = notes
        self.costs: Any = None

    def attach(self, host: GraphSession) -> None:
        """Take the session of what TensorFlow runs of the graph."""
        self.host = host

    def report(self) -> dict[str, Any]:
        """What runs the steps, for the session's report (JSON)."""
        return {}

    def available(self, steps: int) -> int:
        """How many of so many steps the next loop has: fewer where only a part of the batches read ahead is left."""
        return steps

    def train(self, loop: TrainingLoop) -> Trained:
        wanted = [LOSSES, SUMMARIES] if loop.summaries else [LOSSES]
        losses, *summaries = self.run_loop(loop.steps, TRAIN, wanted)
        return trained(losses, loop, *summaries)

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop whose part on the device is the node ``device``; returns the values of fetches of the host's part."""
        raise NotImplementedError

    def flush_variables(self, fetch: Any = None) -> None:
        """Let TensorFlow have the newest values of the variables that a fetch needs; of all when None."""

    def save_position(self) -> str:
        """See that a checkpoint holds the input's position behind the last loop; returns why it cannot, else ""."""
        return ""

    def agree(self, number: int) -> int:
        """The largest of the numbers that joined processes give, each at the end of the same loop."""
        return number

    def variables_changed(self) -> None:
        """Hear that TensorFlow has given variables other values."""

    def input_changed(self) -> None:
        """Hear that the input is at another position."""

    def close(self) -> None:
        """End what it has begun; the TensorFlow session is closed."""


def trained(losses: Any, loop: TrainingLoop, summaries: bytes | None = None) -> Trained:
    """What a loop gave, of the losses that TensorFlow hands out: one a step, and perhaps more."""
    return Trained([float(loss) for loss in losses][: loop.steps], summaries)


# --------------------------------------------------------------------------- three parts


class ThreeParts(Engine):
    """Runs infeed, device and outfeed at the same time in runs of their own, as on a TPU: joined by a master's own, or queues."""

    def __init__(self, notes: Sequence[str] = (), timeline: Timeline = OFF) -> None:
        super().__init__(notes)
        self._timeline = timeline

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop; an error in one part stops the others, and the first is reported."""
        self.host.set_steps(steps)
        ends = self.host.graph.get_operation_by_name("tpugraph/enqueue").control_inputs
        fed = [op.outputs[0] if op.outputs else op for op in ends]  # an error where the loop ends early, which no op is
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
    """Run several fetches at the same time; as soon as one fails, the session is closed, which cancels what still waits.

    Returns the results by name, and the failure that came first and is no consequence of another.
    """
    results: dict[str, Any] = {}
    errors: list[tuple[float, _Failure]] = []
    failed = threading.Event()

    def run(name: str, fetch: Any) -> None:
        try:
            with timeline.span(DEVICE if name == "device" else name):
                results[name] = session.run(fetch)
        except Exception as error:
            errors.append((time.monotonic(), _Failure(name, error)))
            failed.set()

    threads = [threading.Thread(target=run, args=item, name="tpugraph-part", daemon=True) for item in fetches.items()]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if failed.wait(0.05):
            time.sleep(0.05)  # the cause may come just after its consequence
            session.close()
            break
    until = time.monotonic() + _END_SECONDS
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))  # one that does not hear of the end is left behind
    consequences = (tf.errors.CancelledError, tf.errors.AbortedError)
    errors.sort(key=lambda found: (isinstance(found[1].error, consequences), found[0]))
    return results, errors[0][1] if errors else None

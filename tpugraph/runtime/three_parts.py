"""The engine of three parts: infeed, device and outfeed run at the same time in runs of their own, as on a TPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph.runtime.engine import TensorFlowEngine
from tpugraph.runtime.timeline import DEVICE, OFF, Timeline
from tpugraph.support.errors import RunError, TpuGraphError

_PARTS = {"device": DEVICE}

_END_SECONDS = 10.0
"""How long a part may take to end after the session was closed."""


class ThreeParts(TensorFlowEngine):
    """Runs the three parts of a loop side by side, joined by infeed and outfeed: a master's own, or queues.

    Args:
        notes: what is worth knowing about the graph.
        timeline: takes note of how long each part takes.
    """

    def __init__(self, notes: Sequence[str] = (), timeline: Timeline = OFF) -> None:
        super().__init__(notes)
        self._timeline = timeline

    def run_loop(self, steps: int, device: str, fetches: list[str]) -> list[Any]:
        """Run a loop; an error in one part stops the others, and the first is reported.

        Raises:
            RunError: a step failed, or the data ended within the loop.
        """
        self.host.set_steps(steps)
        ends = self.host.graph.get_operation_by_name("tpugraph/enqueue").control_inputs
        fed = [op.outputs[0] if op.outputs else op for op in ends]  # an error where the loop ends early, which no op is
        parts: dict[str, Any] = {"infeed": fed, "device": f"{device}:0", "outfeed": fetches}
        with self.host.watch.during():
            results, failure = run_together(self.host.session, parts, self._timeline)
        if failure is None:
            return list(results["outfeed"])
        self.host.fail()
        raise self._error(failure)

    def _error(self, failure: Failure) -> TpuGraphError:
        if isinstance(failure.error, tf.errors.OutOfRangeError) and failure.part == "infeed":
            self.host.raise_failure_of_input()
            return RunError(
                "the data ended in the middle of a loop",
                origin=self.host.source,
                stage=failure.part,
                fix="repeat the dataset, train fewer steps, or convert with a shorter --iterations_per_loop",
            )
        found = self.host.translate(failure.error)
        found.stage = failure.part
        return found


@dataclass(frozen=True)
class Failure:
    """A part that failed.

    Attributes:
        part: its name.
        error: what it raised.
    """

    part: str
    error: BaseException


def run_together(
    session: Any, fetches: Mapping[str, Any], timeline: Timeline = OFF
) -> tuple[dict[str, Any], Failure | None]:
    """Run several fetches at the same time; a failure of one stops the others.

    Args:
        session: the TensorFlow session; it is closed, which cancels what still waits, as soon as a part fails.
        fetches: what each part fetches, by its name.
        timeline: where it is noted how long each takes.

    Returns:
        The results by name, and the failure that came first and is no consequence of another.
    """
    results: dict[str, Any] = {}
    errors: list[tuple[float, str, BaseException]] = []
    failed = threading.Event()

    def run(name: str, fetch: Any) -> None:
        try:
            with timeline.span(_PARTS.get(name, name)):
                results[name] = session.run(fetch)
        except Exception as error:
            errors.append((time.monotonic(), name, error))
            failed.set()

    threads = [
        threading.Thread(target=run, args=item, name=f"tpugraph-{item[0]}", daemon=True) for item in fetches.items()
    ]
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
    if not errors:
        return results, None
    consequences = (tf.errors.CancelledError, tf.errors.AbortedError)
    _, name, error = min(errors, key=lambda e: (isinstance(e[2], consequences), e[0]))
    return results, Failure(name, error)

"""What runs beside a session's main thread: the three parts of a loop, and the queue runners of old input pipelines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.runtime.timeline import DEVICE, OFF, Timeline

_PARTS = {"device": DEVICE}

_END_SECONDS = 10.0
"""How long a part may take to end after the session was closed."""


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


class QueueRunners:
    """Fills the queues of a graph, each from a thread of its own, until their input ends or the session closes.

    Args:
        session: the TensorFlow session.
        report: told when a queue stops for another reason than the end of its input.
    """

    def __init__(self, session: Any, report: Callable[[str], None]) -> None:
        self._session = session
        self._report = report
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def start(self) -> None:
        """Start filling; starting twice is fine."""
        if self._threads:
            return
        for op in self._session.graph.get_operations():
            if (
                op.type not in ops.ENQUEUES
                or op.inputs[0].op.name.startswith("tpugraph/")
                or op.inputs[0].op.type in ops.ENTER
            ):
                continue
            thread = threading.Thread(target=self._fill, args=(op,), daemon=True, name=f"tpugraph-queue-{op.name}")
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Say that the session is about to close."""
        self._stopped = True

    def join(self) -> None:
        """Wait for the threads; the session is closed, so that they end."""
        for thread in self._threads:
            thread.join(timeout=10)

    def _fill(self, op: Any) -> None:
        close = [
            c
            for c in self._session.graph.get_operations()
            if c.type in ops.QUEUE_CLOSES and c.inputs[0] is op.inputs[0]
        ]
        try:
            run = self._session.make_callable(op)
            while not self._stopped:
                run()
        except (tf.errors.OutOfRangeError, tf.errors.CancelledError):
            if close and not self._stopped:
                self._session.run(close[0])
        except (tf.errors.OpError, RuntimeError) as error:
            if not self._stopped:
                self._report(f"the queue '{op.name}' stopped: {str(error).splitlines()[0]}")

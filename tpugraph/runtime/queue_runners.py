"""The queue runners of old input pipelines: threads beside a session that keep its queues filled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpugraph import ops


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

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

    Attributes:
        failure: the first such reason; None while there is none.
    """

    def __init__(self, session: Any, report: Callable[[str], None]) -> None:
        self._session = session
        self._report = report
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self.failure: BaseException | None = None

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
            work = (op, self._close_of(op))
            thread = threading.Thread(target=self._fill, args=work, daemon=True, name=f"tpugraph-queue-{op.name}")
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Say that the session is about to close."""
        self._stopped = True

    def join(self) -> None:
        """Wait for the threads; the session is closed, so that they end."""
        for thread in self._threads:
            thread.join(timeout=10)

    def _fill(self, op: Any, close: Any) -> None:
        """Fill a queue; it is closed where that ends, or whoever takes from it would wait for ever."""
        failure: BaseException | None = None
        try:
            run = self._session.make_callable(op)
            while not self._stopped:
                run()
            return
        except (tf.errors.OutOfRangeError, tf.errors.CancelledError):
            pass  # the end of its input, or of the session
        except (tf.errors.OpError, RuntimeError) as error:
            failure = error
        if self._stopped:
            return
        if failure is not None:
            self._report(f"the queue '{op.name}' stopped: {str(failure).splitlines()[0]}")
            self.failure = self.failure or failure
        try:
            self._session.run(close)
        except (tf.errors.CancelledError, RuntimeError):
            if not self._stopped:  # else the session was closed in this moment, and its queues with it
                raise

    def _close_of(self, op: Any) -> Any:
        """What closes the queue that an op puts into: the graph's own op, or one that is made."""
        graph, queue = self._session.graph, op.inputs[0]
        own = [c for c in graph.get_operations() if c.type in ops.QUEUE_CLOSES and c.inputs[0] is queue]
        if own:
            return own[0]
        make = tf.raw_ops.QueueCloseV2 if queue.dtype == tf.resource else tf.raw_ops.QueueClose
        with graph.as_default(), tf.device(queue.device):
            return make(handle=queue)

"""The TensorFlow session of a TPU graph: runs, queue runners, stalled runs, failures."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.util import deprecation

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph
from tpugraph.runtime import failures
from tpugraph.support.errors import RunError, TpuGraphError

IDLE_SECONDS = 600.0  # the default for stalled runs: a file or a socket may recover after minutes
_TICK = 0.25
_BUSY = 0.005  # CPU seconds per tick above which the process is busy: less than a step takes, more than idle servers do


class StallWatch:
    """Ends the runs of a session where the process is idle for ``seconds`` (never where 0).

    Attributes:
        why: why a run was ended; "" if none was.
    """

    def __init__(self, end: Callable[[], None], seconds: float | None = None) -> None:
        self._end = end
        self._seconds = IDLE_SECONDS if seconds is None else seconds
        self._state = threading.Condition()
        self._runs = 0
        self._stopped = not self._seconds
        self._thread: threading.Thread | None = None
        self.why = ""

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Watch the runs in the block: a stalled one is ended, and ``why`` is set."""
        with self._state:
            self._runs += 1
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._watch, name="tpugraph-watch", daemon=True)
                self._thread.start()
            self._state.notify()
        try:
            yield
        finally:
            with self._state:
                self._runs -= 1

    def stop(self) -> None:
        with self._state:
            self._stopped = True
            self._state.notify()

    def _watch(self) -> None:
        idle, used = 0.0, time.process_time()
        while idle < self._seconds:
            with self._state:
                while not self._runs and not self._stopped:
                    self._state.wait()
                    idle = 0.0
            if self._stopped:
                return
            time.sleep(_TICK)
            before, used = used, time.process_time()
            idle = idle + _TICK if self._runs and used - before < _BUSY else 0.0
        self.why = f"nothing went on for {self._seconds:g} s"
        self._end()


STEPS = "tpugraph/iterations_per_loop"  # the variable with the trip count of a loop
_FAILURES = (tf.errors.OpError, RuntimeError)
_ENDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError)  # the end of a queue's input, or of the session


class GraphSession:
    """A TensorFlow session on a graph with entry points.

    Attributes:
        graph: the ``tf.Graph``.
        session: the ``tf.compat.v1.Session``, or the session of a cluster.
        names: the names of the graph's ops before the session added any.
        steps_per_loop: the steps of a loop by the conversion.
        source: the graph's origin, for messages.
        closed: whether it is closed, deliberately or by a failure.
        watch: ends stalled runs.
    """

    def __init__(
        self, graph: Graph, start: Callable[[Any], Any], *, files: set[str], note: Callable[[str], None],
        stall_seconds: float | None = None,
    ) -> None:  # fmt: skip
        self.source = graph.source
        self.graph = shapes.import_graph(graph)
        self.session = start(self.graph)
        self.names: Set[str] = {op.name for op in self.graph.get_operations()}
        self.closed = False
        self.watch = StallWatch(self.session.close, stall_seconds)
        self._files = files
        self._note = note
        self._callables: dict[tuple[str, ...], Any] = {}
        self._queue_runners = QueueRunners(self.session)
        first = self.graph.get_operation_by_name(f"{STEPS}/Initializer").get_attr("value")
        self.steps_per_loop = int(tf.make_ndarray(first))
        self._steps = -1
        self._set_steps = self._steps_setter()

    # ------------------------------------------------------------------ runs

    def run(self, fetch: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        with self.translated():
            return self.session.run(fetch, feed_dict=feed)

    def call(self, *names: str) -> list[Any]:
        """The values of tensors by name; prepared at the first call, for repeated runs."""
        if names not in self._callables:
            self._callables[names] = self.session.make_callable([self.graph.as_graph_element(name) for name in names])
        with self.translated():
            return list(self._callables[names]())

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            with self.watch.during():
                yield
        except _FAILURES as error:
            raise self.translate(error) from error

    def translate(self, error: BaseException) -> TpuGraphError:
        if isinstance(error, tf.errors.OutOfRangeError):
            error = self._queue_runners.failure or error  # the data ended because a queue runner failed
        found = failures.translate(error, self.graph, self.source, self._files)
        return failures.stalled(self.watch.why, found) if self.watch.why else found

    def raise_failure_of_input(self) -> None:
        """Raise where the data ended because a queue runner failed."""
        if self._queue_runners.failure is not None:
            raise self.translate(self._queue_runners.failure)

    def require_open(self) -> None:
        if self.closed:
            raise RunError("the session is closed", fix="open a new TPUSession")

    # ------------------------------------------------------------------ the length of a loop

    def set_steps(self, steps: int) -> None:
        if steps != self._steps:
            self._set_steps(steps)
            self._steps = steps

    def steps_were_reset(self) -> None:
        """Called after the variables, including the trip count, have been reset."""
        self._steps = -1

    def _steps_setter(self) -> Any:
        with self.graph.as_default():
            handle = self.graph.get_operation_by_name(STEPS).outputs[0]
            value = tf.compat.v1.placeholder(tf.int32, [], name=f"{STEPS}/value")
            assign = tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        return self.session.make_callable(assign, feed_list=[value])

    # ------------------------------------------------------------------ life

    def fill_queues(self) -> None:
        """Start the queue runners; idempotent."""
        self._queue_runners.start()

    def fail(self) -> None:
        """Called after a failure has closed the TensorFlow session."""
        self.closed = True
        self._queue_runners.stop()
        self.watch.stop()

    def close(self) -> None:
        """Shut the TPU system down and release the TensorFlow session."""
        self.closed = True
        self._queue_runners.stop()
        self.watch.stop()
        try:
            self.session.run("tpugraph/shutdown")
        except (*_FAILURES, TpuGraphError) as error:
            self._note(f"shutdown: {str(error).splitlines()[0]}")
        finally:
            self.session.close()  # cancels pending runs
            self._queue_runners.join()


class QueueRunners:
    """Fills the queues of a graph, one thread per queue runner, until their input ends or the session closes."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._coordinator = tf.compat.v1.train.Coordinator()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        graph = self._session.graph
        for op in graph.get_operations() if not self._threads else ():
            queue = op.inputs[0] if op.type in ops.ENQUEUES else None
            if queue is None or queue.op.name.startswith("tpugraph/") or queue.op.type in ops.ENTER:
                continue
            close = tf.raw_ops.QueueCloseV2 if queue.dtype == tf.resource else tf.raw_ops.QueueClose
            with graph.as_default(), tf.device(queue.device), deprecation.silence():
                ends = [close(handle=queue, cancel_pending_enqueues=cancel) for cancel in (False, True)]
                runner = tf.compat.v1.train.QueueRunner(queue.op, [op], *ends, _ENDS)
            self._threads += runner.create_threads(self._session, self._coordinator, daemon=True, start=True)

    @property
    def failure(self) -> Exception | None:
        try:
            self._coordinator.raise_requested_exception()
        except (tf.errors.OpError, RuntimeError) as error:
            return error
        return None

    def stop(self) -> None:
        self._coordinator.request_stop()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=10)

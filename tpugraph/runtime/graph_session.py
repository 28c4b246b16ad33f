"""The TensorFlow session of a TPU graph: its runs, the queues that it fills, the end of runs that stand still, its failures."""

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

IDLE_SECONDS = 600.0  # how long a run may be idle: a file or a socket may come back after minutes
_TICK = 0.25
_BUSY = 0.001  # seconds of processor time in a tick from which on the process is at work; a step takes more, and the watch less


class StallWatch:
    """Watches the runs of a session, and ends them where the process is idle for too long (never where ``seconds`` is 0).

    Attributes:
        why: why a run was ended; "" while none was.
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
        """Watch what runs in the block: what stands still is ended, and ``why`` says why."""
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


STEPS = "tpugraph/iterations_per_loop"  # the variable that holds the number of steps of a loop
_FAILURES = (tf.errors.OpError, RuntimeError)
_ENDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError)  # what fills a queue has ended, or the session


class GraphSession:
    """A TensorFlow session on a graph that has its entry points.

    Attributes:
        graph: the ``tf.Graph``.
        session: the ``tf.compat.v1.Session``, or what stands for it on a cluster.
        names: the names of the ops that the graph had.
        steps_per_loop: the steps of a loop, as the graph was converted.
        source: where the graph comes from, for messages.
        closed: whether it is closed, on purpose or by a failure.
        watch: ends runs that stand still.
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
        """The values of tensors by name; made ready at the first call, for what runs again and again."""
        if names not in self._callables:
            self._callables[names] = self.session.make_callable([self.graph.as_graph_element(name) for name in names])
        with self.translated():
            return list(self._callables[names]())

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Work in the TensorFlow session, whose errors become those of tpugraph."""
        try:
            with self.watch.during():
                yield
        except _FAILURES as error:
            raise self.translate(error) from error

    def translate(self, error: BaseException) -> TpuGraphError:
        if isinstance(error, tf.errors.OutOfRangeError):
            error = self._queue_runners.failure or error  # the data ended because what fills the queue failed
        found = failures.translate(error, self.graph, self.source, self._files)
        return failures.stalled(self.watch.why, found) if self.watch.why else found

    def raise_failure_of_input(self) -> None:
        """Raise where the data ended because what fills a queue failed."""
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
        """Hear that the variables, and so the length of a loop, have their first values again."""
        self._steps = -1

    def _steps_setter(self) -> Any:
        with self.graph.as_default():
            handle = self.graph.get_operation_by_name(STEPS).outputs[0]
            value = tf.compat.v1.placeholder(tf.int32, [], name=f"{STEPS}/value")
            assign = tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        return self.session.make_callable(assign, feed_list=[value])

    # ------------------------------------------------------------------ life

    def fill_queues(self) -> None:
        """Start the threads that fill the queues of an old input pipeline; starting twice is fine."""
        self._queue_runners.start()

    def fail(self) -> None:
        """Hear that a failure has closed the TensorFlow session."""
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
            self.session.close()  # cancels what still waits
            self._queue_runners.join()


class QueueRunners:
    """Fills the queues of a graph, each from a thread of its own, until their input ends or the session closes."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._coordinator = tf.compat.v1.train.Coordinator()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start filling; starting twice is fine."""
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
        """The first reason for which a queue is filled no longer."""
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

"""A TensorFlow session on a cluster that never waits for ever.

A wait on a cluster may last for ever without a word. So every run has a deadline without progress, the workers are asked
all the while whether they are alive, and what fails names the worker that is silent.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

from tpugraph.runtime.cluster.workers import ANSWER_SECONDS, CLUSTER, PROBE_SECONDS, WorkerJob, configured, listed
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1

PATIENCE = 300.0
"""Seconds that may pass without a finished step, where the session's configuration has no operation_timeout_in_ms."""

_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError, tf.errors.UnknownError,
         tf.errors.CancelledError, tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError,
         tf.errors.NotFoundError)  # fmt: skip
"""What a session says when a worker is lost; the worker itself is asked then."""


class WatchedSession:
    """A ``tf.compat.v1.Session`` on a cluster, none of whose runs waits for a worker that is gone.

    Args:
        cluster: the workers; the first one alone where only the master is known.
        graph: the ``tf.Graph``.
        config: a ``tf.compat.v1.ConfigProto``; its operation_timeout_in_ms is the time that may pass without progress.
        progress: name of a tensor that changes while a run gets on.
    """

    def __init__(self, cluster: WorkerJob, graph: Any, config: Any = None, *, progress: str | None = None) -> None:
        self._cluster = cluster
        self.graph = graph
        self._progress = progress
        limit = 0 if config is None else config.operation_timeout_in_ms
        self._patience = limit / 1000 if limit else PATIENCE
        self._lost = False
        self._session = tf1.Session(cluster.master, graph=graph, config=configured(config, cluster.job))

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, *, options: Any = None) -> Any:
        """As ``tf.compat.v1.Session.run``.

        Raises:
            RunError: a worker is gone, or nothing went on for too long.
        """
        if self._lost:
            raise RunError("the session has lost a worker", stage=CLUSTER, fix="open a new one when all workers answer")
        return self._watch(lambda: self._session.run(fetches, feed_dict, options))

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] = ()) -> Callable[..., Any]:
        """As ``tf.compat.v1.Session.make_callable``."""
        return lambda *values: self.run(fetches, dict(zip(feed_list, values, strict=True)))

    def close(self) -> None:
        """Release it; without waiting where a worker is gone."""

        def release() -> None:
            with suppress(tf.errors.OpError):  # the worker that held it may be another by now
                self._session.close()

        closing = threading.Thread(target=release, daemon=True, name="tpugraph-close")
        closing.start()
        closing.join(0.0 if self._lost else ANSWER_SECONDS)

    def _watch(self, work: Callable[[], Any]) -> Any:
        found: list[Any] = []
        failed: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                found.append(work())
            except BaseException as error:
                failed.append(error)
            finally:
                done.set()

        threading.Thread(target=run, daemon=True, name="tpugraph-cluster").start()
        silent: set[int] = set()
        moved, seen = time.monotonic(), None
        while not done.wait(PROBE_SECONDS):
            again = set(self._cluster.silent())
            if silent & again:
                self._lose(sorted(silent & again))
            silent = again
            step = self._step() if time.monotonic() - moved > self._patience / 4 else seen
            if step != seen:
                moved, seen = time.monotonic(), step
            if time.monotonic() - moved > self._patience:
                self._lost = True
                raise RunError(
                    f"no step was finished in {self._patience:g} s, though all {len(self._cluster.addresses)} workers answer",
                    stage=CLUSTER,
                    fix="start the workers with tpugraph.runtime.cluster.workers.serve (others lack collective_group_leader), "
                    "or set operation_timeout_in_ms in the session_config where a step takes longer",
                )
        if not failed:
            return found[0]
        if isinstance(failed[0], _LOST):
            self._find_lost(failed[0])
        raise failed[0]

    def _step(self) -> Any:
        """How far a run has got; None where that is not known."""
        if self._progress is None:
            return None
        try:
            return self._session.run(self._progress, options=tf1.RunOptions(timeout_in_ms=2000))
        except tf.errors.OpError:
            return None

    def _find_lost(self, error: BaseException) -> None:
        """Raise where the cause of an error is a worker that is gone; it may have come back already."""
        silent = self._cluster.silent(2.0)
        if silent:
            self._lose(silent, error)
        text = str(error)
        if isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)) or "incarnation" in text:
            match = re.search(r"/task:(\d+)", text)
            self._lose([int(match[1])] if match else [], error)

    def _lose(self, tasks: Sequence[int], cause: BaseException | None = None) -> None:
        self._lost = True
        who = listed([self._cluster.name(task) for task in tasks]) if tasks else "a worker"
        told = "" if cause is None else f" ({type(cause).__name__})"
        raise RunError(
            f"{who} was lost during the run{told}",
            stage=CLUSTER,
            fix="start it again; training goes on from the last checkpoint",
        ) from cause

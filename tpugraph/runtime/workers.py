"""A cluster of workers: TensorFlow servers, one per host, that one session uses together, and never waits for without an end.

A wait on a cluster may last for ever without a word. So every run has a deadline without progress, the workers are asked
all the while whether they are alive, and what fails names the worker that is silent.
"""

from __future__ import annotations

import errno
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import tensorflow as tf

from tpugraph.ir.session_config import guarded
from tpugraph.support.errors import RunError, UsageError
from tpugraph.support.process import ended, in_thread

tf1 = tf.compat.v1
_THREAD = "tpugraph-cluster"
CLUSTER = "cluster"  # the stage of an error whose cause is a worker
PROBE_SECONDS = 1.0
ANSWER_SECONDS = 5.0
PATIENCE = 300.0
"""Seconds that may pass without a finished step, where the session's configuration has no operation_timeout_in_ms."""

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4


@dataclass(frozen=True)
class WorkerJob:
    """The workers: the name of their job, and of each task its ``host:port``."""

    job: str
    addresses: tuple[str, ...]

    @property
    def master(self) -> str:
        return f"grpc://{self.addresses[0]}"

    def name(self, task: int) -> str:
        return f"worker {task} (grpc://{self.addresses[task]})" if task < len(self.addresses) else f"worker {task}"

    def silent(self, seconds: float | None = None) -> list[int]:
        """The workers that do not answer within this time; all are asked at once."""
        limit = ANSWER_SECONDS if seconds is None else seconds
        asked = [in_thread(partial(answers, address, limit), _THREAD) for address in self.addresses]
        return [task for task, answer in enumerate(asked) if not (ended(answer) and answer.result())]

    def silent_for(self, seconds: float) -> list[int]:
        """The workers that have not answered by then; it waits until all have."""
        until = time.monotonic() + seconds
        while silent := self.silent(min(max(until - time.monotonic(), PROBE_SECONDS), ANSWER_SECONDS)):
            if time.monotonic() >= until:
                break
            time.sleep(min(PROBE_SECONDS, max(until - time.monotonic(), 0.0)))
        return silent

    def wait(self, seconds: float) -> None:
        if silent := self.silent_for(seconds):
            verb = "does" if len(silent) == 1 else "do"
            raise RunError(
                f"{self.listed(silent)} of {len(self.addresses)} {verb} not answer within {seconds:g} s", stage=CLUSTER,
                fix=f"see that it runs there: tpugraph worker --workers={','.join(self.addresses)} --task={silent[0]}",
            )  # fmt: skip

    def listed(self, tasks: Sequence[int]) -> str:
        return ", ".join(map(self.name, tasks[:4])) + (", ..." if len(tasks) > 4 else "")


def cluster_of(value: Any) -> WorkerJob | None:
    """The workers of a ``tf.train.ClusterSpec``, a dict of jobs, or a list of addresses; None of None."""
    if value is None or isinstance(value, WorkerJob):
        return value
    if isinstance(value, (list, tuple)):
        jobs: dict[str, Any] = {"worker": list(value)}
    elif isinstance(value, (dict, tf.train.ClusterSpec)):
        jobs = tf.train.ClusterSpec(value).as_dict()
    else:
        raise UsageError(f"cluster is {value!r}", fix='cluster={"worker": ["10.0.0.2:8470", "10.0.0.3:8470"]}')
    job = "worker" if "worker" in jobs else next(iter(jobs), "")
    found = tuple(str(address).removeprefix("grpc://") for address in jobs.get(job, ()))
    if not found:
        raise UsageError("the cluster has no workers", fix='cluster={"worker": ["10.0.0.2:8470", "10.0.0.3:8470"]}')
    return WorkerJob(job, found)


def answers(address: str, seconds: float) -> bool:
    """Whether a server of gRPC answers: it greets whoever connects, as long as its process runs."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as connection:
            connection.sendall(_HELLO)
            found = connection.recv(9)
            return len(found) > 3 and found[3] == _SETTINGS
    except (OSError, ValueError):
        return False


def configured(config: Any) -> Any:
    made = guarded(config, converted=True)
    made.isolate_session_state = True
    made.operation_timeout_in_ms = 0  # it bounds the time without progress, not that of a whole loop
    return made


# --------------------------------------------------------------------------- the server of a worker


def serve(workers: Sequence[str], index: int) -> Any:
    """Start the server of one worker in this process.

    Args:
        workers: the addresses of all workers, the same list on each.
        index: which of them this is.

    Returns:
        The running ``tf.distribute.Server``; its ``join()`` waits for ever.

    Raises:
        UsageError: no such index, an address that is none, or one that is not of this host.
        RunError: it cannot start, its port is taken for example.
    """
    if not 0 <= index < len(workers):
        raise UsageError(f"there is no worker {index} among {len(workers)}", fix=f"0 to {len(workers) - 1}")
    addresses = [address.removeprefix("grpc://") for address in workers]
    places = [host_and_port(address) for address in addresses]
    _check_own(addresses[index], *places[index])
    try:
        return tf.distribute.Server({"worker": addresses}, job_name="worker", task_index=index, config=configured(None))
    except tf.errors.OpError as error:
        raise RunError(f"worker {index} cannot serve at {addresses[index]}: {error.message}",
                       fix="see that nothing else listens on that port") from error  # fmt: skip


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"the worker '{address}' is no HOST:PORT with a port from 1 to 65535",
                         fix="an address such as 10.0.0.2:8470")  # fmt: skip
    return host.strip("[]"), int(port)


def _check_own(address: str, host: str, port: int) -> None:
    """See that an address is one of this host, on a port that is free."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except socket.gaierror as error:
        raise UsageError(f"the host of the worker '{address}' cannot be found: {error.strerror}",
                         fix="an address of this host") from error  # fmt: skip
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(f"the worker '{address}' is not on this host, so that it cannot be started here",
                             fix="--task=INDEX of the address in --workers that is this host's") from error  # fmt: skip
        raise RunError(f"the worker cannot listen at '{address}': {error.strerror}",
                       fix="end what uses the port, or give another") from error  # fmt: skip


# --------------------------------------------------------------------------- the session

_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError, tf.errors.UnknownError,
         tf.errors.CancelledError, tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError,
         tf.errors.NotFoundError)  # fmt: skip
"""What a session says when a worker is lost; the worker itself is asked then."""


class WatchedSession:
    """A ``tf.compat.v1.Session`` on a cluster, none of whose runs waits for a worker that is gone.

    The ``operation_timeout_in_ms`` of ``config`` is the time that may pass without progress, which the tensor ``progress`` shows.
    """

    def __init__(self, cluster: WorkerJob, graph: Any, config: Any = None, *, progress: str | None = None) -> None:
        self._cluster = cluster
        self.graph = graph
        self._progress = progress
        limit = 0 if config is None else config.operation_timeout_in_ms
        self._patience = limit / 1000 if limit else PATIENCE
        self._lost = False
        self._session = tf1.Session(cluster.master, graph=graph, config=configured(config))

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, *, options: Any = None) -> Any:
        if self._lost:
            raise RunError("the session has lost a worker", stage=CLUSTER, fix="open a new one when all workers answer")
        running = in_thread(lambda: self._session.run(fetches, feed_dict, options), _THREAD)
        self._watch(running)
        try:
            return running.result()
        except _LOST as error:
            self._find_lost(error)
            raise

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] = ()) -> Callable[..., Any]:
        return lambda *values: self.run(fetches, dict(zip(feed_list, values, strict=True)))

    def close(self) -> None:
        """Release it; without waiting where a worker is gone."""

        def release() -> None:
            with suppress(tf.errors.OpError):  # the worker that held it may be another by now
                self._session.close()

        wait_for([in_thread(release, _THREAD)], 0.0 if self._lost else ANSWER_SECONDS)

    def _watch(self, running: Future[Any]) -> None:
        silent: set[int] = set()
        moved, seen = time.monotonic(), None
        while not wait_for([running], PROBE_SECONDS).done:
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
                    fix="operation_timeout_in_ms in the session_config, where a step takes longer",
                )

    def _step(self) -> Any:
        """How far a run has got; None where that is not known."""
        if self._progress is None:
            return None
        try:
            return self._session.run(self._progress, options=tf1.RunOptions(timeout_in_ms=2000))
        except tf.errors.OpError:
            return None

    def _find_lost(self, error: tf.errors.OpError) -> None:
        """Raise where the cause of an error is a worker that is gone; it may have come back already."""
        silent = self._cluster.silent(2.0)
        if silent:
            self._lose(silent, error)
        if isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)) or "incarnation" in str(error):
            match = re.search(r"/task:(\d+)", str(error))
            self._lose([int(match[1])] if match else [], error)

    def _lose(self, tasks: Sequence[int], cause: BaseException | None = None) -> NoReturn:
        self._lost = True
        who = self._cluster.listed(tasks) if tasks else "a worker"
        told = "" if cause is None else f" ({type(cause).__name__})"
        raise RunError(f"{who} was lost during the run{told}", stage=CLUSTER,
                       fix="start it again; training goes on from the last checkpoint") from cause  # fmt: skip

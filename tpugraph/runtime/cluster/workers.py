"""A cluster of workers: TensorFlow servers, one per host, that one session uses together."""

from __future__ import annotations

import errno
import re
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph.ir.session_config import guarded
from tpugraph.support.errors import RunError, UsageError

CLUSTER = "cluster"
"""The stage of an error whose cause is a worker."""

PROBE_SECONDS = 1.0
ANSWER_SECONDS = 5.0
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4


@dataclass(frozen=True)
class WorkerJob:
    """The workers.

    Attributes:
        job: the name of their job.
        addresses: of each task its ``host:port``.
    """

    job: str
    addresses: tuple[str, ...]

    @property
    def master(self) -> str:
        """The address for the session: that of the first worker."""
        return f"grpc://{self.addresses[0]}"

    def name(self, task: int) -> str:
        """A worker, for messages."""
        return f"worker {task} (grpc://{self.addresses[task]})" if task < len(self.addresses) else f"worker {task}"

    def silent(self, seconds: float = ANSWER_SECONDS) -> list[int]:
        """The workers that do not answer within this time; all are asked at once."""
        found: dict[int, bool] = {}

        def ask(task: int) -> None:
            found[task] = answers(self.addresses[task], seconds)

        threads = [threading.Thread(target=ask, args=[task], daemon=True, name="tpugraph-ask") for task in self._tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)  # not for good: Ctrl-C shall end the wait, and leave the threads behind
        return [task for task in self._tasks if not found.get(task)]

    @property
    def _tasks(self) -> range:
        return range(len(self.addresses))

    def wait(self, seconds: float) -> None:
        """Wait until all workers answer.

        Raises:
            RunError: they do not within this time; they are named.
        """
        until = time.monotonic() + seconds
        while silent := self.silent(min(max(until - time.monotonic(), PROBE_SECONDS), ANSWER_SECONDS)):
            if time.monotonic() >= until:
                names = listed([self.name(task) for task in silent])
                verb = "does" if len(silent) == 1 else "do"
                raise RunError(
                    f"{names} of {len(self.addresses)} {verb} not answer within {seconds:g} s",
                    stage=CLUSTER,
                    fix=f"see that it runs there: tpugraph worker --workers={','.join(self.addresses)} --task={silent[0]}",
                )
            time.sleep(min(PROBE_SECONDS, max(until - time.monotonic(), 0.0)))


def cluster_of(value: Any) -> WorkerJob | None:
    """The workers of a ``tf.train.ClusterSpec``, a dict of jobs, or a list of addresses; None of None.

    Raises:
        UsageError: it has no workers, or none of this form.
    """
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


def answers(address: str, seconds: float = ANSWER_SECONDS) -> bool:
    """Whether a server of gRPC answers: it greets whoever connects, as long as its process runs."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as connection:
            connection.sendall(_HELLO)
            found = connection.recv(9)
            return len(found) > 3 and found[3] == _SETTINGS
    except (OSError, ValueError):
        return False


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of an address.

    Raises:
        UsageError: it is no HOST:PORT with a port from 1 to 65535.
    """
    host, _, port = address.removeprefix("grpc://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"the worker '{address}' is no HOST:PORT with a port from 1 to 65535",
                         fix="an address such as 10.0.0.2:8470")  # fmt: skip
    return host.strip("[]"), int(port)


def check_own(address: str) -> None:
    """See that an address is one of this host, on a port that is free.

    Raises:
        UsageError: it is not, or cannot be found.
        RunError: the port is taken.
    """
    host, port = host_and_port(address)
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


def serve(workers: Sequence[str], index: int, *, job: str = "worker", config: Any = None) -> Any:
    """Start the server of one worker in this process.

    Args:
        workers: the addresses of all workers, the same list on each.
        index: which of them this is.
        job: the name of their job.
        config: a ``tf.compat.v1.ConfigProto``.

    Returns:
        The running ``tf.distribute.Server``; its ``join()`` waits for ever.

    Raises:
        UsageError: no such index, an address that is none, or one that is not of this host.
        RunError: it cannot start, its port is taken for example.
    """
    if not 0 <= index < len(workers):
        raise UsageError(f"there is no worker {index} among {len(workers)}", fix=f"0 to {len(workers) - 1}")
    addresses = [address.removeprefix("grpc://") for address in workers]
    for address in addresses:
        host_and_port(address)
    check_own(addresses[index])
    try:
        return tf.distribute.Server({job: addresses}, job_name=job, task_index=index, config=configured(config, job))
    except tf.errors.OpError as error:
        raise RunError(f"worker {index} cannot serve at {addresses[index]}: {error.message}",
                       fix="see that nothing else listens on that port") from error  # fmt: skip


def configured(config: Any, job: str) -> Any:
    """A session's or server's configuration, with the worker that leads the collectives; it must be the same in both."""
    made = guarded(config, converted=True)
    made.experimental.collective_group_leader = f"/job:{job}/replica:0/task:0"
    made.isolate_session_state = True
    made.operation_timeout_in_ms = 0  # it bounds the time without progress, not that of a whole loop
    return made


def host_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """The CPU of each task among the names of a master's devices, in the order of the tasks."""
    found: dict[int, str] = {}
    for name in devices:
        match = re.search(r"/task:(\d+)/device:CPU:0$", name)
        if match and "/job:localhost/" not in name:
            found[int(match[1])] = name
    return tuple(found[task] for task in sorted(found))


def listed(names: Sequence[str]) -> str:
    """The first few of the names, for a message."""
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")

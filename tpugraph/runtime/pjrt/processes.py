"""Joins processes, so that they run one program on the devices of all of them, and tells which one is lost.

They meet on a socket before jax joins them: where one does not come, jax waits deaf to Ctrl-C and then ends the process. The
connections stay: one that closes says which process has ended, while jax says nothing, waits, or ends this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator

from tpugraph.support.errors import RunError, UsageError
from tpugraph.xla import jax_client

_GO = b"go\n"
_HELLO = re.compile(rb"tpugraph (\d{1,6})\n")
_WAIT = 0.2
_DONE = b"done\n"
_GRACE = 20.0
"""Seconds that jax has to notice that another process is lost, before this one is ended."""

_links: dict[int, socket.socket] = {}
"""By the number of a process, the connection to it: process 0 has one to each, the others have one to process 0."""

_ended: list[socket.socket] = []
"""Connections to those that ended as they should; closed, they would say there that this process is lost."""

_lost: list[int] = []
_is_lost = threading.Event()


def meet(coordinator: str, processes: int, process: int, seconds: float) -> dict[int, socket.socket]:
    """Wait until all processes are there; returns the connections, by the number of the process."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"the coordinator '{coordinator}' is no HOST:PORT with a port from 1 to 65535",
                         fix="the address of process 0, such as 10.0.0.2:8476")  # fmt: skip
    place, until = (host.strip("[]"), int(port)), time.monotonic() + seconds
    if process == 0:
        return _gather(place, set(range(1, processes)), until, seconds)
    return {0: _come(place, process, until, seconds)}


def _gather(place: tuple[str, int], missing: set[int], until: float, seconds: float) -> dict[int, socket.socket]:
    """Wait for the others, and let them go."""
    came: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as open_:
        try:
            family = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0][0]
            listener = socket.create_server(place, family=family)
        except OSError as error:
            raise UsageError(f"process 0 cannot listen at the coordinator's address {place[0]}:{place[1]}: {error.strerror}",
                             fix="an address of this host with a free port") from error  # fmt: skip
        open_.callback(listener.close)
        listener.settimeout(_WAIT)
        while missing - set(came):
            if time.monotonic() > until:
                absent = ", ".join(map(str, sorted(missing - set(came))[:8]))
                raise RunError(f"of {len(missing) + 1} processes these did not come to {place[0]}:{place[1]} within "
                               f"{seconds:g} s: {absent}",
                               fix="start all processes with the same --coordinator and --processes")  # fmt: skip
            with contextlib.suppress(OSError):  # who does not say hello in time comes again or is no process of ours
                connection = open_.enter_context(listener.accept()[0])
                connection.settimeout(_WAIT)
                hello = _HELLO.fullmatch(connection.recv(64))
                if hello is not None and int(hello[1]) in missing:
                    came[int(hello[1])] = connection
        for connection in came.values():
            connection.sendall(_GO)
        open_.pop_all()
        listener.close()
        return came


def _come(place: tuple[str, int], process: int, until: float, seconds: float) -> socket.socket:
    """Tell process 0 that this one is there, and wait until it may go."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_:
            connection = open_.enter_context(socket.create_connection(place, timeout=1.0))
            connection.sendall(f"tpugraph {process}\n".encode())
            while time.monotonic() < until:
                try:
                    answer = connection.recv(8)
                except TimeoutError:
                    continue
                if answer == _GO:
                    open_.pop_all()
                    return connection
                break
        time.sleep(_WAIT)
    raise RunError(f"process 0 does not answer at the coordinator's address {place[0]}:{place[1]} within {seconds:g} s, or not "
                   "all processes came there",
                   fix="start all processes with the same --coordinator and --processes")  # fmt: skip


def join(coordinator: str, processes: int, process: int, *, platform: str, cores: int, seconds: float = 300) -> None:
    """Join this process with others, before anything asks jax for devices."""
    if not 0 <= process < processes:
        raise UsageError(f"there is no process {process} of {processes}", fix=f"0 to {processes - 1}")
    if cores % processes:
        raise UsageError(f"{cores} cores cannot be dealt out to {processes} processes",
                         fix=f"convert with --num_replicas={-(-cores // processes) * processes}")  # fmt: skip
    jax = jax_client.load("jax", "pjrt")
    if processes > 1:
        _links.update(meet(coordinator, processes, process, seconds))
        threading.Thread(target=_watch, name="tpugraph-processes", daemon=True).start()
        atexit.register(_say_done)
    try:
        if platform == "cpu":
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", cores // processes)
        jax.distributed.initialize(coordinator, processes, process)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"process {process} cannot join the others at {coordinator}: {str(error).splitlines()[0][:200]}",
                       fix="start all processes with the same coordinator, which process 0 listens at, before anything there uses "
                       "jax") from error  # fmt: skip


def _watch() -> None:
    """Read what the connections say; end this process where another one is lost and jax waits for it all the same."""
    while _links:
        for link in select.select(list(_links.values()), [], [], _WAIT)[0]:
            process = next(number for number, other in _links.items() if other is link)
            try:
                told = link.recv(64)
            except OSError:  # reset
                told = b""
            if told == _DONE:
                _ended.append(_links.pop(process))
            elif process not in _lost:
                _lost.extend([int(number) for number in told.split()] or [process])
        if _lost:
            _is_lost.set()
            _tell(" ".join(map(str, _lost)).encode())
            if 0 not in _lost:  # without process 0 jax ends this one at once, and names nobody
                time.sleep(_GRACE)
            print(_error().block(), file=sys.stderr, flush=True)
            os._exit(2)


def _tell(words: bytes) -> None:
    """Tell those that are left; only process 0 has a connection to more than one."""
    for process, link in list(_links.items()):  # the watch removes those that are done
        if process not in _lost:
            with contextlib.suppress(OSError):
                link.sendall(words)


def _say_done() -> None:
    _tell(_DONE)


def _error() -> RunError:
    ended = f"process {', '.join(map(str, sorted(_lost)))} has ended" if _lost else "a process does not answer"
    return RunError(f"{ended}, and the others cannot go on without it",
                    fix="start all again: training goes on from the newest checkpoint, on any number of hosts")  # fmt: skip


@contextlib.contextmanager
def naming_the_lost() -> Iterator[None]:
    """What fails in jax as another process has ended is an error that names it.

    Raises:
        RunError: a joined process has ended.
    """
    jax = jax_client.load("jax", "pjrt")
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not _links:
            raise
        _is_lost.wait(_GRACE)
        raise _error() from error

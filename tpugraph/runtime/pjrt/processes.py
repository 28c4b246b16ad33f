"""Joins processes to run one program on the devices of all, and reports which one is lost.

They connect by sockets before jax joins them, since jax waits for a missing process without reacting to Ctrl-C and then ends
the process. The connections stay open: one that closes tells which process has ended, where jax would hang or end this process.
"""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import json
import os
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from tpugraph.support.errors import RunError, UsageError
from tpugraph.xla import jax_client

_GO = b"go\n"
_HELLO = re.compile(rb"tpugraph (\d{1,6}) (.*)\n")
_LONGEST = 1 << 20
"""The longest line of a message, in bytes."""
_WAIT = 0.2
_DONE = b"done\n"
_GRACE = 20.0
"""Seconds for jax to notice a lost process before this one is ended."""

_HEARTBEAT = 60
"""Seconds after which jax ends this process where another one, or its host, stands still and keeps its connections."""

_links: dict[int, socket.socket] = {}
"""The connection to each process, by its index: process 0 has one to each, the others have one to process 0."""

_ended: list[socket.socket] = []
"""Connections to processes that ended regularly; closing them would report this process as lost there."""

_lost: list[int] = []
_is_lost = threading.Event()


def detect(seconds: float) -> tuple[str, int, int]:
    """The coordinator's address, the number of processes and this one's index, by jax's cluster detection.

    Raises:
        UsageError: jax detects no cluster.
        RunError: the cluster does not answer jax.
    """
    cluster = jax_client.load("jax._src.clusters", "pjrt").ClusterEnv
    asked = (os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, int(seconds))
    try:
        coordinator, processes, process, _ = cluster.auto_detect_unset_distributed_params(*asked)
    except (RuntimeError, ValueError, LookupError, ImportError, OSError) as error:
        raise RunError(f"jax finds a cluster, but not its processes: {type(error).__name__}: {error}",
                       fix="--coordinator=HOST:PORT, --processes=N and --process=K say the same") from error  # fmt: skip
    if None in (coordinator, processes, process):
        raise UsageError("jax finds no cluster that this process is part of: it knows TPU hosts of GKE and Compute Engine, Slurm "
                         "and Open MPI", fix="start it by srun or mpirun, or give --coordinator=HOST:PORT, --processes=N and "
                         "--process=K")  # fmt: skip
    return coordinator, processes, process


def meet(coordinator: str, processes: int, process: int, seconds: float, asked: Mapping[str, str]
         ) -> dict[int, socket.socket]:  # fmt: skip
    """Wait until all processes are connected, and check that all have the same arguments; returns the connections by index."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"the coordinator '{coordinator}' is no HOST:PORT with a port from 1 to 65535",
                         fix="the address of process 0, such as 10.0.0.2:8476")  # fmt: skip
    place, until = (host.strip("[]"), int(port)), time.monotonic() + seconds
    if process == 0:
        return _gather(place, set(range(1, processes)), until, seconds, asked)
    return {0: _come(place, process, until, seconds, asked)}


def _listen(place: tuple[str, int]) -> socket.socket:
    """A listener at an address; for a host name on all interfaces, like jax, since it may resolve to a loopback address."""
    try:
        family = {4: socket.AF_INET, 6: socket.AF_INET6}[ipaddress.ip_address(place[0]).version]
        return socket.create_server(place, family=family)
    except ValueError:
        both = socket.has_dualstack_ipv6()
        return socket.create_server(
            ("", place[1]), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both
        )


def _gather(place: tuple[str, int], missing: set[int], until: float, seconds: float, asked: Mapping[str, str]
            ) -> dict[int, socket.socket]:  # fmt: skip
    """Wait for the others, then release them."""
    came: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as open_:
        try:
            listener = open_.enter_context(_listen(place))
        except OSError as error:
            raise UsageError(f"process 0 cannot listen at the coordinator's address {place[0]}:{place[1]}: {error.strerror}",
                             fix="an address of this host with a free port") from error  # fmt: skip
        listener.settimeout(_WAIT)
        while missing - set(came):
            if time.monotonic() > until:
                absent = ", ".join(map(str, sorted(missing - set(came))[:8]))
                raise RunError(f"of {len(missing) + 1} processes these did not come to {place[0]}:{place[1]} within "
                               f"{seconds:g} s: {absent}",
                               fix="start all processes with the same --coordinator and --processes")  # fmt: skip
            # a process that sends no hello in time connects again, or is a stranger
            with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as one:
                connection = one.enter_context(listener.accept()[0])
                connection.settimeout(1.0)
                hello = _HELLO.fullmatch(_line(connection))
                if hello is None:
                    continue
                fault = _difference(int(hello[1]), json.loads(hello[2]), asked)
                if fault:
                    for other in (connection, *came.values()):
                        other.sendall(f"{fault}\n".encode())
                    raise _refused(fault)
                open_.push(one.pop_all())
                came[int(hello[1])] = connection
        for connection in came.values():
            connection.sendall(_GO)
        open_.pop_all()
        listener.close()
        return came


def _line(connection: socket.socket) -> bytes:
    """A line from the other side; "" where the connection is closed."""
    with connection.makefile("rb") as file:
        return file.readline(_LONGEST)


def _difference(number: int, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The first argument that differs between a process and this one, in words; "" where none does."""
    other = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
    said = [" ".join(f"{name}={asked.get(name)}" for name in other) for asked in (theirs, ours)]
    return f"process {number} was started with {said[0]}, and process 0 with {said[1]}" if other else ""


def _refused(fault: str) -> UsageError:
    return UsageError(fault, fix="start all processes with the same model and flags, on the same version of tpugraph")


def _come(
    place: tuple[str, int], process: int, until: float, seconds: float, asked: Mapping[str, str]
) -> socket.socket:
    """Connect to process 0, and wait until it releases this process."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_:
            connection = open_.enter_context(socket.create_connection(place, timeout=1.0))
            connection.sendall(f"tpugraph {process} {json.dumps(asked)}\n".encode())
            while time.monotonic() < until:
                try:
                    answer = connection.recv(_LONGEST)
                except TimeoutError:
                    continue
                if answer == _GO:
                    open_.pop_all()
                    return connection
                if answer:
                    raise _refused(answer.decode().strip())
                break
        time.sleep(_WAIT)
    raise RunError(f"process 0 does not answer at the coordinator's address {place[0]}:{place[1]} within {seconds:g} s, or not "
                   "all processes came there",
                   fix="start all processes with the same --coordinator and --processes")  # fmt: skip


def join(coordinator: str, processes: int, process: int, *, platform: str, cores: int, asked: Mapping[str, str],
         seconds: float = 300) -> None:  # fmt: skip
    """Join this process with others of the same arguments (``asked``), before jax initializes its devices."""
    if not 0 <= process < processes:
        raise UsageError(f"there is no process {process} of {processes}", fix=f"0 to {processes - 1}")
    if cores % processes:
        raise UsageError(f"{cores} cores cannot be divided evenly among {processes} processes",
                         fix=f"convert with --num_replicas={-(-cores // processes) * processes}")  # fmt: skip
    jax = jax_client.load("jax", "pjrt")
    if processes > 1:
        asked = {**asked, "--processes": str(processes), "jax": jax.__version__}
        _links.update(meet(coordinator, processes, process, seconds, asked))
        for link in _links.values():
            _probe(link)
        threading.Thread(target=_watch, name="tpugraph-processes", daemon=True).start()
        atexit.register(_say_done)
    try:
        if platform == "cpu":
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", cores // processes)
        jax.distributed.initialize(coordinator, processes, process, heartbeat_timeout_seconds=_HEARTBEAT)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"process {process} cannot join the others at {coordinator}: {str(error).splitlines()[0][:200]}",
                       fix="start all processes with the same coordinator, which process 0 listens at, before anything there uses "
                       "jax") from error  # fmt: skip


def _probe(link: socket.socket) -> None:
    """Set TCP keepalive: a connection to a dead host closes within half a minute."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
        link.setsockopt(socket.IPPROTO_TCP, option, seconds)


def _watch() -> None:
    """Watch the connections; end this process where another one is lost and jax still waits for it."""
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
            if 0 not in _lost:  # without process 0 jax ends this one at once, and names no process
                time.sleep(_GRACE)
            print(_error().block(), file=sys.stderr, flush=True)
            os._exit(2)


def _tell(words: bytes) -> None:
    """Send a line to the remaining processes; only process 0 is connected to more than one."""
    for process, link in list(_links.items()):  # the watch removes those that are done
        if process not in _lost:
            with contextlib.suppress(OSError):
                link.sendall(words)


def _say_done() -> None:
    _tell(_DONE)


def _error() -> RunError:
    return RunError(f"process {', '.join(map(str, sorted(_lost)))} has ended, and the others cannot go on without it",
                    fix="start all again: training goes on from the newest checkpoint, on any number of hosts")  # fmt: skip


@contextlib.contextmanager
def explaining_errors() -> Iterator[None]:
    """Raises a RunError in place of jax's where a device has too little memory, or another process has ended."""
    jax = jax_client.load("jax", "pjrt")
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if wanted := re.search(r"Out of memory while trying to allocate ([\d.]+ ?\w+)", str(error)):
            raise RunError(
                f"a device has too little memory: {wanted.group(1)} more were needed", fix=jax_client.SMALLER
            ) from error
        if not _links:
            raise
        if not _is_lost.wait(_GRACE):
            raise
        raise _error() from error

"""Processes meet before jax joins them: where one does not come, jax waits deaf to Ctrl-C and then ends the process.

Process 0 listens at the coordinator's address. Each other process connects and says its number; when all have come, process 0
tells them to go, and gives the port up to jax.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time

from tpugraph.support.errors import RunError, UsageError

_GO = b"go\n"
_HELLO = re.compile(rb"tpugraph (\d{1,6})\n")
_WAIT = 0.2


def meet(coordinator: str, processes: int, process: int, seconds: float) -> None:
    """Wait until all processes are there.

    Args:
        coordinator: address of process 0, as host:port.
        processes: how many there are.
        process: the number of this one.
        seconds: how long the others are waited for.

    Raises:
        UsageError: no such address, or not one of this host though this is process 0.
        RunError: not all came in time.
    """
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"the coordinator '{coordinator}' is no HOST:PORT with a port from 1 to 65535",
                         fix="the address of process 0, such as 10.0.0.2:8476")  # fmt: skip
    place, until = (host.strip("[]"), int(port)), time.monotonic() + seconds
    if process == 0:
        _gather(place, set(range(1, processes)), until, seconds)
    else:
        _come(place, process, until, seconds)


def _gather(place: tuple[str, int], missing: set[int], until: float, seconds: float) -> None:
    """Wait for the others, and let them go."""
    came: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as open_:
        try:
            family = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0][0]
            listener = open_.enter_context(socket.create_server(place, family=family))
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
            with contextlib.suppress(
                OSError
            ):  # whoever does not say hello in time comes again or is no process of ours
                connection = open_.enter_context(listener.accept()[0])
                connection.settimeout(_WAIT)
                hello = _HELLO.fullmatch(connection.recv(64))
                if hello is not None and int(hello[1]) in missing:
                    came[int(hello[1])] = connection
        for connection in came.values():
            connection.sendall(_GO)


def _come(place: tuple[str, int], process: int, until: float, seconds: float) -> None:
    """Tell process 0 that this one is there, and wait until it may go."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(place, timeout=1.0) as connection:
            connection.sendall(f"tpugraph {process}\n".encode())
            while time.monotonic() < until:
                try:
                    answer = connection.recv(8)
                except TimeoutError:
                    continue
                if answer == _GO:
                    return
                break
        time.sleep(_WAIT)
    raise RunError(f"process 0 does not answer at the coordinator's address {place[0]}:{place[1]} within {seconds:g} s, or not "
                   "all processes came there",
                   fix="start all processes with the same --coordinator and --processes")  # fmt: skip

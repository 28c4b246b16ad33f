"""Worker processes on the loopback interface, for tests.

One process imports TensorFlow and forks the workers, so that each is there at once.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_FORK = """
import gc, os, signal, sys
gc.disable()
from tpugraph.runtime.cluster.workers import serve
gc.freeze()  # a child that walks what is loaded copies it
gc.enable()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    index, *addresses = line.split()
    if os.fork() == 0:
        server = serve(addresses, int(index))
        os.write(1, f"{index} {os.getpid()}\\n".encode())  # in one piece: several workers write at a time
        server.join()
os.killpg(0, signal.SIGKILL)  # the tests have ended
"""


@cache
def _parent() -> subprocess.Popen[str]:
    """The process that forks the workers of all tests; it ends with this one."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen([sys.executable, "-c", _FORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True)  # fmt: skip


class Workers:
    """Some worker processes of one cluster."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._parent = _parent()
        self._processes: dict[int, int] = {}

    def start(self, *tasks: int) -> None:
        """Start some of them, all when none is named, and wait until they serve."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        chosen = tasks or range(len(self.addresses))
        for task in chosen:
            print(task, *self.addresses, file=self._parent.stdin, flush=True)
        for _ in chosen:
            task, process = self._parent.stdout.readline().split()
            self._processes[int(task)] = int(process)

    def kill(self, task: int) -> None:
        """End one at once, and wait until its port is free."""
        process = self._processes.pop(task)
        os.kill(process, signal.SIGKILL)
        until = time.monotonic() + 10
        while Path(f"/proc/{process}").exists() and time.monotonic() < until:
            time.sleep(0.01)

    def freeze(self, task: int, *, frozen: bool = True) -> None:
        """Stop one without ending it, or let it go on."""
        os.kill(self._processes[task], signal.SIGSTOP if frozen else signal.SIGCONT)

    def stop(self) -> None:
        """End all of them."""
        for task in list(self._processes):
            self.kill(task)


@contextmanager
def workers(count: int) -> Iterator[Workers]:
    """Running workers; they end with the block."""
    made = Workers(count)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()

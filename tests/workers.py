"""Worker processes on the loopback interface, for tests and benchmarks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_SERVE = """
import sys
from tpugraph.runtime.cluster import serve
server = serve(sys.argv[2:], int(sys.argv[1]))
print("up", flush=True)
server.join()
"""


class Workers:
    """Some worker processes of one cluster."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in _free_ports(count)]
        self._processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, *tasks: int) -> None:
        """Start some of them, all when none is named, and wait until they serve."""
        chosen = tasks or range(len(self.addresses))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        for task in chosen:
            command = [sys.executable, "-c", _SERVE, str(task), *self.addresses]
            self._processes[task] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                                     text=True, env=environment)  # fmt: skip
        for task in chosen:
            stdout = self._processes[task].stdout
            assert stdout is not None
            assert stdout.readline() == "up\n"

    def kill(self, task: int) -> None:
        """End one at once."""
        process = self._processes.pop(task)
        process.kill()
        process.wait()

    def freeze(self, task: int, *, frozen: bool = True) -> None:
        """Stop one without ending it, or let it go on."""
        self._processes[task].send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

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


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()

"""Worker processes on the loopback interface, for tests: each runs ``tpugraph worker``."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from forked import Programs, Started


class Workers:
    """Some worker processes of one cluster."""

    def __init__(self, run: Programs, count: int) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._run = run
        self._running: dict[int, Started] = {}

    def start(self, *tasks: int) -> None:
        """Start some of them, all when none is named, and wait until they serve."""
        for task in tasks or range(len(self.addresses)):
            words = "worker", f"--workers={','.join(self.addresses)}", f"--task={task}"
            self._running[task] = self._run.start("-m", "tpugraph", *words)
        end = time.monotonic() + 60
        said = "worker {} of {} serves at {}\n"
        while any(not running.out.startswith(said.format(task, len(self.addresses), self.addresses[task]))
                  for task, running in self._running.items()):  # fmt: skip
            assert time.monotonic() < end, "a worker does not serve"
            time.sleep(0.01)

    def kill(self, task: int) -> None:
        """End one at once, and wait until it is gone."""
        running = self._running.pop(task)
        running.signal(signal.SIGKILL)
        running.wait()

    def freeze(self, task: int) -> None:
        """Stop one without ending it."""
        self._running[task].signal(signal.SIGSTOP)


@contextmanager
def workers(run: Programs, count: int) -> Iterator[Workers]:
    """Running workers; they end with the block."""
    made = Workers(run, count)
    try:
        made.start()
        yield made
    finally:
        for task in list(made._running):
            made.kill(task)


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

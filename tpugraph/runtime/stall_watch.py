"""No run of a session lasts for ever: one in which nothing can go on is ended, and so is one in which nothing has for long.

Nothing can go on where every thread of the process waits for another one, without a limit of time (Linux's /proc says in which
system call each is): whoever could wake one is asleep itself. A thread that waits for a file, a socket, a clock or another
process may still be woken; where the processor is idle all the while, that is given minutes.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path

DEADLOCK_SECONDS = 5.0
"""How long all threads must be seen to wait for each other."""

IDLE_SECONDS = 600.0
"""How long the processor may be idle during a run."""

_TICK = 0.25
_BUSY = 0.02
"""Seconds of the processor in a tick from which on the process is at work."""

_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(platform.machine())
_TASKS = Path("/proc/self/task")


class StallWatch:
    """Watches the runs of a session, and ends one that stands still.

    Args:
        end: ends the runs of the session, from another thread.
        idle_seconds: how long the processor may be idle during a run; for ever when 0.
        alone: whether all that a run waits for is a thread of this process, or what one waits for: no device, no server.

    Attributes:
        why: why a run was ended; "" while none was.
    """

    def __init__(self, end: Callable[[], None], *, idle_seconds: float = IDLE_SECONDS, alone: bool = True) -> None:
        self._end = end
        self._idle_seconds = idle_seconds
        self._alone = alone
        self._state = threading.Condition()
        self._runs = 0
        self._callers: set[int] = set()
        self._thread: threading.Thread | None = None
        self.why = ""

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Watch what runs in the block: what stands still is ended, and ``why`` says why."""
        caller = threading.get_native_id()
        with self._state:
            self._runs += 1
            self._callers.add(caller)
            if self._alone and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="tpugraph-watch", daemon=True)
                self._thread.start()
            self._state.notify()
        try:
            yield
        finally:
            with self._state:
                self._runs -= 1
                self._callers.discard(caller)

    def stop(self) -> None:
        """End the watch; the session is closed."""
        with self._state:
            self._alone, self._thread = False, None
            self._state.notify()

    def _watch(self) -> None:
        _watches.add(threading.get_native_id())
        while self._alone and not self.why:
            with self._state:
                while self._alone and not self._runs:
                    self._state.wait()
            self._see_to_its_end()
        _watches.discard(threading.get_native_id())

    def _see_to_its_end(self) -> None:
        """Watch until nothing runs any more, or what runs stands still."""
        used, idle, asleep = time.process_time(), 0.0, 0.0
        while self._alone and self._runs:
            time.sleep(_TICK)
            before, used = used, time.process_time()
            if used - before > _BUSY:
                idle = asleep = 0.0
                continue
            idle += _TICK
            asleep = asleep + _TICK if all_wait_for_each_other({os.getpid(), *self._callers}) else 0.0
            if asleep >= DEADLOCK_SECONDS:
                return self._give_up("nothing can go on: all threads of the process wait for each other")
            if self._idle_seconds and idle >= self._idle_seconds:
                return self._give_up(f"nothing went on for {self._idle_seconds:g} s")
        return None

    def _give_up(self, why: str) -> None:
        if self._runs:
            self.why = why
            self._end()


_watches: set[int] = set()
"""The system's numbers of the threads that watch: they sleep, and wake nobody."""


def all_wait_for_each_other(lookers: Set[int]) -> bool:
    """Whether all threads of the process but those that watch wait for another thread, without a limit of time.

    Args:
        lookers: the system's numbers of threads that may wait with a limit: they only look for signals and failures.
    """
    if _FUTEX is None:
        return False
    for task in os.listdir(_TASKS):
        if int(task) in _watches:
            continue
        try:
            call = (_TASKS / task / "syscall").read_text().split()
        except OSError:  # it has ended, or nobody may look
            return False
        if call[0] != _FUTEX or (int(call[4], 16) and int(task) not in lookers):
            return False
    return True

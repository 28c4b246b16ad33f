"""Ends a run in which nothing happens: the process uses no processor time for minutes, as where two threads wait for each other."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

IDLE_SECONDS = 600.0
"""How long a run may be idle: a file or a socket may come back after minutes."""

_TICK = 0.25
_BUSY = 0.001
"""Seconds of processor time in a tick from which on the process is at work; a step takes more, and the watch less."""


class StallWatch:
    """Watches the runs of a session, and ends them where the process is idle for too long.

    Args:
        end: ends the runs of the session, from another thread.
        seconds: how long a run may be idle; for ever when 0, ``IDLE_SECONDS`` when None.

    Attributes:
        why: why a run was ended; "" while none was.
    """

    def __init__(self, end: Callable[[], None], seconds: float | None = None) -> None:
        self._end = end
        self._seconds = IDLE_SECONDS if seconds is None else seconds
        self._state = threading.Condition()
        self._runs = 0
        self._stopped = not self._seconds
        self._thread: threading.Thread | None = None
        self.why = ""

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Watch what runs in the block: what stands still is ended, and ``why`` says why."""
        with self._state:
            self._runs += 1
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._watch, name="tpugraph-watch", daemon=True)
                self._thread.start()
            self._state.notify()
        try:
            yield
        finally:
            with self._state:
                self._runs -= 1

    def stop(self) -> None:
        """End the watch; the session is closed."""
        with self._state:
            self._stopped = True
            self._state.notify()

    def _watch(self) -> None:
        idle, used = 0.0, time.process_time()
        while idle < self._seconds:
            with self._state:
                while not self._runs and not self._stopped:
                    self._state.wait()
                    idle = 0.0
            if self._stopped:
                return
            time.sleep(_TICK)
            before, used = used, time.process_time()
            idle = idle + _TICK if self._runs and used - before < _BUSY else 0.0
        self.why = f"nothing went on for {self._seconds:g} s"
        self._end()

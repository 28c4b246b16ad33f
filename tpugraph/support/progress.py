"""Progress of long work: one rewritten line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

_TERMINAL_SECONDS = 0.1
_PLAIN_SECONDS = 5.0
_BAR = 20
"""Characters of the bar."""


class Progress:
    """Steps done, steps per second, the last loss and the time left.

    Args:
        stream: where to print.
        total: the number of steps.
        start: the global step before the first of them, from which what is printed counts.
        clock: seconds that only grow.
    """

    def __init__(
        self, stream: TextIO, total: int, *, start: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._total = total
        self._start = start
        self._clock = clock
        self._started = self._shown = clock()
        self._terminal = stream.isatty()
        self._width = 0
        self._done = 0
        self._line = ""
        self._printed = ""

    def update(self, done: int, loss: float) -> None:
        """Take note of the steps done so far and show it when it is time to."""
        self._done = done
        self._line = self._describe(done, loss)
        now = self._clock()
        if now - self._shown >= (_TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS):
            self._show(now)

    def message(self, text: str) -> None:
        """Print a line of its own."""
        self.clear()
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Show the last state and end the line."""
        if self._line and self._line != self._printed:
            self._show(self._clock())
        if self._terminal and self._width:
            print(file=self._stream, flush=True)
            self._width = 0

    def _show(self, now: float) -> None:
        self._shown = now
        self._printed = self._line
        if self._terminal:
            line = (self._bar() + self._line)[: shutil.get_terminal_size().columns - 1]  # one line, whatever the width
            self._stream.write("\r" + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)
        else:
            print(self._line, file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the line off a terminal, so that something else can be printed there."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0

    def _bar(self) -> str:
        full = _BAR * self._done // max(self._total, 1)
        return f"[{'#' * full}{'.' * (_BAR - full)}] "

    def _describe(self, done: int, loss: float) -> str:
        seconds = self._clock() - self._started
        rate = done / seconds if seconds > 0 else 0.0
        left = f", {duration((self._total - done) / rate)} left" if rate and done < self._total else ""
        at, last = self._start + done, self._start + self._total
        return f"step {at:,} of {last:,}, {rate:,.1f} steps/s, loss {loss:.6g}{left}"


class Ticker:
    """Says on a terminal for how long one piece of work has been going on; a plain line at its start elsewhere.

    It writes to a copy of the stream's descriptor, so that it is seen while output is held back.

    Args:
        stream: where to print.
        text: what goes on.
    """

    def __init__(self, stream: TextIO, text: str) -> None:
        self._text = text
        self._stream = stream
        self._terminal = os.fdopen(os.dup(stream.fileno()), "w") if stream.isatty() else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="tpugraph-ticker", daemon=True)

    def __enter__(self) -> Ticker:
        if self._terminal is None:
            print(f"{self._text} ...", file=self._stream, flush=True)
        else:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal is not None:
            self._over.set()
            self._thread.join()
            self._terminal.close()

    def _tick(self) -> None:
        assert self._terminal is not None
        started, line = time.monotonic(), ""
        while not self._over.wait(_TERMINAL_SECONDS):
            seconds = f": {time.monotonic() - started:.0f} s"
            line = self._text[: shutil.get_terminal_size().columns - 1 - len(seconds)] + seconds
            print(f"\r{line}", end="", file=self._terminal, flush=True)
        print("\r" + " " * len(line) + "\r", end="", file=self._terminal, flush=True)


def duration(seconds: float) -> str:
    """Seconds as ``9 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

"""Progress of long work: one rewritten line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

_TERMINAL_SECONDS, _PLAIN_SECONDS = 0.1, 5.0
_BAR = 20  # characters of the bar


class Progress:
    """Steps done, steps per second, the last loss and the time left; counted from the global step ``start`` on."""

    def __init__(
        self, stream: TextIO, total: int, *, start: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._total, self._start, self._clock = stream, total, start, clock
        self._started = self._shown = clock()
        self._terminal = stream.isatty()
        self._width = self._done = 0
        self._line = self._printed = ""

    def update(self, done: int, loss: float) -> None:
        """Take note of the steps done so far and show it when it is time to."""
        self._done, now = done, self._clock()
        seconds = now - self._started
        rate = done / seconds if seconds > 0 else 0.0
        left = f", {duration((self._total - done) / rate)} left" if rate and done < self._total else ""
        at, last = self._start + done, self._start + self._total
        self._line = f"step {at:,} of {last:,}, {rate:,.1f} steps/s, loss {loss:.6g}{left}"
        if now - self._shown >= (_TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS):
            self._shown = now
            self._show()

    def message(self, text: str) -> None:
        self.clear()
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Show the last state and end the line."""
        if self._line != self._printed:
            self._show()
        if self._terminal and self._width:
            print(file=self._stream, flush=True)
            self._width = 0

    def clear(self) -> None:
        """Take the line off a terminal, so that something else can be printed there."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0

    def _show(self) -> None:
        self._printed = self._line
        if not self._terminal:
            print(self._line, file=self._stream, flush=True)
            return
        bar = ("#" * (_BAR * self._done // max(self._total, 1))).ljust(_BAR, ".")
        line = f"[{bar}] {self._line}"[: shutil.get_terminal_size().columns - 1]  # one line, whatever the width
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)


def duration(seconds: float) -> str:
    """Seconds as ``9 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    hours, rest = divmod(round(seconds), 3600)
    if hours:
        return f"{hours} h {rest // 60} min"
    return f"{rest // 60} min {rest % 60} s" if rest >= 60 else f"{rest} s"

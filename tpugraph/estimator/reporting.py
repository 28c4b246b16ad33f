"""Progress of a run: log lines, a progress bar, and rates in event files."""

from __future__ import annotations

import logging
import sys
import time

from tpugraph.runtime.event_files import Events, rates
from tpugraph.support.progress import Progress
from tpugraph.support.wording import counted

LOGGER = logging.getLogger("tpugraph")


def say(text: str) -> None:
    """Logs a line at INFO, to stderr where the program has set up no logging."""
    if not LOGGER.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        LOGGER.addHandler(handler)
        LOGGER.propagate = False
        if LOGGER.level == logging.NOTSET:
            LOGGER.setLevel(logging.INFO)
    for bar in _BARS:
        bar.clear()
    LOGGER.info(text)


_BARS: list[Progress] = []  # the bar on the terminal, if there is one


class Meter:
    """Logs loss and rates ``every`` so many steps, also to ``events``, and shows a bar up to ``last`` where stderr is a terminal."""

    def __init__(
        self, every: int | None, rows: int | None, step: int, events: Events | None, last: int | None = None
    ) -> None:
        self._bar = Progress(sys.stderr, last - step) if last is not None and sys.stderr.isatty() else None
        if self._bar is not None:
            _BARS.append(self._bar)
        self._every = every
        self._rows = rows
        self._events = events
        self._step = step
        self._when = time.monotonic()
        self._first = True
        self._began = step, self._when
        self._loss: float | None = None

    def update(self, step: int, loss: float) -> None:
        self._loss = loss
        if self._bar is not None:
            self._bar.update(step - self._began[0], loss)
        if self._every is None or (step - self._step < self._every and not self._first):
            return
        now = time.monotonic()
        line, pace = f"step {step:,}, loss {loss:.6g}", rates(step - self._step, now - self._when, self._rows)
        if not self._first:  # the first steps compile, so their pace says nothing
            line += f", {pace['global_step/sec']:,.1f} steps/s"
            if "examples/sec" in pace:
                line += f", {pace['examples/sec']:,.0f} examples/s"
            if self._events is not None:
                self._events.scalars(step, **pace)
        say(line)
        self._step, self._when, self._first = step, now, False

    def end(self, step: int) -> None:
        self.close()
        start, began = self._began
        seconds = time.monotonic() - began
        loss = "" if self._loss is None else f", loss {self._loss:.6g}"
        say(f"trained {counted(step - start, 'step')} in {seconds:.1f} s, to step {step:,}{loss}")

    def close(self) -> None:
        """Removes the bar; idempotent."""
        if self._bar is not None:
            self._bar.close()
            _BARS.remove(self._bar)
            self._bar = None

"""Ctrl-C while training: the first one is kept until the loop at work has ended."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from tpugraph.estimator.reporting import say


class Interrupt:
    """Takes Ctrl-C for the time of a block; the first is only noted, the second is a KeyboardInterrupt.

    A KeyboardInterrupt can be raised anywhere, also where a library swallows it. Only Python's own answer to Ctrl-C is
    replaced, and only in the main thread: a program with a handler of its own keeps it.

    Attributes:
        requested: whether Ctrl-C was pressed.
    """

    def __init__(self, message: str) -> None:
        self.requested = False
        self._message = message
        self._taken = False

    def __enter__(self) -> Interrupt:
        in_main = threading.current_thread() is threading.main_thread()
        self._taken = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._taken:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._taken:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        say(self._message)

"""This process: work in threads that do not hold it up, its signals, attributes and garbage collector."""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Begin work in a thread of its own, which does not keep the process from ending."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # raised again where the result is asked for
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return found


def ended(work: Future[Any], seconds: float = math.inf) -> bool:
    """Wait for work in a thread, so long at most; returns whether it has ended.

    Never for good at once: a signal that another thread is given, as Ctrl-C may be, wakes up nobody.
    """
    until = time.monotonic() + seconds
    while not work.done() and time.monotonic() < until:
        wait([work], 0.1)
    return work.done()


@contextmanager
def signals_to(handler: Callable[[int, FrameType | None], None], numbers: Sequence[int]) -> Iterator[None]:
    """Install a handler of signals for the time of a block; does nothing outside of the main thread, where Python refuses it."""
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if in_main}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute of a module or class another value for the time of a block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector while many long-lived objects are made: it would walk them all again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            walks = gc.get_threshold()[0] > 0  # asked first, since to count what is frozen walks it
            if walks and not gc.get_freeze_count():
                gc.freeze()  # together: what was made here counts as old, and is not walked at once
                gc.unfreeze()
            gc.enable()

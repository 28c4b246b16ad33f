"""This process: work in threads that do not hold it up, and its garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

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

"""Python's garbage collector, switched off while many long-lived objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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

"""Reads the input of the next loop and puts it on the devices while the devices still run the loop before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Read = Callable[[int], tuple[int, list[list[Array]]]]
"""Reads the batches of so many steps; gives the steps that the data had, and of each core its batches."""
Stage = Callable[[list[list[Array]]], list[Any]]
"""Puts batches on the devices."""


@dataclass(frozen=True)
class Staged:
    """The batches of a loop.

    Attributes:
        wanted: the steps that they were read for.
        steps: the steps that they are for; fewer where the data ended.
        infeed: of each core of this process, its batches, each [iterations, ...].
        placed: the same on the devices.
    """

    wanted: int
    steps: int
    infeed: list[list[Array]]
    placed: list[Any]


class Ahead:
    """Batches read at most one loop ahead.

    Args:
        stage: puts the batches of each core on its device.
        read: called from one thread at a time.
        before: called before each read ahead, in its thread.

    Attributes:
        parted: whether a loop has taken some of the batches that were read ahead, and others wait.
    """

    def __init__(self, stage: Stage, read: Read, before: Callable[[], None]) -> None:
        self._place = stage
        self._read = read
        self._before = before
        self.parted = False
        self._thread: ThreadPoolExecutor | None = None
        self._next: Future[Staged] | None = None
        self._wanted = 0  # the steps that it is for

    def take(self, count: int) -> Staged:
        """The batches of at most ``count`` steps: those that were read ahead, else read now.

        Raises:
            RunError: the input failed.
        """
        if self._next is None:
            return self._stage(count)
        ready, self._next = self._next, None
        found = ready.result()
        self.parted = found.wanted > count
        if not self.parted:
            return found
        self._wanted = found.wanted - count
        self._next = Future()
        self._next.set_result(self._rest(found, count))
        return Staged(count, min(found.steps, count), found.infeed, found.placed)

    def fitting(self, count: int) -> int:
        """How many of ``count`` steps the next loop has batches for."""
        return count if self._next is None else min(count, self._wanted)

    def begin(self, count: int) -> None:
        """Start to read the batches of the next loop, unless there are some."""
        if count and self._next is None:
            self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="tpugraph-input")
            self._wanted = count
            self._next = self._thread.submit(self._stage_ahead, count)

    @property
    def waiting(self) -> bool:
        """Whether batches were read, or are being read, that no loop has taken."""
        return self._next is not None

    def forget(self) -> None:
        """Drop what was read ahead, once the reading is over."""
        if self._next is not None:
            self._next.exception()  # waits
            self._next, self.parted = None, False

    def close(self) -> None:
        """End the thread."""
        self.forget()
        if self._thread is not None:
            self._thread.shutdown()

    def _stage_ahead(self, count: int) -> Staged:
        self._before()
        return self._stage(count)

    def _stage(self, count: int) -> Staged:
        steps, infeed = self._read(count)
        return Staged(count, steps, infeed, self._place(infeed))

    def _rest(self, staged: Staged, taken: int) -> Staged:
        """What is left of batches when a shorter loop has taken the first."""
        infeed = [[np.roll(rows, -taken, axis=0) for rows in batches] for batches in staged.infeed]
        return Staged(staged.wanted - taken, max(staged.steps - taken, 0), infeed, self._place(infeed))

"""Campaigns break things at random and look at what is left. They share damage to bytes, processes and the loop over mutants."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
from hypothesis.errors import FlakyFailure


def damaged_bytes(rng: Random, data: bytes) -> bytes:
    """A file that is cut, has bits turned, bytes lost, doubled or overwritten, or messages nested as deep as no reader goes."""
    damaged = bytearray(data or b"x")
    kind, start, size = rng.randrange(8), rng.randrange(len(damaged)), rng.choice((1, 4, 64, 200))
    if kind == 0:
        del damaged[rng.choice((0, len(damaged) - 1, start)) :]
    elif kind == 1:
        del damaged[start : start + size]
    elif kind == 2:
        damaged[start:start] = damaged[start : start + size]
    elif kind == 3:
        damaged[start : start + size] = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
    elif kind == 4:
        nested = b""
        for _ in range(rng.choice((3, 99, 5000))):
            length, prefix = len(nested), bytearray()
            while length >= 0x80:
                prefix.append(length & 0x7F | 0x80)
                length >>= 7
            nested = b"\x0a" + bytes([*prefix, length]) + nested
        damaged += nested
    else:
        for _ in range(rng.choice((1, 1, 3, 30))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def in_a_child(work: Callable[[], int | None], seconds: float = 120.0, said: Path | None = None) -> int:
    """Do work that returns an exit code in a process of its own, which is killed after some seconds; its exit code.

    The code is negative where a signal ended it. ``said`` is where it prints, and its threads' stacks before it is killed.
    """
    child = os.fork()
    if child == 0:
        code: int | None = 70
        try:
            output = os.open(said or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not what this process redirected them to
            faulthandler.register(signal.SIGUSR1, file=2)
            code = work()
        except BaseException:  # the parent sees the code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code or 0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    if said is not None:
        os.kill(child, signal.SIGUSR1)
        time.sleep(1.0)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Server:
    """A process that answers questions, one after the other; it is ended where it hangs, and started again after that or its death.

    It runs ``serve`` with a connection and the arguments, which sends a first message when it is ready, then answers.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any) -> None:
        self._serve, self._arguments = serve, arguments
        self.process: Any = None
        self.ready: Any = None

    def ask(self, question: Any, seconds: float) -> Any:
        """The answer; a TimeoutError where it takes longer, an EOFError where the process dies."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, other = context.Pipe()
            self.process = context.Process(target=self._serve, args=(other, *self._arguments), daemon=True)
            self.process.start()
            other.close()
            self.ready = self._connection.recv()
        try:
            self._connection.send(question)
            if not self._connection.poll(seconds):
                raise TimeoutError(f"no answer within {seconds:g} s")
            return self._connection.recv()
        except (EOFError, OSError) as error:
            self.stop()
            raise error if isinstance(error, TimeoutError) else EOFError("the process died") from error

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self._connection.close()
            self.process = None


class Failure(AssertionError):
    """A mutant that does not come to a right outcome."""


def campaign(drawn: Any, judge: Callable[[Any], str], right: Collection[str], count: int, seed: int,
             keep: Callable[[Any, int], None] | None = None) -> Counter[str]:  # fmt: skip
    """Judge mutants; prints each failure, shrunk, and returns how many mutants came to what.

    ``judge`` gives one of the ``right`` outcomes, or what is wrong: a kind and, behind a colon, words; ``keep`` writes a failing
    mutant, shrunk, with its number.
    """
    totals, failing = Counter[str](), list[tuple[Any, str]]()
    while totals.total() < count:

        @hypothesis.seed(seed * 1_000_000 + totals.total())
        @hypothesis.settings(max_examples=count - totals.total(), database=None, deadline=None,
                             suppress_health_check=list(hypothesis.HealthCheck), verbosity=hypothesis.Verbosity.quiet,
                             phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink], report_multiple_bugs=False)  # fmt: skip
        @hypothesis.given(drawn)
        def comes_to_a_right_outcome(mutant: Any) -> None:
            found = judge(mutant)
            if not failing:  # what shrinks a failure is not counted
                totals[found if found in right else "wrong"] += 1
                if totals.total() % 500 == 0:
                    print(f"{totals.total():,} of {count:,}", flush=True)
            if found not in right:
                failing.append((mutant, found))
                raise Failure(found.partition(":")[0])

        with contextlib.suppress(Failure, FlakyFailure):
            comes_to_a_right_outcome()
        if failing:
            mutant, found = failing[-1]  # the smallest one is run last
            name = "" if isinstance(mutant, (bytes, dict)) else f"{mutant!r:.300}: "
            print(f"{totals.total()}: {name}{found}", flush=True)
            if keep is not None:
                keep(mutant, totals.total())
        failing.clear()
    return totals

"""What a command prints, and TensorFlow's own noise, which is kept from it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeVar

from tpugraph.support import terminal
from tpugraph.support.errors import TpuGraphError
from tpugraph.support.garbage import without_garbage_collection

T = TypeVar("T")

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@dataclass(frozen=True)
class Outcome:
    """What a command ends with.

    Attributes:
        result: the object for ``--json``.
        code: the exit code.
        abandoned: whether threads were left behind at work, for which the process does not wait.
    """

    result: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    abandoned: bool = False


class Console:
    """Where a command prints: readable lines on stdout, or on stderr where stdout is for one JSON object.

    Args:
        machine_readable: whether ``--json`` was given.
    """

    def __init__(self, *, machine_readable: bool = False) -> None:
        self.machine_readable = machine_readable

    @property
    def stream(self) -> TextIO:
        """Where readable lines go."""
        return sys.stderr if self.machine_readable else sys.stdout

    def say(self, text: str = "", *, as_it_is: bool = False) -> None:
        """Print readable lines: on a terminal folded to its width and in colour, unless they are wanted as they are."""
        print(text if as_it_is else terminal.shown(text, self.stream), file=self.stream, flush=True)

    def result(self, found: dict[str, Any]) -> None:
        """Print the object of ``--json``, on one line."""
        if self.machine_readable:
            print(json.dumps(_plain(found)), flush=True)


def _plain(value: Any) -> Any:
    """The value with nothing in it that JSON has no form for."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def load_tensorflow() -> None:
    """Import TensorFlow without what it logs about the machine; all of it is printed where the import fails.

    Whoever sets TF_CPP_MIN_LOG_LEVEL to 0 wants to see it and does; above that TensorFlow itself writes these lines whatever
    the level says.
    """
    os.environ.setdefault(LOG_LEVEL, "3")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    quiet = os.environ[LOG_LEVEL] == "3"
    shown = os.environ[LOG_LEVEL] == "0" or "tensorflow" in sys.modules
    held_back = contextlib.nullcontext() if shown else stderr_held_back()
    with held_back, without_garbage_collection():
        import tensorflow as tf
    if quiet:
        tf.get_logger().setLevel("ERROR")


def interruptible(work: Callable[[], T]) -> T:
    """Do long work of C++ code, which Ctrl-C would wait for, in a thread that an interrupted process leaves behind."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # raised again where the outcome is waited for
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="tpugraph-compile", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)  # not for good: a signal that another thread is given wakes up nobody
    return outcome.result()


@contextlib.contextmanager
def stderr_held_back() -> Iterator[None]:
    """Keep what C++ code writes to file descriptor 2; replay it when the body fails in a way that nobody foresaw."""
    sys.stderr.flush()
    try:
        original = os.dup(2)
    except OSError:  # stderr is closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except (KeyboardInterrupt, TpuGraphError):  # the one is none of its doing, the other says what failed
            raise
        except BaseException:
            held.seek(0)
            os.write(original, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)

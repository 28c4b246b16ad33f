"""What a command prints, and TensorFlow's own noise, which is kept from it."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from typing import Any, TextIO, TypeVar

from tpugraph.support.process import ended, in_thread, without_garbage_collection
from tpugraph.support.tensorflow_log import LOG_LEVEL, import_tensorflow

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    result: dict[str, Any] = field(default_factory=dict)  # of --json
    code: int = 0
    abandoned: bool = False  # threads were left behind at work, for which the process does not wait


class Console:
    """Where a command prints: readable lines on stdout, or on stderr where stdout is for the object of ``--json``.

    It is ``verbose`` with ``--traceback``.
    """

    def __init__(self, *, machine_readable: bool = False, verbose: bool = False) -> None:
        self.machine_readable, self.verbose = machine_readable, verbose

    @property
    def stream(self) -> TextIO:
        return sys.stderr if self.machine_readable else sys.stdout

    def say(self, *lines: str) -> None:
        for line in lines:
            print(line, file=self.stream, flush=True)

    def note(self, text: str) -> None:
        self.say(f"note: {text}")

    def progress(self, what: str) -> None:
        """Say what runs next, on a terminal."""
        if self.stream.isatty():
            self.say(f"running: {what}")

    def result(self, found: dict[str, Any]) -> None:
        if self.machine_readable:
            print(json.dumps(plain(found)), flush=True)


def plain(value: Any) -> Any:
    """A value that JSON can hold: arrays as lists, dataclasses by their fields, bytes as text, NaN and infinities as null."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value))
    if hasattr(value, "tolist"):  # of NumPy
        return plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def loss_line(step: int, loss: float) -> str:
    """A line of the file of ``--losses``."""
    return json.dumps(plain({"step": step, "loss": loss})) + "\n"


def load_tensorflow() -> None:
    """Import TensorFlow as quietly as TF_CPP_MIN_LOG_LEVEL says, which is 3 where it is not set."""
    os.environ.setdefault(LOG_LEVEL, "3")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    with without_garbage_collection():
        import_tensorflow()
    if os.environ[LOG_LEVEL] == "3":
        import tensorflow as tf

        tf.get_logger().setLevel("ERROR")


def interruptible(work: Callable[[], T]) -> T:
    """Do long work of C++ code, which Ctrl-C would wait for, in a thread that an interrupted process leaves behind."""
    outcome = in_thread(work, "tpugraph-compile")
    ended(outcome)
    return outcome.result()

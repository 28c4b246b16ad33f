"""Runs a program for TensorFlow 1.15 as it was written: its own arguments, its own ``__main__``, its own tracebacks."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tpugraph.support.errors import TpuGraphError, UsageError

USAGE = """usage: python -m tpugraph.compat [--use_tpu=true|false] [--num_cores=N] \\
           PROGRAM [ARGUMENTS...]

Runs a program that was written for TensorFlow 1.15 on the TensorFlow that is
installed. What follows PROGRAM is the program's own; a program for TPUEstimator
has its own --use_tpu as well.

  --use_tpu     whether a plain tf.estimator.Estimator trains on cores; false
  --num_cores   on how many at most; 8

  python -m tpugraph.compat train.py --use_tpu=true --model_dir=out"""

_OWN = os.path.dirname(os.path.abspath(__file__))
_PYTHON_2 = ("Missing parentheses in call to", "multiple exception types must be parenthesized", "leading zeros in decimal",
             "invalid hexadecimal", "inconsistent use of tabs")  # fmt: skip
"""What Python 3 says of text that is right in Python 2."""


@dataclass(frozen=True)
class Order:
    """A command line of the runner.

    Attributes:
        program: the path of the program.
        arguments: the program's own.
        cores: on how many cores a plain Estimator trains at most; 0 without.
    """

    program: str
    arguments: tuple[str, ...]
    cores: int


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code.

    Args:
        words: what follows ``python -m tpugraph.compat``; the process's own arguments when None.
    """
    words = list(sys.argv[1:] if words is None else words)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if words else 1
    try:
        run(order_of(words))
    except SystemExit:
        raise
    except TpuGraphError as error:
        error.origin = error.origin or _line_of(error)
        print(error.block(), file=sys.stderr)
        return 1
    except SyntaxError as error:
        print(_python_2(error) or _shown(error), file=sys.stderr)
        return 1
    except Exception as error:
        print(_shown(error), file=sys.stderr, end="")
        return 1
    return 0


def order_of(words: Sequence[str]) -> Order:
    """What a command line asks for.

    Raises:
        UsageError: a flag that is not known, a value that cannot be used, or no program.
    """
    use_tpu, cores = False, 8
    for place, word in enumerate(words):
        if not word.startswith("-"):
            return Order(word, tuple(words[place + 1 :]), cores if use_tpu else 0)
        name, _, value = word.lstrip("-").partition("=")
        if name == "use_tpu" and value.lower() in ("", "true", "false"):
            use_tpu = value.lower() != "false"
        elif name == "num_cores" and value.isdigit() and int(value):
            cores = int(value)
        else:
            raise UsageError(f"'{word}' is no flag of the runner", fix="flags of the program come after its name")
    raise UsageError("no program is named", fix="python -m tpugraph.compat train.py")


def run(order: Order) -> None:
    """Run a program in this process, as ``python PROGRAM`` would.

    Raises:
        UsageError: the file cannot be read.
        Exception: whatever the program raises.
    """
    try:
        source = Path(order.program).read_bytes()
    except OSError as error:
        raise UsageError(f"'{order.program}': {error.strerror}", fix="the path of a Python program") from None
    code = compile(source, order.program, "exec", dont_inherit=True)
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # tf.keras is Keras 2, which knows graphs
    os.environ.setdefault("TPU_NAME", "local")  # the TPU of a program that names none
    os.environ.setdefault("TF_OVERRIDE_GLOBAL_THREADPOOL", "true")  # before the program makes its first session
    sys.argv[:] = [order.program, *order.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(order.program)))
    module = ModuleType("__main__")
    module.__dict__.update(__file__=order.program, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    with _tensorflow_1(order.cores):
        exec(code, module.__dict__)


def _tensorflow_1(cores: int):  # type: ignore[no-untyped-def]
    """The hook, with TensorFlow as TensorFlow 1 is when it starts."""
    import tensorflow as tf

    from tpugraph.compat.import_hook import tensorflow_1
    from tpugraph.estimator import plain_estimator

    tf.compat.v1.disable_v2_behavior()
    plain_estimator.use_cores(cores)
    return tensorflow_1()


# --------------------------------------------------------------------------- what went wrong


def _shown(error: BaseException) -> str:
    """The traceback of a program's own failure, without the lines of the runner."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        part.stack = traceback.StackSummary.from_list([f for f in part.stack if not f.filename.startswith(_OWN)])
        part = part.__cause__ or part.__context__
    return "".join(shown.format())


def _line_of(error: BaseException) -> str | None:
    """The last line of the program in a traceback."""
    house = os.path.dirname(_OWN)
    own = [f for f in traceback.extract_tb(error.__traceback__)
           if not f.filename.startswith((house, "<")) and "site-packages" not in f.filename]  # fmt: skip
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def _python_2(error: SyntaxError) -> str | None:
    """The error where a file is Python 2; None where it is no Python at all."""
    if not (error.msg or "").startswith(_PYTHON_2):
        return None
    return UsageError(
        f"{error.filename} is a Python 2 program: {error.msg}",
        origin=f"{error.filename}:{error.lineno}",
        fix="translate it, for instance with 2to3 -w or futurize",
    ).block()

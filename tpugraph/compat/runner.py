"""Runs a program for TensorFlow 1.15 as it was written: its own arguments, its own ``__main__``, its own tracebacks."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from tpugraph.compat.python_2 import python_2
from tpugraph.support.errors import TpuGraphError, UsageError
from tpugraph.support.tensorflow_log import LOG_LEVEL, import_tensorflow

USAGE = """usage: python -m tpugraph.compat [--use_tpu=true|false] [--num_cores=N] \\
           [--max_ids=N] PROGRAM|-m MODULE [ARGUMENTS...]

Runs a program that was written for TensorFlow 1.15 on the TensorFlow that is
installed: a file, or a module as python -m runs it. What follows is the
program's own; a program for TPUEstimator has its own --use_tpu as well.

  --use_tpu     whether a plain tf.estimator.Estimator trains on cores; without,
                where its RunConfig has a distribution strategy
  --num_cores   on how many at most; 8
  --max_ids     what rows of different lengths are padded to; the longest one
                of the first batches when left out

  python -m tpugraph.compat train.py --use_tpu=true --model_dir=out"""

_OWN = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True)
class Order:
    """A command line of the runner."""

    program: str  # the path of the program, or the name of its module
    arguments: tuple[str, ...]  # the program's own
    # on how many cores a plain Estimator trains at most; 0 on none; None as its distribution strategy says
    cores: int | None
    module: bool = False  # whether it is the name of a module
    max_ids: int = 0  # what rows of a plain Estimator's batches are padded to; 0 where nobody said it


def main(words: Sequence[str] | None = None) -> int:
    """Run what follows ``python -m tpugraph.compat``, the process's own when None; returns the exit code."""
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
    except Exception as error:
        told = python_2(error)
        if told is None or not isinstance(error, SyntaxError):
            print(_shown(error), file=sys.stderr, end="")
        if told is not None:
            print(told.block(), file=sys.stderr)
        return 1
    return 0


def order_of(words: Sequence[str]) -> Order:
    """What a command line asks for."""
    use_tpu: bool | None = None
    cores, max_ids = 8, 0
    for place, word in enumerate(words):
        if not word.startswith("-"):
            told = None if use_tpu is None else cores * use_tpu
            return Order(word, tuple(words[place + 1 :]), told, "-m" in words[:place], max_ids)
        name, _, value = word.lstrip("-").partition("=")
        if name == "use_tpu" and value.lower() in ("", "true", "false"):
            use_tpu = value.lower() != "false"
        elif name == "num_cores" and value.isdigit() and int(value):
            cores = int(value)
        elif name == "max_ids" and value.isdigit():
            max_ids = int(value)
        elif word == "-m":
            continue
        else:
            raise UsageError(f"'{word}' is no flag of the runner", fix="flags of the program come after its name")
    raise UsageError("no program is named", fix="python -m tpugraph.compat train.py")


def run(order: Order) -> None:
    """Run a program in this process, as ``python PROGRAM`` or ``python -m MODULE`` would."""
    code = None if order.module else _code(order.program)
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # tf.keras is Keras 2, which knows graphs
    os.environ.setdefault("TPU_NAME", "local")  # the TPU of a program that names none
    sys.argv[:] = [order.program, *order.arguments]
    sys.path.insert(0, os.getcwd() if order.module else os.path.dirname(os.path.abspath(order.program)))
    with _tensorflow_1(order):
        if code is None:
            _run_module(order.program)
            return
        module = ModuleType("__main__")
        module.__dict__.update(__file__=order.program, __builtins__=__builtins__)
        sys.modules["__main__"] = module
        exec(code, module.__dict__)


def _code(path: str) -> CodeType:
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"'{path}': {error.strerror}", fix="the path of a Python program, or -m MODULE") from None
    return compile(source, path, "exec", dont_inherit=True)


def _run_module(name: str) -> None:
    try:
        found = importlib.util.find_spec(name)  # imports the packages around it, which are the program's as well
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        found = None
    if found is None:
        raise UsageError(f"there is no module '{name}'", fix="start in the folder that its first package lies in")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _tensorflow_1(order: Order):  # type: ignore[no-untyped-def]
    """The hook, with TensorFlow as TensorFlow 1 is when it starts."""
    import_tensorflow()
    import tensorflow as tf
    from tensorflow.python.util import deprecation

    from tpugraph.compat.import_hook import tensorflow_1
    from tpugraph.estimator import plain_estimator
    from tpugraph.runtime.tpu_op_fallback import emulate_tpu_ops

    if os.environ.get(LOG_LEVEL) in ("2", "3"):  # nor TensorFlow 2's deprecation warnings
        deprecation._PRINT_DEPRECATION_WARNINGS = False
        warnings.filterwarnings("ignore", ".* is deprecated and will be removed", UserWarning)
    tf.compat.v1.disable_v2_behavior()
    plain_estimator.use_cores(order.cores, order.max_ids)
    emulate_tpu_ops()
    return tensorflow_1()


# --------------------------------------------------------------------------- what went wrong


def _shown(error: BaseException) -> str:
    """The traceback of a program's own failure, without the lines of the runner."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        own = [frame for frame in part.stack if not frame.filename.startswith((_OWN, "<frozen runpy>"))]
        part.stack = traceback.StackSummary.from_list(own)
        part = part.__cause__ or part.__context__
    return "".join(shown.format())


def _line_of(error: BaseException) -> str | None:
    """The last line of the program in a traceback."""
    house = os.path.dirname(_OWN)
    own = [f for f in traceback.extract_tb(error.__traceback__)
           if not f.filename.startswith((house, "<")) and "site-packages" not in f.filename]  # fmt: skip
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None

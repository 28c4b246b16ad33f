"""Runs a program for TensorFlow 1.15 as it was written: its own arguments, its own ``__main__``, its own tracebacks."""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

from tpugraph.compat.import_hook import tensorflow_1
from tpugraph.compat.source_symbols import not_python_3
from tpugraph.compat.tree import program_line
from tpugraph.support.errors import TpuGraphError, UsageError
from tpugraph.support.tensorflow_log import LOG_LEVEL, import_tensorflow

_OWN = os.path.dirname(os.path.abspath(__file__))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, fix="python -m tpugraph.compat --help; flags of the program come after its name")


def flags_of(words: Sequence[str] | None) -> argparse.Namespace:
    """The runner's own flags, the ``program`` and its ``arguments``."""
    parser = _Parser(
        "python -m tpugraph.compat", allow_abbrev=False,
        epilog="example: python -m tpugraph.compat train.py --use_tpu=true --model_dir=out",
        description="Runs a program that was written for TensorFlow 1.15 on the TensorFlow that is installed. What follows the "
                    "program is its own; a program for TPUEstimator has its own --use_tpu as well.")  # fmt: skip
    parser.add_argument("--use_tpu", choices=("true", "false"), type=str.lower, help="whether a plain tf.estimator.Estimator trains "
                        "on cores; without, where its RunConfig has a distribution strategy")  # fmt: skip
    parser.add_argument("--num_cores", type=int, default=8, metavar="N", help="on how many at most; 8")
    parser.add_argument("--max_ids", type=int, default=0, metavar="N", help="what rows of different lengths are padded to; the "
                        "longest one of the first batches when left out")  # fmt: skip
    parser.add_argument("-m", action="store_true", dest="module", help="PROGRAM is the name of a module")
    parser.add_argument("program", metavar="PROGRAM", help="a file, or with -m a module")
    parser.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER, help="those of the program")
    flags = parser.parse_args(words)
    if flags.num_cores < 1 or flags.max_ids < 0:
        parser.error(f"--num_cores={flags.num_cores} --max_ids={flags.max_ids}: at least 1 core, and no length below 0")
    return flags


def main(words: Sequence[str] | None = None) -> int:
    """Run what follows ``python -m tpugraph.compat``, the process's own when None; returns the exit code."""
    try:
        run(flags_of(words))
    except TpuGraphError as error:
        error.origin = error.origin or program_line(reversed(list(traceback.walk_tb(error.__traceback__))))
        print(error.block(), file=sys.stderr)
        return 1
    except Exception as error:
        if isinstance(error, SyntaxError) and os.path.exists(error.filename or ""):
            print(not_python_3(str(error.filename), error).block(), file=sys.stderr)
        else:  # of a text that the program itself compiles, too
            print(_shown(error), file=sys.stderr, end="")
        return 1
    return 0


def run(flags: argparse.Namespace) -> None:
    """Run a program in this process, as ``python PROGRAM`` or ``python -m MODULE`` would."""
    code = None if flags.module else _code(flags.program)
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # tf.keras is Keras 2, which knows graphs
    os.environ.setdefault("TPU_NAME", "local")  # the TPU of a program that names none
    sys.argv[:] = [flags.program, *flags.arguments]
    sys.path.insert(0, os.getcwd() if flags.module else os.path.dirname(os.path.abspath(flags.program)))
    with _tensorflow_1(flags):
        if code is None:
            _run_module(flags.program)
            return
        module = ModuleType("__main__")
        module.__dict__.update(__file__=flags.program, __builtins__=__builtins__)
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


def _tensorflow_1(flags: argparse.Namespace):  # type: ignore[no-untyped-def]
    """The hook, with TensorFlow as TensorFlow 1 is when it starts."""
    import_tensorflow()
    import tensorflow as tf
    from tensorflow.python.util import deprecation

    from tpugraph.estimator import plain_estimator
    from tpugraph.runtime.tpu_op_fallback import emulate_tpu_ops

    if os.environ.get(LOG_LEVEL) in ("2", "3"):  # nor TensorFlow 2's deprecation warnings
        deprecation._PRINT_DEPRECATION_WARNINGS = False
        warnings.filterwarnings("ignore", ".* is deprecated and will be removed", UserWarning)
    with deprecation.silence():  # the program did not call it
        tf.compat.v1.disable_v2_behavior()
    plain_estimator.use_cores(
        None if flags.use_tpu is None else flags.num_cores * (flags.use_tpu == "true"), flags.max_ids
    )
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

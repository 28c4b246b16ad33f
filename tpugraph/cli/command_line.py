"""The entry point of ``tpugraph``: runs a command, and prints every failure as one block, with an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from tpugraph import __version__
from tpugraph.cli import bundles
from tpugraph.cli.console import Console, Outcome, load_tensorflow
from tpugraph.support.errors import TpuGraphError, UsageError
from tpugraph.support.suggestions import near

REFUSED = 2
"""The exit code of usage errors, unreadable files and refused graphs; 1 is the answer no, as of `check` and `verify`."""

INTERRUPTED = 130
BROKEN_PIPE = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, the process's own when None; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(machine_readable="--json" in words, verbose="--traceback" in words)
    try:
        outcome = _dispatch(words, console)
        console.result(outcome.result)
        sys.stdout.flush()
        if outcome.abandoned and arguments is None:
            _leave(outcome.code)
        return outcome.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        if arguments is None:
            _leave(INTERRUPTED)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        found = error if isinstance(error, TpuGraphError) else _unforeseen(error)
        code = _fail(console, found)
        if arguments is None and _is_joined():  # jax would wait for the processes that do not come any more
            _leave(code)
        return code


def _is_joined() -> bool:
    from tpugraph.xla import jax_client  # which needs NumPy, that a help does without

    return jax_client.joined()


def _leave(code: int) -> NoReturn:
    """End the process at once: threads that were left behind in C++ code would hold up its orderly end, or abort it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _dispatch(words: list[str], console: Console) -> Outcome:
    if words[:1] == ["run"] and bundles.is_bundle(words[1:]):
        return bundles.run(words[1:], console)
    from tpugraph.cli import flags  # absl is not there where a bundle alone is run, without dependencies
    from tpugraph.cli.commands import COMMANDS

    name = words[0] if words else "--help"
    if name in ("--version", "version"):
        console.say(f"tpugraph {__version__}")
        return Outcome({"version": __version__})
    if name in ("-h", "--help", "--helpfull", "help"):
        named = COMMANDS.get(words[1]) if len(words) > 1 else None
        console.say(flags.help_of(named) if named else flags.overview())
        return Outcome(code=0 if words else REFUSED)
    command = COMMANDS.get(name)
    if command is None:
        raise _unknown_command(name, list(COMMANDS))
    if {"-h", "--help", "--helpfull"} & set(words):
        console.say(flags.help_of(command))
        return Outcome()
    parsed = flags.parse(command, words[1:])
    console.machine_readable, console.verbose = parsed["json"], parsed["traceback"]
    load_tensorflow()
    module = importlib.import_module(f"tpugraph.cli.{name}")
    outcome: Outcome = module.run(parsed, console)
    return outcome


def _unknown_command(name: str, commands: list[str]) -> UsageError:
    close = near(name, commands)
    if close:
        fix = f"did you mean 'tpugraph {close[0]}'?"
    elif os.path.exists(name):
        fix = f"tpugraph convert {name}"
    else:
        fix = f"one of {', '.join(commands)}"
    what = "a flag before the command" if name.startswith("-") else "no command"
    return UsageError(f"'{name}' is {what}", fix=fix)


def _fail(console: Console, error: TpuGraphError) -> int:
    if console.verbose:
        traceback.print_exception(error)
    print(error.block(), file=sys.stderr, flush=True)
    console.result({"error": error.as_dict()})
    return REFUSED


def _unforeseen(error: Exception) -> TpuGraphError:
    """An unexpected exception as a block: its message and the line of tpugraph that raised it."""
    words = next(iter(str(error).splitlines()), "")
    if isinstance(error, ModuleNotFoundError):
        found = TpuGraphError(f"{error.name} is not installed", fix="python -m pip install tpugraph; a bundle alone needs "
                              "jax and NumPy: tpugraph run step.tpugraph --data=batches.npz")  # fmt: skip
    elif isinstance(error, MemoryError):
        found = TpuGraphError("the machine has too little memory", fix="use fewer cores or a smaller batch")
    elif isinstance(error, OSError) and error.filename:
        found = TpuGraphError(f"'{error.filename}': {error.strerror}", fix="check the path and its permissions")
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "tpugraph" in frame.filename or "passes" in frame.filename]
        place = f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}" if own else None
        found = TpuGraphError(f"{type(error).__name__}: {words[:300]}", origin=place,
                              fix="this should not happen: report it with what --traceback prints")  # fmt: skip
    found.__cause__ = error
    return found

"""Runs Python programs, each in a process of its own that is forked from one in which TensorFlow is loaded.

python tests/forked.py MODULES loads the modules. Each line that then comes in is an order in JSON, [WORDS, PLACE]: the words behind
``python`` (a file, -m and a module, or -c and the program, and its arguments), and where what it prints goes, to PLACE.out and
PLACE.err. The line that goes out is its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LONGEST = 600
"""Seconds after which a program is ended."""

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Ran:
    """What a program left behind: its exit code and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
"""Runs the words behind ``python``."""


@contextmanager
def programs(folder: Path, *modules: str, environment: Mapping[str, str] | None = None) -> Iterator[Run]:
    """What runs programs, which have some modules loaded before they begin.

    Args:
        folder: where what they print is kept.
        modules: what is loaded, TensorFlow among it.
        environment: variables that are set before that.
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *sys.path])
    given = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})}
    with subprocess.Popen([sys.executable, __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          cwd=ROOT, env=given) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        asked, answers, count = server.stdin, server.stdout, 0

        def run(*words: str) -> Ran:
            nonlocal count
            place, count = folder / str(count), count + 1
            asked.write(json.dumps([words, str(place)]) + "\n")
            asked.flush()
            code = int(answers.readline())
            return Ran(code, *(place.with_suffix(end).read_text() for end in (".out", ".err")))

        yield run


def start(words: list[str]) -> None:
    """Run the words behind ``python`` as it does."""
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


def run_one(words: list[str], place: Path) -> int:
    """In a child: everything that is printed goes to files; the exit code."""
    for number, end in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(place.with_suffix(end), os.O_WRONLY | os.O_CREAT), number)
    code = 0
    try:
        start(words)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def main() -> None:
    gc.disable()
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # what is loaded is garbage in no child, and a child that walks it copies it
    gc.enable()
    for line in sys.stdin:
        words, place = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.alarm(LONGEST)
            os._exit(run_one(words, Path(place)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()

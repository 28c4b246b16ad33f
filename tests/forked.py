"""Runs Python programs, each in a process of its own that is forked from one in which TensorFlow is loaded.

python tests/forked.py MODULES loads the modules. Each line that then comes in is an order in JSON. {"words": WORDS, "place": PLACE,
"folder": FOLDER} starts a program in a folder: the words behind ``python`` (a file, -m and a module, or -c and the program, and its
arguments), and where what it prints goes, to PLACE.out and PLACE.err; the line that goes out is the number of its process. {"wait":
NUMBER} waits until it has ended; the line that goes out is its exit code, which is negative where a signal ended it.
"""

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


class Started:
    """A program that was started.

    Attributes:
        pid: the number of its process.
    """

    def __init__(self, pid: int, place: Path, code: Callable[[], int]) -> None:
        self.pid = pid
        self._place = place
        self._code = code

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return self._place.with_suffix(".out").read_text()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self) -> Ran:
        """What it left behind, once it has ended."""
        code = self._code()
        return Ran(code, *(self._place.with_suffix(end).read_text() for end in (".out", ".err")))


class Programs:
    """What starts programs.

    Args:
        server: the process that forks them.
        folder: where what they print is kept.
    """

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._count = 0

    def start(self, *words: str, cwd: Path = ROOT) -> Started:
        """Run the words behind ``python``, beside what the caller does."""
        place, self._count = self._folder / str(self._count), self._count + 1
        pid = self._answer({"words": words, "place": str(place), "folder": str(cwd)})
        return Started(pid, place, lambda: self._answer({"wait": pid}))

    def __call__(self, *words: str, cwd: Path = ROOT) -> Ran:
        """Run the words behind ``python`` to their end."""
        return self.start(*words, cwd=cwd).wait()

    def _answer(self, order: object) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(order), file=self._server.stdin, flush=True)
        return int(self._server.stdout.readline())


@contextmanager
def programs(folder: Path, *modules: str, environment: Mapping[str, str] | None = None) -> Iterator[Programs]:
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
        yield Programs(server, folder)


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
        os.dup2(os.open(place.with_suffix(end), os.O_WRONLY), number)
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
    running = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            running.discard(order["wait"])
            print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
            continue
        for end in (".out", ".err"):
            Path(order["place"]).with_suffix(end).touch()
        child = os.fork()
        if child == 0:
            signal.alarm(LONGEST)
            os.chdir(order["folder"])
            os._exit(run_one(order["words"], Path(order["place"])))
        running.add(child)
        print(child, flush=True)
    for child in running:  # the test that waited for it has failed
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()

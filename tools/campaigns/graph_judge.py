"""What judges damaged graphs: a process of its own that runs the commands on them, and is ended where it hangs.

It is started again where it dies, and replaced by another one where TensorFlow keeps too much memory.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
COMMANDS = {
    "inspect": (), "convert": ("--output=out.pb",), "check": (), "run": ("--steps=2",), "verify": ("--dry_run",),
    "view": ("--output=page.html",), "diff": (str(DATA / "corpus" / "iris_dnn" / "model.pb"),),
    "compare": ("--num_replicas=2",), "compile": ("--num_replicas=2",), "report": ("--topology=v5e:2x4", "--output=report.html"),
    "reduce": ("--when=refused:LoadError", "--output=small.pb", "--seconds=5"),
}  # fmt: skip
MOST_MEMORY = 1 << 20  # KiB above the start
MOST_LEFT = (
    1 << 19
)  # KiB above the start that a process may keep: TensorFlow never frees some; another one goes on then
_PATIENCE = 6  # a machine at work, and a wait
UNFORESEEN = "this should not happen"


def serve(connection: Any, folder: str) -> None:
    """Runs the commands that come in and says what came of them, until the connection ends."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(ROOT)]  # the compiler beside this file, whatever is installed
    from tpugraph import cli

    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["check", str(DATA / "corpus" / "iris_dnn" / "model.pb")])  # loads what the commands load
    connection.send(_memory("VmRSS"))
    while True:
        command, path = connection.recv()
        _reset_peak()
        before, started = _memory("VmRSS"), time.process_time()
        said, errors = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
                code = cli.main([command, path, *COMMANDS[command], "--json"])
            words = "" if code == 0 else errors.getvalue()[-600:]
        except BaseException as error:  # whatever it is, it is a failure: it went past the command's own net
            code, words = -1, f"{UNFORESEEN}: {type(error).__name__}: {error}"[:600]
        found = _last_object(said.getvalue())
        connection.send({"code": code, "words": words, "kinds": sorted(_kinds(found)), "seconds": time.process_time() - started,
                         "memory": _memory("VmHWM") - before, "peak": _memory("VmHWM"), "left": _memory("VmRSS")})  # fmt: skip


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _memory(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def _last_object(text: str) -> Any:
    lines = text.strip().splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def _kinds(found: Any) -> Iterator[str]:
    """The kinds of all errors in what a command said."""
    if isinstance(found, dict):
        if {"kind", "fault", "fix"} <= found.keys():
            yield f"{found['kind']} {found['fix'] if UNFORESEEN in str(found['fix']) else ''}".strip()
        for value in found.values():
            yield from _kinds(value)


class Judge:
    """A process that runs commands on files, one after the other.

    Args:
        seconds: how much time of the processor a command may take; it may wait six times as long.

    Attributes:
        most: the most memory that a process of it took, in KiB above its start.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: Any = None
        self._folder = tempfile.TemporaryDirectory()
        self.most = 0

    def failure(self, data: bytes, commands: tuple[str, ...]) -> str | None:
        """What goes wrong with a file, as a kind and words, or None."""
        path = Path(self._folder.name) / "model.pb"
        path.write_bytes(data)
        for command in commands:
            found = self._failure(command, str(path))
            if found is not None:
                return f"{command}: {found}"
        return None

    def _failure(self, command: str, path: str) -> str | None:
        if self._process is None:
            self._start()
        self._connection.send((command, path))
        try:
            if not self._connection.poll(_PATIENCE * self._seconds):
                self.stop()
                return f"hang: no answer within {_PATIENCE * self._seconds:g} s"
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self.stop()
            return "died"
        self.most = max(self.most, answer["peak"] - self._at_start)
        if answer["left"] - self._at_start > MOST_LEFT:
            self.stop()
        return _verdict(answer, self._seconds) or self._left_over(answer["code"])

    def _left_over(self, code: int) -> str | None:
        left = sorted(path.name for path in Path(self._folder.name).iterdir() if path.name != "model.pb")
        for name in left:
            (Path(self._folder.name) / name).unlink()
        return f"file: {left} after an error" if left and code not in (0, 1) else None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other, self._folder.name), daemon=True)
        self._process.start()
        other.close()
        self._at_start = self._connection.recv()  # its imports are not counted

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """End the process; the next file starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def _verdict(answer: dict[str, Any], seconds: float) -> str | None:
    words = " | ".join(answer["words"].split("\n"))[:300]
    if UNFORESEEN in answer["words"] or any(UNFORESEEN in kind for kind in answer["kinds"]):
        return f"raw: {words or answer['kinds']}"
    if "InvariantError" in answer["kinds"]:
        return f"invariant: {words}"
    if answer["memory"] > MOST_MEMORY:
        return f"memory: {answer['memory'] / 2**20:.1f} GiB above the start"
    if answer["seconds"] > seconds:
        return f"slow: {answer['seconds']:.1f} s of the processor"
    return None

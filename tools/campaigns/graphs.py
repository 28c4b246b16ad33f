"""The campaign of graphs: damaged ones through the commands, where all but a right result or one clear block is a failure.

    PYTHONPATH=tools python -m campaigns.graphs --mutants=3000 --seed=1 --keep=tests/data/faults
    PYTHONPATH=tools python -m campaigns.graphs --mutants=3000 --seed=1 --mutator=lawful,op
    PYTHONPATH=tools python -m campaigns.graphs --files tests/data/faults/*.gz

A failure is a raw exception, an invariant that breaks, more than --seconds of processor time or six times that by the clock, more
than 1 GiB of memory above the start, a death of the process, or a file that is left after an error. hypothesis shrinks each and
--keep writes it as a file. The commands run in a process of their own, which is ended where it hangs, started again where it dies,
and replaced where TensorFlow keeps too much memory.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gzip
import io
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaigns import Server, campaign
from campaigns.graph_mutants import DATA, MUTATIONS, Mutant, mutants

COMMANDS = {
    "inspect": (), "convert": ("--output=out.pb",), "check": (), "run": ("--steps=2",), "verify": ("--steps=1",),
    "view": ("--output=page.html",), "diff": (str(DATA / "corpus" / "iris_dnn" / "model.pb"),),
    "compare": ("--num_replicas=2",), "compile": ("--num_replicas=2",), "report": ("--topology=v5e:2x4", "--output=report.html"),
    "reduce": ("--when=refused:LoadError", "--output=small.pb", "--seconds=5"),
}  # fmt: skip
MOST_MEMORY, MOST_KEPT = 1 << 20, 1 << 19  # KiB above the start: at any time, and what TensorFlow may keep afterwards
PATIENCE = 6  # the clock's time for each second of the processor, on a machine at work
RAW = "this should not happen"


# --------------------------------------------------------------------------- the judge


def serve(connection: Any, folder: str) -> None:
    """Runs the commands that come in and says what came of them, until the connection ends."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    warnings.simplefilter("ignore")
    from tpugraph import cli
    from tpugraph.runtime import graph_session

    graph_session.IDLE_SECONDS = 5.0  # of a graph in which two nodes wait for each other
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["check", str(DATA / "corpus" / "iris_dnn" / "model.pb")])  # loads what the commands load
    connection.send(_memory("VmRSS"))
    while True:
        command, path = connection.recv()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before, started, said, errors = _memory("VmRSS"), time.process_time(), io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
                code = cli.main([command, path, *COMMANDS[command], "--json"])
            words = "" if code == 0 else errors.getvalue()[-600:]
        except BaseException as error:  # whatever it is, it is a failure: it went past the command's own net
            code, words = -1, f"{RAW}: {type(error).__name__}: {error}"[:600]
        lines = said.getvalue().strip().splitlines()
        found = json.loads(lines[-1]) if lines and lines[-1][:1] == "{" else {}
        connection.send({"code": code, "words": words, "kinds": sorted(_kinds(found)), "seconds": time.process_time() - started,
                         "memory": _memory("VmHWM") - before, "kept": _memory("VmRSS")})  # fmt: skip


def _memory(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def _kinds(found: Any) -> Iterator[str]:
    """The kinds of all errors in what a command said."""
    if isinstance(found, dict):
        if {"kind", "fault", "fix"} <= found.keys():
            yield f"{found['kind']} {found['fix'] if RAW in str(found['fix']) else ''}".strip()
        for value in found.values():
            yield from _kinds(value)


class Judge:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory()
        self.server = Server(serve, self._folder.name)

    def failure(self, data: bytes, commands: tuple[str, ...]) -> str | None:
        """What goes wrong with a file: command, kind and words; or None."""
        path = Path(self._folder.name) / "model.pb"
        path.write_bytes(data)
        return next((f"{command}: {found}" for command in commands if (found := self._failure(command, path))), None)

    def _failure(self, command: str, path: Path) -> str | None:
        try:
            answer = self.server.ask((command, str(path)), PATIENCE * self._seconds)
        except TimeoutError as error:
            return f"hang: {error}"
        except EOFError:
            return "died"
        if answer["kept"] - self.server.ready > MOST_KEPT:
            self.server.stop()
        left = sorted(other.name for other in path.parent.iterdir() if other != path)
        for name in left:
            (path.parent / name).unlink()
        found = verdict(answer, self._seconds)
        return found or (f"file: {left} after an error" if left and answer["code"] not in (0, 1) else None)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self._folder.cleanup()


def verdict(answer: dict[str, Any], seconds: float) -> str | None:
    """What is wrong with an answer: its kind and words, or None."""
    words = " | ".join(answer["words"].split("\n"))[:300]
    if RAW in answer["words"] or any(RAW in kind for kind in answer["kinds"]):
        return f"raw: {words or answer['kinds']}"
    if "InvariantError" in answer["kinds"]:
        return f"invariant: {words}"
    if answer["memory"] > MOST_MEMORY:
        return f"memory: {answer['memory'] / 2**20:.1f} GiB above the start"
    if answer["seconds"] > seconds:
        return f"slow: {answer['seconds']:.1f} s of the processor"
    return None


# --------------------------------------------------------------------------- the campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutator", default=",".join(MUTATIONS), help="what makes the mutants, separated by commas")
    parser.add_argument("--seconds", type=float, default=10, help="how much processor time a command may take")
    parser.add_argument("--keep", metavar="FOLDER", help="keep failures there, shrunk")
    parser.add_argument("--commands", default="", help="the commands of every mutant, separated by commas")
    parser.add_argument("--converted", type=lambda text: text == "1", help="1 or 0: converted graphs alone, or none")
    parser.add_argument("--files", nargs="*", help="run these files (.gz or not) instead of mutants")
    options, started = parser.parse_args(), time.monotonic()
    chosen = tuple(filter(None, options.commands.split(",")))
    with Judge(options.seconds) as judge:

        def keep(mutant: Mutant, number: int) -> None:
            name = f"{mutant.base.rpartition('/')[2]}-{mutant.commands[-1]}-{options.seed}-{number}.pb.gz"
            place = Path(options.keep, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(gzip.compress(mutant.data, mtime=0))

        if options.files is None:
            drawn = mutants(tuple(options.mutator.split(",")), chosen, options.converted)
            totals = campaign(drawn, lambda mutant: judge.failure(mutant.data, mutant.commands) or "fine", {"fine"},
                              options.mutants, options.seed, keep if options.keep else None)  # fmt: skip
        else:
            totals = collections.Counter[str]()
            for name in options.files:
                data = Path(name).read_bytes()
                data = gzip.decompress(data) if name.endswith(".gz") else data
                found = judge.failure(data, chosen or tuple(COMMANDS))
                totals["fine" if found is None else "wrong"] += 1
                print(f"{name}: {found or 'fine'}", flush=True)
    told = ", ".join(f"{count} {kind}" for kind, count in totals.most_common())
    print(told, f"in {time.monotonic() - started:.0f} s")
    return int(totals["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())

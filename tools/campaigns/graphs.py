"""Damaged graphs through the commands: what is no right result and no clear block is a failure.

    python tools/campaigns/graphs.py --mutants=3000 --seed=1 --keep=tests/data/faults
    python tools/campaigns/graphs.py --mutants=3000 --seed=1 --mutator=lawful
    python tools/campaigns/graphs.py --files tests/data/faults/*.gz

A mutant is drawn from a seed and its number, by one of four mutators: what breaks the laws of graphs, what keeps them, what
breaks the form of files, and what is merely strange; by all in turn with --mutator=all. A failure is a raw exception, an
internal invariant that breaks, more than --seconds of processor time or six times that by the clock, more than 1 GiB of
memory above the start, a death of the process, or a file that is left after an error. With --keep each new failure is made of
fewer mutations where fewer will do, and kept as a file. The commands run in a process of their own, which is ended where it
hangs, started again where it dies, and replaced by another one where TensorFlow keeps too much memory.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gzip
import importlib
import io
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
BASES = tuple(
    """corpus/iris_dnn corpus/while_cond corpus/ref_variables corpus/queue_runner corpus/batch_norm corpus/linear_classifier
    families/strings_tables families/partitioned families/dynamic_while_v2 families/cond_model families/keras_lstm_v2 families/ema
    families/scanned""".split()
)
MUTATORS = {
    "damage": "mutations",
    "lawful": "lawful_mutations",
    "wire": "wire_mutations",
    "strange": "strange_mutations",
}
"""The modules that make mutants: of each, ``mutant(meta, seed, without=numbers)`` and ``MOST``."""
COMMANDS = {
    "inspect": (), "convert": ("--output=out.pb",), "check": (), "run": ("--steps=2",), "verify": ("--dry_run",),
    "view": ("--output=page.html",), "diff": (str(DATA / "corpus" / "iris_dnn" / "model.pb"),),
    "compare": ("--num_replicas=2",), "compile": ("--num_replicas=2",), "report": ("--topology=v5e:2x4", "--output=report.html"),
    "reduce": ("--when=refused:LoadError", "--output=small.pb", "--seconds=5"),
}  # fmt: skip
_QUICK, _NOW_AND_THEN = ("inspect", "convert"), ("check", "view", "verify", "diff")
MOST_MEMORY = 1 << 20  # KiB above the start
MOST_LEFT = (
    1 << 19
)  # KiB above the start that a process may keep: TensorFlow never frees some; another one goes on then
_PATIENCE = 6  # a machine at work, and a wait
UNFORESEEN = "this should not happen"


class Sound:
    """The graphs that mutants are made of: MetaGraphDefs, half of them converted."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, bool], Any] = {}

    def graph(self, name: str, *, converted: bool) -> Any:
        """A corpus graph as a MetaGraphDef, converted or as it is."""
        from tensorflow.core.protobuf import meta_graph_pb2

        from tpugraph import convert
        from tpugraph.ir import graphdef

        key = (name, converted)
        if key not in self._held:
            meta = self._held[key] = meta_graph_pb2.MetaGraphDef()
            folder = DATA / name
            for path in folder.glob("*.meta"):
                meta.ParseFromString(path.read_bytes())
            for path in folder.glob("model.pb.gz"):
                meta.graph_def.ParseFromString(gzip.decompress(path.read_bytes()))
            if not meta.graph_def.node:
                meta.graph_def.ParseFromString((folder / "model.pb").read_bytes())
            if converted:
                meta.ClearField("collection_def")
                graph = graphdef.from_graph_def(meta.graph_def)
                meta.graph_def.CopyFrom(convert(graph, num_replicas=2, iterations_per_loop=2).graph_def)
        return self._held[key]


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


def mutants(seed: int, first: int, count: int, converted: float = 0.3) -> Iterator[tuple[str, str, bool]]:
    """Seed, base and whether it is converted, of each mutant of a campaign."""
    for number in range(first, first + count):
        rng = random.Random(f"{seed}/{number}")
        yield f"{seed}/{number}", rng.choice(BASES), rng.random() < converted


def commands_for(seed: str, *, converted: bool) -> tuple[str, ...]:
    """The commands that a mutant goes through: the slow ones only now and then."""
    rng = random.Random(f"commands {seed}")
    found = ["inspect"] if converted else list(_QUICK)
    if rng.random() < 0.1:
        found.append(rng.choice(_NOW_AND_THEN))
    if converted and rng.random() < 0.3:
        found.append("run")
    return tuple(found)


def shrunk(judge: Judge, mutator: Any, meta: Any, seed: str, commands: tuple[str, ...], kind: str) -> bytes:
    """The file of a failing mutant with as few mutations as still fail in the same way."""
    without: frozenset[int] = frozenset()
    for number in range(mutator.MOST):
        fewer = without | {number}
        found = judge.failure(mutator.mutant(meta, seed, without=fewer), commands)
        if found is not None and found.split(":")[1] == kind:
            without = fewer
    data: bytes = mutator.mutant(meta, seed, without=without)
    return data


def campaign(options: argparse.Namespace, judge: Judge) -> collections.Counter[str]:
    """Run mutants; prints each failure and returns how many of each kind there were."""
    chosen = [
        importlib.import_module(MUTATORS[name])
        for name in (MUTATORS if options.mutator == "all" else [options.mutator])
    ]
    sound, totals, started = Sound(), collections.Counter[str](), time.monotonic()
    drawn = mutants(options.seed, options.first, options.mutants, options.converted)
    for number, (seed, base, converted) in enumerate(drawn):
        mutator = chosen[(options.first + number) % len(chosen)]
        if time.monotonic() - started > options.minutes * 60:
            break
        meta = sound.graph(base, converted=converted)
        commands = tuple(options.commands.split(",")) if options.commands else commands_for(seed, converted=converted)
        found = judge.failure(mutator.mutant(meta, seed), commands)
        kind = "fine" if found is None else found.split(":")[1].strip()
        totals[kind] += 1
        if totals.total() % 1000 == 0:
            print(f"{totals.total():,} after {time.monotonic() - started:.0f} s", flush=True)
        if found is None:
            continue
        name = mutator.__name__.partition("_")[0]
        print(f"{seed} {base}{' converted' if converted else ''} by {mutator.__name__}: {found}", flush=True)
        if options.keep:
            data = shrunk(judge, mutator, meta, seed, commands, found.split(":")[1])
            whose = f"{base.rpartition('/')[2]}-{name}-{seed.replace('/', '-')}"
            place = Path(options.keep) / f"{kind}-{found.split(':')[0]}-{whose}.pb.gz"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(gzip.compress(data, mtime=0))
    print(
        ", ".join(f"{count} {kind}" for kind, count in totals.most_common()),
        f"in {time.monotonic() - started:.0f} s; at most {judge.most / 2**20:.2f} GiB above the start",
    )
    return totals


def main() -> int:
    """Runs the campaign; 0 where nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=60, help="stop after that time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--mutator", choices=[*MUTATORS, "all"], default="damage", help="what makes the mutants")
    parser.add_argument("--seconds", type=float, default=10, help="how much processor time a command may take")
    parser.add_argument("--keep", metavar="FOLDER", help="keep failures there, shrunk")
    parser.add_argument(
        "--commands", help="the commands of every mutant, separated by commas; else the slow ones now and then"
    )
    parser.add_argument("--converted", type=float, default=0.3, help="the share of mutants of converted graphs")
    parser.add_argument("--files", nargs="*", help="run these files (.gz or not) instead of mutants")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(Path(__file__).parent)]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with Judge(options.seconds) as judge:
        if options.files is None:
            totals = campaign(options, judge)
            return 1 if totals.total() - totals["fine"] else 0
        failed, commands = 0, tuple(options.commands.split(",") if options.commands else COMMANDS)
        for name in options.files:
            data = Path(name).read_bytes()
            found = judge.failure(gzip.decompress(data) if name.endswith(".gz") else data, commands)
            failed += found is not None
            print(f"{name}: {found or 'fine'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

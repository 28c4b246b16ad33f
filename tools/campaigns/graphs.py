"""Damaged graphs through the commands: what is no right result and no clear block is a failure.

    PYTHONPATH=tools python -m campaigns.graphs --mutants=3000 --seed=1 --keep=tests/data/faults
    PYTHONPATH=tools python -m campaigns.graphs --mutants=3000 --seed=1 --mutator=lawful
    PYTHONPATH=tools python -m campaigns.graphs --files tests/data/faults/*.gz

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
import gzip
import importlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaigns.graph_judge import COMMANDS, Judge
from campaigns.sound_graphs import BASES, Sound

MUTATORS = {
    "damage": "campaigns.mutations",
    "lawful": "campaigns.lawful_mutations",
    "wire": "campaigns.wire_mutations",
    "strange": "campaigns.strange_mutations",
}
"""The modules that make mutants: of each, ``mutant(meta, seed, without=numbers)`` and ``MOST``."""
_QUICK, _NOW_AND_THEN = ("inspect", "convert"), ("check", "view", "verify", "diff")


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

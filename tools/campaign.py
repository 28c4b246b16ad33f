"""Random training programs against TensorFlow alone: how many are equal, refused, unsupported, different, crashed.

    python tools/campaign.py --programs=200 --seed=1 --cores=2,4 --shrink
    python tools/campaign.py --named=_2$ --mesh=data:4,model:2 --shard_optimizer=data
    python tools/campaign.py --only="composed rows=2 open=0 sizes=24 loop.0 loss=kernel" --cores=2

A program is drawn from a seed and its number, so that each can be had again alone; those that TensorFlow itself cannot
compare (no finite numbers, no steady ones) are drawn anew. Each runs at every number of cores until one is not equal.
With --engine=pjrt a program is "unsupported" that was converted and whose step XLA refuses, as the compiler for a TPU would:
sizes that data decide, an op without a kernel, an operand that must be known when the step is compiled; any other error is
"crashed". With --shrink a failing program is printed again with all choices removed that its failure does not need. The
programs run in a process of their own, which is ended where it hangs and started again where it dies.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import math
import os
import random
import re
import sys
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from campaigns import Server

ROOT = Path(__file__).parents[1]
ENGINES = {"emulator": {}, "queues": {"queues": True}, "pjrt": {"engine": "pjrt", "platform": "cpu"}}
OUTCOMES = ("equal", "whole", "refused", "unsupported", "different", "crashed", "invalid")
_LIFETIME = 200  # programs; TensorFlow keeps some megabytes of each


def serve(connection: Connection, *how: dict[str, Any]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # the compiler beside this file, whatever is installed
    from programs import check, find  # loads TensorFlow: not in the process that waits

    connection.send("ready")
    while True:
        program, cores = connection.recv()
        verdict = check(find(program), cores, *how)
        connection.send((verdict.outcome, verdict.words))


class Judge:
    def __init__(self, seconds: float, *how: dict[str, Any]) -> None:
        self._seconds, self._judged = seconds, 0
        self.server = Server(serve, *how)

    def worst(self, program: str, cores: list[int]) -> tuple[str, str]:
        """The first outcome that is not equal with its words, and at how many cores."""
        for number in cores:
            self._judged += 1
            if self._judged % _LIFETIME == 0:
                self.server.stop()
            try:
                outcome, words = self.server.ask((program, number), self._seconds)
            except (TimeoutError, EOFError) as error:
                outcome, words = "crashed", str(error)
            if outcome != "equal":
                return outcome, f"at {number} cores: {words}"
        return "equal", words


def programs_of(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The programs that are asked for, each with where it comes from; random ones come without an end."""
    from programs import composed, named

    if options.only is not None or options.named is not None:
        if options.only is not None:
            yield "only", options.only
        else:
            yield from (("named", program) for program in named(options.named))
        return
    for number in itertools.count(options.first):
        seed = f"{options.seed}/{number}"
        yield seed, composed.draw(random.Random(seed))


def main() -> int:
    """Runs the campaign; 0 where none came out different or crashed, and none of those with names was refused."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from programs import composed

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200, help="number of valid programs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--cores", default="2,4", help="numbers of cores, separated by commas")
    parser.add_argument("--only", help="the one program to run, as a line of a campaign shows it")
    parser.add_argument("--named", metavar="REGEX", help="run the programs that have such names, not random ones")
    parser.add_argument("--shrink", action="store_true", help="simplify what fails")
    parser.add_argument("--seconds", type=float, default=90, help="how long a program may take")
    parser.add_argument("--engine", choices=sorted(ENGINES), default="emulator", help="what runs the converted graphs")
    parser.add_argument(
        "--mesh", help="XLA divides the step among such devices, and the largest variables along 'model'"
    )
    parser.add_argument("--shard_optimizer", default="", help="the axis along which the optimizer is sharded")
    options = parser.parse_args()
    cores = [int(number) for number in options.cores.split(",")]
    layout = {"mesh": options.mesh, "shard_optimizer": options.shard_optimizer} if options.mesh else {}
    cores = [math.prod(map(int, re.findall(r":(\d+)", options.mesh)))] if layout else cores
    judge, started = Judge(options.seconds, ENGINES[options.engine], layout), time.monotonic()
    totals, failed = collections.Counter[str](), False
    for seed, program in programs_of(options):
        outcome, words = judge.worst(program, cores)
        failed |= outcome in ("different", "crashed") or (seed == "named" and outcome == "refused")
        totals[outcome] += 1
        if outcome != "equal" or "/" not in seed:
            print(f"{seed} {outcome} {words} | {program}", flush=True)
        if options.shrink and seed != "named" and outcome not in ("equal", "invalid"):
            least = composed.shrunk(program, lambda simpler, kind=outcome: judge.worst(simpler, cores)[0] == kind)
            print(f"  {judge.worst(least, cores)[1]} | {least}", flush=True)
        if "/" in seed and sum(totals.values()) - totals["invalid"] >= options.programs:
            break
    judge.server.stop()
    print(", ".join(f"{totals[outcome]} {outcome}" for outcome in OUTCOMES), f"in {time.monotonic() - started:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

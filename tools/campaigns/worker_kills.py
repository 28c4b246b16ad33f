"""Trainings on two workers, of which a worker, both or the trainer itself is killed or frozen at random: no step is lost.

    PYTHONPATH=tools:tests python -m campaigns.worker_kills --count=20 --seed=1

A training of `run` on two workers saves every few steps. At a random moment something happens to one of the processes. A
trainer that lives must end with the exit code 2 and name who was lost; then all is there again, and the same command finishes the
training. Losses and variables must be those of a training that nothing disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from workers import Workers, workers

from campaigns.save_faults import IRIS, in_a_child, result
from tpugraph import cli

STEPS, LOOP = 60, 3
EVERY = 6
"""Steps between saves, which come in the midst of the data."""
MOST = 60.0
"""Seconds within which the loss of a worker must be named."""


def train(folder: Path, cluster: Workers) -> None:
    """Train with the command line on the workers; what it says goes beside the folder."""
    told = os.open(f"{folder}.told", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(told, 2)
    code = cli.main(["run", str(IRIS / "model.pb"), f"--max_steps={STEPS}", f"--save_steps={EVERY}", "--num_replicas=16",
                     f"--iterations_per_loop={LOOP}", f"--model_dir={folder}", f"--losses={folder}.jsonl",
                     f"--checkpoint={IRIS / 'model.ckpt-0'}", f"--workers={','.join(cluster.addresses)}"])  # fmt: skip
    os._exit(code)


def kill(cluster: Workers, task: int) -> Callable[[], None]:
    """Ends a worker; what it returns starts it again."""
    cluster.kill(task)
    return lambda: cluster.start(task)


def kill_both(cluster: Workers, task: int) -> Callable[[], None]:
    """Ends both workers."""
    cluster.kill(task)
    cluster.kill(1 - task)
    return lambda: cluster.start(0, 1)


def freeze(cluster: Workers, task: int) -> Callable[[], None]:
    """Stops a worker without ending it; it is killed and started again."""
    cluster.freeze(task)

    def back() -> None:
        cluster.kill(task)
        cluster.start(task)

    return back


def hiccup(cluster: Workers, task: int) -> Callable[[], None]:
    """Stops a worker for half a second, which must not be noticed."""
    cluster.freeze(task)
    time.sleep(0.5)
    cluster.freeze(task, frozen=False)
    return lambda: None


EVENTS = {
    "a worker killed": kill,
    "both workers killed": kill_both,
    "a worker frozen": freeze,
    "a worker stops for 0.5 s": hiccup,
}
TRAINER = "the trainer killed"


def disturbed(folder: Path, cluster: Workers, event: str, task: int, after: float) -> str:
    """Train, let something happen after some seconds, and train to the end; what is wrong with that, or ""."""
    if event == TRAINER:
        in_a_child(lambda: train(folder, cluster), after)
    else:
        back: list[Callable[[], None]] = []
        timer = threading.Timer(after, lambda: back.append(EVENTS[event](cluster, task)))
        timer.start()
        status = in_a_child(lambda: train(folder, cluster), after + MOST, stacks=True)
        timer.join()
        back[0]()
        said = Path(f"{folder}.told").read_text()
        named = "was lost" in said or "do not answer" in said or "does not answer" in said
        if status not in (0, 2 << 8) or (status and not named):
            return f"the trainer ended with status {status} and said {said[-3000:]}"
    status = in_a_child(lambda: train(folder, cluster))
    return (
        ""
        if status == 0
        else f"the second training ended with status {status}: {Path(f'{folder}.told').read_text()[-300:]!r}"
    )


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="Trainings on workers that are killed.")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw, met = random.Random(asked.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as place, workers(2) as cluster:
        whole, began = Path(place, "whole"), time.monotonic()
        if in_a_child(lambda: train(whole, cluster)):
            print(f"no training to disturb: {Path(f'{whole}.told').read_text()}")
            return 1
        right, took = result(whole), time.monotonic() - began
        for number in range(asked.count):
            folder, event = Path(place, str(number)), draw.choice([*EVENTS, TRAINER])
            task, after = draw.randrange(2), draw.uniform(0, took)
            found = disturbed(folder, cluster, event, task, after) or (
                "" if result(folder) == right else "other values"
            )
            met[event] += 1
            met["wrong"] += bool(found)
            if found:
                print(f"{number}: {event} ({task}) after {after:.2f} s of {took:.2f} s: {found}", flush=True)
    print(
        f"{asked.count} trainings on two workers: "
        + ", ".join(f"{count} {what}" for what, count in sorted(met.items()))
    )
    return 1 if met["wrong"] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.exit(main())

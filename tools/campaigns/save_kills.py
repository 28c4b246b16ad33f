"""Writers that are killed while they save, one after the other: what was said to be saved is there, and whole.

    PYTHONPATH=tools python -m campaigns.save_kills --count=500 --seed=1

A writer is a process that holds the folder's lock, goes on from the newest checkpoint and saves one step after the other, as
`run` and `TPUEstimator` do, without a model: each checkpoint is a file of its step. It is killed at a file operation, loses
power there or meets a full disk, once or twice in a row; then a last one saves to the end. Some save beside, from a thread;
some find the clock set back or forward, or a second writer at the door.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from campaigns.faulty_disk import FAULTS, FaultyDisk
from tpugraph.runtime.checkpoint import write_durably
from tpugraph.runtime.checkpoints import folder_lock
from tpugraph.runtime.checkpoints.checkpoint_folder import collect, newest, step_of
from tpugraph.runtime.checkpoints.folder_lock import FILE, FolderLock
from tpugraph.support.errors import CheckpointError

STEPS, KEEP = 6, 3
_PARTS = (".index", ".data-00000-of-00001")
_MADE = (*_PARTS, ".manifest")
_CLOCKS = (0.0, -3e8, 3e8)
"""Seconds by which the clock is set: ten years back or forward."""


@dataclass(frozen=True)
class Fault:
    """What happens to a writer.

    Attributes:
        at: the number of the file operation; None where nothing happens.
        kind: one of :data:`FAULTS`.
        seed: of the selections after a power cut.
        beside: whether the saves are made by a thread.
        clock: seconds by which the clock is set.
        rival: whether a second writer comes to the folder.
    """

    at: int | None
    kind: str = "kill"
    seed: int = 0
    beside: bool = False
    clock: float = 0.0
    rival: bool = False

    @staticmethod
    def drawn(draw: random.Random) -> Fault:
        """A fault at random."""
        return Fault(draw.randrange(70), draw.choice(FAULTS), draw.randrange(10**6), draw.random() < 0.3,
                     draw.choice(_CLOCKS), draw.random() < 0.2)  # fmt: skip


def prepare(place: Path) -> None:
    """Make the files of the checkpoints of all steps, each in a folder of its own; in a process that ends."""

    def work() -> None:
        for step in range(1, STEPS + 2):
            (place / str(step)).mkdir()
            values = [np.full([300], step, "float32"), np.int64(step)]
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                session.run(tf.raw_ops.SaveV2(prefix=str(place / str(step) / "w"), tensor_names=["w", "global_step"],
                                              shape_and_slices=["", ""], tensors=values))  # fmt: skip

    status = _in_a_child(work)
    if status:
        raise RuntimeError(f"no checkpoints were made: status {status}")


def write(made: Path, folder: Path, fault: Fault, until: int) -> None:
    """Be a writer: go on from the newest checkpoint to a step. Each step that is saved is told beside the folder."""
    shifted = time.time() + fault.clock
    disk = FaultyDisk(folder, fault.at, fault.kind, seed=fault.seed, end=lambda: os.kill(os.getpid(), signal.SIGKILL))
    with mock.patch.object(time, "time", return_value=shifted), FolderLock(folder), disk:
        if fault.rival:
            _refuses_a_second(folder)
        collect(folder)
        begun = newest(folder, lambda text: None)
        for step in range(1 if begun is None else step_of(begun) + 1, until + 1):
            save = threading.Thread(target=_save, args=(made, folder, step))
            (save.start if fault.beside else save.run)()
            if fault.beside:
                save.join()
            os.utime(folder, (shifted, shifted))


def _save(made: Path, folder: Path, step: int) -> None:
    def copy(prefix: str) -> None:
        for path in (made / str(step)).iterdir():
            shutil.copyfile(path, f"{prefix}.{path.name.partition('.')[2]}")

    try:
        write_durably(folder / f"model.ckpt-{step}", copy, keep=KEEP)
    except CheckpointError:
        return  # a full disk: training goes on, and nothing was promised
    with Path(f"{folder}.told").open("a") as file:
        file.write(f"{step}\n")


def _refuses_a_second(folder: Path) -> None:
    def rival() -> None:
        folder_lock._held.clear()  # those of the process that it was copied from
        try:
            FolderLock(folder).__enter__()
        except CheckpointError:
            os._exit(0)
        os._exit(1)

    if _in_a_child(rival):
        Path(f"{folder}.two").write_text("two writers")


def wrong(made: Path, folder: Path, faults: list[Fault]) -> str:
    """What is wrong after writers with these faults and a last one without any; "" where all is right."""
    told = Path(f"{folder}.told")
    last = Fault(None)  # it saves one step more, so that it has something to save
    for fault in [*faults, last]:
        saved = max(map(int, told.read_text().split()), default=0) if told.exists() else 0
        found = _in_a_child(lambda: os._exit(_newest_step(folder))) >> 8
        if found < saved:
            return f"step {saved} was saved, and the newest is {found}"
        status = _in_a_child(lambda fault=fault: write(made, folder, fault, STEPS + (fault is last)))
        if status not in (0, signal.SIGKILL):
            return f"a writer ended with status {status} of {fault}"
    if Path(f"{folder}.two").exists():
        return "two writers held the folder"
    return _wrong_at_the_end(made, folder)


def _newest_step(folder: Path) -> int:
    found = newest(folder, lambda text: None)
    return 0 if found is None else step_of(found)


def _wrong_at_the_end(made: Path, folder: Path) -> str:
    """A folder that the last writer left holds whole checkpoints and nothing else; the bytes are those of their steps."""
    left = sorted(path.name for path in folder.iterdir() if path.name != FILE)
    steps = [step_of(Path(name.removesuffix(".index"))) for name in left if name.endswith(".index")]
    wanted = sorted([f"model.ckpt-{step}{part}" for step in steps for part in _MADE] + ["checkpoint"])
    if left != wanted or max(steps) != STEPS + 1 or len(steps) > KEEP:
        return f"left are {left}"
    for step, part in itertools.product(steps, _PARTS):
        if (folder / f"model.ckpt-{step}{part}").read_bytes() != (made / str(step) / f"w{part}").read_bytes():
            return f"step {step} holds other values"
    return ""


def _in_a_child(work: object, seconds: float = 120.0) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()  # type: ignore[operator]
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(70)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def every_operation() -> list[list[Fault]]:
    """A round for each fault at each operation of a writer that saves all steps, and of one behind it."""
    return [[Fault(at, kind, at)] for kind in FAULTS for at in range(70)]


def drawn(count: int, seed: int) -> list[list[Fault]]:
    """Rounds at random, some of two faults."""
    draws = [random.Random(number) for number in range(seed, seed + count)]
    return [[Fault.drawn(draw) for _ in range(draw.choice((1, 1, 2)))] for draw in draws]


def campaign(rounds: list[list[Fault]]) -> Counter[str]:
    """Run rounds of faults; prints what is wrong, and returns how many rounds met what."""
    met = Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        made = Path(place, "made")
        made.mkdir()
        prepare(made)
        for number, faults in enumerate(rounds):
            folder = Path(place, str(number))
            folder.mkdir()
            found = wrong(made, folder, faults)
            met.update({fault.kind for fault in faults})
            met["pairs"] += len(faults) > 1
            met["beside"] += any(fault.beside for fault in faults)
            met["clock"] += any(fault.clock for fault in faults)
            met["rival"] += any(fault.rival for fault in faults)
            met["wrong"] += bool(found)
            if found:
                print(f"{number}: {found} after {faults}", flush=True)
            shutil.rmtree(folder)
    return met


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="Writers that are killed while they save.")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", action="store_true", help="each fault at each file operation instead")
    asked = parser.parse_args()
    rounds = every_operation() if asked.every else drawn(asked.count, asked.seed)
    met = campaign(rounds)
    print(f"{len(rounds):,} rounds: " + ", ".join(f"{what} {number:,}" for what, number in sorted(met.items())))
    return 1 if met["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

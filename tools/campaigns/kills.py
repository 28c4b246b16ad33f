"""The campaign of kills: processes that save are killed, lose power or meet a full disk, and what was said to be saved is there.

    PYTHONPATH=tools python -m campaigns.kills writers --count=500     # processes that save without a model, one behind the other
    PYTHONPATH=tools python -m campaigns.kills writers --every         # each fault at each file operation of theirs
    PYTHONPATH=tools python -m campaigns.kills trainings --every       # run and TPUEstimator: each fault at each file operation
    PYTHONPATH=tools python -m campaigns.kills trainings --count=500   # killed at random
    PYTHONPATH=tools:tests python -m campaigns.kills workers --count=20  # run on two workers: one, both or the trainer killed

A writer holds the folder's lock, goes on from the newest checkpoint and saves one step after the other; some save from a thread, find
the clock set by ten years, or a second writer at the door. A training that was disturbed is finished by another process: its losses
and variables must be those of one that nothing disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

import tpugraph
from campaigns import in_a_child
from campaigns.faulty_disk import FAULTS, FaultyDisk
from tpugraph import cli
from tpugraph.runtime.checkpoints import checkpoint_folder
from tpugraph.runtime.checkpoints.checkpoint_folder import FILE, FolderLock, collect, newest, step_of
from tpugraph.runtime.checkpoints.saver import write_durably
from tpugraph.support.errors import CheckpointError

tf1 = tf.compat.v1
IRIS = Path(__file__).parents[2] / "examples" / "iris"
NOT_REACHED = 99  # the code of a process that came to its end before its fault
Round = Iterator[tuple[str, str]]
"""What was disturbed and how, and what is wrong with it: "" where nothing is."""


def faulty(folder: Path, at: int | None, fault: str, seed: int) -> FaultyDisk:
    """A disk at whose fault the process ends."""
    return FaultyDisk(folder, at, fault, seed=seed, end=lambda: os.kill(os.getpid(), signal.SIGKILL))


# --------------------------------------------------------------------------- writers without a model

STEPS, KEEP = 6, 3


def writers(options: argparse.Namespace, place: Path) -> Round:
    """Writers with one or two faults in a row, then one without any."""
    made = place / "made"
    if in_a_child(lambda: make(made)):
        raise RuntimeError("no checkpoints were made")
    draws = [random.Random(number) for number in range(options.seed, options.seed + options.count)]
    rounds = [[draw_fault(draw) for _ in range(draw.choice((1, 1, 2)))] for draw in draws]
    if options.every:
        rounds = [[{"at": at, "fault": fault, "seed": at}] for fault in FAULTS for at in range(100)]
    for number, faults in enumerate(rounds):
        found = wrong(made, place / str(number), faults)
        yield ", ".join(fault["fault"] for fault in faults), f"{found} after {faults}" if found else ""


def draw_fault(draw: random.Random) -> dict[str, Any]:
    return {"at": draw.randrange(70), "fault": draw.choice(FAULTS), "seed": draw.randrange(10**6),
            "in_background": draw.random() < 0.3, "clock": draw.choice((0.0, -3e8, 3e8)), "rival": draw.random() < 0.2}  # fmt: skip


def make(place: Path) -> None:
    """Write the checkpoints of all steps, each in a folder of its own."""
    for step in range(1, STEPS + 2):
        (place / str(step)).mkdir(parents=True)
        values = [np.full([300], step, "float32"), np.int64(step)]
        with tf.Graph().as_default(), tf1.Session() as session:
            session.run(tf.raw_ops.SaveV2(prefix=str(place / str(step) / "w"), tensor_names=["w", "global_step"],
                                          shape_and_slices=["", ""], tensors=values))  # fmt: skip


def write(made: Path, folder: Path, until: int, at: int | None = None, fault: str = "kill", seed: int = 0, *,
          in_background: bool = False, clock: float = 0.0, rival: bool = False) -> None:  # fmt: skip
    """Go on from the newest checkpoint to a step; each step that is saved is told beside the folder."""
    shifted = time.time() + clock
    with mock.patch.object(time, "time", return_value=shifted), FolderLock(folder), faulty(folder, at, fault, seed):
        if rival and in_a_child(lambda: locks(folder)):
            raise RuntimeError("two writers held the folder")
        collect(folder)
        for step in range(newest_step(folder) + 1, until + 1):
            save = threading.Thread(target=_save, args=(made, folder, step))
            (save.start if in_background else save.run)()
            if in_background:
                save.join()
            os.utime(folder, (shifted, shifted))


def _save(made: Path, folder: Path, step: int) -> None:
    def copy(prefix: str) -> None:
        for path in (made / str(step)).iterdir():
            shutil.copyfile(path, f"{prefix}.{path.name.partition('.')[2]}")

    with contextlib.suppress(CheckpointError):  # a full disk: training goes on, and nothing was promised
        write_durably(folder / f"model.ckpt-{step}", copy, keep=KEEP)
        with Path(f"{folder}.told").open("a") as file:
            file.write(f"{step}\n")


def locks(folder: Path) -> int:
    """Whether another process can take the lock of a folder."""
    checkpoint_folder._held.clear()  # those of the process that it was copied from
    try:
        FolderLock(folder).__enter__()
    except CheckpointError:
        return 0
    return 1


def newest_step(folder: Path) -> int:
    found = newest(folder, lambda text: None)
    return 0 if found is None else step_of(found)


def wrong(made: Path, folder: Path, faults: list[dict[str, Any]]) -> str:
    """What is wrong after writers with these faults and a last one without any; "" where all is right."""
    folder.mkdir()
    told, said = Path(f"{folder}.told"), Path(f"{folder}.said")
    for fault in [*faults, {}]:
        saved = max(map(int, told.read_text().split()), default=0) if told.exists() else 0
        found = in_a_child(lambda: newest_step(folder))
        if found < saved:
            return f"step {saved} was saved, and the newest is {found}"
        last = 0 if fault else 1  # it saves one step more, so that it has something to save
        code = in_a_child(lambda fault=fault, last=last: write(made, folder, STEPS + last, **fault), said=said)
        if code not in (0, -signal.SIGKILL):
            return f"a writer ended with {code}: {said.read_text()[-300:]}"
    left = sorted(path.name for path in folder.iterdir() if path.name != FILE and path.suffix != ".manifest")
    steps = [step_of(Path(name.removesuffix(".index"))) for name in left if name.endswith(".index")]
    parts = (".index", ".data-00000-of-00001")
    wanted = sorted([f"model.ckpt-{step}{part}" for step in steps for part in parts] + ["checkpoint"])
    if left != wanted or max(steps) != STEPS + 1 or len(steps) > KEEP:
        return f"left are {left}"
    for step, part in itertools.product(steps, parts):
        if (folder / f"model.ckpt-{step}{part}").read_bytes() != (made / str(step) / f"w{part}").read_bytes():
            return f"step {step} holds other values"
    return ""


# --------------------------------------------------------------------------- trainings


def train_run(folder: Path, *more: str, steps: int = 9, every: int = 3, cores: int = 2) -> int:
    return cli.main(["run", str(IRIS / "model.pb"), f"--max_steps={steps}", f"--save_steps={every}", f"--num_replicas={cores}",
                     "--iterations_per_loop=3", f"--model_dir={folder}", f"--losses={folder}.jsonl",
                     f"--checkpoint={IRIS / 'model.ckpt-0'}", *more])  # fmt: skip


def train_estimator(folder: Path, *, use_tpu: bool) -> None:
    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tpugraph.TPUEstimatorSpec:
        weights = tf1.get_variable("w", [3, 1], initializer=tf1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.squeeze(features @ weights, 1) - labels))
        optimizer = tpugraph.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.05, 0.9))
        train_op = optimizer.minimize(loss, global_step=tf1.train.get_global_step())
        return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params: dict[str, int]) -> tf.data.Dataset:
        rows = np.arange(params["batch_size"] * 3, dtype=np.float32).reshape(-1, 3) / 100
        return tf.data.Dataset.from_tensors((rows, rows.sum(1))).repeat()

    config = tpugraph.RunConfig(tpugraph.TPUConfig(3, 2), model_dir=folder, save_checkpoints_steps=3)
    tpugraph.TPUEstimator(model_fn, config=config, use_tpu=use_tpu, train_batch_size=8).train(input_fn, max_steps=9)


TRAININGS: dict[str, Callable[[Path], int | None]] = {
    "run": train_run,
    "run --async_save": lambda folder: train_run(folder, "--async_save"),
    "TPUEstimator": functools.partial(train_estimator, use_tpu=True),
    "TPUEstimator, use_tpu=False": functools.partial(train_estimator, use_tpu=False),
}


def result(folder: Path) -> str:
    """The losses of a training and the values of its last checkpoint; read in another process, so that this one can be copied."""

    def read() -> None:
        reader = tf.train.load_checkpoint(str(newest(folder, lambda text: None)))
        keys = sorted(key for key in reader.get_variable_to_shape_map() if not key.startswith("tpugraph/input"))
        losses = Path(f"{folder}.jsonl")
        print({key: reader.get_tensor(key).tobytes() for key in keys})
        print([json.loads(line) for line in losses.read_text().splitlines()] if losses.exists() else None)

    place = Path(f"{folder}.result")
    return "no checkpoint" if in_a_child(read, said=place) else place.read_text()


def trainings(options: argparse.Namespace, place: Path) -> Round:
    """Trainings that end at each file operation or at random, and go on."""
    for name in [options.only] if options.only else TRAININGS:
        train, began = TRAININGS[name], time.monotonic()
        whole = place / name
        in_a_child(lambda train=train, whole=whole: train(whole))
        right, took = result(whole), time.monotonic() - began
        for number, (how, disturb) in enumerate(_disturbances(train, took, options)):
            folder = place / f"{name} {number}"
            folder.mkdir()
            disturb(folder)
            code = in_a_child(lambda train=train, folder=folder: train(folder))
            found = "" if result(folder) == right else "other values"
            found = f"the training behind it ended with {code}" if code else found
            yield name, f"{found} {how}" if found else ""


def _disturbances(
    train: Callable[[Path], int | None], took: float, options: argparse.Namespace
) -> Iterator[tuple[str, Any]]:
    """Words for what disturbs a training in a folder, and what does it."""
    if not options.every:
        draw = random.Random(options.seed)
        for after in (draw.uniform(0, 1.1 * took) for _ in range(options.count)):
            yield f"killed after {after:.2f} s", lambda folder, after=after: in_a_child(lambda: train(folder), after)
        return
    for fault in FAULTS:
        code: list[int | None] = [None]
        for at in itertools.takewhile(lambda _, code=code: code[0] != NOT_REACHED, itertools.count()):

            def on_a_disk(folder: Path, at: int = at, fault: str = fault) -> int | None:
                with faulty(folder, at, fault, options.seed + at) as disk:
                    found = train(folder)
                return NOT_REACHED if len(disk.operations) <= at else found

            def disturb(folder: Path, work: Any = on_a_disk, code: list[int | None] = code) -> None:
                code[0] = in_a_child(lambda: work(folder))

            yield f"{fault} at operation {at}", disturb


# --------------------------------------------------------------------------- workers


def on_workers(options: argparse.Namespace, place: Path) -> Round:
    """Kills or freezes a worker, both, or the trainer of a training on two workers."""
    from workers import workers  # of the tests

    with workers(2) as cluster:

        def train(folder: Path) -> int:
            more = f"--workers={','.join(cluster.addresses)}"
            return train_run(folder, more, steps=60, every=6, cores=16)  # saves come in the midst of the data

        def kill(task: int, *others: int) -> Callable[[], None]:
            for each in (task, *others):
                cluster.kill(each)
            return lambda: cluster.start(task, *others)

        def freeze(task: int) -> Callable[[], None]:
            cluster.freeze(task)
            return lambda: kill(task)()

        def hiccup(task: int) -> Callable[[], None]:
            cluster.freeze(task)
            time.sleep(0.5)
            cluster.freeze(task, frozen=False)
            return lambda: None

        events = {"a worker killed": kill, "both workers killed": lambda task: kill(task, 1 - task), "a worker frozen": freeze,
                  "a worker stops for 0.5 s": hiccup, "the trainer killed": None}  # fmt: skip

        def disturbed(folder: Path, said: Path, event: Any, task: int, after: float) -> str:
            if event is None:
                in_a_child(lambda: train(folder), after)
            else:
                back: list[Callable[[], None]] = []
                timer = threading.Timer(after, lambda: back.append(event(task)))
                timer.start()
                code = in_a_child(lambda: train(folder), after + 60.0, said)  # a loss must be named by then
                timer.join()
                back[0]()
                words = said.read_text()
                told = any(text in words for text in ("was lost", "do not answer", "does not answer"))
                if code and not (code == 2 and told):
                    return f"the trainer ended with {code} and said {words[-3000:]}"
            code = in_a_child(lambda: train(folder), said=said)
            return f"the second training ended with {code}: {said.read_text()[-300:]!r}" if code else ""

        draw, began, said = random.Random(options.seed), time.monotonic(), place / "said"
        if in_a_child(lambda: train(place / "whole"), said=said):
            raise RuntimeError(f"no training to disturb: {said.read_text()}")
        right, took = result(place / "whole"), time.monotonic() - began
        for number in range(options.count):
            folder, name, task = place / str(number), draw.choice(list(events)), draw.randrange(2)
            found = disturbed(folder, said, events[name], task, draw.uniform(0, took))
            yield name, found or ("" if result(folder) == right else "other values")


def main() -> int:
    kinds = {"writers": writers, "trainings": trainings, "workers": on_workers}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=list(kinds))
    parser.add_argument("--count", type=int, default=20, help="rounds at random")
    parser.add_argument("--every", action="store_true", help="each fault at each file operation instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(TRAININGS), help="one kind of training")
    options, met = parser.parse_args(), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        for number, (name, found) in enumerate(kinds[options.kind](options, Path(place))):
            met[name] += 1
            if found:
                met["wrong"] += 1
                print(f"{number}: {name}: {found}", flush=True)
    told = ", ".join(f"{what} {count:,}" for what, count in sorted(met.items()))
    print(f"{met.total() - met['wrong']:,} rounds: {told}")
    return int(met["wrong"] > 0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.exit(main())

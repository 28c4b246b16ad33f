"""Trainings that end at every file operation of their saves, or at random, and go on: no step may be lost or changed.

    PYTHONPATH=tools python -m campaigns.save_faults        # every operation, each fault, of run and TPUEstimator
    PYTHONPATH=tools python -m campaigns.save_faults --random=500 --seed=1

A training saves three times. A process of its own is killed at an operation, or meets a power cut or a full disk there; a
second one finishes the training. Losses and variables must then be those of a training that nothing disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

import tpugraph
from campaigns.faulty_disk import FAULTS, FaultyDisk
from tpugraph import cli
from tpugraph.runtime.checkpoints.checkpoint_folder import newest

tf1 = tf.compat.v1
IRIS = Path(__file__).parents[2] / "examples" / "iris"
STEPS, EVERY = 9, 3
LONGEST = 120.0
"""Seconds after which a training counts as hanging."""


def train_run(folder: Path, *more: str) -> None:
    """Train with the command line."""
    code = cli.main(["run", str(IRIS / "model.pb"), f"--max_steps={STEPS}", f"--save_steps={EVERY}", "--num_replicas=2",
                     f"--iterations_per_loop={EVERY}", f"--model_dir={folder}", f"--losses={folder}.jsonl",
                     f"--checkpoint={IRIS / 'model.ckpt-0'}", *more])  # fmt: skip
    os._exit(code)


def train_estimator(folder: Path, *, use_tpu: bool) -> None:
    """Train with TPUEstimator."""

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tpugraph.TPUEstimatorSpec:
        weights = tf1.get_variable("w", [3, 1], initializer=tf1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.squeeze(features @ weights, 1) - labels))
        optimizer = tpugraph.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.05, 0.9))
        train_op = optimizer.minimize(loss, global_step=tf1.train.get_global_step())
        return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params: dict[str, int]) -> tf.data.Dataset:
        rows = np.arange(params["batch_size"] * 3, dtype=np.float32).reshape(-1, 3) / 100
        return tf.data.Dataset.from_tensors((rows, rows.sum(1))).repeat()

    config = tpugraph.RunConfig(tpugraph.TPUConfig(EVERY, 2), model_dir=folder, save_checkpoints_steps=EVERY)
    made = tpugraph.TPUEstimator(model_fn, config=config, use_tpu=use_tpu, train_batch_size=8)
    made.train(input_fn, max_steps=STEPS)
    os._exit(0)


TRAININGS: dict[str, Callable[[Path], None]] = {
    "run": train_run,
    "run --async_save": lambda folder: train_run(folder, "--async_save"),
    "TPUEstimator": functools.partial(train_estimator, use_tpu=True),
    "TPUEstimator, use_tpu=False": functools.partial(train_estimator, use_tpu=False),
}


# --------------------------------------------------------------------------- processes


def in_a_child(work: Callable[[], None], seconds: float = LONGEST, *, stacks: bool = False) -> int:
    """Do work in a process of its own, which is killed after some seconds; its status.

    Args:
        work: ends the process.
        seconds: after which it is killed.
        stacks: let it write the stacks of its threads to its stderr before.
    """
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        faulthandler.register(signal.SIGUSR1, file=2)
        work()
        os._exit(70)  # a training ends its process itself
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    if stacks:
        os.kill(child, signal.SIGUSR1)
        time.sleep(1.0)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def with_fault(train: Callable[[Path], None], folder: Path, at: int, fault: str, seed: int) -> None:
    """Train on a disk that fails at an operation; the operations are counted in a file beside the folder."""
    with FaultyDisk(folder, at, fault, seed=seed, end=lambda: os.kill(os.getpid(), signal.SIGKILL)) as disk:
        ended = os._exit
        os._exit = lambda code: (folder.with_suffix(".count").write_text(str(len(disk.operations))), ended(code))
        train(folder)


def result(folder: Path) -> str:
    """A digest of what a training left; in a process of its own, since one that has had a session cannot be copied."""
    place = Path(f"{folder}.result")
    in_a_child(lambda: place.write_text(repr(sorted(_left(folder).items()))) and os._exit(0))
    found = place.read_text() if place.exists() else "no checkpoint"
    place.unlink(missing_ok=True)
    return hashlib.sha256(found.encode()).hexdigest()


def _left(folder: Path) -> dict[str, object]:
    """The losses of a training, and the values of its last checkpoint."""
    prefix = newest(folder, print)
    reader = tf.train.load_checkpoint(str(prefix))
    found: dict[str, object] = {key: reader.get_tensor(key).tobytes() for key in reader.get_variable_to_shape_map()
                                if not key.startswith("tpugraph/input")}  # fmt: skip
    losses = Path(f"{folder}.jsonl")
    found["losses"] = [json.loads(line) for line in losses.read_text().splitlines()] if losses.exists() else None
    return found


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="Trainings that end in the middle of a save.")
    parser.add_argument("--random", type=int, default=0, help="this many kills at random instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(TRAININGS), help="one kind of training")
    asked = parser.parse_args()
    wrong = 0
    for name in [asked.only] if asked.only else TRAININGS:
        with tempfile.TemporaryDirectory() as place:
            faults = _kills_at_random if asked.random else _every_operation
            wrong += _campaign(name, Path(place), faults, asked)
    return 1 if wrong else 0


Fault = Callable[[Callable[[Path], None], Path], str]
"""Disturbs a training, and says how."""


def _campaign(name: str, place: Path, faults: Callable[..., Iterator[Fault]], asked: argparse.Namespace) -> int:
    train = TRAININGS[name]
    whole = place / "whole"
    began = time.monotonic()
    in_a_child(lambda: train(whole))
    right, took = result(whole), time.monotonic() - began
    count, wrong = 0, 0
    for number, fault in enumerate(faults(took, asked)):
        folder = place / f"disturbed-{number}"
        folder.mkdir()
        how = fault(train, folder)
        status = in_a_child(lambda folder=folder: train(folder))
        good = status == 0 and result(folder) == right
        count, wrong = count + 1, wrong + (not good)
        if not good:
            print(f"{name}: {how}: the training behind it ended with status {status} or other values", flush=True)
        shutil.rmtree(folder)
        Path(f"{folder}.jsonl").unlink(missing_ok=True)
    print(
        f"{name}: {count} trainings were disturbed and finished by another process, {wrong} not as they should be",
        flush=True,
    )
    return wrong


def _every_operation(took: float, asked: argparse.Namespace) -> Iterator[Fault]:
    """Each fault at each file operation; it ends with the first operation that a training does not come to."""
    for fault in FAULTS:
        over: list[bool] = []
        at = 0
        while not over:

            def disturb(train: Callable[[Path], None], folder: Path, at: int = at, fault: str = fault,
                        over: list[bool] = over) -> str:  # fmt: skip
                in_a_child(lambda: with_fault(train, folder, at, fault, asked.seed + at))
                counted = folder.with_suffix(".count")
                if counted.exists() and int(counted.read_text()) <= at:
                    over.append(True)
                counted.unlink(missing_ok=True)
                return f"{fault} at operation {at}"

            yield disturb
            at += 1


def _kills_at_random(took: float, asked: argparse.Namespace) -> Iterator[Fault]:
    draw = random.Random(asked.seed)
    for _ in range(asked.random):
        after = draw.uniform(0, 1.1 * took)

        def disturb(train: Callable[[Path], None], folder: Path, after: float = after) -> str:
            in_a_child(lambda: train(folder), after)
            return f"kill after {after:.2f} s"

        yield disturb


if __name__ == "__main__":
    sys.exit(main())

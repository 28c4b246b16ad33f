"""Damaged checkpoints: bytes that changed, and files that are cut or gone, the manifest among them.

    PYTHONPATH=tools python -m campaigns.checkpoint_mutants --count=1000 --seed=1

Each mutant of examples/iris/model.ckpt-0 is looked at as `tpugraph run` looks at it, and restored where it is taken for whole.
Right are a refusal in one block, and values that are those of the original. A mutant that is neither is kept as a file under
tests/data/faults/checkpoints.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import tensorflow as tf

from tpugraph.runtime.checkpoints.manifest import manifest_of, verify, write_manifest
from tpugraph.support.errors import TpuGraphError

ROOT = Path(__file__).parents[2]
ORIGINAL = ROOT / "examples" / "iris" / "model.ckpt-0"
KEPT = ROOT / "tests" / "data" / "faults" / "checkpoints"


# --------------------------------------------------------------------------- mutations


def _flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 2, 8))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def _overwrite(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = draw.randrange(len(data))
    data[at : at + 64] = draw.choice((bytes(64), b"\xff" * 64, draw.randbytes(64)))[: len(data) - at]
    path.write_bytes(data)


def _cut(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.choice((0, 1, len(data) - 1, draw.randrange(len(data))))])


def _repeat(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    at = draw.randrange(len(data))
    path.write_bytes(data[:at] + data[at : at + draw.choice((1, 100))] + data[at:])


def _gone(path: Path, draw: random.Random) -> None:
    path.unlink()


def _garbage(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(draw.choice((1, 47, 48, 500))))


MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (_flip, _overwrite, _cut, _repeat, _gone, _garbage)


def mutant(folder: Path, seed: int) -> Path:
    """Write a damaged copy of the original into a folder; returns its prefix. The same seed gives the same files."""
    draw = random.Random(seed)
    prefix = folder / ORIGINAL.name
    copies = []
    for path in sorted(ORIGINAL.parent.glob(f"{ORIGINAL.name}.*")):
        if path.suffix != ".meta":
            copies.append(Path(shutil.copyfile(path, folder / path.name)))
    write_manifest(prefix)
    copies.append(manifest_of(prefix))
    for _ in range(draw.choice((1, 1, 1, 2))):  # faults come in pairs too
        path = draw.choice(copies)
        try:
            draw.choice(MUTATIONS)(path, draw)
        except (TpuGraphError, OSError, ValueError, IndexError):
            continue  # the second fault needs what the first has taken
    return prefix


# --------------------------------------------------------------------------- what becomes of it


def values_of(prefix: Path) -> dict[str, bytes]:
    """Every tensor of a checkpoint, as TensorFlow reads it."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {key: reader.get_tensor(key).tobytes() for key in reader.get_variable_to_shape_map()}


def verdict(prefix: Path, right: Mapping[str, bytes]) -> str:
    """``refused``, ``whole``, or what is wrong with the answer."""
    try:
        verify(prefix)
    except TpuGraphError as error:
        return "refused" if len(error.block()) < 1000 else f"a block of {len(error.block())} characters"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = values_of(prefix)
    return (
        "whole" if all(right.get(key, value) == value for key, value in found.items()) else "other values were believed"
    )


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="Damaged checkpoints.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    right, counts, slowest = values_of(ORIGINAL), dict.fromkeys(("refused", "whole", "wrong"), 0), 0.0
    with tempfile.TemporaryDirectory() as place:
        for seed in range(asked.seed, asked.seed + asked.count):
            folder = Path(place, str(seed))
            folder.mkdir()
            began = time.monotonic()
            found = _in_a_child(lambda folder=folder, seed=seed: verdict(mutant(folder, seed), right))
            slowest = max(slowest, time.monotonic() - began)
            if found not in ("refused", "whole"):
                shutil.copytree(folder, KEPT / str(seed), dirs_exist_ok=True)
                print(f"{seed}: {found}", flush=True)
            counts[found if found in counts else "wrong"] += 1
            shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{asked.count:,} damaged checkpoints: {counts['refused']:,} refused in a block, {counts['whole']:,} read with their "
          f"values, {counts['wrong']:,} wrong; the slowest {slowest:.2f} s, peak {peak:,.0f} MiB")  # fmt: skip
    return 1 if counts["wrong"] else 0


def _in_a_child(work: Callable[[], str]) -> str:
    """What work returns in a process of its own, which may die of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, work().encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return found if status == 0 else f"the process ended with status {status}"


if __name__ == "__main__":
    sys.exit(main())

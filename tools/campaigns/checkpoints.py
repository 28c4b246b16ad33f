"""The campaign of checkpoints: damaged ones are refused in one block or read with the values that were saved.

    PYTHONPATH=tools python -m campaigns.checkpoints --count=1000 --seed=1

A checkpoint is looked for as `tpugraph run --model_dir` does, each in a process of its own.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

import tensorflow as tf
from hypothesis import strategies as st

from campaigns import campaign, damaged_bytes, in_a_child
from tpugraph.runtime.checkpoints.checkpoint_folder import newest
from tpugraph.runtime.checkpoints.saver import write_durably
from tpugraph.support.errors import CheckpointError

ORIGINAL = Path(__file__).parents[2] / "examples" / "iris" / "model.ckpt-0"
SEEDS = st.integers(0, 2**20)
Files = dict[str, bytes]


# --------------------------------------------------------------------------- checkpoints


@functools.cache
def sound_checkpoint() -> Files:
    """The files of a folder in which the checkpoint of iris was saved."""

    def write(prefix: str) -> None:
        for path in ORIGINAL.parent.glob(f"{ORIGINAL.name}.[di]*"):
            shutil.copyfile(path, f"{prefix}.{path.name.partition('.ckpt-0.')[2]}")

    with tempfile.TemporaryDirectory() as place:
        write_durably(Path(place, ORIGINAL.name), write, keep=3)
        return {path.name: path.read_bytes() for path in sorted(Path(place).iterdir())}


@st.composite
def damaged_checkpoints(draw: st.DrawFn) -> Files:
    """Damages or removes one or two files of a folder."""
    files = dict(sound_checkpoint())
    for name, seed in draw(st.lists(st.tuples(st.sampled_from(sorted(files)), SEEDS), min_size=1, max_size=2)):
        if name in files and not seed % 8:
            del files[name]
        elif name in files:
            files[name] = damaged_bytes(Random(seed), files[name])
    return files


def values_of(prefix: Path) -> dict[str, bytes]:
    """Every tensor of a checkpoint, as TensorFlow reads it."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {key: reader.get_tensor(key).tobytes() for key in reader.get_variable_to_shape_map()}


def checkpoint_verdict(files: Files, folder: Path, right: Mapping[str, bytes]) -> str:
    """``refused``, ``whole``, or what is wrong with how a folder is read."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    try:
        found = newest(folder, lambda text: None)
    except CheckpointError as error:
        return "refused" if len(error.block()) < 1500 else f"a block of {len(error.block())} characters"
    if found is None:
        return "refused" if not any(name.endswith(".index") for name in files) else "nothing was found, without a word"
    return "whole" if values_of(found) == right else "other values were believed"


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="keep failures there, shrunk")
    options, right = parser.parse_args(), values_of(ORIGINAL)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)

        def judge(mutant: Files) -> str:
            here, said = place / "mutant", place / "said"
            shutil.rmtree(here, ignore_errors=True)
            here.mkdir()
            work = functools.partial(checkpoint_verdict, mutant, here, right)
            code = in_a_child(lambda: print("\n" + " | ".join(work().splitlines())), said=said)
            words = said.read_text(errors="replace").strip().splitlines()
            return words[-1] if code == 0 else f"the process ended with {code}"

        def keep(mutant: Files, number: int) -> None:
            kept = Path(options.keep, f"{options.seed}-{number}")
            kept.mkdir(parents=True, exist_ok=True)
            for name, content in mutant.items():
                (kept / name).write_bytes(content)

        kept_by = keep if options.keep else None
        totals = campaign(damaged_checkpoints(), judge, {"refused", "whole"}, options.count, options.seed, kept_by)
    print(f"{options.count:,} damaged: " + ", ".join(f"{count:,} {what}" for what, count in sorted(totals.items())))
    return int(totals["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())

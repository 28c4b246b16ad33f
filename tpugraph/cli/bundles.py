"""``tpugraph run step.tpugraph``: trains a bundle. Needs jax and NumPy alone: no TensorFlow, and no absl for its flags."""

from __future__ import annotations

import argparse
import itertools
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tpugraph.cli.console import Console, Outcome, interruptible, loss_line
from tpugraph.support import files
from tpugraph.support.errors import LoadError, UsageError
from tpugraph.support.wording import counted

EXAMPLE = "tpugraph run step.tpugraph --data=batches.npz --steps=100 -o step.tpugraph"


def is_bundle(words: Sequence[str]) -> bool:
    """Whether the first argument that is no flag is a bundle: it is called so, or is a zip file, which no graph is."""
    path = next((Path(word) for word in words if not word.startswith("-")), Path())
    return path.suffix == ".tpugraph" or (path.is_file() and zipfile.is_zipfile(path))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, fix=EXAMPLE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("tpugraph run", description="Trains a bundle that `tpugraph compile -o` wrote, with jax and NumPy alone.",
                     epilog=f"example: {EXAMPLE}", allow_abbrev=False)  # fmt: skip
    parser.add_argument("bundle", help="the file")
    parser.add_argument("--data", required=True, metavar="FILE.npz",
                        help="an array for each input, by its name or in order: [steps, rows of all cores, ...]")  # fmt: skip
    parser.add_argument("--steps", type=int, metavar="N",
                        help="how many; the data starts anew where it ends. Once through the data if not given")  # fmt: skip
    parser.add_argument(
        "--output", "-o", metavar="FILE.tpugraph", help="write the trained bundle; nothing if not given"
    )
    parser.add_argument(
        "--platform", choices=("cpu", "gpu", "tpu"), default="cpu", help="devices; cpu makes virtual ones"
    )
    parser.add_argument("--losses", metavar="FILE.jsonl", help='write a line {"step": 1, "loss": 0.5} per step')
    parser.add_argument("--json", action="store_true", help="print one machine-readable object on stdout")
    parser.add_argument("--traceback", action="store_true", help="print Python's traceback with an error")
    return parser


def run(words: Sequence[str], console: Console) -> Outcome:
    if {"-h", "--help"} & set(words):
        console.say(_parser().format_help().rstrip())
        return Outcome()
    flags = _parser().parse_args(list(words))
    if flags.steps is not None and flags.steps < 1:
        raise UsageError(f"--steps={flags.steps} is not a whole number of at least 1", fix=EXAMPLE)
    from tpugraph.runtime import pjrt

    step = interruptible(lambda: pjrt.load(flags.bundle, platform=flags.platform))
    arrays = _arrays(flags.data, list(step.inputs))
    begun, started = step.trained, time.monotonic()
    count = len(arrays[0]) if flags.steps is None else flags.steps
    console.say(f"{flags.bundle}: {counted(step.num_replicas, 'core')}, trained to step {begun:,}")
    losses = interruptible(lambda: step.train(_batches(arrays, count)))
    seconds = time.monotonic() - started
    last = f", loss {losses[-1]:.6g}" if losses else ""
    console.say(f"trained {counted(count, 'step')} in {seconds:.1f} s ({count / seconds:,.1f} steps/s){last}")
    if flags.losses is not None:
        lines = [loss_line(step, loss) for step, loss in enumerate(losses, begun + 1)]
        files.write_atomically(Path(flags.losses), "".join(lines).encode())
    if flags.output is not None:
        step.save(flags.output)
        console.say(f"wrote {flags.output}")
    return Outcome({"steps": count, "trained": step.trained, "losses": losses, "seconds": round(seconds, 3),
                    "output": flags.output})  # fmt: skip


def _arrays(path: str, inputs: list[str]) -> list[Any]:
    import numpy as np

    from tpugraph.runtime.pjrt.bundle import BROKEN

    if not Path(path).is_file():
        raise LoadError(f"there is no file --data={path}", fix="check the path; numpy.savez writes such a file")
    try:
        with np.load(path) as stored:
            held = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, AttributeError, *BROKEN) as error:
        raise LoadError(f"--data={path} cannot be read as .npz: {error}", fix="write it with numpy.savez") from error
    named = set(inputs) <= set(held)
    if not named and len(held) != len(inputs):
        raise UsageError(f"--data={path} has {len(held)} arrays, and a step takes {len(inputs)}",
                         fix=f"one each for {', '.join(inputs)}")  # fmt: skip
    arrays = [held[name] for name in inputs] if named else list(held.values())
    lengths = {len(array) if array.ndim else 0 for array in arrays}
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(f"the arrays of --data={path} have not the same number of steps: {', '.join(map(str, sorted(lengths)))}",
                         fix="dimension 0 of each array counts the steps")  # fmt: skip
    return arrays


def _batches(arrays: list[Any], count: int) -> Iterator[tuple[Any, ...]]:
    steps = itertools.islice(itertools.cycle(range(len(arrays[0]))), count)
    return (tuple(array[step] for array in arrays) for step in steps)

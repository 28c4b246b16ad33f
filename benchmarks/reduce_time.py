"""Planted faults in large graphs, each reduced by `tpugraph.reduce`: nodes that are left, tries, seconds.

    python benchmarks/reduce_time.py
    python benchmarks/reduce_time.py --only=1,6 --nodes=10000 --seed=3

The faults are those of tests/planted.py: wrong gradients, ops that no TPU has, passes that die, what the TPU compiler complains of.
Fails where a graph of more than --most nodes is left, or where a reduction took longer than --seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Reduce the faults; 0 where all came down in time."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import planted

    asked = _parser().parse_args()
    numbers = range(len(planted.FAULTS)) if asked.only is None else map(int, asked.only.split(","))
    failed = [number for number in numbers if not _reduces(planted.FAULTS[number], number, asked)]
    if failed:
        print(f"goal missed: {', '.join(map(str, failed))}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="numbers of faults, from 0, with commas between")
    parser.add_argument(
        "--nodes", type=int, help="about how many nodes each graph has; each its own number if not given"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the data, the layers and where the fault is")
    parser.add_argument("--most", type=int, default=20, help="the most nodes that may be left")
    parser.add_argument("--seconds", type=float, default=300, help="the most seconds that one may take")
    return parser


def _reduces(fault: Any, number: int, asked: argparse.Namespace) -> bool:
    import planted

    import tpugraph
    from tpugraph.ir import graphdef

    layers = fault.layers if asked.nodes is None else max(8, round(asked.nodes / planted.NODES_A_LAYER))
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.pb")
        graphdef.save(planted.tower(layers, middle=fault.middle, seed=asked.seed), model)
        found = tpugraph.reduce(model, fault.when, seconds=asked.seconds, **fault.options)
    print(f"{number} {fault.when:<20} {found.nodes_before:>6,} -> {found.nodes:>3} nodes, {found.tries:>3} tries, "
          f"{found.seconds:6.1f} s: {fault.what}", flush=True)  # fmt: skip
    return bool(found.nodes <= asked.most and found.seconds <= asked.seconds)


if __name__ == "__main__":
    sys.exit(main())

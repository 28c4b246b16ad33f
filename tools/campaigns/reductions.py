"""Planted faults in graphs of 1,000 to 10,000 nodes, each reduced by `tpugraph.reduce`: nodes, tries and seconds.

    python tools/campaigns/reductions.py
    python tools/campaigns/reductions.py --only=0,4 --most=20

The faults are those of tests/planted.py. Fails where a graph of more than --most nodes is left, or where one took more than
--seconds of the processor.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Reduce the faults; 0 where all came down."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import planted

    import tpugraph
    from tpugraph.ir import graphdef

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="numbers of faults, from 0, with commas between")
    parser.add_argument("--most", type=int, default=20, help="the most nodes that may be left")
    parser.add_argument("--seconds", type=float, default=300, help="the most seconds that one may take")
    asked = parser.parse_args()
    numbers = range(len(planted.FAULTS)) if asked.only is None else map(int, asked.only.split(","))
    failed = 0
    for number in numbers:
        fault = planted.FAULTS[number]
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder, "model.pb")
            graphdef.save(planted.tower(fault.layers, middle=fault.middle), model)
            wall, before = time.monotonic(), _processor_seconds()
            found = tpugraph.reduce(
                model, fault.when, seconds=20 * asked.seconds, try_seconds=asked.seconds, **fault.options
            )
        wall, spent = time.monotonic() - wall, _processor_seconds() - before
        failed += found.nodes > asked.most or spent > 2 * asked.seconds
        print(f"{number} {fault.when:<16} {found.nodes_before:>6,} -> {found.nodes:>3} nodes, {found.tries:>3} tries, "
              f"{wall:6.1f} s, {spent:6.1f} s of the processor: {fault.what}", flush=True)  # fmt: skip
    return 1 if failed else 0


def _processor_seconds() -> float:
    """What this process and its ended children have taken."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    sys.exit(main())

"""Time and peak memory of a conversion, load to save, by the size of the graph; each size in a process of its own.

The time is CPU time, which other work on the machine disturbs less, the least of two conversions. The memory is what the
first of them takes at its peak beyond what TensorFlow and a small conversion took before it; those leave a little room
that the smallest graph uses, so that the growth is judged by what each further node takes.

python benchmarks/scaling.py [--sizes 10000,50000,200000] [--repeats 2]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import _measure

_SMALL = 2_000
_GROWTH = 1.3


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,50000,200000")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--make", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=3, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        return _make(*options.make)
    if options.one:
        print(json.dumps(_convert(*options.one, options.repeats)))
        return 0
    sizes = [int(size) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        _measure.child([__file__, "--make", folder, *map(str, (_SMALL, *sizes))])
        print(f"{'nodes':>9} {'seconds':>9} {'us a node':>10} {'peak MiB':>9} {'KiB a node':>11}")
        found = [_one(Path(folder), size, options.repeats) for size in sizes]
    times = [seconds / nodes for nodes, seconds, _ in found]
    further = [(c - a) / (d - b) for (b, _, a), (d, _, c) in itertools.pairwise(found)]
    print("KiB of each further node: " + ", ".join(f"{each:.2f}" for each in further))
    code = _measure.verdict("time a node, the most / the smallest graph's", max(times) / times[0], _GROWTH, most=True)
    return code | _measure.verdict(
        "memory of a further node, last / first", further[-1] / further[0], _GROWTH, most=True
    )


def _make(folder: str, *sizes: str) -> int:
    from _graphs import write_stacked_graph

    for size in sizes:
        write_stacked_graph(Path(folder) / f"{size}.pb", int(size))
    return 0


def _one(folder: Path, size: int, repeats: int) -> tuple[int, float, float]:
    """Measure one size and print its line; returns nodes, seconds and KiB."""
    files = [str(folder / f"{name}.pb") for name in (_SMALL, size, "out")]
    found = json.loads(_measure.child([__file__, "--repeats", str(repeats), "--one", *files]).splitlines()[-1])
    nodes, seconds, kib = found["nodes"], found["seconds"], found["kib"]
    print(f"{nodes:9,} {seconds:9.2f} {seconds / nodes * 1e6:10.1f} {kib / 2**10:9.0f} {kib / nodes:11.2f}", flush=True)
    return nodes, seconds, kib


def _convert(small: Path, path: Path, out: Path, repeats: int) -> dict[str, float]:
    from tpugraph.compiler import convert

    convert(small).save(out)  # loads what it loads
    before = _peak()
    seconds, kib, nodes = [], 0, 0
    for number in range(repeats):
        gc.collect()
        started = time.process_time()
        program = convert(path)
        program.save(out)
        seconds.append(time.process_time() - started)
        nodes = program.report["nodes"]["input"]
        del program
        kib = kib if number else _peak() - before
    return {"seconds": min(seconds), "kib": kib, "nodes": nodes}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main())

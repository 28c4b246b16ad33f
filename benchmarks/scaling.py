"""Time and peak memory of a conversion by the size of the graph, each size in a process of its own.

python benchmarks/scaling.py [--sizes 10000,50000,100000,200000]
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import tempfile
from pathlib import Path

import _measure


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,50000,100000,200000")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_convert(Path(options.one[0]), Path(options.one[1]))))
        return 0
    results = []
    print(f"{'nodes':>9} {'seconds':>9} {'us a node':>10} {'peak MiB':>9} {'KiB a node':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for size in map(int, options.sizes.split(",")):
            path = Path(folder) / f"{size}.pb"
            script = "import sys, pathlib, _graphs; print(_graphs.write_training_graph(pathlib.Path(sys.argv[1]), int(sys.argv[2])))"
            program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {script}"
            nodes = int(_measure.child(["-c", program, str(path), str(size)]).split()[-1])
            line = _measure.child([__file__, "--one", str(path), str(Path(folder) / "out.pb")]).splitlines()[-1]
            found = json.loads(line)
            results.append((nodes, found["seconds"], found["peak"] - found["before"]))
            print(f"{nodes:9,} {found['seconds']:9.2f} {found['seconds'] / nodes * 1e6:10.1f} "
                  f"{found['peak'] / 2**10:9.0f} {results[-1][2] / nodes:11.2f}")  # fmt: skip
    time_exponent, memory_exponent = (_exponent([r[0] for r in results], [r[i] for r in results]) for i in (1, 2))
    print(f"memory grows with nodes to the power {memory_exponent:.2f}")
    code = _measure.verdict("memory exponent", memory_exponent, 1.1, most=True)
    return code | _measure.verdict("time exponent", time_exponent, 1.1, most=True)


def _convert(path: Path, out: Path) -> dict[str, float]:
    import tensorflow  # noqa: F401  (its import is no part of the conversion)

    from tpugraph.compiler import convert

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = _measure.seconds(lambda: convert(path).save(out))
    return {"seconds": took, "before": before, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def _exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of the line through the logarithms."""
    x, y = [math.log(s) for s in sizes], [math.log(v) for v in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


if __name__ == "__main__":
    sys.exit(main())

"""`tpugraph check` of a graph of 10,000 nodes against importing TensorFlow, both as processes of their own in CPU time.

The one starts Python and imports TensorFlow; the other is asked to check the graph, and its time has the import of TensorFlow
in it. The ratio is that of the least times.

python benchmarks/check_time.py [--nodes 10000] [--repeats 5] [MODEL]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

import _measure
from _graphs import write_training_graph

_IMPORT = "import tensorflow"
_CHECK = "import sys; from tpugraph import cli; sys.exit(cli.main(['check', sys.argv[1]]))"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a graph file that can run on a TPU; one is made where none is given")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.model) if options.model else Path(folder) / "model.pb"
        if not options.model:
            print(f"{write_training_graph(path, options.nodes):,} nodes")
        parts = {"import tensorflow": lambda: _cpu(["-c", _IMPORT]), "check": lambda: _cpu(["-c", _CHECK, str(path)])}
        _measure.interleave(parts, 1)  # both once, to fill the caches of files
        found = _measure.interleave(parts, options.repeats)
    _measure.show(found, "s")
    value = min(found["check"]) / min(found["import tensorflow"])
    return _measure.verdict("check / import tensorflow", value, 2.0, most=True)


def _cpu(arguments: list[str]) -> float:
    """CPU seconds of a child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _measure.child(arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())

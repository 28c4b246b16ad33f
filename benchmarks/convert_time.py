"""The whole conversion of a graph, file to file, against TensorFlow's own import of the same file.

Both read the same bytes and parse them. The one builds a ``tf.Graph``; the other finds the roles, runs every pass with
all its checks, and writes the TPU graph with its report made. Both are measured in turn in CPU time, which other work on
the machine disturbs less, and the garbage of the one is collected before the other starts. The ratio is that of the
least times.

python benchmarks/convert_time.py [--nodes 10000] [--repeats 11] [MODEL]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import _measure
import tensorflow as tf
from _graphs import write_training_graph

from tpugraph.compiler import convert


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a graph file; one is made where none is given")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.model) if options.model else Path(folder) / "model.pb"
        if not options.model:
            write_training_graph(path, options.nodes)
        print(f"{_nodes(path):,} nodes, {path.stat().st_size / 2**20:.1f} MiB")
        parts = {
            "import_graph_def": lambda: _measure.cpu_seconds(lambda: _import(path)),
            "convert and save": lambda: _measure.cpu_seconds(lambda: convert(path).save(Path(folder) / "out.pb")),
        }
        _measure.interleave(parts, 1)  # both once, to load what they load
        found = _measure.interleave(parts, options.repeats)
    _measure.show(found, "s")
    value = min(found["convert and save"]) / min(found["import_graph_def"])
    return _measure.verdict("conversion / import_graph_def", value, 1.5, most=True)


def _nodes(path: Path) -> int:
    return len(tf.compat.v1.GraphDef.FromString(path.read_bytes()).node)


def _import(path: Path) -> None:
    definition = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    with tf.Graph().as_default():
        tf.compat.v1.import_graph_def(definition, name="")


if __name__ == "__main__":
    raise SystemExit(main())

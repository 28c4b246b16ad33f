"""Lowering a TPU graph of 10,000 nodes to StableHLO against TensorFlow's own work on the same graph.

On the one side stands ``stablehlo.lower``: it cuts the cluster out, raises its control flow, makes a function and hands that to
TensorFlow's bridge to XLA. On the other stands ``import_graph_def`` of the same TPU graph, and the bridge's own time, which is
TensorFlow's tracing of the function into XLA: without both there is no module, whoever makes it. CPU time, in turn; the ratio
is that of the least times.

python benchmarks/lowering_time.py [--nodes 10000] [--repeats 5] [MODEL]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import _measure
import tensorflow as tf
from _graphs import write_training_graph
from tensorflow.python.eager import context

from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.xla import stablehlo


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a plain graph file; one is made where none is given")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.model) if options.model else Path(folder) / "model.pb"
        if not options.model:
            write_training_graph(path, options.nodes)
        definition = convert(path).graph_def
    print(f"{len(definition.node):,} nodes in the TPU graph")
    bridge: list[float] = []
    _record_bridge(bridge)
    parts = {
        "import_graph_def": lambda: _measure.cpu_seconds(lambda: _import(definition)),
        "lower": lambda: _lower(definition),
    }
    _measure.interleave(parts, 1)  # both once, to load what they load
    bridge.clear()
    found = _measure.interleave(parts, options.repeats)
    found["of it, TensorFlow's bridge"] = list(bridge)
    _measure.show(found, "s")
    allowed = min(found["import_graph_def"]) + min(bridge)
    return _measure.verdict("lowering / (import_graph_def + bridge)", min(found["lower"]) / allowed, 1.0, most=True)


def _lower(definition: Any) -> float:
    graph = graphdef.from_graph_def(definition)
    return _measure.cpu_seconds(lambda: stablehlo.lower(graph))


def _import(definition: Any) -> None:
    with tf.Graph().as_default():
        tf.compat.v1.import_graph_def(definition, name="")


def _record_bridge(taken: list[float]) -> None:
    """Let each call of TensorFlow's bridge leave its CPU seconds in a list."""
    inner = context.Context.get_compiler_ir

    def timed(self: Any, **arguments: Any) -> Any:
        started = time.process_time()
        code = inner(self, **arguments)
        taken.append(time.process_time() - started)
        return code

    context.Context.get_compiler_ir = timed


if __name__ == "__main__":
    raise SystemExit(main())

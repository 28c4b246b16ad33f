"""Products with large weights are made once for the rows of all cores."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, batches, finish, rows_of, trace, variable
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.emulator.emulation import lower

tf1 = tf.compat.v1
CORES, ROWS, WIDTH = 4, 2, 40


def wide(rows: int, *, branched: bool = False) -> Any:
    """Two layers whose weights have more elements than the rows of a core; the second runs where the first row says so."""
    x, y = batches(rows_of(96, 3), rows)
    hidden = tf.tanh(x @ variable("first", (3, WIDTH)))
    second = variable("second", (WIDTH, WIDTH), scale=0.1)
    hidden = tf1.cond(x[0, 0] > 0, lambda: hidden @ second, lambda: hidden) if branched else hidden @ second
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(hidden, 1) - y))
    return finish(loss, tf1.train.MomentumOptimizer(0.001, 0.9))


def lowered(*, queues: bool = False, **options: Any) -> Graph:
    program = convert(trace(lambda: wide(ROWS * CORES, **options)), num_replicas=CORES, iterations_per_loop=4)
    return lower(graphdef.from_graph_def(program.graph_def), queues=queues).graph


def products(graph: Graph) -> list[str]:
    return [node.name for node in graph.of_type("MatMul")]


def test_one_product_for_all_cores() -> None:
    graph = lowered()
    assert not [name for name in products(graph) if "replica_" in name]
    assert len(products(graph)) == 6  # two layers, and the slopes of weights and rows of each
    assert len([node for node in graph.of_type("Split") if node.name.endswith("/shares")]) == 4
    rows = [tuple(node.inputs) for node in graph.of_type("ConcatV2")]
    assert len(rows) == len({inputs[:-1] for inputs in rows})  # a product and the gradient of its weight share them


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("branched", [False, True])
def test_it_trains_as_the_whole_batch(*, resource: bool, branched: bool) -> None:
    build = partial(wide, branched=branched)
    assert_cores_are_the_whole_batch(build, relative=2e-5, absolute=2e-6, rows=ROWS, cores=CORES, resource=resource)


def test_with_queues_between_host_and_device() -> None:
    assert len(products(lowered(queues=True))) == 6


def test_what_only_waits_for_a_core_is_of_that_core() -> None:
    """TensorFlow groups the gradients of an op by a NoOp; if one stood for all cores, each would wait for the slowest."""
    graph = lowered()
    groups = [node for node in graph.of_type("NoOp") if "group_deps" in node.name]
    assert len([node for node in groups if node.name.endswith("/replica_1")]) == len(groups) // CORES > 0
    for node in groups:
        suffixes = {control.name.partition("/replica_")[2] for control in node.controls}
        assert suffixes <= {node.name.partition("/replica_")[2], ""}

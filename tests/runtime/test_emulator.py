"""How a TPU graph is lowered for emulated cores: what exists once, what exists once for each core, and who waits for whom."""

from typing import Any

import tensorflow as tf

from models import batches, finish, rows_of, trace, variable
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.emulator.emulation import lower

CORES, ROWS, WIDTH = 4, 2, 40


def two_layers(rows: int) -> Any:
    """Two layers whose weights have more elements than the rows of a core."""
    x, y = batches(rows_of(96, 3), rows)
    hidden = tf.tanh(x @ variable("first", (3, WIDTH))) @ variable("second", (WIDTH, WIDTH), scale=0.1)
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(hidden, 1) - y))
    return finish(loss, tf.compat.v1.train.MomentumOptimizer(0.001, 0.9))


def lowered() -> Graph:
    program = convert(trace(lambda: two_layers(ROWS * CORES)), num_replicas=CORES, iterations_per_loop=4)
    return lower(graphdef.from_graph_def(program.graph_def)).graph


def test_each_core_makes_its_own_products_and_their_sum_is_an_addition() -> None:
    graph = lowered()
    products = graph.of_type("MatMul")
    assert len(products) == CORES * len([node for node in products if "/replica_" not in node.name])
    gradients = [node for node in graph.of_type("AddN") if len(node.inputs) == CORES]
    assert len([node for node in gradients if node.out().shape in ((3, WIDTH), (WIDTH, WIDTH))]) == 2


def test_what_only_waits_for_a_core_is_of_that_core() -> None:
    """TensorFlow groups the gradients of an op by a NoOp; if one stood for all cores, each would wait for the slowest."""
    graph = lowered()
    groups = [node for node in graph.of_type("NoOp") if "group_deps" in node.name]
    assert len([node for node in groups if node.name.endswith("/replica_1")]) == len(groups) // CORES > 0
    for node in groups:
        suffixes = {control.name.partition("/replica_")[2] for control in node.controls}
        assert suffixes <= {node.name.partition("/replica_")[2], ""}

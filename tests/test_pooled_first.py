"""Pools of rectified values are taken first on emulated cores, with every number as before."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, batches, finish, rows_of, trace, variable
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.emulator.emulation import lower

ROWS, CORES = 2, 2


def net(rows: int, *, window: int = 3, step: int = 2, between: str = "") -> Any:
    """Convolution, rectifier and pool; the windows overlap where they are larger than a step."""
    x, y = batches(rows_of(24, 64), rows)
    images = tf.nn.conv2d(tf.reshape(x, [-1, 8, 8, 1]), variable("filter", (3, 3, 1, 4)), 1, "SAME")
    rectified = tf.nn.relu6(images) if between == "another" else tf.nn.relu(images)
    pooled = tf.nn.max_pool2d(rectified, window, step, "SAME")
    found = tf.reduce_sum(tf.square(pooled), [1, 2, 3])
    if between == "read":
        found += tf.reduce_sum(rectified, [1, 2, 3])
    if between == "awaited":
        with tf.control_dependencies([rectified]):
            found = tf.identity(found)
    return finish(tf.reduce_mean(tf.square(0.1 * found - y)), tf.compat.v1.train.GradientDescentOptimizer(0.001))


def lowered(**options: Any) -> Graph:
    program = convert(trace(lambda: net(ROWS, **options)), num_replicas=CORES, iterations_per_loop=4)
    return lower(graphdef.from_graph_def(program.graph_def)).graph


@pytest.mark.parametrize(("window", "step"), [(2, 2), (3, 2)])
def test_the_pool_comes_first_and_its_gradient_last(window: int, step: int) -> None:
    graph = lowered(window=window, step=step)
    for core in ("", "/replica_1"):
        pool, relu = graph[f"MaxPool2d{core}"], graph[f"Relu{core}"]
        assert pool.inputs[0].node.op == "Conv2D"
        assert relu.inputs == (pool.out(),)
        assert relu.out().shape == pool.out().shape
        (backwards,) = [use.node for use in graph[f"Conv2D{core}"].uses() if use.node is not pool]
        assert backwards.op == "MaxPoolGrad"
        assert backwards.inputs[1] == pool.out()
        assert backwards.inputs[2].node.inputs[1] == relu.out()
        assert "Conv2DBackpropFilter" in [node.op for node in backwards.consumers()]


@pytest.mark.parametrize("options", [{"between": "read"}, {"between": "awaited"}, {"between": "another"}, {"step": 1}])
def test_other_pools_stay_where_they_are(options: dict[str, Any]) -> None:
    graph = lowered(**options)
    assert graph["MaxPool2d"].inputs[0].node.op in ("Relu", "Relu6")


@pytest.mark.parametrize("window", [2, 3])
def test_it_trains_as_the_whole_batch(window: int) -> None:
    assert_cores_are_the_whole_batch(partial(net, window=window), relative=2e-5, absolute=2e-6, rows=ROWS, cores=CORES)

"""Ops put differently for the bridge to XLA compute what they computed, to the last bit where nothing is summed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import trace
from tpugraph.analysis import shapes
from tpugraph.ir import Graph
from tpugraph.ir.session_config import guarded
from tpugraph.xla.legalize import make_quick, reduce_over_all

VALUES = np.array([[-1.5, 0.0, 2.0, np.nan], [np.inf, -np.inf, 3.0, -0.0]])


def value(graph: Graph, name: str) -> Any:
    with tf.compat.v1.Session(graph=shapes.import_graph(graph), config=guarded()) as session:
        return np.asarray(session.run(f"{name}:0"), np.float64)


def before_and_after(build: Callable[[], Any], op: str) -> tuple[Any, Any]:
    graph = trace(build)
    shapes.infer(graph)
    before = value(graph, "result")
    make_quick(graph)
    assert not graph.of_type(op)
    return before, value(graph, "result")


@pytest.mark.parametrize("kind", [tf.float32, tf.bfloat16, tf.float64])
def test_rectifiers_and_their_gradients(kind: Any) -> None:
    features, slopes = VALUES, np.arange(1.0, 9.0).reshape(2, 4)
    relu, slope = tf.raw_ops.Relu, tf.raw_ops.ReluGrad
    before, after = before_and_after(lambda: relu(features=tf.constant(features, kind), name="result"), "Relu")
    np.testing.assert_array_equal(after, before)
    before, after = before_and_after(lambda: slope(gradients=tf.constant(slopes, kind), features=tf.constant(features, kind),
                                                   name="result"), "ReluGrad")  # fmt: skip
    np.testing.assert_array_equal(after, before)
    assert set(after.ravel()) == {0.0, 3.0, 5.0, 7.0}


@pytest.mark.parametrize(("shape", "layout"), [((3, 4), "NHWC"), ((2, 3, 3, 4), "NHWC"), ((2, 4, 3, 3), "NCHW"),
                                               ((2, 4, 3, 3, 2), "NCHW")])  # fmt: skip
def test_the_gradient_of_a_bias_is_a_sum_over_all_but_the_channels(shape: tuple[int, ...], layout: str) -> None:
    content = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    _, found = before_and_after(lambda: tf.raw_ops.BiasAddGrad(out_backprop=tf.constant(content), data_format=layout,
                                                               name="result"), "BiasAddGrad")  # fmt: skip
    channels = 1 if layout == "NCHW" else len(shape) - 1
    expected = content.astype(np.float64).sum(tuple(axis for axis in range(len(shape)) if axis != channels))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_sum_over_all_cores_is_a_collective_and_one_over_groups_an_all_reduce_of_xla() -> None:
    def build(groups: list[list[int]], kind: Any) -> Graph:
        graph = trace(lambda: (tf.constant([1, 2], kind, name="x"), tf.constant(groups, name="groups")))
        shapes.infer(graph)
        kinds = {"T": graph["x"].attr("dtype")}
        graph.add("CrossReplicaSum", "sum", [graph["x"].out(), graph["groups"].out()], attrs=kinds)
        return graph

    for groups, kind, taken in (([[0, 1, 2, 3]], tf.float32, True), ([[0, 1], [2, 3]], tf.float32, False),
                                ([[0, 1, 2, 3]], tf.uint32, False)):  # fmt: skip
        graph = build(groups, kind)
        assert reduce_over_all(graph, 4) == 1
        assert graph["sum"].op == ("CollectiveReduceV2" if taken else "XlaAllReduce")

"""The pass separate-rows, and the analysis that it rests on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf
from evaluating import check, data, plain_metrics, take

from models import tf1, trace, variable
from passes.separate_rows import SeparateRows
from tpugraph import TPUSession, convert, graphdef
from tpugraph.analysis import in_cluster


def test_golden_step() -> None:
    graph = check(SeparateRows(), "step")
    assert graph["sum"].inputs[0].node.op == "PlaceholderWithDefault"
    assert "number" not in graph  # the number of elements follows from the number of rows


def test_golden_predict() -> None:
    graph = check(SeparateRows(), "predict", mode="predict")
    assert graph.roles.predictions == {"score": "tpugraph/prediction/score"}


def model(then: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], rows: int) -> Callable[[], None]:
    def build() -> None:
        features, _, weights = take(data(45), rows)
        tf1.metrics.mean(then(features @ variable("w", (4, 3)), weights), name="metric")

    return build


APART = {
    "reshape": lambda x, w: tf.reshape(tf.reshape(x, [-1]), [-1, 3]) * w[:, None],
    "merged rows": lambda x, w: tf.reshape(x[:, :, None] * w[:, None, None], [-1, 1]) @ variable("k", (1, 2)),
    "transpose": lambda x, w: tf.transpose(tf.transpose(x) * w[None]),
    "concat": lambda x, w: tf.concat([x, tf.zeros_like(x), w[:, None]], 1),
    "split": lambda x, w: tf.split(x, 3, axis=1)[1] * tf.unstack(x, axis=1)[0][:, None] + w[:, None],
    "slices": lambda x, w: x[:, 1:] * x[:, :1] + w[:, tf.newaxis],
    "one hot": lambda x, w: tf.one_hot(tf.argmax(x, 1), 3) * w[:, None],
    "tiled zeros": lambda x, w: tf.zeros([tf.shape(x)[0], 2]) + x[:, :1] * w[:, None],
    "gather": lambda x, w: tf.gather(variable("table", (3, 2)), tf.argmax(x, 1)) * w[:, None],
    "softmax": lambda x, w: tf.nn.softmax(x) * w[:, None],
    "einsum": lambda x, w: tf.matmul(x[:, None, :], x[:, :, None])[:, 0, 0] * w,
}
MIXED = {
    "mean": lambda x, w: x - tf.reduce_mean(x, 0),
    "order": lambda x, w: x * tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None],
    "pairs": lambda x, w: tf.matmul(x, x, transpose_b=True) * w,
    "cumsum": lambda x, w: tf.cumsum(x * w[:, None]),
    "top": lambda x, w: tf.math.top_k(x[:, 0] * w, k=1).values,
    "by number": lambda x, w: x / tf.cast(tf.shape(x)[0], tf.float32),
    "reverse": lambda x, w: tf.reverse(x, [0]) * w[:, None],
    "shuffled in": lambda x, w: tf.reshape(x, [3, -1]) * tf.reshape(x, [3, -1])[:1],
    "first row": lambda x, w: x * x[:1],
}


@pytest.mark.parametrize("name", [*APART, *MIXED])
def test_results_are_those_of_the_plain_graph(name: str) -> None:
    then = (APART | MIXED)[name]
    program = convert(trace(model(then, 4)), mode="eval", num_replicas=4)
    with TPUSession(program) as session:
        found = session.evaluate()
    assert found.examples == 45
    assert found["metric"] == pytest.approx(plain_metrics(trace(model(then, 16)))["metric"], rel=1e-5)


@pytest.mark.parametrize("name", list(APART))
def test_the_device_does_what_keeps_rows_apart(name: str) -> None:
    graph = graphdef.from_graph_def(convert(trace(model(APART[name], 4)), mode="eval", num_replicas=4).graph_def)
    products = [node for node in graph.of_type("MatMul", "BatchMatMulV2", "ResourceGather") if node.inputs]
    assert all(in_cluster(node) for node in products)

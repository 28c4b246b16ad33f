"""The pass separate-rows, and the analysis that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import tensorflow as tf
from evaluating import check, data, plain_metrics, take
from sampling import runs

from models import tf1, trace, variable
from tpugraph import TPUSession, convert
from tpugraph.analysis import in_cluster
from tpugraph.ir import graphdef
from tpugraph.passes.separate_rows import SeparateRows
from tpugraph.support.errors import ShapeError


def test_golden_step() -> None:
    graph = check(SeparateRows(), "step")
    assert graph["sum"].inputs[0].node.op == "PlaceholderWithDefault"
    assert "number" not in graph  # the number of elements follows from the number of rows


def test_golden_predict() -> None:
    graph = check(SeparateRows(), "predict", mode="predict")
    assert graph.roles.predictions == {"score": "tpugraph/prediction/score"}


def model(
    then: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], rows: int, *, count: int = 45, fixed: bool = False
) -> Callable[[], None]:
    def build() -> None:
        features, _, weights = take(data(count), rows, drop_remainder=fixed)
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
    "contraction": lambda x, w: tf.einsum("bi,bi->b", x, x) * w,
    "numbers of own rows": lambda x, w: tf.gather_nd(x, tf.stack([numbers(x), tf.argmax(x, 1, tf.int32)], 1)) * w,
    "steps": lambda x, w: tf.scan(lambda last, step: tf.tanh(last + step), tf.transpose(x))[-1] * w,
    "distinct entries": lambda x, w: tf.gather(*tf.unique(tf.argmax(x, 1))) * tf.cast(w > 1, tf.int64),
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
    "two batches": lambda x, w: tf.square(tf.concat([x, 2 * x], 0)) - tf.reduce_mean(x),
    "rows in the middle": lambda x, w: tf.transpose(x[:, None] * w[:, None, None], [1, 0, 2]) - tf.reduce_max(x),
    "square of the rows": lambda x, w: x / tf.cast(tf.shape(x)[0] * tf.shape(x)[0] + 1, tf.float32),
    "row after row": lambda x, w: tf.scan(lambda last, row: last + row, x),
    "each row": lambda x, w: tf.map_fn(lambda row: row * 2.0, x) * w[:, None],
    "how many distinct": lambda x, w: tf.size(tf.unique(tf.argmax(x, 1))[0]),
    "some rows": lambda x, w: tf.boolean_mask(x, w > 1.0),
    "a branch": lambda x, w: tf1.cond(tf.reduce_sum(w) > 18.0, lambda: x * 2.0, lambda: x),
    "a loop until": lambda x, w: tf1.while_loop(lambda y: tf.reduce_max(y) > 0.1, lambda y: [y * 0.5], [x])[0],
    "by class": lambda x, w: tf.math.unsorted_segment_sum(x, tf.argmax(x, 1), 3),
    "drawn": lambda x, w: tf.cast(tf.random.uniform(tf.shape(x)) < 2.0, tf.float32) * x,
}


def numbers(x: tf.Tensor) -> tf.Tensor:
    return tf.range(tf.shape(x)[0])


@cache
def of_the_whole_batch(name: str) -> float:
    """What TensorFlow alone finds of a model with the rows of four cores in a batch."""
    return float(plain_metrics(trace(model((APART | MIXED)[name], 16)))["metric"])


def by_turns(turn: int) -> list[str]:
    """Every other model, which are those that the suite has; the gate has the others."""
    return [name for place, name in enumerate([*APART, *MIXED]) if runs(place % 2 == turn)]


@pytest.mark.parametrize("name", [*APART, *MIXED])
def test_results_are_those_of_the_plain_graph(name: str) -> None:
    then = (APART | MIXED)[name]
    program = convert(trace(model(then, 4)), mode="eval", num_replicas=4)
    with TPUSession(program) as session:
        found = session.evaluate()
    assert found.examples == 45
    assert found["metric"] == pytest.approx(of_the_whole_batch(name), rel=1e-5, abs=1e-7)


@pytest.mark.sampled
@pytest.mark.parametrize("name", by_turns(0))
def test_batches_of_one_row(name: str) -> None:
    then = (APART | MIXED)[name]
    with TPUSession(convert(trace(model(then, 1)), mode="eval", num_replicas=4)) as session:
        found = session.evaluate()
    assert found["metric"] == pytest.approx(plain_metrics(trace(model(then, 4)))["metric"], rel=1e-5, abs=1e-7)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [n for n in by_turns(1) if n != "shuffled in"])
def test_a_graph_traced_with_a_fixed_number_of_rows(name: str) -> None:
    """TensorFlow wrote the number of rows into constants; what the host computes follows the true one."""
    then = (APART | MIXED)[name]
    with TPUSession(convert(trace(model(then, 4, fixed=True)), mode="eval", num_replicas=4)) as session:
        found = session.evaluate()
    assert found.examples == 45
    assert found["metric"] == pytest.approx(of_the_whole_batch(name), rel=1e-5, abs=1e-7)


def test_half_of_a_fixed_number_of_rows_is_refused() -> None:
    def half(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return x[: tf.shape(x)[0] // 2]

    with pytest.raises(ShapeError, match="'metric/Size' depends on the number of rows of a batch, and is no multiple"):
        convert(trace(model(half, 4, fixed=True)), mode="eval", num_replicas=4)


def test_rows_of_their_own_in_a_constant_are_refused() -> None:
    def weighted(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(x, 0) + tf.reduce_sum(tf.reshape(tf.constant([1.0, 2.0, 3.0, 4.0]), [4]) * tf.cumsum(w))

    with pytest.raises(ShapeError, match="has 4 rows of its own, which cannot follow the true number"):
        convert(trace(model(weighted, 4, fixed=True)), mode="eval", num_replicas=4)


@pytest.mark.parametrize("name", list(APART))
def test_the_device_does_what_keeps_rows_apart(name: str) -> None:
    graph = graphdef.from_graph_def(convert(trace(model(APART[name], 4)), mode="eval", num_replicas=4).graph_def)
    products = [node for node in graph.of_type("MatMul", "BatchMatMulV2", "ResourceGather") if node.inputs]
    assert all(in_cluster(node) for node in products)

"""The pass separate-rows, and the analysis that it rests on."""

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


def test_golden() -> None:
    check(SeparateRows(), "step", num_replicas=2)  # the number of elements follows from the number of rows
    graph = check(SeparateRows(), "predict", mode="predict", num_replicas=2)
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
    "steps of a known number": lambda x, w: tf.scan(
        lambda last, step: last + step - tf.reduce_mean(step), tf.transpose(x)
    )[-1],
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
def of_the_whole_batch(name: str, *, rows: int = 16, fixed: bool = False) -> float:
    """What TensorFlow alone finds of a model with the rows of four cores in a batch."""
    return float(plain_metrics(trace(model((APART | MIXED)[name], rows, fixed=fixed)))["metric"])


def by_turns(turn: int) -> list[str]:
    """Every other model, which are those that the suite has; the gate has the others."""
    return [name for place, name in enumerate([*APART, *MIXED]) if runs(place % 2 == turn)]


def evaluate(name: str, rows: int, *, fixed: bool = False) -> tuple[int, float]:
    """The number of examples and the metric on four cores."""
    with TPUSession(
        convert(trace(model((APART | MIXED)[name], rows, fixed=fixed)), mode="eval", num_replicas=4)
    ) as session:
        found = session.evaluate()
    return found.examples, float(found["metric"])


@pytest.mark.parametrize("name", [*APART, *MIXED])
def test_results_are_those_of_the_plain_graph(name: str) -> None:
    assert evaluate(name, 16) == (45, pytest.approx(of_the_whole_batch(name), rel=1e-5, abs=1e-7))


@pytest.mark.sampled
@pytest.mark.parametrize("name", by_turns(0))
def test_batches_of_one_row_a_core(name: str) -> None:
    assert evaluate(name, 4) == (45, pytest.approx(of_the_whole_batch(name, rows=4), rel=1e-5, abs=1e-7))


@pytest.mark.sampled
@pytest.mark.parametrize("name", by_turns(1))
def test_a_graph_traced_with_a_fixed_number_of_rows(name: str) -> None:
    """It drops the last partial batch itself, and is partitioned as in training."""
    expected = of_the_whole_batch(name, fixed=True)
    assert evaluate(name, 16, fixed=True) == (32, pytest.approx(expected, rel=1e-5, abs=1e-7))


@pytest.mark.parametrize("name", list(APART))
def test_the_device_does_what_keeps_rows_apart(name: str) -> None:
    graph = graphdef.from_graph_def(convert(trace(model(APART[name], 16)), mode="eval", num_replicas=4).graph_def)
    products = [node for node in graph.of_type("MatMul", "BatchMatMulV2", "ResourceGather") if node.inputs]
    assert all(in_cluster(node) for node in products)


def test_what_mixes_rows_of_full_batches_is_combined_on_the_device() -> None:
    """A batch norm by the batch's own moments, in front of a layer: the cores add up moments, and no layer runs on the host."""

    def then(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, [0])
        return ((x - mean) / tf.sqrt(variance + 1e-3)) @ variable("k", (3, 2)) * w[:, None]

    program = convert(trace(model(then, 16, fixed=True)), mode="eval", num_replicas=4)
    assert not program.report["notes"]
    assert program.report["collectives"]
    with TPUSession(program) as session:
        found = session.evaluate()
    assert found["metric"] == pytest.approx(plain_metrics(trace(model(then, 16, fixed=True)))["metric"], rel=1e-5)

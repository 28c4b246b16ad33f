"""Evaluation and prediction: every example once, results those of the plain graph on the global batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from evaluating import area, data, evaluation, plain_metrics, prediction, probabilities, take

from models import corpus, finish, tf1, trace, variable
from tpugraph import TPUSession, convert, testing
from tpugraph.ir import Graph
from tpugraph.support.errors import ConversionError, RolesError, RunError, ShapeError, UsageError


def chances(count: int) -> np.ndarray:
    """What the model gives, in NumPy and double precision."""
    features = data(count)[0].astype(np.float64)

    def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape))
        return (0.5 * np.cos(1.7 * np.arange(1, size + 1) + len(name))).reshape(shape)

    hidden = np.tanh(features @ values("w", (4, 3)) + values("b", (3,)))
    return 1 / (1 + np.exp(-(hidden @ values("out", (3, 1)))[:, 0]))


def evaluate(graph: Graph, *, queues: bool = False, steps: int | None = None, **options: Any) -> Any:
    with TPUSession(convert(graph, mode="eval", **options), queues=queues) as session:
        return session.evaluate(steps)


def predict(graph: Graph, *, queues: bool = False, **options: Any) -> list[dict[str, Any]]:
    with TPUSession(convert(graph, mode="predict", **options), queues=queues) as session:
        return list(session.predict())


def evaluates_as_plain(build: Callable[[], Any], **options: Any) -> Any:
    """The evaluation of a graph on cores, whose metrics are those of the plain graph."""
    found = evaluate(trace(build), **options)
    assert dict(found) == {
        name: pytest.approx(v, rel=1e-6, abs=1e-9) for name, v in plain_metrics(trace(build)).items()
    }
    return found


# --------------------------------------------------------------------------- evaluation


def test_1026_examples_on_8_cores_count_once_each() -> None:
    found = evaluate(trace(evaluation(512, count=1026)), num_replicas=8)
    _, labels, weights = data(1026)
    chance = chances(1026)
    guess = chance > 0.5
    assert (found.examples, found.steps) == (1026, 3)
    assert found["accuracy"] == pytest.approx((guess == labels).mean(), abs=1e-6)
    assert found["precision"] == pytest.approx((labels[guess] == 1).mean(), abs=1e-6)
    assert found["chance"] == pytest.approx(np.average(chance, weights=weights), abs=1e-6)
    assert found["auc"] == pytest.approx(area(labels, chance), abs=1e-6)


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize(
    ("cores", "rows", "count", "loop"),
    [(1, 8, 77, 3), (4, 8, 77, 2), (2, 8, 32, 1), *((8, 8, count, 100) for count in (1, 7, 8, 9, 64, 65, 77))],
)
def test_metrics_are_those_of_the_plain_graph(queues: bool, cores: int, rows: int, count: int, loop: int) -> None:
    found = evaluates_as_plain(
        evaluation(rows * cores, count=count), queues=queues, num_replicas=cores, iterations_per_loop=loop
    )
    assert found.examples == count
    assert found.keys() == {"accuracy", "auc", "chance", "precision", "loss"}


@pytest.mark.parametrize("queues", [False, True])
def test_metrics_that_check_their_weights_need_no_optimizer_of_graphs(queues: bool) -> None:
    """What the checks of weights' shapes choose from stands outside the loop, and one of the two has no value."""
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    made = convert(trace(evaluation(16, count=77)), mode="eval", num_replicas=2)
    with TPUSession(made, queues=queues, config=config) as session:
        found = session.evaluate()
    plain = plain_metrics(trace(evaluation(16, count=77)))
    assert found.examples == 77
    assert {name: pytest.approx(value, rel=1e-6) for name, value in plain.items()} == dict(found)


def test_evaluating_twice_starts_anew_and_steps_can_be_limited() -> None:
    graph = trace(evaluation(16, count=77))
    with TPUSession(convert(graph, mode="eval", num_replicas=2, iterations_per_loop=3)) as session:
        first, second, part = session.evaluate(), session.evaluate(), session.evaluate(steps=4)
        assert session.mode == "eval"
    assert dict(first) == dict(second)
    assert (part.steps, part.examples) == (4, 64)
    assert part["chance"] != first["chance"]


def test_a_dataset_that_drops_its_last_batch_evaluates_full_ones() -> None:
    """Traced with a fixed number of rows: it is partitioned as in training, and every constant means what it meant."""
    found = evaluates_as_plain(evaluation(32, count=77, drop_remainder=True), num_replicas=2)
    assert (found.examples, found.steps) == (64, 2)


def test_a_batch_that_the_cores_do_not_divide() -> None:
    """An open batch is padded; one with static rows is refused."""
    assert evaluates_as_plain(evaluation(10, count=77), num_replicas=4).examples == 77
    testing.assert_raises_block(convert, trace(evaluation(10, drop_remainder=True)), mode="eval", num_replicas=4, kind=ShapeError,
                                words=["10 rows cannot be split over 4 cores", "--num_replicas=2"], max_length=400)  # fmt: skip


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "sparse_softmax": lambda labels, logits: tf1.losses.sparse_softmax_cross_entropy(labels, logits),
    "huber": lambda labels, logits: tf1.losses.huber_loss(tf.one_hot(labels, 3), logits),
    "over_batch_size": lambda labels, logits: tf1.losses.absolute_difference(
        tf.one_hot(labels, 3), logits, reduction=tf1.losses.Reduction.SUM_OVER_BATCH_SIZE
    ),
}
"""Losses without weights, which divide by a number of elements that the graph counts on a shape written into it."""


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_losses_divide_by_the_rows_of_the_plain_batch(loss: str, *, drop_remainder: bool) -> None:
    """What ``tf.losses`` divides by, guarded against zero, is a count of elements, a constant where the batch has a fixed size."""

    def build() -> None:
        features, labels, _ = take(data(77), 32, drop_remainder=drop_remainder)
        logits = features @ variable("w", (4, 3))
        tf1.metrics.mean(LOSSES[loss](labels, logits), name="loss")
        tf1.metrics.accuracy(labels, tf.argmax(logits, 1), name="accuracy")

    assert evaluates_as_plain(build, num_replicas=2).examples == (64 if drop_remainder else 77)


def test_what_mixes_rows_runs_on_the_host_on_the_global_batch() -> None:
    """A softmax over the batch, and a number that depends on how many rows there are."""

    def build() -> None:
        features, _, weights = take(data(50), 32)
        chance = probabilities(features)
        share = tf.nn.softmax(chance * weights, axis=0)
        order = tf.cast(tf.range(tf.shape(chance)[0]), tf.float32)
        tf1.metrics.mean(share * order, name="ordered")
        tf1.metrics.mean(tf.reduce_max(chance), name="largest")

    evaluates_as_plain(build, num_replicas=4)


def test_named_metrics_and_loss() -> None:
    named = {"acc": ("accuracy/value", "accuracy/update_op")}
    found = evaluate(trace(evaluation(16)), num_replicas=2, metrics=named, loss="log_loss/value")
    plain = plain_metrics(trace(evaluation(16)))
    assert found.keys() == {"acc", "loss"}
    assert found["acc"] == pytest.approx(plain["accuracy"], rel=1e-6)
    assert found["loss"] == pytest.approx(plain["loss"], rel=1e-6)


@pytest.mark.parametrize("functional", [False, True])
def test_a_recurrent_net_stays_on_the_device(*, functional: bool) -> None:
    def build() -> None:
        features, labels, _ = take(data(50), 32)
        state = tf.zeros([tf.shape(features)[0], 2])
        turned = tf.transpose(features[:, :, None], [1, 0, 2])
        weights = variable("w", (3, 2))

        def step(i: Any, state: Any) -> Any:
            return i + 1, tf.tanh(tf.concat([turned[i], state], 1) @ weights)

        _, last = tf1.while_loop(lambda i, _: i < 4, step, [0, state])
        tf1.metrics.mean(last[:, 0] * tf.cast(labels, tf.float32), name="mean")

    program = convert(trace(build, functional=functional), mode="eval", num_replicas=4)
    assert not program.report["notes"]
    with TPUSession(program) as session:
        assert session.evaluate()["mean"] == pytest.approx(plain_metrics(trace(build))["mean"], rel=1e-6)


def test_a_metric_that_writes_in_a_branch() -> None:
    """A list of all values that grows when it is full, as contrib's streaming_concat keeps one."""

    def build() -> None:
        chance = probabilities(take(data(45), 4)[0])
        best = tf1.get_local_variable("best", (), tf.float32, tf1.zeros_initializer())
        largest = tf.reduce_max(chance)
        tf1.cond(largest > best, lambda: tf1.assign(best, largest), lambda: tf.identity(best))
        tf.multiply(best, 2.0, name="twice/value")

    found = evaluate(trace(build), num_replicas=4)
    assert found["twice"] == pytest.approx(2 * chances(45).max(), rel=1e-6)
    assert found.examples == 45


# --------------------------------------------------------------------------- prediction


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("count", [1, 7, 64, 65])
def test_as_many_predictions_as_examples_in_order(count: int, queues: bool) -> None:
    rows = predict(trace(prediction(64, count)), queues=queues, num_replicas=8, iterations_per_loop=2)
    chance = chances(count)
    assert len(rows) == count
    np.testing.assert_allclose([row["both"] for row in rows], np.stack([chance, 1 - chance], 1), atol=1e-6)
    assert [row["guess"] for row in rows] == (chance > 0.5).tolist()


def test_what_a_function_returns_is_predicted_under_its_name() -> None:
    def build() -> None:
        features, _, _ = take(data(21), 4)

        @tf.function
        def both(chance: Any) -> Any:
            return tf.stack([chance, 1 - chance], 1)

        both(probabilities(features))

    graph = trace(build, resource=True, functional=True)
    name = next(node.name for node in graph if node.op in ("PartitionedCall", "StatefulPartitionedCall"))
    rows = predict(graph, num_replicas=2, predictions={"both": name})
    np.testing.assert_allclose([row["both"][0] for row in rows], chances(21), atol=1e-6)


@pytest.mark.parametrize("queues", [False, True])
def test_parts_of_the_batch_are_predictions_too(queues: bool) -> None:
    """One that the model reads, and one that only the prediction names."""

    def build() -> None:
        features, _, weights = take(data(21), 4)
        tf.identity(weights, name="weights")
        probabilities(features)

    named = {"x": "IteratorGetNext:0", "label": "IteratorGetNext:1", "weight": "weights"}
    rows = predict(trace(build), queues=queues, num_replicas=2, predictions=named)
    for key, expected in zip(named, data(21), strict=True):
        np.testing.assert_array_equal([row[key] for row in rows], expected)


# --------------------------------------------------------------------------- what is refused


def no_batch() -> None:
    features, labels, _ = data(20)
    dataset = tf1.data.Dataset.from_tensor_slices((features, labels))
    row, label = tf1.data.make_initializable_iterator(dataset).get_next()
    tf1.metrics.accuracy(label, tf.cast(probabilities(row[None])[0] > 0.5, tf.int64), name="accuracy")


def fed() -> None:
    features = tf1.placeholder(tf.float32, [None, 4], name="features")
    tf1.metrics.mean(probabilities(features), name="mean")


def without_input() -> None:
    tf1.metrics.mean(probabilities(tf.ones([4, 4])), name="mean")


def without_metrics() -> None:
    features, labels, _ = take(data(20), 4)
    tf1.losses.log_loss(labels, probabilities(features))


def training() -> None:
    features, labels, _ = take(data(20), 4)
    finish(tf1.losses.log_loss(labels, probabilities(features)), tf1.train.GradientDescentOptimizer(0.1))


def value_of_a_batch() -> None:
    features, labels, _ = take(data(20), 4)
    tf1.metrics.accuracy(labels, tf.cast(probabilities(features) > 0.5, tf.int64), name="accuracy")


def host_op_in_the_middle() -> None:
    features, _, _ = take(data(20), 4)
    number = tf.strings.to_hash_bucket_fast(tf.strings.as_string(probabilities(features)), 8)
    tf1.metrics.mean(tf.one_hot(number, 8) @ variable("behind", (8, 1)), name="mean")


@pytest.mark.parametrize(
    ("build", "options", "kind", "words"),
    [
        (no_batch, {}, ShapeError, ["pad-batches", "not a batch of rows"]),
        (fed, {}, ConversionError, ["fed from outside", "'features'"]),
        (without_input, {}, RolesError, ["the graph reads no input"]),
        (without_metrics, {}, RolesError, ["no metric", "--metrics=NAME=VALUE,UPDATE"]),
        (training, {}, RolesError, ["the graph has no metric", "--metrics=NAME=VALUE,UPDATE"]),
        (training, {"mode": "predict"}, RolesError, ["the graph trains", "'predict'"]),
        (value_of_a_batch, {"metrics": {"x": ("Cast", "accuracy/update_op")}}, RolesError, ["'x'", "depends on the batch"]),
        (value_of_a_batch, {"metrics": {"x": ("no/value", "Cast")}}, RolesError, ["'no/value'", "accuracy/value"]),
        (value_of_a_batch, {"mode": "predict", "predictions": {"w": "w"}}, RolesError, ["'w'", "does not depend on the input"]),
        (host_op_in_the_middle, {}, ConversionError, ["AsString", "in the middle of the step"]),
        (value_of_a_batch, {"mode": "test"}, UsageError, ["'test'", "train, eval or predict"]),
        (value_of_a_batch, {"predictions": {"x": "y"}}, UsageError, ["--predictions", "--mode=predict"]),
    ],
)  # fmt: skip
def test_what_is_refused(build: Callable[[], None], options: dict[str, Any], kind: Any, words: list[str]) -> None:
    testing.assert_raises_block(convert, trace(build), **{"mode": "eval", **options}, kind=kind, max_length=700,
                                words=words)  # fmt: skip


def test_sessions_say_what_a_graph_is_for() -> None:
    with TPUSession(convert(trace(evaluation(8)), mode="eval", num_replicas=2)) as session:
        testing.assert_raises_block(session.train, 3, kind=RunError, words=["evaluate", "not to train"])
        testing.assert_raises_block(session.predict, kind=RunError, words=["not to predict"])
        testing.assert_raises_block(session.evaluate, 0, kind=RunError, words=["at least 1"])
    with TPUSession(convert(corpus("iris_dnn").folder / "model.pb", num_replicas=2)) as session:
        testing.assert_raises_block(session.evaluate, kind=RunError, words=["converted to train"])

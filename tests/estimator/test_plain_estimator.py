"""The plain Estimator and the canned ones: on cores and off them as TensorFlow 1.15's own, and what they refuse."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
from closeness import assert_close
from estimators import FEATURES, ROWS, TARGETS, assert_trained, by_hand, dataset, linear_fn, losses_in
from models import CORPUS
from tpugraph.compiler import ConvertOptions
from tpugraph.estimator import heads, plain_estimator
from tpugraph.estimator.canned_estimators import (
    BaselineClassifier,
    DNNClassifier,
    LinearClassifier,
)
from tpugraph.estimator.heads import BinaryClassHead, MultiClassHead, RegressionHead
from tpugraph.testing.verification import verify

tf1 = tf.compat.v1
column = tf1.feature_column


def read(rows: int = ROWS) -> Callable[[], Any]:
    return lambda: tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, TARGETS)).repeat().batch(rows)


def from_initializable() -> Any:
    iterator = tf1.data.make_initializable_iterator(read()())
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


@pytest.mark.parametrize(("use_tpu", "reads"), [
    (True, read()), (False, read()), (True, from_initializable),
    (True, lambda: tf1.data.make_one_shot_iterator(read()()).get_next()),
], ids=["cores", "plain", "initializable", "one shot"])  # fmt: skip
def test_the_batches_are_those_of_the_input(tmp_path: Path, use_tpu: bool, reads: Any, said: list[str]) -> None:
    """A Dataset or an iterator, without drop_remainder; whatever the params say."""
    config = plain_estimator.PlainRunConfig(str(tmp_path), 7, 1)
    estimator = tpugraph.Estimator(linear_fn, config=config, params={"batch_size": 5, "rate": 0.05}, use_tpu=use_tpu)
    assert_trained(estimator.train(reads, steps=6), 6)
    assert losses_in(tmp_path)[6] == pytest.approx(by_hand(6)[0][5], rel=1e-5)
    assert any(f"global batch {ROWS} = 8 cores x {ROWS // 8}" in line for line in said) == use_tpu
    found = estimator.evaluate(reads, steps=2)
    assert found["loss"] == pytest.approx(estimator.evaluate(read(), steps=2)["loss"], rel=1e-6)


def test_rows_of_queues_are_in_no_shape_and_a_line_says_so(tmp_path: Path, said: list[str]) -> None:
    """Each call starts the threads that fill the queues; what one of them raises ends the run."""

    def queued(labels: Any = TARGETS) -> Any:
        x, y = tf1.train.slice_input_producer([FEATURES, labels], num_epochs=1, shuffle=False)
        y = tf.strings.to_number(y) if y.dtype == tf.string else y
        features, targets = tf1.train.batch([x, y], ROWS, allow_smaller_final_batch=True)
        return {"x": features}, targets

    estimator = tpugraph.Estimator(linear_fn, tmp_path, params={"rate": 0.05}, use_tpu=True)
    estimator.train(queued, steps=2)
    note = "note: no cores: the rows of the input's batches are in no shape, and queues fill it"
    assert any(note in line for line in said)
    whole = estimator.evaluate(lambda: dataset(ROWS, repeat=False))["loss"]
    for _ in range(2):
        assert estimator.evaluate(queued)["loss"] == pytest.approx(whole, rel=1e-5)
    assert len(list(estimator.predict(queued))) == len(FEATURES)
    with pytest.raises(tpugraph.RunError, match="could not correctly convert string: many"):
        estimator.evaluate(lambda: queued(["1"] * 40 + ["many"] * 56))


def test_batches_of_as_many_rows_as_data_say_train_on_this_machine(tmp_path: Path, said: list[str]) -> None:
    """Cores would take those of one size, and leave the others out."""

    def windows() -> Any:
        rows = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, TARGETS)).repeat()
        return rows.group_by_window(
            lambda x, y: tf.cast(y > 0, tf.int64), lambda key, window: window.batch(8),
            window_size_func=lambda key: tf.where(key > 0, tf.constant(8, tf.int64), 5),
        )  # fmt: skip

    estimator = tpugraph.Estimator(linear_fn, tmp_path, params={"rate": 0.05}, use_tpu=True)
    estimator.train(windows, steps=3)
    assert any("note: no cores: the input's batches have 5 to 8 rows" in line for line in said)


def test_the_cores_divide_the_batch_and_the_data_ends_training(tmp_path: Path, said: list[str]) -> None:
    tpugraph.Estimator(linear_fn, tmp_path, use_tpu=True).train(lambda: read(18)().take(3))
    assert any("global batch 18 = 6 cores x 3" in line for line in said)
    assert any("the data ended after 3 steps" in line for line in said)


def test_the_functions_get_the_params_alone(tmp_path: Path) -> None:
    seen = []

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        seen.append(dict(params))
        params["layers"].append(3)
        return linear_fn(features, labels, mode, {})

    given = {"layers": [1, 2]}
    tpugraph.Estimator(model_fn, tmp_path, params=given).train(read(), steps=1)
    assert seen == [{"layers": [1, 2, 3]}]
    assert given == {"layers": [1, 2]}


def test_what_cannot_be_converted_trains_on_this_machine(tmp_path: Path, said: list[str]) -> None:
    """Batches of different widths have no fixed shape; what TPUEstimator refuses, a plain one trains with a line."""

    def input_fn() -> Any:
        return tf.data.Dataset.range(8).map(lambda i: (tf.ones([4, i % 3 + 1]), tf.ones([4]))).repeat()

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_mean((tf.reduce_sum(features * tf1.get_variable("w", []), 1) - labels) ** 2)
        step = tf1.train.get_global_step()
        return tpugraph.EstimatorSpec(mode, None, loss, tf1.train.GradientDescentOptimizer(0.1).minimize(loss, step))

    estimator = tpugraph.Estimator(model_fn, tmp_path, use_tpu=True)
    estimator.train(input_fn, steps=3)
    (told,) = [line for line in said if "the training runs on this machine, without cores: " in line]
    assert "is open in dimension 1" in told
    assert estimator.get_variable_value("global_step") == 3


def test_what_a_hook_is_told_to_do_and_cannot_is_an_error_on_cores_too(tmp_path: Path) -> None:
    """Only what the conversion refuses trains on this machine."""

    class Mistaken(tf1.train.SessionRunHook):  # type: ignore[misc]
        def begin(self) -> None:
            raise tpugraph.ArgumentError("the hook was given a wrong argument")

    with pytest.raises(tpugraph.ArgumentError, match="a wrong argument"):
        tpugraph.Estimator(linear_fn, tmp_path, use_tpu=True).train(read(), hooks=[Mistaken()], steps=1)


def test_a_scaffold_with_an_initialiser_of_its_own_evaluates(tmp_path: Path) -> None:
    """The metrics are made behind the model function, which cannot initialise their variables."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        spec = linear_fn(features, labels, mode, {})
        own = tf1.get_variable("own", [], collections=[tf1.GraphKeys.LOCAL_VARIABLES], trainable=False)
        scaffold = tf1.train.Scaffold(local_init_op=own.initializer)
        return tpugraph.EstimatorSpec(mode, None, spec.loss, spec.train_op, scaffold=scaffold)

    estimator = tpugraph.Estimator(model_fn, tmp_path).train(read(), steps=1)
    assert np.isfinite(estimator.evaluate(read(), steps=2)["loss"])


class Fed(tf1.train.SessionRunHook):  # type: ignore[misc]
    """Gives an input function, and initialises its iterator with arrays, as programs do that keep arrays out of the graph."""

    def __init__(self, rows: int) -> None:
        self.features, self.targets = FEATURES[:rows], TARGETS[:rows]

    def input_fn(self) -> Any:
        x, y = tf1.placeholder(tf.float32, self.features.shape), tf1.placeholder(tf.float32, self.targets.shape)
        data = tf1.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat(4).batch(len(self.features))
        made = tf1.data.make_initializable_iterator(data)
        self._start = lambda session: session.run(made.initializer, {x: self.features, y: self.targets})
        return made.get_next()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.began_at = int(session.run(tf1.train.get_global_step()))
        self._start(session)


def test_a_hook_feeds_the_input(tmp_path: Path, said: list[str]) -> None:
    """Each call has a graph of its own, since the hook feeds tensors of the graph that was traced last; cores hold what was fed."""
    weights, losses = [], []
    for folder, use_tpu in (("plain", False), ("cores", True)):
        estimator = tpugraph.Estimator(linear_fn, tmp_path / folder, use_tpu=use_tpu)
        for fed in (Fed(16), Fed(8), Fed(8)):
            estimator.train(fed.input_fn, hooks=[fed], steps=2)
            assert fed.began_at == int(estimator.saved_step) - 2
            losses.append(estimator.evaluate(fed.input_fn, hooks=[fed])["loss"])
        assert sum(" = 8 cores x " in line for line in said) == (3 if use_tpu else 0)
        weights.append(estimator.get_variable_value("w"))
    assert_close(weights[1], weights[0], 1e-5)
    assert_close(np.asarray(losses[3:]), np.asarray(losses[:3]), 1e-5)
    assert verify(str(tmp_path / "cores" / "model.ckpt-6.meta"), 2, ConvertOptions(num_replicas=4)).ok


def test_an_input_that_a_hook_feeds_in_each_step_trains_on_this_machine(tmp_path: Path, said: list[str]) -> None:
    class Feeds(tf1.train.SessionRunHook):  # type: ignore[misc]
        def input_fn(self) -> Any:
            self.x, self.y = tf1.placeholder(tf.float32, [8, 3]), tf1.placeholder(tf.float32, [8])
            return {"x": self.x}, self.y

        def before_run(self, context: Any) -> Any:
            return tf1.train.SessionRunArgs(None, {self.x: FEATURES[:8], self.y: TARGETS[:8]})

    feeds, estimator = Feeds(), tpugraph.Estimator(linear_fn, tmp_path, use_tpu=True)
    estimator.train(feeds.input_fn, hooks=[feeds], steps=2)
    assert any("the training runs on this machine, without cores: " in line for line in said)
    assert np.any(estimator.get_variable_value("w"))


def test_the_run_config_takes_its_arguments_in_the_order_of_the_original() -> None:
    config = plain_estimator.PlainRunConfig("folder", 3, 50, 20)
    assert (config.model_dir, config.tf_random_seed, config.save_summary_steps) == ("folder", 3, 50)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (20, None)
    assert config.replace(save_summary_steps=5).save_summary_steps == 5


@contextmanager
def cores_for(use_tpu: bool) -> Iterator[None]:
    plain_estimator.use_cores(8 if use_tpu else 0)
    yield
    plain_estimator.use_cores(None)


def recorded_rows() -> tuple[dict[str, Any], Any]:
    graph = tpugraph.load(CORPUS / "dnn_classifier" / "model.ckpt-0.meta")
    parts = [graph[f"normalize_element/component_{i}"].attr("value") for i in range(5)]
    return dict(zip(("age", "education", "hours", "occupation"), parts, strict=False)), parts[4]


def test_a_canned_classifier_trains_as_that_of_tensorflow_1_15(tmp_path: Path, use_tpu: bool) -> None:
    """24 losses of tf.estimator.DNNClassifier in TensorFlow 1.15.5, from the same first values on the same rows."""
    age, hours = column.numeric_column("age"), column.numeric_column("hours")
    education = column.categorical_column_with_vocabulary_list("education", ["HS", "BSc", "MSc", "PhD"])
    occupation = column.categorical_column_with_vocabulary_list("occupation", ["Tech", "Sales", "Farm"],
                                                                num_oov_buckets=2)  # fmt: skip
    columns = [age, column.bucketized_column(age, [25, 35, 45, 55, 65]), column.indicator_column(education), hours,
               column.embedding_column(occupation, 4)]  # fmt: skip
    config = plain_estimator.PlainRunConfig(str(tmp_path), save_summary_steps=1)
    with cores_for(use_tpu):
        model = DNNClassifier([16, 8], columns, config=config,
                              warm_start_from=str(CORPUS / "dnn_classifier" / "model.ckpt-0"))  # fmt: skip
    model.train(lambda: tf.data.Dataset.from_tensor_slices(recorded_rows()).repeat().batch(16), steps=24)
    wanted = json.loads((CORPUS / "dnn_classifier" / "golden.json").read_text())["losses"]["plain"]
    assert {int(step): loss for step, loss in wanted.items()} == pytest.approx(losses_in(tmp_path), rel=1e-3)


HEADS = {
    "binary": (BinaryClassHead(), [0, 1, 1, 0], [[-1.0], [2.0], [-0.5], [0.0]]),
    "words": (BinaryClassHead(label_vocabulary=["no", "yes"]), ["no", "yes", "yes", "no"], [[-1.0], [2.0], [-0.5], [0.0]]),
    "classes": (MultiClassHead(3), [2, 0, 1, 1], [[1.0, 0, 2], [3, 1, 0], [0, 0, 0], [1, 2, 3]]),
    "labels": (heads.MultiLabelHead(2), [[1, 0], [0, 1], [1, 1], [0, 0]], [[1.0, -1], [0, 2], [1, 1], [0, 0]]),
    "numbers": (RegressionHead(weight_column="w"), [1.0, 2, 3, 4], [[1.5], [1], [3], [0]]),
    "logistic": (heads.LogisticRegressionHead(), [0.0, 1, 0.5, 1], [[0.0], [2], [1], [-1]]),
    "counts": (heads.PoissonRegressionHead(compute_full_loss=False), [0.0, 1, 2, 3], [[0.0], [1], [1], [0.5]]),
}  # fmt: skip


def expected(kind: str, labels: Any, logits: np.ndarray) -> np.ndarray:
    if kind in ("binary", "words", "logistic", "labels"):
        truth = np.asarray([["no", "yes"].index(word) for word in labels] if kind == "words" else labels,
                           float).reshape(logits.shape)  # fmt: skip
        return (np.log1p(np.exp(logits)) - truth * logits).mean(1)
    if kind == "classes":
        return np.log(np.exp(logits).sum(1)) - logits[np.arange(4), labels]
    truth = np.asarray(labels)[:, None]
    return ((logits - truth) ** 2 if kind == "numbers" else np.exp(logits) - truth * logits)[:, 0]


@pytest.mark.parametrize("kind", HEADS)
def test_the_loss_of_a_head(kind: str) -> None:
    head, labels, numbers = HEADS[kind]
    logits = np.asarray(numbers, float)
    weights = np.asarray([1.0, 2, 1, 0]) if kind == "numbers" else np.ones(4)
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.train.create_global_step()
        features = {"w": tf.constant(weights, tf.float32)}
        spec = head.create_estimator_spec(features, "eval", tf.constant(logits, tf.float32), tf.constant(labels))
        session.run([tf1.local_variables_initializer(), tf1.tables_initializer()])
        session.run([update for _, update in spec.eval_metric_ops.values()])
        loss, metrics = session.run([spec.loss, {key: value for key, (value, _) in spec.eval_metric_ops.items()}])
    rows = expected(kind, labels, logits) * weights
    assert loss == pytest.approx(rows.sum() / 4, rel=1e-5)
    assert metrics["average_loss"] == pytest.approx(rows.sum() / weights.sum(), rel=1e-5)
    if kind in ("binary", "words"):
        assert metrics["accuracy"] == pytest.approx(0.75)


@pytest.mark.parametrize(("kind", "wrong", "words"), [
    ("binary", 2, "Labels must <= n_classes - 1"),
    ("binary", -1, "Labels must >= 0"),
    ("words", "maybe", "Labels must >= 0"),
    ("classes", 3, "Labels must <= n_classes - 1"),
    ("classes", -1, "Labels must >= 0"),
    ("labels", [1, 2], r"values in \[0, 1\]"),
    ("logistic", 1.5, r"Labels must be in range \[0, 1\]"),
])  # fmt: skip
def test_a_label_out_of_range_ends_the_step(kind: str, wrong: Any, words: str) -> None:
    head, labels, logits = HEADS[kind]
    with tf.Graph().as_default(), tf1.Session() as session:
        given = tf1.placeholder_with_default(tf.constant([*labels[:-1], wrong]), tf.constant(labels).shape)
        spec = head.create_estimator_spec({}, "eval", tf.constant(logits, tf.float32), given)
        session.run([tf1.local_variables_initializer(), tf1.tables_initializer()])
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            session.run(spec.loss)


def test_rows_that_no_shape_tells_are_counted_in_the_step() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        given = tf1.placeholder_with_default([1.0, 2.0], [None])
        logits = tf1.placeholder_with_default([[1.0], [2.0], [3.0]], [None, 1])
        spec = RegressionHead().create_estimator_spec({}, "eval", logits, given)
        with pytest.raises(tf.errors.InvalidArgumentError, match="labels shape must be"):
            session.run(spec.loss)


def test_batch_norm_of_a_deep_model_has_the_variables_of_tensorflow_1_15(tmp_path: Path) -> None:
    model = DNNClassifier([4, 2], [column.numeric_column("x", 3)], str(tmp_path), batch_norm=True)
    model.train(lambda: dataset(ROWS).map(lambda x, y: (x, tf.cast(y > 0, tf.int32))), steps=1)
    parts = ("beta", "gamma", "moving_mean", "moving_variance")
    names = {f"dnn/hiddenlayer_{i}/batchnorm_{i}/{part}" for i in range(2) for part in parts}
    assert {name for name in model.get_variable_names() if "batchnorm" in name and "Adagrad" not in name} == names


def test_a_baseline_learns_the_shares(tmp_path: Path) -> None:
    labels = np.asarray([0, 0, 0, 1] * 8)
    model = BaselineClassifier(tmp_path, optimizer=lambda: tf1.train.GradientDescentOptimizer(0.1))
    model.train(lambda: tf.data.Dataset.from_tensors((np.zeros([32, 1], "float32"), labels)).repeat(), steps=50)
    (found,) = list(model.predict(lambda: tf.data.Dataset.from_tensor_slices(np.zeros([1, 1], "float32")).batch(2)))
    np.testing.assert_allclose(found["probabilities"], [0.75, 0.25], atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*layer.add_variable")  # of the linear model in TensorFlow itself
def test_a_canned_model_is_exported(tmp_path: Path) -> None:
    model = LinearClassifier([column.numeric_column("a")], str(tmp_path / "model"))
    model.train(lambda: tf.data.Dataset.from_tensors(({"a": np.ones([4], "float32")},
                                                      np.ones([4], "int32"))).repeat(), steps=2)  # fmt: skip
    spec = {"a": tf.io.FixedLenFeature([1], tf.float32)}
    receive = tpugraph.export.build_parsing_serving_input_receiver_fn(spec)
    folder = model.export_saved_model(str(tmp_path / "export"), receive)
    with tf.Graph().as_default(), tf1.Session() as session:
        meta = tf1.saved_model.load(session, ["serve"], folder)
    assert set(meta.signature_def) == {"serving_default", "classification", "predict"}


def test_a_layer_that_a_checkpoint_has_not_is_named_with_the_nearest(tmp_path: Path, use_tpu: bool) -> None:
    def estimator(layers: int) -> Any:
        def model_fn(features: Any, labels: Any, mode: str) -> Any:
            made = features["x"]
            for number in range(layers):
                made = made @ tf1.get_variable(f"layer_{number}/kernel", [made.shape[-1], 3])
            loss = tf.reduce_mean(tf.square(made[:, 0] - labels))
            train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, tf1.train.get_global_step())
            return tpugraph.EstimatorSpec(mode, loss=loss, train_op=train)

        return tpugraph.Estimator(model_fn, tmp_path, use_tpu=use_tpu)

    estimator(1).train(read(), steps=1)
    for question in (lambda: estimator(2).train(read(), steps=1), lambda: estimator(2).evaluate(read(), steps=1)):
        with pytest.raises(tpugraph.CheckpointError) as caught:
            question()
        assert "missing: layer_1/kernel (nearest: layer_0/kernel)" in caught.value.fault
        assert all(word in str(caught.value.fix) for word in ("of this model", "another model_dir", "warm_start_from"))

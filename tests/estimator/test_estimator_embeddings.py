"""Models with embedding_config_spec: tables of their own on cores, plain columns without; numbers and names of the plain model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tpugraph
from closeness import assert_close
from estimators import example, losses_in, served
from tpugraph import (
    AdagradParameters,
    AdamParameters,
    EmbeddingConfigSpec,
    FeatureConfig,
    StochasticGradientDescentParameters,
    TableConfig,
    compiler,
)

tf1, fc = tf.compat.v1, tf.feature_column
ROWS, STEPS, RATE, IDS = 16, 4, 0.3, 6
TABLE = "dense_features/word_embedding/embedding_weights"
RNG = np.random.default_rng(3)
WORD, LEFT, RIGHT = (RNG.integers(0, IDS, size=(48, 3)) for _ in range(3))
LABELS = RNG.normal(size=48).astype(np.float32)


Trained = tuple[dict[int, float], dict[str, Any]]
SGD = StochasticGradientDescentParameters(RATE)


def first(seed: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(IDS, width))


def initial(seed: int, width: int) -> Any:
    return tf1.constant_initializer(first(seed, width).astype(np.float32))


def columns(*, plain: bool) -> list[Any]:
    """A table for one feature, and one that two features share."""
    word, left, right = (fc.categorical_column_with_identity(name, IDS) for name in ("word", "left", "right"))
    if plain:
        with tf.Graph().as_default():  # shared columns are refused without a graph
            shared = fc.shared_embeddings([left, right], 2, initializer=initial(2, 2))
        return [fc.embedding_column(word, 3, initializer=initial(1, 3)), *shared]
    experimental = tf1.tpu.experimental
    shared = experimental.shared_embedding_columns([left, right], 2, initializer=initial(2, 2))
    return [experimental.embedding_column(word, 3, initializer=initial(1, 3)), *shared]


def input_fn(params: dict[str, Any]) -> Any:
    data = tf.data.Dataset.from_tensor_slices(({"word": WORD, "left": LEFT, "right": RIGHT}, LABELS))
    return data.repeat().batch(params["batch_size"], drop_remainder=True)


CORES = tpugraph.TPUConfig(2, 4)


def make(folder: Path, parameters: Any = None, given: Any = None, extra: Any = (), spec: Any = None, model: Any = None,
         use_tpu: bool = True, optimizer: Any = None, cores: tpugraph.TPUConfig = CORES, **more: Any) -> Any:  # fmt: skip
    """A regression on the outputs of ``model``, or on feature columns; with parameters, the columns have an embedding spec."""
    used = given or columns(plain=parameters is None)

    def of_columns(features: Any) -> Any:
        inputs = tf_keras.layers.DenseFeatures(used)(features)
        return tf.squeeze(
            inputs @ tf1.get_variable("kernel", [inputs.shape[1], 1], initializer=tf1.ones_initializer()), 1
        )

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        found = (model or of_columns)(features)
        if mode == tpugraph.ModeKeys.PREDICT:
            return tpugraph.TPUEstimatorSpec(mode, predictions={"y": found})
        loss = tf1.losses.mean_squared_error(labels, found)
        trained = (optimizer or tf1.train.GradientDescentOptimizer)(RATE)
        train = tpugraph.CrossShardOptimizer(trained).minimize(loss, tf1.train.get_global_step())
        return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=train)

    config = tpugraph.RunConfig(cores, model_dir=folder, save_summary_steps=1)
    if parameters is not None:
        spec = EmbeddingConfigSpec([*used, *extra], parameters, **more)
    return tpugraph.TPUEstimator(model_fn, config=config, use_tpu=use_tpu, train_batch_size=ROWS, eval_batch_size=ROWS,
                                 predict_batch_size=ROWS, embedding_config_spec=spec)  # fmt: skip


def trained(folder: Path, *arguments: Any, **named: Any) -> Trained:
    made = make(folder, *arguments, **named)
    made.train(input_fn, max_steps=STEPS)
    values = {name: made.get_variable_value(name) for name in made.get_variable_names()}
    return losses_in(folder), values


@pytest.fixture(scope="module")
def on_cores(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("cores"), SGD)


def assert_same(found: Trained, wanted: Trained) -> None:
    assert found[0].keys() == wanted[0].keys()
    assert found[1].keys() == wanted[1].keys()
    assert_close(np.asarray(list(found[0].values())), np.asarray(list(wanted[0].values())), 1e-5)
    for name, value in wanted[1].items():
        assert_close(found[1][name], value, 1e-5)


def test_tables_train_as_those_of_plain_columns(tmp_path: Path, on_cores: Trained, use_tpu: bool) -> None:
    found = on_cores if use_tpu else trained(tmp_path / "tables", SGD, use_tpu=False)
    assert_same(found, trained(tmp_path / "plain", use_tpu=use_tpu))
    assert found[1].keys() == {"global_step", "kernel", TABLE, "left_right_shared_embedding"}


SHARED = tpugraph.TPUConfig(2, 2, shard_tables=4 * IDS * 2)
"""Two cores share both tables, each three rows of six."""


def once(params: dict[str, Any]) -> Any:
    return input_fn(params).take(3)


def assert_answers_as_plain(made: Any, folder: Path) -> list[Any]:
    """At the newest checkpoint, a model evaluates and predicts as the plain one, whose predictions are returned."""
    plain, newest = make(folder / "plain", use_tpu=False), made.latest_checkpoint()
    wanted = plain.evaluate(once, checkpoint_path=newest)["loss"]
    assert made.evaluate(once)["loss"] == pytest.approx(wanted, rel=1e-5)
    rows = [row["y"] for row in plain.predict(once, checkpoint_path=newest)]
    assert_close([row["y"] for row in made.predict(once)], rows, 1e-5)
    return rows


def test_cores_share_the_rows_of_large_tables(tmp_path: Path, on_cores: Trained,
                                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """They train as whole ones, and checkpoints have them whole; evaluation and prediction look them up on the host."""
    said = []
    convert = compiler.convert

    def seen(graph: Any, options: Any) -> Any:
        program = convert(graph, options)
        said.append((options.mode, sorted(program.report["tables"]["sharded"])))
        return program

    monkeypatch.setattr(compiler, "convert", seen)
    assert_same(trained(tmp_path, SGD, cores=SHARED), on_cores)
    assert_answers_as_plain(make(tmp_path, SGD, cores=SHARED), tmp_path)
    tables = [TABLE, "left_right_shared_embedding"]
    assert said == [("train", tables), ("eval", []), ("predict", [])]
    assert CORES.choices(tables=True)["shard_tables"] == 2**30
    assert CORES.choices(tables=False)["shard_tables"] == 0


def test_they_have_an_optimizer_of_their_own(tmp_path: Path) -> None:
    """Adagrad, as that of the plain model, whose slots have the same names."""
    found = trained(tmp_path / "tables", AdagradParameters(RATE, 0.1), optimizer=tf1.train.AdagradOptimizer)
    assert_same(found, trained(tmp_path / "plain", optimizer=tf1.train.AdagradOptimizer))
    assert f"{TABLE}/Adagrad" in found[1]


@pytest.mark.parametrize("cores", [CORES, SHARED], ids=["whole", "shared"])
def test_adam_is_that_of_a_tpu(tmp_path: Path, cores: tpugraph.TPUConfig) -> None:
    """No correction of the first steps, rows that no batch has stay, and slots as the original calls them."""
    found = trained(tmp_path, AdamParameters(RATE, epsilon=1e-3), cores=cores)[1]
    assert not any(name.startswith("kernel/") for name in found)
    assert {f"{TABLE}/Adam/m", f"{TABLE}/Adam/v", "left_right_shared_embedding/Adam/m"} <= found.keys()
    rows, tables, kernel = np.arange(ROWS), [first(1, 3), first(2, 2)], np.ones(7)
    moments = [np.zeros([2, *table.shape]) for table in tables]
    for step in range(STEPS):
        take = (rows + step * ROWS) % len(LABELS)
        ids = [(WORD[take], 0), (LEFT[take], 1), (RIGHT[take], 1)]
        inputs = np.concatenate([tables[table][found_ids].mean(1) for found_ids, table in ids], 1)
        error = 2 * (inputs @ kernel - LABELS[take]) / ROWS
        gradients, start = [np.zeros_like(table) for table in tables], 0
        for found_ids, table in ids:
            width = tables[table].shape[1]
            for place in range(3):
                np.add.at(gradients[table], found_ids[:, place], np.outer(error, kernel[start : start + width]) / 3)
            start += width
        kernel = kernel - RATE * inputs.T @ error
        for table, gradient, (mean, square) in zip(tables, gradients, moments, strict=True):
            there = np.any(gradient != 0, axis=1)
            mean[there] = 0.9 * mean[there] + 0.1 * gradient[there]
            square[there] = 0.999 * square[there] + 0.001 * gradient[there] ** 2
            table[there] -= RATE * mean[there] / np.sqrt(square[there] + 1e-6)
    assert_close(found[TABLE], tables[0], 1e-4)
    assert_close(found["left_right_shared_embedding"], tables[1], 1e-4)
    assert_close(found[f"{TABLE}/Adam/m"], moments[0][0], 1e-4)


def test_factors_and_learning_rates_are_made_of_the_step(tmp_path: Path, on_cores: Trained) -> None:
    """Twice the gradient at half the rate is the same; both are of the step before it is counted up."""
    word, *shared = columns(plain=False)

    def half(step: Any) -> Any:
        return RATE / 2 * tf.cast(step < STEPS, tf.float32)

    halved = tf1.tpu.experimental.embedding_column(word.categorical_column, 3, initializer=initial(1, 3),
                                                   learning_rate_fn=half)  # fmt: skip
    found = trained(tmp_path / "halved", StochasticGradientDescentParameters(RATE / 2), given=[halved, *shared],
                    experimental_gradient_multiplier_fn=lambda step: 2.0 * tf.cast(step < STEPS, tf.float32))  # fmt: skip
    assert_same(found, on_cores)


def test_it_is_evaluated_predicted_and_exported(tmp_path: Path, use_tpu: bool, said: list[str]) -> None:
    made = make(tmp_path, AdagradParameters(RATE), use_tpu=use_tpu)
    made.train(input_fn, max_steps=2)
    rows = assert_answers_as_plain(made, tmp_path)
    assert any("examples in 3 batches on 4 cores" in line for line in said) == use_tpu
    examples = {name: tf.zeros([1, 3], tf.int64) for name in ("word", "left", "right")}
    folder = made.export_saved_model(tmp_path / "export", tpugraph.export.build_raw_serving_input_receiver_fn(examples))
    (answered,) = served(folder, word=WORD[:5], left=LEFT[:5], right=RIGHT[:5]).values()
    assert_close(answered, rows[:5], 1e-5)


LIMITS = {"clip_weight_min": -0.5, "clip_weight_max": 0.25}


@pytest.mark.parametrize("parameters", [StochasticGradientDescentParameters, AdagradParameters])
def test_weights_are_clipped_in_the_rows_of_a_batch(tmp_path: Path, parameters: Any) -> None:
    """Row 5, which no batch has, stays outside of the limits."""
    of = {"word": FeatureConfig("words")}

    def few(params: dict[str, Any]) -> Any:
        data = tf.data.Dataset.from_tensor_slices(({"word": WORD % 5}, LABELS))
        return data.repeat().batch(params["batch_size"], drop_remainder=True)

    def after(**limited: float) -> np.ndarray:
        spec = EmbeddingConfigSpec(None, parameters(RATE, **limited), feature_to_config_dict=of,
                                   table_to_config_dict={"words": TableConfig(IDS, 3, initial(1, 3))})  # fmt: skip
        folder = tmp_path / f"{len(limited)}"
        return np.asarray(named(folder, spec, few, of_words, steps=1).get_variable_value("words"))

    free, clipped = after(), after(**LIMITS)
    assert_close(clipped[:5], np.clip(free[:5], -0.5, 0.25), 1e-6)
    assert np.any(np.abs(free[:5] - clipped[:5]) > 0.01)
    assert_close(clipped[5], first(1, 3)[5], 1e-6)


def of_words(features: Any) -> Any:
    return tf.reduce_sum(features["word"], 1) + tf1.get_variable("bias", [], initializer=tf1.zeros_initializer())


def named(folder: Path, spec: EmbeddingConfigSpec, data: Any, model: Any, use_tpu: bool = True,
          steps: int = STEPS) -> Any:  # fmt: skip
    """A regression on what a model makes of the features of tables by name."""
    return make(folder, spec=spec, model=model, use_tpu=use_tpu).train(data, max_steps=steps)


def test_tables_by_name_train_as_those_of_columns(tmp_path: Path, on_cores: Trained, use_tpu: bool) -> None:
    tables = {
        "words": TableConfig(IDS, 3, initial(1, 3)),
        "sides": TableConfig(IDS, 2, initial(2, 2), learning_rate=RATE),
    }
    of = {"word": FeatureConfig("words"), "left": FeatureConfig("sides"), "right": FeatureConfig("sides")}
    spec = EmbeddingConfigSpec(None, StochasticGradientDescentParameters(RATE), feature_to_config_dict=of,
                               table_to_config_dict=tables)  # fmt: skip

    def model(features: Any) -> Any:
        assert [features[name].shape[1] for name in ("left", "right", "word")] == [2, 2, 3]
        inputs = tf.concat([features["left"], features["right"], features["word"]], 1)
        return tf.squeeze(inputs @ tf1.get_variable("kernel", [7, 1], initializer=tf1.ones_initializer()), 1)

    made = named(tmp_path, spec, input_fn, model, use_tpu=use_tpu)
    assert_close(list(losses_in(tmp_path).values()), list(on_cores[0].values()), 1e-5)
    assert set(made.get_variable_names()) == {"global_step", "kernel", "words", "sides"}
    assert_close(made.get_variable_value("words"), on_cores[1][TABLE], 1e-5)
    assert_close(made.get_variable_value("sides"), on_cores[1]["left_right_shared_embedding"], 1e-5)


def test_lists_of_any_length_have_room_for_those_of_the_first_batches(tmp_path: Path, said: list[str]) -> None:
    """Of VarLenFeature no shape tells how many ids a row has, and no flag has to."""

    def lists(params: dict[str, Any]) -> Any:
        data = tf.data.Dataset.from_tensor_slices(([example(word=WORD[row][: row % 4]) for row in range(48)], LABELS))
        wanted = {"word": tf1.VarLenFeature(tf.int64)}
        data = data.map(lambda text, label: (tf1.parse_single_example(text, wanted), label))
        return data.repeat().batch(params["batch_size"], drop_remainder=True)

    spec = EmbeddingConfigSpec(None, SGD, feature_to_config_dict={"word": FeatureConfig("words")},
                               table_to_config_dict={"words": TableConfig(IDS, 3, initial(1, 3), "mean")})  # fmt: skip

    for use_tpu in (True, False):
        named(tmp_path / str(use_tpu), spec, lists, of_words, use_tpu=use_tpu)
    assert any("lists of ids are padded to 8: of the first batches no row has more than 3" in line for line in said)
    assert_close(list(losses_in(tmp_path / "True").values()), list(losses_in(tmp_path / "False").values()), 1e-5)


def test_weighted_lists_and_sequences_of_tables_by_name(tmp_path: Path) -> None:
    """Sparse ids with weights, and the first two ids of each row as a sequence: what cores train is what the plain model does."""
    lengths = RNG.integers(0, 4, size=48)
    there = np.arange(3) < lengths[:, np.newaxis]
    weights = np.where(there, RNG.uniform(0.5, 2, size=(48, 3)), 0).astype(np.float32)

    def sparse(values: np.ndarray) -> Any:
        return tf.sparse.SparseTensor(np.argwhere(there), values[there], [48, 3])

    def lists(params: dict[str, Any]) -> Any:
        features = {"word": sparse(WORD), "left": sparse(LEFT), "by": sparse(weights)}
        data = tf.data.Dataset.from_tensor_slices((features, LABELS))
        return data.repeat().batch(params["batch_size"], drop_remainder=True)

    def model(features: Any) -> Any:
        assert sorted(features) == ["left", "word"]
        assert features["left"].shape[1:] == [2, 2]
        return of_words(features) + tf.reduce_sum(features["left"] * [[[1.0], [2.0]]], [1, 2])

    tables = {"words": TableConfig(IDS, 3, initial(1, 3), "sqrtn"), "sides": TableConfig(IDS, 2, initial(2, 2), None)}
    of = {"word": FeatureConfig("words", weight_key="by"), "left": FeatureConfig("sides", 2)}
    spec = EmbeddingConfigSpec(None, AdagradParameters(RATE), feature_to_config_dict=of, table_to_config_dict=tables)
    found, plain = (named(tmp_path / str(use), spec, lists, model, use_tpu=use) for use in (True, False))
    assert_close(list(losses_in(tmp_path / "True").values()), list(losses_in(tmp_path / "False").values()), 1e-5)
    for name in ("words", "sides", "words/Adagrad"):
        assert_close(found.get_variable_value(name), plain.get_variable_value(name), 1e-5)
    rows = [[row["y"] for row in made.predict(lambda params: lists(params).take(1))] for made in (found, plain)]
    assert_close(rows[0], rows[1], 1e-5)
    scale = np.sqrt(np.square(weights).sum(1, keepdims=True))
    first_words = (first(1, 3)[WORD] * weights[:, :, None]).sum(1) / np.where(scale, scale, 1)
    first_sides = first(2, 2)[LEFT[:, :2]] * there[:, :2, None] * [[[1], [2]]]
    error = first_words.sum(1) + first_sides.sum((1, 2)) - LABELS
    assert losses_in(tmp_path / "True")[1] == pytest.approx(np.square(error[:ROWS]).mean(), rel=1e-5)


@pytest.mark.parametrize(("build", "error", "words"), [
    (lambda: EmbeddingConfigSpec(columns(plain=False), 0.1), ValueError, "must be an instance of type StochasticG"),
    (lambda: EmbeddingConfigSpec(columns(plain=False), SGD, partition_strategy="x"), ValueError, "partition_strategy"),
    (lambda: make(Path("x"), SGD, given=columns(plain=True)[:1]), TypeError, "Unsupported feature column"),
    (lambda: make(Path("x"), SGD, given=columns(plain=False)[:1] * 2), ValueError, "with multiple embeddings"),
    (lambda: make(Path("x"), SGD, use_tpu=False, partition_strategy="mod"), ValueError, "Mod sharding .* on CPU"),
])  # fmt: skip
def test_columns_that_specs_refuse(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()


def test_a_column_that_the_model_does_not_use_is_named(tmp_path: Path) -> None:
    other = tf1.tpu.experimental.embedding_column(fc.categorical_column_with_identity("other", IDS), 2)
    made = make(tmp_path, SGD, given=columns(plain=False), extra=[other])
    with pytest.raises(ValueError, match="did not capture any thing: model_fn does not use 'other_embedding'"):
        made.train(input_fn, max_steps=2)

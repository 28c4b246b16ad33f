"""Batches whose dimensions differ from batch to batch train, evaluate and predict on cores, padded to one length."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
from estimators import lines

tf1 = tf.compat.v1
LENGTHS = (2, 5, 1, 3, 4, 7, 6, 1, 2, 2, 11, 3)
WORDS = [np.arange(n) % 5 + 1 for n in LENGTHS]


def words() -> Any:
    """Sentences as ids from 1 on, one or two letters for each word, and a class for each sentence."""
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(WORDS).astype(np.int32), LENGTHS)

    def parts(ids: Any, label: Any) -> Any:
        letters = {"letters": tf.stack([ids, ids + 1], 1), "sizes": ids % 2 + 1}
        return {"ids": ids, "length": tf.size(ids), **letters}, label[None]

    classes = np.arange(len(LENGTHS), dtype=np.float32) % 3
    return tf.data.Dataset.from_tensor_slices((ragged, classes)).map(lambda ids, y: parts(tf.convert_to_tensor(ids), y))


SHAPES = ({"ids": [None], "length": [], "letters": [None, None], "sizes": [None]}, [None])
PADDING = ({"ids": 9, "length": 0, "letters": 8, "sizes": 0}, 0.0)


def by_length(rows: int) -> Any:
    """Sentences in batches of similar lengths, again and again."""
    grouped = tf.data.experimental.bucket_by_sequence_length(
        lambda x, _: x["length"], [4], [rows, rows], padded_shapes=SHAPES, padding_values=PADDING, drop_remainder=True)  # fmt: skip
    return words().repeat().apply(grouped)


INPUTS: dict[str, Callable[[], Any]] = {
    "padded_batch": lambda: words().padded_batch(4, SHAPES, PADDING),
    "tensors": lambda: tf1.data.make_one_shot_iterator(words().padded_batch(4, SHAPES, PADDING)).get_next(),
    "in a function of the input": lambda: by_length(4),
}


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """The mean of a number for each word and letter, masked as programs do that know nothing of fixed shapes."""
    table = tf1.get_variable("table", initializer=np.linspace(-1, 1, 12, dtype=np.float32))
    scores = tf.gather(table, features["ids"])
    mask = tf1.sequence_mask(features["length"], dtype=tf.float32)
    letters = tf.gather(table, features["letters"]) * tf1.sequence_mask(features["sizes"], dtype=tf.float32)
    found = tf.reduce_sum(scores * mask + tf.reduce_sum(letters, 2), 1) / tf.cast(features["length"], tf.float32)
    if mode == tpugraph.ModeKeys.PREDICT:
        return tpugraph.EstimatorSpec(mode, {"found": found, "width": tf.reduce_sum(tf.ones_like(scores), 1)})
    loss = tf1.losses.mean_squared_error(labels[:, 0], found)
    metrics = {"first": tf1.metrics.mean(scores, weights=mask)}
    tf1.summary.scalar("first", metrics["first"][1])
    train_op = tf1.train.AdagradOptimizer(0.5).minimize(loss, tf1.train.get_global_step())
    return tpugraph.EstimatorSpec(mode, None, loss, train_op, metrics)


@pytest.mark.parametrize("name", list(INPUTS))
def test_it_is_the_model_of_one_device(tmp_path: Path, name: str) -> None:
    found = {}
    for use_tpu in (True, False):
        estimator = tpugraph.Estimator(model_fn, tmp_path / str(use_tpu), use_tpu=use_tpu)
        with lines() as said:
            estimator.train(INPUTS[name], steps=3)
            scores = estimator.evaluate(INPUTS["padded_batch"])
            predicted = [row["found"] for row in estimator.predict(INPUTS["padded_batch"])]
        found[use_tpu] = [estimator.get_variable_value("table"), scores["loss"], scores["first"], predicted]
        assert not any("without cores" in line for line in said)
        assert any("every batch is padded to " in line for line in said) == use_tpu
    for on_cores, on_one in zip(found[True], found[False], strict=True):
        np.testing.assert_allclose(on_cores, on_one, rtol=2e-5)


@pytest.mark.parametrize(("name", "length", "which"), [("padded_batch", 11, "all 3"),
                                                       ("in a function of the input", 16, "the first 1,000")])  # fmt: skip
def test_the_length_is_that_of_the_longest_row(tmp_path: Path, name: str, length: int, which: str,
                                               said: list[str]) -> None:  # fmt: skip
    """Of an input that is not read to its end, the next power of two. Words keep their two letters, and rows their label."""
    seen = []

    def noting(features: Any, labels: Any, mode: str) -> Any:
        seen.append([part.shape.as_list() for part in (features["ids"], features["letters"], labels)])
        return model_fn(features, labels, mode)

    tpugraph.Estimator(noting, tmp_path, use_tpu=True).train(INPUTS[name], steps=1)
    assert seen == [[[4, length], [4, length, 2], [4, 1]]]
    (told,) = [line for line in said if line.startswith("note: every batch is padded")]
    assert f"padded to {length}, not to its own longest row: of {which} batches no row has more than 11" in told


def test_what_is_padded_is_what_padded_batch_pads_with(tmp_path: Path) -> None:
    """And predictions have the padded length."""
    estimator = tpugraph.Estimator(lambda features, mode: tpugraph.EstimatorSpec(mode, {"ids": features["ids"] + tf.cast(
        tf1.get_variable("none", initializer=0.0), tf.int32)}), tmp_path, use_tpu=True)  # fmt: skip
    found = [row["ids"] for row in estimator.predict(INPUTS["padded_batch"])]
    np.testing.assert_array_equal(found, [[*ids, *[9] * (11 - len(ids))] for ids in WORDS])


def test_a_row_that_is_longer_than_all_before(tmp_path: Path) -> None:
    """The error says what to do."""
    config = tpugraph.RunConfig(tpugraph.TPUConfig(max_ids=8, num_shards=4), model_dir=str(tmp_path))
    estimator = tpugraph.TPUEstimator(model_fn, config=config, train_batch_size=4)
    with pytest.raises(tpugraph.RunError,
                       match="batch 3 of the input has a row that is longer than rows are padded to") as caught:  # fmt: skip
        estimator.train(lambda params: INPUTS["padded_batch"](), max_steps=3)
    assert "TPUConfig(max_ids=N)" in str(caught.value)


def test_a_dimension_that_is_the_same_in_every_batch(tmp_path: Path) -> None:
    """Fields that are parsed from text have a fixed number and no shape that says it; the rows may be reshaped away."""
    seen = []

    def input_fn() -> Any:
        lines = [f"{i} {i + 1} {i * i}" for i in range(8)]
        rows = tf1.data.Dataset.from_tensor_slices(lines).map(
            lambda line: tf1.string_to_number(tf1.string_split([line]).values)
        )
        return tf1.data.make_one_shot_iterator(rows.map(lambda x: (x[:, None], x[0])).repeat().batch(4)).get_next()

    def fields(features: Any, labels: Any, mode: str) -> Any:
        seen.append(features.shape.as_list())
        found = tf.reduce_sum(tf.reshape(features, [-1, 3]) * tf1.get_variable("w", initializer=[0.1, 0.2, 0.3]), 1)
        loss = tf.reduce_mean((found - labels) ** 2)
        train_op = tf1.train.GradientDescentOptimizer(1e-4).minimize(loss, tf1.train.get_global_step())
        return tpugraph.EstimatorSpec(mode, None, loss, train_op)

    trained = {}
    for use_tpu in (True, False):
        with lines() as said:
            trained[use_tpu] = tpugraph.Estimator(fields, tmp_path / str(use_tpu), use_tpu=use_tpu).train(
                input_fn, steps=3
            )
        assert any(line.startswith("global batch 4 = 4 cores x 1") for line in said) == use_tpu
    assert seen == [[4, 3, 1], [None, None, 1]]
    np.testing.assert_allclose(*(t.get_variable_value("w") for t in trained.values()), rtol=1e-6)

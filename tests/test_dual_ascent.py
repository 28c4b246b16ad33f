"""LinearSDCA finds what the closed form and Newton's method find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph.compat.v1 as compat
from closeness import assert_close

tf1 = tf.compat.v1
pytestmark = [pytest.mark.filterwarnings("ignore:`layer.add_variable`")]
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(64, 3)).astype(np.float32)
COLOUR = RANDOM.integers(2, size=64)
ALL = np.concatenate([np.eye(2)[COLOUR], X, np.ones([64, 1])], 1)
PRICE = (X @ [1.0, -2.0, 0.5] + 0.7 * COLOUR + 0.1 * RANDOM.normal(size=64)).astype(np.float32)
KIND = (PRICE + RANDOM.normal(size=64) > 0.2).astype(np.int64)
FEATURES = {"x": X, "colour": np.asarray([b"red", b"blue"])[COLOUR], "name": np.asarray([f"e{i}" for i in range(64)])}
COLUMNS = [tf1.feature_column.categorical_column_with_vocabulary_list("colour", ["red", "blue"]),
           tf1.feature_column.numeric_column("x", (3,))]  # fmt: skip


def trained(kind: str, labels: Any, folder: Path, *parts: int, **given: Any) -> tuple[Any, Any]:
    optimizer = compat.estimator.experimental.LinearSDCA("name", **given)
    made = getattr(compat.estimator, kind)(COLUMNS, str(folder), optimizer=optimizer)

    def rows() -> Any:
        return tf1.data.Dataset.from_tensor_slices((FEATURES, labels)).repeat().batch(16)

    for part in parts:
        made.train(rows, steps=part)
    names = ("colour/weights", "x/weights", "bias_weights")
    return made, np.concatenate([made.get_variable_value(f"linear/linear_model/{name}").ravel() for name in names])


def test_squared_loss_is_ridge_regression(tmp_path: Path) -> None:
    """The second call goes on from the checkpoint, dual variables included."""
    _, weights = trained("LinearRegressor", PRICE, tmp_path, 40, 200, symmetric_l2_regularization=2.0)
    held = dict(tf1.train.list_variables(str(tmp_path)))
    assert held["duals-keys"] == [64]
    assert_close(weights, np.linalg.solve(ALL.T @ ALL + 2.0 * np.eye(6), ALL.T @ PRICE), relative=1e-3)


def test_logistic_loss_is_what_newton_finds(tmp_path: Path) -> None:
    made, weights = trained("LinearClassifier", KIND, tmp_path, 120)
    expected = np.zeros(6)
    for _ in range(30):
        likely = 1 / (1 + np.exp(-ALL @ expected))
        slope = ALL.T @ (likely - KIND) + expected
        expected -= np.linalg.solve(ALL.T @ (ALL * (likely * (1 - likely))[:, None]) + np.eye(6), slope)
    assert_close(weights, expected, relative=2e-3)
    found = made.evaluate(lambda: tf1.data.Dataset.from_tensor_slices((FEATURES, KIND)).batch(16))
    assert found["accuracy"] == pytest.approx(np.mean((ALL @ expected > 0) == KIND))


def test_l1_leaves_weights_at_zero(tmp_path: Path) -> None:
    _, weights = trained("LinearRegressor", PRICE, tmp_path, 400, symmetric_l1_regularization=12.0)
    slope = ALL.T @ (ALL @ weights - PRICE) + weights
    assert 0 < np.sum(weights == 0) < 6
    assert_close(slope[weights != 0], -12.0 * np.sign(weights[weights != 0]), relative=1e-2)
    assert np.all(np.abs(slope[weights == 0]) <= 12.0 * 1.01)


def test_what_it_refuses(tmp_path: Path) -> None:
    sdca = compat.estimator.experimental.LinearSDCA
    with pytest.raises(ValueError, match="symmetric_l2_regularization should be positive"):
        sdca("name", symmetric_l2_regularization=0.0)
    with pytest.raises(ValueError, match="symmetric_l1_regularization should be at least 0"):
        sdca("name", symmetric_l1_regularization=-1.0)
    with pytest.raises(ValueError, match="LinearSDCA trains whole variables whose columns are summed"):
        compat.estimator.LinearRegressor(COLUMNS, str(tmp_path), optimizer=sdca("name"), sparse_combiner="mean")
    several = compat.estimator.LinearClassifier(COLUMNS, str(tmp_path), n_classes=3, optimizer=sdca("name"))
    with pytest.raises(ValueError, match="LinearSDCA trains no MultiClassHead of 3 logits"):
        several.train(lambda: tf1.data.Dataset.from_tensor_slices((FEATURES, KIND)).batch(16), steps=1)
    unnamed = compat.estimator.LinearClassifier(COLUMNS, str(tmp_path), optimizer=sdca("id"))
    with pytest.raises(ValueError, match="the features have no 'id', which names the examples"):
        unnamed.train(lambda: tf1.data.Dataset.from_tensor_slices((FEATURES, KIND)).batch(16), steps=1)

"""MultiHead: the losses of several heads behind one model, against what TensorFlow computes for each by itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph.compat.v1 as compat
from closeness import assert_close

tf1 = tf.compat.v1
heads = compat.estimator
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(64, 4)).astype(np.float32)
PRICE = (X @ [1.0, -2.0, 0.5, 0.0]).astype(np.float32)
KIND = (np.argmax(X[:, :3], 1)).astype(np.int64)


def both(**given: Any) -> Any:
    return heads.MultiHead([heads.RegressionHead(name="price"), heads.MultiClassHead(3, name="kind")], **given)


def input_fn() -> Any:
    rows = tf1.data.Dataset.from_tensor_slices(({"x": X}, {"price": PRICE, "kind": KIND}))
    return rows.repeat().batch(32, drop_remainder=True)


def once() -> Any:
    return tf1.data.Dataset.from_tensor_slices(({"x": X}, {"price": PRICE, "kind": KIND})).batch(
        32, drop_remainder=True
    )


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    kernel = tf1.get_variable("kernel", [4, 4], initializer=tf1.constant_initializer(0.1))
    logits = features["x"] @ kernel
    optimizer = tf1.train.GradientDescentOptimizer(0.1)
    return both(head_weights=[0.5, 2.0]).create_estimator_spec(features, mode, logits, labels, optimizer)


def loss_of(kernel: Any, rows: slice) -> Any:
    """The loss of some rows in double precision, and its gradient."""
    logits = X[rows].astype(float) @ kernel
    wrong = logits[:, 0] - PRICE[rows]
    spread = np.exp(logits[:, 1:] - logits[:, 1:].max(1, keepdims=True))
    likely = spread / spread.sum(1, keepdims=True)
    chosen = np.eye(3)[KIND[rows]]
    apart = np.mean(wrong**2), -np.mean(np.log(np.sum(likely * chosen, 1)))
    slope = np.concatenate([0.5 * 2 * wrong[:, None], 2.0 * (likely - chosen)], 1) / len(wrong)
    return apart, X[rows].astype(float).T @ slope


@pytest.mark.parametrize("use_tpu", [False, True], ids=["plain", "cores"])
def test_trains_evaluates_and_predicts(use_tpu: bool, tmp_path: Path) -> None:
    made = compat.estimator.Estimator(model_fn, str(tmp_path), use_tpu=use_tpu)
    made.train(input_fn, steps=6)
    kernel = np.full([4, 4], 0.1)
    for step in range(6):
        kernel = kernel - 0.1 * loss_of(kernel, slice(32 * (step % 2), 32 * (step % 2) + 32))[1]
    assert_close(made.get_variable_value("kernel"), kernel, relative=1e-5)
    found, (apart, _) = made.evaluate(once), loss_of(kernel, slice(0, 64))
    assert found["average_loss/price"] == pytest.approx(apart[0], rel=1e-4)
    assert found["average_loss/kind"] == pytest.approx(apart[1], rel=1e-4)
    assert found["loss"] == pytest.approx(0.5 * apart[0] + 2.0 * apart[1], rel=1e-4)
    assert found["loss/price"] + found["loss/kind"] == pytest.approx(sum(apart), rel=1e-4)
    assert found["accuracy/kind"] == pytest.approx(np.mean(np.argmax(X @ kernel[:, 1:], 1) == KIND))
    rows = list(made.predict(once))
    assert_close([row["price", "predictions"][0] for row in rows], X @ kernel[:, 0], relative=1e-5)
    assert [row["kind", "class_ids"][0] for row in rows] == np.argmax(X @ kernel[:, 1:], 1).tolist()
    chosen = [("kind", "class_ids")]
    assert all(set(row) == set(chosen) for row in made.predict(once, predict_keys=chosen))


def test_exports_the_answers_of_each_head() -> None:
    with tf.Graph().as_default():
        spec = both().create_estimator_spec({}, "infer", {"price": tf.zeros([2, 1]), "kind": tf.zeros([2, 3])})
    assert set(spec.export_outputs) == {"serving_default", "price", "price/regression", "price/predict", "kind",
                                        "kind/classification", "kind/predict", "predict"}  # fmt: skip
    assert spec.export_outputs["serving_default"] is spec.export_outputs["price"]
    assert {"price/predictions", "kind/probabilities"} <= set(spec.export_outputs["predict"].outputs)

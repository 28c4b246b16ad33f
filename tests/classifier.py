"""A classifier on 1,026 examples, for the tests of evaluation and prediction."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tpugraph
from models import rows_of
from tpugraph import EstimatorSpec, ModeKeys, RunConfig, TPUConfig, TPUEstimator, TPUEstimatorSpec, layers

tf1 = tf.compat.v1
COUNT = 1026
FEATURES, TARGETS = rows_of(COUNT, 3)
LABELS = (TARGETS > 0.3).astype(np.int32)


def metric_fn(labels: Any, scores: Any) -> dict[str, Any]:
    return {
        "accuracy": tf1.metrics.accuracy(labels, tf.cast(scores > 0.5, tf.int32)),
        "auc": tf1.metrics.auc(labels, scores),
        "mean": tf1.metrics.mean(scores),
        "precision": tf1.metrics.precision(labels, scores > 0.5),
        "count": tf1.metrics.mean(tf.ones_like(scores)),
    }


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    logits = tf.squeeze(layers.dense(features["x"], 1), 1)
    scores = tf.sigmoid(logits)
    if mode == ModeKeys.PREDICT:
        return TPUEstimatorSpec(mode, predictions={"score": scores, "features": features["x"]})
    loss = tf1.losses.sigmoid_cross_entropy(labels, logits)
    if mode == ModeKeys.EVAL:
        if params.get("plain"):
            return EstimatorSpec(mode, loss=loss, eval_metric_ops=metric_fn(labels, scores))
        return TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [labels, scores]))
    optimizer = tpugraph.CrossShardOptimizer(tf1.train.AdamOptimizer(0.05))
    return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf1.train.get_global_step()))


def train_fn(params: dict[str, Any]) -> Any:
    data = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, LABELS)).repeat()
    return data.batch(params["batch_size"], drop_remainder=True)


def eval_fn(params: dict[str, Any]) -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, LABELS)).batch(params["batch_size"])


def make(folder: Path, **arguments: Any) -> TPUEstimator:
    config = RunConfig(TPUConfig(10, 8), model_dir=folder, tf_random_seed=3)
    sizes = {"train_batch_size": 64, "eval_batch_size": 64, "predict_batch_size": 64}
    return TPUEstimator(model_fn, **{"config": config, **sizes, **arguments})

"""How much sooner a second evaluation of the same shape starts than the first: nothing is traced or converted again.

python benchmarks/second_evaluate.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _measure
import tensorflow as tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples"))

import iris_data

import tpugraph

tf1 = tf.compat.v1
ROWS = 64


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Two hidden layers of 10 with four metrics."""
    net = tf.concat([tf.reshape(features[name], [-1, 1]) for name in iris_data.FEATURES], 1)
    for units in (10, 10):
        net = tpugraph.layers.dense(net, units, activation=tf.nn.relu)
    logits = tpugraph.layers.dense(net, 3)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    guess = tf.argmax(logits, 1)
    metrics = {
        "accuracy": tf1.metrics.accuracy(labels, guess),
        "mean": tf1.metrics.mean(tf.nn.softmax(logits)),
        "recall": tf1.metrics.recall(tf.equal(labels, 1), tf.equal(guess, 1)),
        "precision": tf1.metrics.precision(tf.equal(labels, 1), tf.equal(guess, 1)),
    }
    train = tf1.train.AdagradOptimizer(0.1).minimize(loss, tf1.train.get_global_step())
    return tpugraph.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops=metrics)


class _Start(tf1.train.SessionRunHook):  # type: ignore[misc]
    """Notes when the first batches are about to be evaluated."""

    def __init__(self) -> None:
        self.when = 0.0

    def before_run(self, run_context: Any) -> Any:
        """Note it, once."""
        self.when = self.when or time.perf_counter()
        return tf1.train.SessionRunArgs(None)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("tpugraph").setLevel(logging.WARNING)
    tf1.logging.set_verbosity(tf1.logging.ERROR)
    (train_x, train_y), (test_x, test_y) = iris_data.load_data()

    def train_fn(params: dict[str, Any]) -> Any:
        return iris_data.train_input_fn(train_x, train_y, params["batch_size"])

    def eval_fn(params: dict[str, Any]) -> Any:
        return iris_data.eval_input_fn(test_x, test_y, params["batch_size"])

    def start(estimator: Any) -> float:
        hook, began = _Start(), time.perf_counter()
        estimator.evaluate(eval_fn, hooks=[hook])
        return hook.when - began

    found: dict[str, list[float]] = {"first evaluate": [], "second evaluate": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.repeats + 1):
            config = tpugraph.RunConfig(tpugraph.TPUConfig(10, 8), model_dir=Path(folder), tf_random_seed=1)
            made = tpugraph.TPUEstimator(model_fn, config=config, train_batch_size=ROWS, eval_batch_size=ROWS)
            made.train(train_fn, max_steps=10)
            for name in found:
                found[name].append(start(made))
            made.close()
    kept = {name: values[1:] for name, values in found.items()}  # the very first one loads libraries
    _measure.show(kept, "s")
    value = _measure.ratio(kept, *kept)
    return _measure.verdict("start of evaluate: first / second of the same shape", value, 5.0, most=False)


if __name__ == "__main__":
    raise SystemExit(main())

"""Iris through TPUEstimator on 8 emulated cores, against the same graph run one Session.run per step.

python benchmarks/estimator_steps.py [--steps 2000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import _measure
import tensorflow as tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples"))

import iris_data

import tpugraph

tf1 = tf.compat.v1
ROWS = 128


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Two hidden layers of 10, trained by Adagrad, as in examples/iris.py."""
    net = tf.concat([tf.reshape(features[name], [-1, 1]) for name in iris_data.FEATURES], 1)
    for units in (10, 10):
        net = tpugraph.layers.dense(net, units, activation=tf.nn.relu)
    logits = tpugraph.layers.dense(net, 3)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tpugraph.CrossShardOptimizer(tf1.train.AdagradOptimizer(0.1))
    return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf1.train.get_global_step()))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--loop", type=int, default=500)
    options = parser.parse_args()
    logging.getLogger("tpugraph").setLevel(logging.WARNING)
    (train_x, train_y), _ = iris_data.load_data()

    def input_fn(params: dict[str, Any]) -> Any:
        return iris_data.train_input_fn(train_x, train_y, params["batch_size"])

    def on(folder: Path, *, use_tpu: bool) -> Any:
        config = tpugraph.RunConfig(tpugraph.TPUConfig(options.loop, 8), model_dir=folder, tf_random_seed=1)
        return tpugraph.TPUEstimator(model_fn, config=config, use_tpu=use_tpu, train_batch_size=ROWS)

    with tempfile.TemporaryDirectory() as folder:
        cores = on(Path(folder) / "cores", use_tpu=True)
        plain = on(Path(folder) / "plain", use_tpu=False)
        parts = {
            "8 emulated cores": lambda: _rate(cores, input_fn, options.steps),
            "one Session.run per step": lambda: _rate(plain, input_fn, options.steps),
        }
        _measure.interleave(parts, 1)
        found = _measure.interleave(parts, options.repeats)
        cores.close()
    _measure.show(found, "steps/s")
    value = _measure.ratio(found, *parts)
    return _measure.verdict("iris: steps per second, TPUEstimator / one run per step", value, 3.0, most=False)


def _rate(estimator: Any, input_fn: Any, steps: int) -> float:
    """Steps per second between the first hook after the start and the last before the end."""
    clock = _Clock()
    estimator.train(input_fn, hooks=[clock], steps=steps)
    return clock.rate


class _Clock(tf1.train.SessionRunHook):  # type: ignore[misc]
    """Notes when the first run has ended and when the last one has."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] = (0, 0.0)

    def before_run(self, run_context: Any) -> Any:
        """Ask for the step."""
        return tf1.train.SessionRunArgs(tf1.train.get_global_step())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Note it."""
        import time

        self._last = int(run_values.results), time.perf_counter()
        self._first = self._first or self._last

    @property
    def rate(self) -> float:
        """Steps per second."""
        assert self._first is not None
        return (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])


if __name__ == "__main__":
    raise SystemExit(main())

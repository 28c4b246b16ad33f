"""The pass varying-updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import batches, check, finish, rows_of, squared_error, tf1, trace, variable
from passes.varying_updates import VaryingUpdates
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.errors import ConversionError, UsageError
from tpugraph.testing import Training

CORES, ROWS, STEPS = 4, 4, 3
FEATURES, TARGETS = rows_of(96, 3)


def build(rows: int = ROWS, *, integer: bool = False) -> None:
    features, targets = batches((FEATURES, TARGETS), rows)
    seen, weights = variable("seen", (3,), trainable=False), variable("w", (3, 1))
    update = tf1.assign(seen, 0.9 * seen + 0.1 * tf.reduce_mean(features, 0))
    others = []
    if integer:
        count = tf1.get_variable("positive", initializer=0, trainable=False)
        others = [tf1.assign(count, tf.reduce_sum(tf.cast(targets > 0, tf.int32)))]
    with tf.control_dependencies([update, *others]):
        loss = tf.reduce_mean(squared_error(features, targets, weights))
    finish(loss, tf1.train.GradientDescentOptimizer(0.1))


def run(mode: str, **options: Any) -> Training:
    return testing.run_on_cores(
        trace(build, **options), steps=STEPS, num_replicas=CORES, varying_updates=mode, iterations_per_loop=2
    )


def statistics(core: int | None) -> np.ndarray:
    """The moving average by hand: of one core's batches, or of the mean over the cores."""
    value = 0.5 * np.cos(1.7 * np.arange(1, 4) + len("seen"))
    for step in range(STEPS):
        batches_of = FEATURES[step * CORES * ROWS :][: CORES * ROWS].reshape(CORES, ROWS, 3).mean(1)
        value = 0.9 * value + 0.1 * (batches_of.mean(0) if core is None else batches_of[core])
    return value


@pytest.mark.parametrize("mode", ["mean", "replica0"])
def test_golden(mode: str) -> None:
    graph = check(VaryingUpdates(num_replicas=2, varying_updates=mode), mode, num_replicas=2)
    assert graph["keep"].inputs[1].node.op == "CrossReplicaSum"
    assert graph.facts["varying-updates"]["combined"] == {"mean": mode}


def test_golden_uniform_writes_stay() -> None:
    graph = check(VaryingUpdates(num_replicas=2), "uniform", num_replicas=2)
    assert graph.facts["varying-updates"]["combined"] == {}


@pytest.mark.parametrize("resource", [False, True])
def test_the_mean_over_cores_is_written(resource: bool) -> None:
    np.testing.assert_allclose(run("mean", resource=resource).variables["seen"], statistics(None), rtol=1e-5, atol=1e-6)


def test_core_0_alone_is_written() -> None:
    found = run("replica0").variables["seen"]
    np.testing.assert_allclose(found, statistics(0), rtol=1e-5, atol=1e-6)
    assert np.abs(found - statistics(None)).max() > 1e-3  # the two differ


def test_training_itself_does_not_depend_on_the_choice() -> None:
    plain = testing.run_plain(trace(lambda: build(ROWS * CORES)), steps=STEPS)
    for mode in ("mean", "replica0"):
        testing.assert_same_training(run(mode), plain, relative=2e-5, absolute=1e-6, ignore=["seen"])


def test_an_error_on_demand_names_the_variable_and_the_choices() -> None:
    testing.assert_raises_block(
        run,
        "error",
        words=["varying-updates", "each core would write another value to 'seen'", "=mean", "=replica0"],
        max_length=300,
        kind=ConversionError,
    )


def test_integers_have_no_mean() -> None:
    testing.assert_raises_block(
        convert,
        trace(lambda: build(integer=True)),
        words=["int32 to 'positive'", "integers have no mean", "replica0"],
        max_length=400,
        kind=ConversionError,
    )


def test_an_unknown_choice() -> None:
    testing.assert_raises_block(
        run, "median", words=["'median' is no way to combine updates", "mean, replica0 or error"], max_length=200,
        kind=UsageError,
    )  # fmt: skip

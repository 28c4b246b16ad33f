from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import (
    assert_same_on_cores,
    batches,
    check,
    finish,
    linear,
    squared_error,
    tf1,
    trains_on_cores,
    variable,
)
from tpugraph.analysis.step import Partitioned
from tpugraph.passes.partition import Partition

TWO = Partition(num_replicas=2)
SGD = tf1.train.GradientDescentOptimizer


def test_golden() -> None:
    assert check(TWO, "step", num_replicas=2).result(Partitioned).rows == 2
    check(TWO, "clip", num_replicas=2)


@pytest.mark.parametrize("kind", [tf.reduce_max, tf.reduce_sum])
@trains_on_cores()
def test_scalar_variables_under_norms_of_other_kinds(rows: int, kind: Callable[..., Any]) -> None:
    """The norm is a scalar like the variable, and no gradient of it."""
    features, targets, weights = linear(rows)
    scale = variable("scale", ())
    loss = tf.reduce_mean(squared_error(features * scale, targets, weights))
    optimizer = SGD(0.1)
    pairs = optimizer.compute_gradients(loss)
    norm = tf.add_n([kind(tf.abs(gradient)) for gradient, _ in pairs])
    pairs = [(gradient / (0.5 + norm), v) for gradient, v in pairs]
    optimizer.apply_gradients(pairs, global_step=tf1.train.get_or_create_global_step())


@pytest.mark.parametrize("optimizer", [SGD(0.1), tf1.train.AdagradOptimizer(0.1)], ids=["scatter", "unique"])
@pytest.mark.parametrize("reduce", [tf.reduce_mean, tf.reduce_sum], ids=["mean", "sum"])
def test_rows_that_are_alike_go_to_places_that_differ(reduce: Callable[[Any], Any], optimizer: Any) -> None:
    """The gradient of a sum of embeddings: ones on every core, and each core has places of its own."""
    ids = np.random.default_rng(0).integers(0, 32, (96,)).astype(np.int32)

    def build(rows: int) -> None:
        (places,) = batches((ids,), rows)
        loss = reduce(tf.reduce_sum(tf.gather(variable("table", (32, 3)), places), 1))
        with tf.control_dependencies([loss]):  # no gradient waits for it, so it might read the table after the update
            finish(loss, optimizer)

    assert_same_on_cores(build, relative=1e-5, absolute=1e-6, resource=True)

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
    rows_of,
    squared_error,
    tf1,
    trace,
    trains_on_cores,
    variable,
)
from tpugraph.analysis.step import Partitioned
from tpugraph.compiler import convert
from tpugraph.passes.partition import Partition

TWO = Partition(num_replicas=2)
SGD = tf1.train.GradientDescentOptimizer


def report(build: Callable[[], Any], **options: Any) -> dict[str, Any]:
    return convert(trace(build), num_replicas=2, **options).report


def mean_loss(rows: int) -> Any:
    return tf.reduce_mean(squared_error(*linear(rows)))


def test_golden_step() -> None:
    assert check(TWO, "step", num_replicas=2).result(Partitioned).rows == 2


def test_golden_clip_reads_the_sum() -> None:
    check(TWO, "clip", num_replicas=2)


# ------------------------------------------------------------------ processing


@pytest.mark.parametrize("resource", [False, True])
@trains_on_cores(combined=2)
def test_clip_by_global_norm_sees_the_global_gradient(rows: int, resource: bool) -> None:
    features, targets, weights = linear(rows)
    bias = variable("bias", ())
    loss = tf.reduce_mean(squared_error(features, targets + bias, weights))
    optimizer = tf1.train.AdamOptimizer(0.1)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 0.5)
    step = tf1.train.get_or_create_global_step()
    optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=step)


PROCESSED: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "clipped and decayed": (tf1.train.MomentumOptimizer(0.1, 0.9), lambda g, v: tf.clip_by_norm(g, 0.3) + 0.01 * v),
    "clipped by value": (SGD(0.1), lambda g, v: tf.clip_by_value(g, -0.2, 0.2)),
    "a noise that is one for all cores": (SGD(0.1), lambda g, v: g + tf.random.normal([3, 1], stddev=0.1, seed=11)),
}


@pytest.mark.parametrize("how", PROCESSED)
@trains_on_cores()
def test_the_global_gradient_is_processed(rows: int, how: str) -> None:
    optimizer, process = PROCESSED[how]
    pairs = [(process(g, v), v) for g, v in optimizer.compute_gradients(mean_loss(rows))]
    optimizer.apply_gradients(pairs, global_step=tf1.train.get_or_create_global_step())


@trains_on_cores(resource=True)
def test_a_rate_that_depends_on_the_gradient(rows: int) -> None:
    """Each core alone would take another step length."""
    loss = mean_loss(rows)
    (weights,) = tf1.trainable_variables()
    (gradient,) = tf.gradients(loss, [weights])
    length = 0.1 / (1.0 + tf.norm(gradient))
    train = tf1.assign_sub(weights, length * gradient)
    with tf.control_dependencies([train]):
        tf1.assign_add(tf1.train.get_or_create_global_step(), 1)


@trains_on_cores(combined=1)
def test_a_gradient_shared_by_two_optimizers(rows: int) -> None:
    features, targets, weights = linear(rows)
    shadow = variable("shadow", (3, 1))
    loss = tf.reduce_mean(squared_error(features, targets, weights))
    (gradient,) = tf.gradients(loss, [weights])
    one = SGD(0.1).apply_gradients([(gradient, weights)])
    with tf.control_dependencies([one]):
        two = tf1.train.AdamOptimizer(0.05).apply_gradients([(gradient * 0.5, shadow)])
    with tf.control_dependencies([two]):
        tf1.assign_add(tf1.train.get_or_create_global_step(), 1)


@trains_on_cores(combined=2)
def test_one_variable_with_two_applies(rows: int) -> None:
    features, targets, weights = linear(rows)
    error = squared_error(features, targets, weights)
    first, second = tf.reduce_mean(error), tf.reduce_mean(tf.abs(features @ weights))
    gradients = [tf.gradients(loss, [weights])[0] for loss in (first, second)]
    one = SGD(0.1).apply_gradients([(gradients[0], weights)])
    with tf.control_dependencies([one]):
        two = tf1.train.MomentumOptimizer(0.01, 0.5).apply_gradients([(gradients[1], weights)])
    tf1.summary.scalar("loss", first + second)
    with tf.control_dependencies([two]):
        tf1.assign_add(tf1.train.get_or_create_global_step(), 1)


@trains_on_cores(combined=1)
def test_the_norm_of_each_row_of_a_gradient(rows: int) -> None:
    """A reduction of a gradient that is no backpropagation of a broadcast."""
    features, targets = batches(rows_of(96, 3), rows)
    weights = variable("w", (3, 2))
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(features @ weights, 1) - targets))
    optimizer = SGD(0.1)
    ((gradient, _),) = optimizer.compute_gradients(loss)
    unit = gradient / tf.sqrt(1e-3 + tf.reduce_sum(tf.square(gradient), 1, keepdims=True))
    optimizer.apply_gradients([(unit, weights)], global_step=tf1.train.get_or_create_global_step())


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


# ------------------------------------------------------------------ mean, sum, weights


def with_l2(features: Any, targets: Any, weights: Any) -> Any:
    return tf.reduce_sum(squared_error(features, targets, weights)) + 3.0 * tf.nn.l2_loss(weights)


L2: dict[str, Callable[[Any, Any, Any], Any]] = {
    "of a sum": lambda *model: 0.02 * with_l2(*model),
    # it joins the gradient before TanhGrad; the loss is named behind a scale and an Identity
    "of a function of the variable": lambda x, y, w: tf.identity(0.5 * 0.02 * with_l2(x, y, tf.tanh(w))),
    "of a mean": lambda *model: tf.reduce_mean(squared_error(*model)) + 0.3 * tf.nn.l2_loss(model[2]),
}


@pytest.mark.parametrize("of", L2)
@trains_on_cores()
def test_an_l2_is_counted_once(rows: int, of: str) -> None:
    finish(L2[of](*linear(rows)), SGD(0.1))


@trains_on_cores(rows=2)
def test_weights_with_zeros_average_over_what_counts(rows: int) -> None:
    """Some cores see no example that counts at all."""
    random = np.random.default_rng(5)
    weight = np.where(random.random(96) < 0.75, 0.0, random.random(96) * 2).astype(np.float32)
    features, targets, counts = batches((*rows_of(96, 3), weight), rows)
    error = tf.squeeze(features @ variable("w", (3, 1)), 1)
    finish(tf1.losses.mean_squared_error(targets, error, weights=counts), SGD(0.1))


# ------------------------------------------------------------------ rows of embeddings


IDS = np.random.default_rng(8).integers(0, 9, (96, 3)).astype(np.int32)

OPTIMIZERS = {
    "sgd": lambda: SGD(0.3),
    "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: tf1.train.AdagradOptimizer(0.3),
    "adam": lambda: tf1.train.AdamOptimizer(0.05),
    "ftrl": lambda: tf1.train.FtrlOptimizer(0.3, l1_regularization_strength=0.01),
    "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.05),
}


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_static_rows(name: str, resource: bool) -> None:
    def build(rows: int) -> None:
        ids, targets = batches((IDS, rows_of(96, 1)[1]), rows)
        picked = tf.nn.embedding_lookup(variable("table", (12, 2)), ids)
        finish(tf.reduce_mean(tf.square(tf.reduce_sum(picked, [1, 2]) - targets)), OPTIMIZERS[name]())

    assert_same_on_cores(build, resource=resource)
    found = report(lambda: build(4))["collectives"]
    assert found["sums"] == len(found["combined"])


@pytest.mark.parametrize("name", ["adagrad", "momentum"])
@trains_on_cores()
def test_open_rows(rows: int, name: str) -> None:
    """``embedding_lookup_sparse`` looks up as many rows as there are values, which differs from batch to batch."""
    ids, targets = batches((IDS, rows_of(96, 1)[1]), rows)
    kept = tf1.where(tf.greater(ids, 3))
    sparse = tf.SparseTensor(kept, tf.gather_nd(ids, kept), tf.shape(ids, out_type=tf.int64))
    picked = tf1.nn.safe_embedding_lookup_sparse([variable("table", (12, 2))], sparse, combiner="mean")
    finish(tf.reduce_mean(tf.square(tf.reduce_sum(picked, 1) - targets)), OPTIMIZERS[name]())


@trains_on_cores()
def test_rows_under_a_sum(rows: int) -> None:
    ids, targets = batches((IDS, rows_of(96, 1)[1]), rows)
    picked = tf.nn.embedding_lookup(variable("table", (12, 2)), ids)
    finish(tf.reduce_sum(tf.square(tf.reduce_sum(picked, [1, 2]) - targets)), SGD(0.01))


# ------------------------------------------------------------------ updates of other kinds


@trains_on_cores()
def test_an_update_that_is_no_gradient(rows: int) -> None:
    """The variable is written from what the loss reads, not from a gradient."""
    features, targets, weights = linear(rows)
    row = tf.transpose(features[:1])
    loss = tf.reduce_mean(squared_error(features, targets, weights + row))
    with tf.control_dependencies([loss]):
        train = tf1.assign(weights, row)
    with tf.control_dependencies([train]):
        tf1.assign_add(tf1.train.get_or_create_global_step(), 1)


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

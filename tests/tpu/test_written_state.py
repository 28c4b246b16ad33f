"""Variables that hold no weights - averages, counts, banks: each gets what the whole batch would give it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from closeness import assert_close
from models import assert_same_on_cores, batches, finish, rows_of, squared_error, tf1, trace, trains_on_cores, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.support.errors import UsageError

FEATURES, TARGETS = rows_of(96, 3)


def confusion(features: Any) -> Any:
    places = tf.stack(
        [tf.cast(features[:, i] > 0, tf.int32) * 2 + tf.cast(features[:, 2] > 0, tf.int32) for i in (0, 1)], 1
    )
    return tf.scatter_nd(places, tf.ones_like(places[:, 0]), [4, 4])


STATES: dict[str, tuple[Any, Callable[[Any, Any, Any], Any]]] = {
    "whole count": (0, lambda m, f, t: tf1.assign_add(m, tf.reduce_sum(tf.cast(t > 0, tf.int32)))),
    "long count": (np.int64(0), lambda m, f, t: tf1.assign_add(m, tf.reduce_sum(tf.cast(t > 0, tf.int64)))),
    "count": (0.0, lambda m, f, t: tf1.assign(m, m + tf.reduce_sum(tf.cast(t > 0, tf.float32)))),
    "decayed count": (0.0, lambda m, f, t: tf1.assign_sub(m, 0.1 * (m - tf.reduce_sum(t)))),
    "confusion": (np.zeros((4, 4), np.int32), lambda m, f, t: tf1.assign_add(m, confusion(f))),
    "confusion as floats": (np.zeros((4, 4), np.float32), lambda m, f, t: tf1.assign(m, m + tf.cast(confusion(f), tf.float32))),
    "mean": (0.0, lambda m, f, t: tf1.assign_add(m, tf.reduce_mean(t))),
    "root": (0.0, lambda m, f, t: tf1.assign(m, 0.5 * m + tf.sqrt(tf.reduce_mean(tf.square(t))))),
    "variances": (np.zeros(3, np.float32), lambda m, f, t: tf1.assign(m, 0.9 * m + 0.1 * tf.nn.moments(f, [0])[1])),
    "sum by a literal": (np.zeros(3, np.float32), lambda m, f, t: tf1.assign(m, tf.reduce_sum(f, 0) / float(t.shape[0]))),
    "maximum": (0.0, lambda m, f, t: tf1.assign(m, tf.maximum(m, tf.reduce_max(t)))),
    "bank": (np.zeros((5, 3), np.float32), lambda m, f, t: tf1.assign(m, tf.concat([m[2:], f[:2]], 0))),
    "bank of batches": (np.zeros((32, 3), np.float32), lambda m, f, t: tf1.assign(m, tf.concat([f, m], 0)[:32])),
    "whole maximum": (0, lambda m, f, t: tf1.assign(m, tf.reduce_max(tf.cast(10 * t, tf.int32)))),
    "flag": (False, lambda m, f, t: tf1.assign(m, tf.reduce_mean(t) > 0)),
}  # fmt: skip


def finish_behind(write: Any, features: Any, targets: Any) -> None:
    """A step of a linear model whose loss waits for a write."""
    weights = variable("w", (3, 1))
    with tf.control_dependencies([write]):
        loss = tf.reduce_mean(squared_error(features, targets, weights))
    finish(loss, tf1.train.GradientDescentOptimizer(0.1))


def with_state(rows: int, kind: str) -> None:
    features, targets = batches((FEATURES, TARGETS), rows)
    start, update = STATES[kind]
    state = tf1.get_variable("state", initializer=start, trainable=False)
    finish_behind(update(state, features, targets), features, targets)


@pytest.mark.parametrize("kind", sorted(STATES))
@trains_on_cores(resource=True)
def test_a_variable_is_given_what_the_whole_batch_gives(rows: int, kind: str) -> None:
    with_state(rows, kind)


def counting(rows: int, amount: Callable[[Any], Any], start: Any, *, drop_remainder: bool, add: bool = True) -> None:
    features, targets = batches((FEATURES, TARGETS), rows, drop_remainder=drop_remainder)
    seen = tf1.get_variable("seen", initializer=start, trainable=False)
    more = tf.cast(amount(features), seen.dtype.base_dtype)
    finish_behind(tf1.assign_add(seen, more) if add else tf1.assign(seen, more + seen), features, targets)


AMOUNTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: tf.shape(x)[0],
    "elements": tf.size,
    "thrice the rows": lambda x: 3 * tf.shape(x)[0],
    "columns": lambda x: tf.shape(x)[1],
    "one": lambda x: 1,
}


@pytest.mark.parametrize(
    ("amount", "start", "add", "resource"),
    [("rows", np.int64(5), True, False), ("rows", 0.0, False, True), ("elements", 0, False, False),
     ("thrice the rows", 0, True, True), ("columns", 0, True, True), ("one", 0.0, True, True)],
)  # fmt: skip
def test_the_rows_of_all_cores_are_counted(amount: str, start: Any, add: bool, resource: bool) -> None:
    assert_same_on_cores(
        lambda rows: counting(rows, AMOUNTS[amount], start, drop_remainder=False, add=add), resource=resource
    )


@pytest.mark.parametrize(
    ("scatter", "named"), [(tf1.scatter_nd_sub, 1), (tf1.scatter_nd_add, 2)], ids=["rows", "elements"]
)
@trains_on_cores()
def test_places_that_the_batch_names_are_given_constants(rows: int, scatter: Any, named: int) -> None:
    """One constant for each row."""
    features, targets = batches((FEATURES, TARGETS), rows)
    counts = tf1.get_variable("counts", initializer=np.zeros((2, 3), np.float32), trainable=False)
    places = tf.tile(tf.cast(targets > 0, tf.int32)[:, None], [1, named])
    finish_behind(scatter(counts, places, tf.fill([rows, 3][: 3 - named], 0.5)), features, targets)


def test_what_the_loss_decides_is_decided_by_that_of_the_whole_batch() -> None:
    """A rate that is halved on a plateau, and the best loss so far."""

    def plateau(rows: int) -> None:
        features, targets = batches((FEATURES, TARGETS), rows)
        rate, best = (
            tf1.get_variable(n, initializer=v, trainable=False, use_resource=True)
            for n, v in (("rate", 0.1), ("best", 9.0))
        )
        loss = tf.reduce_mean(squared_error(features, targets, variable("w", (3, 1))))
        better = tf.less(loss, 0.9 * best.read_value())
        with tf.control_dependencies([rate.assign(tf.where(better, rate.read_value(), 0.5 * rate.read_value()))]):
            halved = rate.read_value()
            with tf.control_dependencies([best.assign(tf.minimum(best.read_value(), loss))]):
                finish(loss, tf1.train.GradientDescentOptimizer(halved))

    assert testing.run_plain(trace(lambda: plateau(16)), steps=6).variables["rate"] < 0.1
    assert_same_on_cores(plateau)


def test_an_unknown_choice() -> None:
    testing.assert_raises_block(convert, trace(lambda: with_state(16, "mean")), varying_updates="median", max_length=200,
                                kind=UsageError, words=["'median' is no varying updates", "mean, replica0 or error"])  # fmt: skip


def test_a_codebook_that_the_loss_reads_is_no_trained_variable() -> None:
    """VQ-VAE's: counts and sums of rows, by a product of what the loss is computed from. No gradient, so no share of one."""

    def codebook(rows: int) -> None:
        features, targets = batches((FEATURES, TARGETS), rows)
        code, counts = variable("code", (2, 3), trainable=False), variable("counts", (2,), trainable=False)
        chosen = tf.one_hot(tf.cast(targets > 0, tf.int32), 2)
        held = tf.matmul(chosen, code)
        loss = tf.reduce_mean(tf.square(features @ variable("w", (3, 3)) - tf.stop_gradient(held)))
        added = tf.matmul(chosen, tf.stop_gradient(features), transpose_a=True)
        step = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, tf1.train.get_or_create_global_step())
        with tf.control_dependencies([step]):
            tf.group(
                tf1.assign(counts, 0.9 * counts + 0.1 * tf.reduce_sum(chosen, 0)),
                tf1.assign(code, 0.9 * code + 0.1 * added),
                name="train",
            )
        tf1.summary.scalar("loss", loss)

    program = convert(trace(lambda: codebook(16)), num_replicas=4)
    assert [n for n, v in program.report["variables"].items() if v["trained"]] == ["w"]
    assert program.report["notes"] == []
    plain = testing.run_plain(trace(lambda: codebook(16)), steps=3, train_op="train")
    found = testing.run_on_cores(trace(lambda: codebook(16)), steps=3, num_replicas=4, train_op="train")
    for name in ("counts", "code", "w"):
        assert_close(found.variables[name], plain.variables[name], 1e-5)

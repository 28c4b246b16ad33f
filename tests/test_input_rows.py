"""Where the rows of a batch stand in what the datasets of an input hand over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, finish, passes_before, tf1, trace, variable
from tpugraph import roles, testing
from tpugraph.analysis.input_rows import rows_from_input
from tpugraph.compiler import convert
from tpugraph.passes.placement import Placement
from tpugraph.support.errors import ConversionError

STEPS, WIDTH = 5, 3
RNG = np.random.default_rng(1)
SERIES = RNG.normal(size=(240, STEPS, WIDTH)).astype(np.float32)
TABLE = RNG.normal(size=(STEPS, WIDTH)).astype(np.float32)
TARGETS = RNG.normal(size=240).astype(np.float32)


def steps_first(series: Any, targets: Any) -> tuple[Any, Any]:
    return tf.transpose(series, [1, 0, 2]), targets


def rows_last(series: Any, targets: Any) -> tuple[Any, Any]:
    return tf.transpose(series, [1, 2, 0]), targets


def taken(rows: int, function: Callable[..., Any]) -> Any:
    data = tf.data.Dataset.from_tensor_slices((SERIES, TARGETS)).batch(rows, drop_remainder=True)
    return tf1.data.make_initializable_iterator(data.map(function).repeat().prefetch(1)).get_next()


def train(series: Any, targets: Any, order: list[int]) -> None:
    flat = tf.reshape(tf.transpose(series, order), [-1, STEPS * WIDTH])
    found = tf.nn.relu(flat @ variable("hidden", (STEPS * WIDTH, 4))) @ variable("output", (4, 1))
    finish(tf.reduce_mean(tf.square(found[:, 0] - targets)), tf1.train.GradientDescentOptimizer(0.01))


@pytest.mark.parametrize("rows", [2, STEPS, WIDTH, 8])
@pytest.mark.parametrize(("function", "order"), [(steps_first, [1, 0, 2]), (rows_last, [2, 0, 1])])
def test_cores_train_as_the_whole_batch_where_rows_do_not_come_first(
    function: Callable[..., Any], order: list[int], rows: int
) -> None:
    """Each core takes batches as they come; that of the whole batch is longer along another dimension than the first."""
    assert_cores_are_the_whole_batch(
        lambda b: train(*taken(b, function), order), relative=2e-5, absolute=2e-6, cores=3, rows=rows
    )


def told(build: Callable[[], Any]) -> list[str]:
    """What is told of each tensor that crosses to the device."""
    graph = trace(build)
    testing.run_pass(Placement(), graph, roles=roles.find, after=passes_before(Placement))
    found = rows_from_input(graph)
    return [] if found is None else [f"{found[0]}: {', '.join(map(str, dims))}" for dims in found[1].values()]


def test_a_function_of_the_dataset_says_where_rows_go() -> None:
    assert told(lambda: train(*taken(4, steps_first), [1, 0, 2])) == ["4: 5, b, 3", "4: b"]
    assert told(lambda: train(*taken(WIDTH, rows_last), [2, 0, 1])) == ["3: 5, 3, b", "3: b"]


def test_nothing_is_told_of_a_constant_that_is_as_long_as_the_batch() -> None:
    def build() -> None:
        series, targets, table = taken(STEPS, lambda s, t: (s, t, tf.constant(TABLE)))
        train(series + table, targets, [0, 1, 2])

    assert sorted(told(build)) == ["5: b", "5: b, 5, 3"]


def test_host_ops_are_followed() -> None:
    def build() -> None:
        series, targets = taken(4, lambda s, t: (s, t))
        words = tf.transpose(tf.strings.as_string(series), [2, 0, 1])
        numbers = tf.cast(tf.strings.to_hash_bucket_fast(words, 7), tf.float32)
        train(numbers, targets, [1, 2, 0])

    assert told(build) == ["4: b", "4: 3, b, 5"]


def test_nothing_is_told_where_no_dataset_batches() -> None:
    def build() -> None:
        data = tf.data.Dataset.from_tensors((SERIES[:4], TARGETS[:4])).repeat()
        train(*tf1.data.make_initializable_iterator(data).get_next(), [0, 1, 2])

    assert told(build) == []


def beside(made: Callable[[Any], Any]) -> Callable[..., Any]:
    """A dataset function that adds something to the rows."""
    return lambda series, targets: (series, targets, made(series))


@pytest.mark.parametrize("rows", [2, WIDTH, STEPS])
def test_constants_of_the_input_are_the_same_on_all_cores(rows: int) -> None:
    """Weights of columns, as many as a batch has rows or not, a number, and a one for each row."""

    def build(b: int) -> None:
        series, targets, columns = taken(b, beside(lambda _: tf.constant([0.5, 1.0, 2.0])))
        _, _, number = taken(b, beside(lambda _: tf.constant(0.5)))
        _, _, ones = taken(b, beside(lambda series: tf.ones([tf.shape(series)[0]])))
        train(series * columns * number, targets * ones, [0, 1, 2])

    assert_cores_are_the_whole_batch(build, relative=2e-5, absolute=2e-6, cores=3, rows=rows)


@pytest.mark.parametrize("made", [lambda _: tf.constant([1.0, 2.0]), lambda series: tf.range(float(series.shape[0]))])
def test_rows_that_the_input_makes_of_nothing_are_refused(made: Callable[[Any], Any]) -> None:
    def build() -> None:
        series, targets, weights = taken(2, beside(made))
        train(series, targets * weights, [0, 1, 2])

    testing.assert_raises_block(
        lambda: convert(trace(build), num_replicas=2), max_length=600, kind=ConversionError,
        words=["is the same in each batch of the input and has a row for each of its 2", "one for each example"],
    )  # fmt: skip

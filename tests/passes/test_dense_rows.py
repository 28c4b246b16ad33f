"""The pass dense-rows: gradients of an embedding's rows are summed dense where that is fewer bytes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import assert_same_on_cores, batches, check, finish, tf1, trace, variable
from tpugraph.compiler import convert
from tpugraph.passes.dense_rows import DenseRows
from tpugraph.tpu.program import Program

SGD = tf1.train.GradientDescentOptimizer(0.1)
ADAM = tf1.train.AdamOptimizer(0.05, epsilon=1e-3)
WORDS, WIDTH, ROWS, CORES = 5, 3, 16, 4


def looked_up(rows: int, words: int = WORDS) -> tuple[Any, Any, Any]:
    """The table, the rows that a batch of two words each looks up, and the targets."""
    random = np.random.default_rng(2)
    data = random.integers(0, words, (96, 2)).astype(np.int32), random.normal(size=96).astype(np.float32)
    numbers, targets = batches(data, rows)
    table = variable("table", (words, WIDTH))
    return table, tf.gather(table, tf.reshape(numbers, [-1])), targets


def model(rows: int, optimizer: Any, words: int = WORDS) -> Any:
    _, found, targets = looked_up(rows, words)
    predicted = tf.reduce_sum(tf.reshape(found, [rows, -1]), 1)
    return finish(tf.reduce_mean(tf.square(predicted - targets)), optimizer)


def converted(build: Callable[[], Any], cores: int = CORES) -> Program:
    return convert(trace(build), num_replicas=cores)


def gathers(program: Program) -> bool:
    return bool(program.report["collectives"]["gathered"])


def test_golden_step() -> None:
    graph = check(DenseRows(num_replicas=2), "step", num_replicas=2)
    assert graph["change"].out().shape == (3, 2)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("optimizer", [SGD, ADAM, tf1.train.AdagradOptimizer(0.1)], ids=["sgd", "adam", "adagrad"])
def test_dense_updates_train_as_the_rows_do(optimizer: Any, resource: bool) -> None:
    assert_same_on_cores(lambda rows: model(rows, optimizer), resource=resource)
    program = converted(lambda: model(ROWS, optimizer))
    assert not gathers(program)
    assert program.report["collectives"]["sums"] == 1
    assert program.report["collectives"]["bytes"] == 4 * WORDS * WIDTH


def test_rows_that_are_fewer_bytes_than_the_table_are_gathered() -> None:
    big = 2 * ROWS * (WIDTH + 1) // WIDTH + 1  # one number a row beside the row
    program = converted(lambda: model(ROWS, SGD, words=big))
    assert gathers(program)
    assert not gathers(converted(lambda: model(ROWS, SGD, words=big - 1)))


def test_one_core_keeps_its_rows() -> None:
    program = converted(lambda: model(ROWS, SGD), cores=1)
    assert "ResourceScatterSub" in {node.op for node in program.graph_def.node}


@pytest.mark.parametrize("optimizer", [tf1.train.MomentumOptimizer(0.1, 0.9), tf1.train.FtrlOptimizer(0.1)])
def test_a_step_that_moves_rows_of_zeros_keeps_to_its_rows(optimizer: Any) -> None:
    assert gathers(converted(lambda: model(ROWS, optimizer)))
    assert_same_on_cores(lambda rows: model(rows, optimizer))


def by_hand(rows: int, change: Callable[[Any, Any, Any], Any]) -> None:
    """Sums of the rows of each number, and a change made of them."""
    table, found, targets = looked_up(rows)
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(tf.reshape(found, [rows, -1]), 1) - targets))
    (gradient,) = tf.gradients(loss, table)
    numbers, places = tf.unique(gradient.indices)
    total = tf.math.unsorted_segment_sum(gradient.values, places, tf.shape(numbers)[0])
    update = tf1.scatter_sub(table, numbers, change(total, table, numbers))
    with tf.control_dependencies([update]):
        tf1.assign_add(tf1.train.get_or_create_global_step(), 1, name="train")
    tf1.summary.scalar("loss", loss)


BY_HAND = {
    "scaled": (lambda total, table, numbers: 0.1 * total, True),
    "squared": (lambda total, table, numbers: 0.1 * total * total, True),
    "decayed": (lambda total, table, numbers: 0.1 * total + 0.1 * tf.gather(table, numbers), False),
    "moved": (lambda total, table, numbers: 0.1 * total + 0.01, False),
    "divided": (lambda total, table, numbers: total / tf.sqrt(tf.square(total) + 1.0), False),
    "counted": (lambda total, table, numbers: total / tf.cast(tf.shape(numbers)[0], tf.float32), False),
}


@pytest.mark.parametrize(("change", "dense"), BY_HAND.values(), ids=BY_HAND)
def test_a_row_that_is_not_looked_up_keeps_its_value(change: Any, dense: bool) -> None:
    assert_same_on_cores(lambda rows: by_hand(rows, change), resource=True)
    assert gathers(converted(lambda: by_hand(ROWS, change))) is not dense

"""The pass infeed."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models import (
    assert_cores_are_the_whole_batch,
    batches,
    check,
    finish,
    rows_of,
    squared_error,
    tf1,
    trace,
    variable,
)
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.passes.infeed import Infeed
from tpugraph.support.errors import ConversionError

SGD = tf1.train.GradientDescentOptimizer


def test_golden_step() -> None:
    graph = check(Infeed(num_replicas=2), "step", num_replicas=2)
    first, second = graph.of_type("InfeedEnqueueTuple")
    assert [n.attr("device_ordinal") for n in (first, second)] == [0, 1]
    assert graph["batch"] in graph["batch/core_1"].controls  # core 1's batch is the one after core 0's


def test_golden_one_core() -> None:
    graph = check(Infeed(num_replicas=1), "one_core", num_replicas=1)
    assert len(graph.of_type("InfeedEnqueueTuple")) == 1


def test_cores_take_batches_in_their_order() -> None:
    """The loss of a step is a mean of batches weighted by row: only the right order gives the plain losses."""
    numbers = np.arange(1, 97, dtype=np.float32)

    def build(rows: int) -> None:
        value = batches((numbers,), rows)[0]
        loss = tf.reduce_mean(value * variable("w", ()))
        finish(loss, SGD(1e-4))

    # Resource variables: with a ref variable the plain graph may read it after the update, as no gradient needs this loss.
    assert_cores_are_the_whole_batch(build, relative=1e-6, absolute=1e-7, cores=3, rows=2, steps=8, resource=True)


def test_open_rows_are_padded_and_come_back_with_their_number() -> None:
    """What a string lookup finds has another number of rows in each batch."""
    ids = np.random.default_rng(1).integers(0, 6, (96, 3)).astype(np.int64)

    def build(rows: int) -> None:
        number, targets = batches((ids, rows_of(96, 1)[1]), rows)
        text = tf.strings.as_string(number)
        kept = tf1.where(tf.not_equal(text, "3"))
        buckets = tf.strings.to_hash_bucket_fast(tf.gather_nd(text, kept), 8)
        picked = tf.cast(buckets, tf.float32) * variable("scale", ())
        summed = tf1.unsorted_segment_sum(picked, kept[:, 0], rows)
        finish(tf.reduce_mean(tf.square(summed - targets)), SGD(1e-3))

    program = convert(trace(lambda: build(4)), num_replicas=2)
    graph = graphdef.from_graph_def(program.graph_def)
    (dequeue,) = graph.of_type("InfeedDequeueTuple")
    assert all(None not in shape for shape in dequeue.attr("shapes"))
    assert graph.of_type("XlaSetDynamicDimensionSize")
    assert_cores_are_the_whole_batch(build, relative=2e-5, absolute=2e-6)


def test_what_does_not_depend_on_the_batch_is_made_once() -> None:
    def build() -> None:
        features, targets = batches(rows_of(96, 3), 4)
        table = tf1.strings.to_hash_bucket_fast(tf.constant(["a", "b", "c"]), 5)  # uniform, but on the host
        bias = tf.cast(table, tf.float32)
        finish(tf.reduce_mean(squared_error(features + bias, targets, variable("w", (3, 1)))), SGD(0.1))

    graph = graphdef.from_graph_def(convert(trace(build), num_replicas=4).graph_def)
    assert len(graph.of_type("StringToHashBucketFast")) == 1
    assert len(graph.of_type("IteratorGetNext")) == 4


def test_a_random_number_of_the_host_is_drawn_for_each_core() -> None:
    def build() -> None:
        features, targets = batches(rows_of(96, 3), 4)
        word = tf.strings.as_string(tf.random.uniform([4], seed=4))
        noise = tf.cast(tf.strings.to_hash_bucket_fast(word, 3), tf.float32)
        finish(tf.reduce_mean(squared_error(features, targets + noise, variable("w", (3, 1)))), SGD(0.01))

    graph = graphdef.from_graph_def(convert(trace(build), num_replicas=4).graph_def)
    assert len(graph.of_type("RandomUniform")) == 4


def test_a_step_without_input() -> None:
    graph = testing.parse('x = Const() {dtype: float32, value: float32[]1.0, _tpu_replicate: "cluster"} : float32[]')
    testing.assert_raises_block(
        testing.run_pass, Infeed(), graph, words=["infeed", "reads nothing from the host", "--train_op"], max_length=300,
        kind=ConversionError,
    )  # fmt: skip

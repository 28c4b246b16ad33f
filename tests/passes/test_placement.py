from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from models import (
    assert_same_on_cores,
    batches,
    check,
    finish,
    linear,
    passes_before,
    rows_of,
    squared_error,
    tf1,
    trace,
    variable,
)
from tpugraph import roles, testing
from tpugraph.analysis import in_cluster
from tpugraph.analysis.step import Cut
from tpugraph.compiler import convert
from tpugraph.ir import Graph
from tpugraph.passes.placement import Placement
from tpugraph.support.errors import ConversionError, ShapeError

SGD = tf1.train.GradientDescentOptimizer


def place(build: Callable[[], Any]) -> Graph:
    graph = trace(build)
    graph.roles = roles.find(graph)
    testing.run_pass(Placement(), graph, after=passes_before(Placement))
    return graph


def test_golden_step() -> None:
    graph = check(Placement(), "step")
    assert graph.result(Cut).tensors == {"batch": 48, "batch:1": 16}


def images(rows: int) -> None:
    """Bytes that are cast and scaled, class numbers that become one-hot rows."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, (96, 6)).astype(np.uint8)
    classes = random.integers(0, 3, 96).astype(np.int32)
    image, label = batches((pixels, classes), rows)
    scaled = tf.cast(image, tf.float32) / 255.0 - 0.5
    logits = scaled @ variable("w", (6, 3))
    truth = tf.one_hot(label, 3, on_value=0.9, off_value=0.05)
    finish(tf.reduce_mean(-tf.reduce_sum(truth * tf.nn.log_softmax(logits), 1)), SGD(0.5))


def test_an_image_crosses_as_bytes_and_a_class_as_a_number() -> None:
    cut = place(lambda: images(4)).result(Cut)
    assert sorted(cut.tensors.values()) == [4 * 4, 4 * 6]
    assert cut.bytes() == 40
    assert cut.naive_bytes == 40
    assert_same_on_cores(images, relative=1e-5, absolute=1e-6)


def test_a_wide_feature_that_is_summed_first_crosses_as_its_sum() -> None:
    def build() -> None:
        wide, _ = batches(rows_of(96, 100), 4)
        narrow = tf.reduce_sum(wide, 1, keepdims=True)
        finish(tf.reduce_mean(tf.square(narrow @ variable("w", (1, 1)) - 1.0)), SGD(0.1))

    cut = place(build).result(Cut)
    assert (cut.bytes(), cut.naive_bytes) == (16, 1600)


def test_strings_and_doubles_stay_on_the_host() -> None:
    def build() -> None:
        text, label = batches((np.asarray(["1.5", "2.5"] * 48), rows_of(96, 1)[1]), 4)
        number = tf.strings.to_number(text)
        finish(tf.reduce_mean(tf.square(number * variable("w", ()) - label)), SGD(0.1))

    cut = place(build).result(Cut)
    assert (cut.bytes(), cut.naive_bytes) == (32, None)

    def build() -> None:
        data, _ = batches((np.ones((8, 3)), np.ones(8)), 4)
        finish(tf.reduce_mean(tf.square(tf.cast(data, tf.float32) @ variable("w", (3, 1)) - 1.0)), SGD(0.1))

    assert place(build).result(Cut).bytes() == 48


def test_float64_on_the_device_is_refused() -> None:
    def build() -> None:
        data, _ = batches((np.ones((8, 3)), np.ones(8)), 4)
        weights = tf1.get_variable("w", initializer=np.ones((3, 1)))
        finish(tf.reduce_mean(tf.square(data @ weights - 2.0)), SGD(0.1))

    testing.assert_raises_block(place, build, max_length=400, kind=ShapeError,
                                words=["placement", "float64", "an infeed takes no float64", "cast it to"])  # fmt: skip


def test_a_print_keeps_the_step_and_prints_behind_it() -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        with tf1.name_scope("shown"):
            error = squared_error(features, targets, weights)
            error = tf1.Print(error, [tf.reduce_mean(error)], "error", first_n=1)
        finish(tf.reduce_mean(error), SGD(0.1))

    graph = place(lambda: build(4))
    (shown,) = graph.of_type("Print")
    assert not in_cluster(shown)
    assert not shown.uses()
    assert_same_on_cores(build, relative=1e-5, absolute=1e-6)


def test_a_summary_of_an_input_that_does_not_cross_is_dropped_and_listed() -> None:
    def build() -> None:
        features, targets, weights = linear(4)
        words = tf.strings.as_string(targets)
        tf1.summary.text("words", words)
        tf1.summary.histogram("weights", weights)
        finish(tf.reduce_mean(squared_error(features, targets, weights)), SGD(0.1))
        tf1.summary.merge_all()

    graph = place(build)
    reasons = graph.result(Cut).dropped
    assert "weights" not in str(reasons)
    for name in reasons:
        assert name not in graph
    assert graph.roles.summaries


def test_a_host_op_in_the_middle_of_the_step() -> None:
    def build() -> None:
        features, targets, weights = linear(4)
        number = tf.strings.to_number(tf.strings.as_string(tf.squeeze(features @ weights, 1)))
        finish(tf.reduce_mean(tf.square(number - targets) + squared_error(features, targets, weights)), SGD(0.1))

    testing.assert_raises_block(convert, trace(build), max_length=500, kind=ConversionError,
                                words=["runs on a host only", "middle of the step", "StringToNumber", "input pipeline"])  # fmt: skip


def test_a_control_dependency_on_the_input_delays_the_enqueue() -> None:
    def build() -> None:
        features, targets, weights = linear(4)
        read = tf1.assert_less(targets, 1000.0)
        with tf.control_dependencies([read]):
            loss = tf.reduce_mean(squared_error(features, targets, weights))
        finish(loss, SGD(0.1))

    graph = place(build)
    assert not any(in_cluster(node) and not in_cluster(c) for node in graph for c in node.controls)


def test_a_random_op_needed_on_both_sides_is_not_doubled() -> None:
    def build() -> None:
        features, targets, weights = linear(4)
        noise = tf.random.uniform([4], seed=1)
        label = tf.strings.to_hash_bucket_fast(tf.strings.as_string(noise), 2)
        error = squared_error(features, targets, weights) * noise
        finish(tf.reduce_mean(error * tf.cast(label, tf.float32)), SGD(0.1))

    testing.assert_raises_block(
        place, build, kind=ConversionError,
        words=["a stateful op is needed on the host and on the device", "RandomUniform", "split it in two"],
    )  # fmt: skip


def _sharing(rows: int) -> None:
    """A constant is a first value and part of the step."""
    features, targets, weights = linear(rows)
    shared = tf.constant(np.linspace(0.1, 0.4, features.shape[1], dtype=np.float32)[:, None], name="shared")
    error = squared_error(features, targets, weights + tf1.get_variable("again", initializer=shared) * shared)
    finish(tf.reduce_mean(error), SGD(0.1))


def test_what_gives_first_values_does_not_wait_for_the_loop() -> None:
    graph = place(lambda: _sharing(4))
    starts = [graph[v.initializer] for v in graph.roles.variables.values() if v.initializer is not None]
    assert not any(in_cluster(node) for node in graph.ancestors(starts))
    assert in_cluster(graph["shared"])
    assert graph["again/Assign"].inputs[1].node.origin == "shared"
    assert_same_on_cores(_sharing, relative=1e-5, absolute=1e-6)

"""The pass outfeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from closeness import assert_close
from models import batches, check, finish, rows_of, squared_error, tf1, trace, variable
from tpugraph import testing
from tpugraph.analysis import in_cluster
from tpugraph.analysis.step import Outfed
from tpugraph.compiler import convert
from tpugraph.passes.outfeed import Outfeed
from tpugraph.runtime.session import TPUSession

CORES, ROWS = 4, 4
FEATURES, TARGETS = rows_of(96, 3)
SGD = tf1.train.GradientDescentOptimizer


def summaries(build: Callable[[], Any], **options: Any) -> dict[str, Any]:
    """The values that the summaries of the first step hold."""
    program = convert(trace(build), num_replicas=CORES, **options)
    seen: list[bytes] = []
    with TPUSession(program) as session:
        session.initialize()
        session.train(1, on_summary=lambda step, summary: seen.append(summary))
    found = tf1.Summary.FromString(seen[0])
    return {v.tag: v.simple_value if v.WhichOneof("value") == "simple_value" else v.histo for v in found.value}


def test_golden_step() -> None:
    graph = check(Outfeed(num_replicas=2), "step", num_replicas=2)
    (enqueue,) = graph.of_type("OutfeedEnqueueTuple")
    assert graph["train"] in enqueue.controls
    assert not any(in_cluster(t.node) for n in graph if not in_cluster(n) for t in n.inputs)
    assert graph.result(Outfed).tensors == {"loss/share": "the loss of the global batch"}


def test_summaries_see_what_the_plain_graph_would_see() -> None:
    def build() -> None:
        features, targets = batches((FEATURES, TARGETS), ROWS)
        weights = variable("w", (3, 1))
        error = squared_error(features, targets, weights)
        tf1.summary.histogram("errors", error)
        tf1.summary.scalar("first_weight", weights[0, 0])
        tf1.summary.scalar("mean_target", tf.reduce_mean(targets))
        finish(tf.reduce_mean(error), SGD(0.1))
        tf1.summary.merge_all()

    seen = summaries(build)
    weights = 0.5 * np.cos(1.7 * np.arange(1, 4) + 1)
    errors = (FEATURES[: CORES * ROWS] @ weights - TARGETS[: CORES * ROWS]) ** 2
    np.testing.assert_allclose(seen["loss"], errors.mean(), rtol=1e-5)
    np.testing.assert_allclose(seen["mean_target"], TARGETS[: CORES * ROWS].mean(), rtol=1e-5)
    assert seen["errors"].num == CORES * ROWS
    assert_close(seen["errors"].sum, errors.sum(), 1e-5)
    assert np.isfinite(seen["first_weight"])


def test_a_summary_of_a_sum_over_the_batch_is_its_sum() -> None:
    def build() -> None:
        features, targets = batches((FEATURES, TARGETS), ROWS)
        weights = variable("w", (3, 1))
        tf1.summary.scalar("summed", tf.reduce_sum(targets) + 2.0 * weights[0, 0])
        finish(tf.reduce_mean(squared_error(features, targets, weights)), SGD(0.0))
        tf1.summary.merge_all()

    expected = TARGETS[: CORES * ROWS].sum() + np.cos(1.7 + 1)
    assert_close(summaries(build)["summed"], expected, 1e-5)


def test_metrics_count_every_core() -> None:
    def build() -> None:
        features, targets = batches((FEATURES, TARGETS), ROWS)
        error = squared_error(features, targets, variable("w", (3, 1)))
        _, update = tf1.metrics.mean(error, name="metric_a")
        _, share = tf1.metrics.accuracy(targets > 0, tf.reduce_sum(features, 1) > 0, name="metric_b")
        tf1.summary.scalar("average", update)
        tf1.summary.scalar("share", share)
        finish(tf.reduce_mean(error), SGD(0.1))
        tf1.summary.merge_all()

    seen = summaries(build)
    rows = slice(0, CORES * ROWS)
    np.testing.assert_allclose(seen["average"], seen["loss"], rtol=1e-5)
    expected = ((TARGETS[rows] > 0) == (FEATURES[rows].sum(1) > 0)).mean()
    assert_close(seen["share"], expected, 1e-6)


def test_the_loss_of_each_step_is_that_of_the_global_batch() -> None:
    def build(rows: int) -> None:
        features, targets = batches((FEATURES, TARGETS), rows)
        finish(tf.reduce_mean(squared_error(features, targets, variable("w", (3, 1)))), SGD(0.1))

    plain = testing.run_plain(trace(lambda: build(ROWS * CORES)), steps=5)
    found = testing.run_on_cores(trace(lambda: build(ROWS)), steps=5, num_replicas=CORES, iterations_per_loop=2)
    np.testing.assert_allclose(found.losses, plain.losses, rtol=1e-5)


def test_updates_must_be_uniform_first() -> None:
    graph = testing.parse("x = Test()")
    testing.assert_raises_block(testing.run_pass, Outfeed(), graph, words=["no node is placed"], max_length=200)

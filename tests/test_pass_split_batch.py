"""The pass split-batch (batch_mode=global): the traced batch is split over the cores, training is the plain graph's at that batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from models import CORPUS, Model, corpus, family, passes_before
from models import check as check_golden
from tpugraph import roles, testing
from tpugraph.compiler import convert
from tpugraph.ir import Edits
from tpugraph.ir.session_config import guarded
from tpugraph.passes.split_batch import SplitBatch
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import ShapeError


def test_golden_step() -> None:
    graph = check_golden(SplitBatch(num_replicas=2, batch_mode="global"), "step", num_replicas=2, batch_mode="global")
    assert graph["shape"].attr("value").tolist() == [2, 3]
    assert graph["batch_size"].attr("value") == 4  # the loss is that of the whole batch


def test_without_the_flag_nothing_changes() -> None:
    step = SplitBatch(num_replicas=2)
    graph = corpus("iris_dnn").graph()
    assert testing.run_pass(step, graph, roles=roles.find, after=passes_before(SplitBatch, num_replicas=2)) == Edits(
        0, 0, 0
    )


def check(model: Model, cores: int, *, variables: bool = True) -> None:
    expected = model.losses("plain")
    program = convert(model.graph(), num_replicas=cores, iterations_per_loop=7, batch_mode="global")
    with TPUSession(program) as session:
        session.restore(model.checkpoint)
        losses = session.train(len(expected))
        np.testing.assert_allclose(losses, expected, rtol=1e-3, atol=1e-5)
        final = model.recorded("plain").variables if variables else {}
        for name, value in session.values().items() if variables else ():
            np.testing.assert_allclose(value, final[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["iris_dnn", "clip_adam", "lstm_dynamic", "while_cond", "ref_variables"])
def test_eight_cores_share_the_traced_batch(name: str) -> None:
    check(corpus(name), 8)


def test_the_cnn_shares_the_traced_batch(in_corpus: Path) -> None:
    check(corpus("mnist_cnn_no_dropout"), 8, variables=False)  # TensorFlow's own replay departs in the variables


@pytest.mark.parametrize(
    "name",
    [
        "sum_loss",
        "unrolled_lstm",
        "keras_small",
        "ema",
        "two_optimizers",
        "sparse_ftrl",
        "weighted_some_zero",
        "accumulate_or_noise",
        "contrib_layers",
        "dynamic_while",
        "strings_tables",
        "keras_lstm_v2",
    ],
)
def test_two_cores_share_a_batch_of_four(name: str) -> None:
    check(family(name), 2)


def test_a_batch_that_does_not_divide_names_the_nearest_sizes() -> None:
    with pytest.raises(ShapeError, match="a batch of 32 rows cannot be split over 5 cores") as caught:
        convert(CORPUS / "iris_dnn" / "model.pb", num_replicas=5, batch_mode="global")
    assert "batch 30 or 35 rows" in str(caught.value)


def traced(folder: Path, loss_of: Callable[[tf.Tensor], tf.Tensor], losses: list[float] | None = None) -> Path:
    """A regression on batches of 8 rows; ``losses`` is given what its first 6 steps give."""
    with tf.Graph().as_default() as graph:
        rows = np.arange(64, dtype="float32").reshape(16, 4) / 64
        data = tf.compat.v1.data.make_initializable_iterator(
            tf.data.Dataset.from_tensor_slices(rows).repeat().batch(8, True)
        )
        x = data.get_next()
        w = tf.compat.v1.get_variable("w", initializer=np.ones((4, 1), "float32"), use_resource=True)
        loss = loss_of(tf.square(x @ w - 1.0))
        step = tf.compat.v1.train.get_or_create_global_step()
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        tf.compat.v1.summary.scalar("loss", loss)
        if losses is not None:
            with tf.compat.v1.Session(config=guarded()) as session:
                session.run([tf.compat.v1.global_variables_initializer(), data.initializer])
                losses += [session.run([loss, train])[0] for _ in range(6)]
    path = folder / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def test_an_uncertain_constant_is_named(tmp_path: Path) -> None:
    """As many places as the batch has rows, which hold a number of the whole batch: nothing says whether they are rows."""
    path = traced(tmp_path, lambda error: tf.reduce_mean(error) + tf.reduce_sum(tf.fill([8], tf.reduce_max(error))))
    with pytest.raises(ShapeError, match="cannot be split with certainty") as caught:
        convert(path, num_replicas=2, batch_mode="global")
    assert caught.value.node is not None
    assert "Fill/dims (Const)" in caught.value.node
    assert "--batch_mode=per_replica" in str(caught.value)


def test_padded_lists_are_split_by_rows() -> None:
    model = corpus("dnn_classifier")
    found = testing.run_on_cores(
        model.graph(), steps=6, num_replicas=8, batch_mode="global", checkpoint=model.checkpoint
    )
    np.testing.assert_allclose(found.losses, model.losses("plain")[:6], rtol=1e-4)


@pytest.mark.parametrize("divide", [False, True])
def test_a_number_that_equals_the_batch_keeps_its_meaning(divide: bool, tmp_path: Path) -> None:
    """A loss divided by the literal batch size, forward and backward, is a sum of the cores' parts."""
    expected: list[float] = []
    path = traced(tmp_path, lambda e: tf.reduce_sum(e) / 8.0 if divide else tf.reduce_mean(e), expected)
    program = convert(path, num_replicas=4, iterations_per_loop=3, batch_mode="global")
    assert program.report["reduction"]["kind"] == ("sum" if divide else "mean")
    with TPUSession(program) as session:
        np.testing.assert_allclose(session.train(6), expected, rtol=1e-5)

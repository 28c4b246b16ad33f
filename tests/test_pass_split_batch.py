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
from tpugraph.analysis import shapes
from tpugraph.compiler import convert
from tpugraph.ir import Edits, Graph
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


# --------------------------------------------------------------------------- graphs by hand

DEVICE = '_tpu_replicate: "cluster"} @/device:TPU_REPLICATED_CORE:0'
GLOBAL = SplitBatch(num_replicas=4, batch_mode="global")


def step(text: str, *, rows: str = "8", more: str = "8") -> Graph:
    """A step that reads a batch of ``rows`` examples and their labels, of which there are ``more``."""
    return testing.parse(f"""
    x = Placeholder() {{dtype: float32, shape: [{rows},3]}} : float32[{rows},3]
    labels = Placeholder() {{dtype: int32, shape: [{more}]}} : int32[{more}]
    seen = Cast(labels) {{SrcT: int32, DstT: float32, {DEVICE} : float32[{more}]
    y = Neg(x) {{T: float32, {DEVICE} : float32[{rows},3]
    {text}
    """)


def test_what_crosses_to_the_device_is_cut_into_a_piece_for_each_core() -> None:
    graph = step("host = Neg(x) {T: float32} : float32[8,3]")
    testing.run_pass(GLOBAL, graph)
    assert {node.name: node.out(3).shape for node in graph.of_type("Split")} == {
        "x/split": (2, 3),
        "labels/split": (2,),
    }
    assert graph["y"].inputs[0] == graph["x/split"].out()
    assert graph["y"].out().shape == (2, 3)
    assert graph["host"].inputs[0] == graph["x"].out()  # the host reads the whole batch


RESHAPE = """shape = Const() {{dtype: int32, value: int32[{count}]{value}, {device} : int32[{count}]
    flat = Reshape(y, shape) {{T: float32, Tshape: int32, {device}"""


def reshaped(value: str) -> Graph:
    graph = step(RESHAPE.format(count=value.count(",") + 1, value=value, device=DEVICE).replace("{{", "{"))
    shapes.infer(graph)
    return graph


@pytest.mark.parametrize(
    ("value", "expected", "shape"),
    [
        ("[8, 3]", [2, 3], (2, 3)),
        ("[-1, 3]", [-1, 3], (2, 3)),
        ("[24]", [6], (6,)),
        ("[2, 4, 3]", [2, 1, 3], (2, 1, 3)),
    ],
)
def test_the_shape_of_a_reshape_follows_the_batch(value: str, expected: list[int], shape: tuple[int, ...]) -> None:
    graph = reshaped(value)
    testing.run_pass(GLOBAL, graph)
    assert graph["shape"].attr("value").tolist() == expected
    assert graph["flat"].out().shape == shape


def test_a_shape_that_no_share_of_the_batch_can_have_is_refused() -> None:
    testing.assert_raises_block(
        testing.run_pass, GLOBAL, reshaped("[4, 6]"), kind=ShapeError, max_length=800,
        words=["the batch cannot be split with certainty", "flat (Reshape)", "--batch_mode=per_replica"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "more", "words"),
    [
        (
            "6",
            "6",
            ["a batch of 6 rows cannot be split over 4 cores", "batch 4 or 8 rows", "--num_replicas to divide 6"],
        ),
        ("3", "3", ["a batch of 3 rows cannot be split over 4 cores", "batch 4 rows"]),
        (
            "8",
            "2",
            ["the batch cannot be split with certainty", "'labels' crosses to the device without a batch dimension"],
        ),
        ("8", "?", ["the batch cannot be split with certainty", "--batch_mode=per_replica, which changes no constant"]),
    ],
)
def test_a_batch_that_cannot_be_split_is_refused(rows: str, more: str, words: list[str]) -> None:
    testing.assert_raises_block(
        testing.run_pass, GLOBAL, step("", rows=rows, more=more), kind=ShapeError, max_length=400, words=words
    )


def test_one_core_takes_the_whole_batch() -> None:
    assert str(testing.run_pass(SplitBatch(num_replicas=1, batch_mode="global"), step(""))) == "+0 -0 ~0"

"""Graphs that cannot be converted: fed placeholders, Python functions, a gradient that is None."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.support.errors import ConversionError

tf1 = tf.compat.v1


def write(graph: tf.Graph, folder: Path) -> Path:
    with graph.as_default():
        tf1.train.export_meta_graph(str(folder / "model.meta"))
    return folder / "model.meta"


def dataset() -> tf.Tensor:
    rows = np.arange(32, dtype="float32").reshape(8, 4)
    return tf1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(rows).repeat().batch(4, True)).get_next()


def train(x: tf.Tensor, *, blocked: bool = False) -> None:
    w = tf1.get_variable("w", shape=[4, 1])
    hidden = x @ w
    if blocked:
        gate = tf1.get_variable("gate", shape=[1])
        hidden = hidden * tf.cast(tf.greater(gate, 0.0), tf.float32)
    loss = tf.reduce_mean(tf.square(hidden))
    tf1.summary.scalar("loss", loss)
    tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf1.train.get_or_create_global_step())


def of_python() -> tf.Tensor:
    return tf.ensure_shape(tf1.py_func(lambda v: v * 2, [dataset()], tf.float32), [4, 4])


def of_python_in_the_dataset() -> tf.Tensor:
    data = tf.data.Dataset.range(8).map(lambda v: tf1.py_func(lambda i: np.full(4, i, "float32"), [v], tf.float32))
    data = data.map(lambda v: tf.ensure_shape(v, [4])).repeat().batch(4, True)
    return tf1.data.make_initializable_iterator(data).get_next()


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (lambda: tf1.placeholder(tf.float32, [4, 4], name="features"), "fed from outside through 'features'"),
        (of_python, "calls a Python function"),
        (of_python_in_the_dataset, "in the dataset function"),
    ],
)
def test_what_a_file_does_not_hold_is_named(tmp_path: Path, features: Callable[[], tf.Tensor], words: str) -> None:
    with tf.Graph().as_default() as graph:
        train(features())
    testing.assert_raises_block(convert, write(graph, tmp_path), words=[words], max_length=900, kind=ConversionError)


def test_a_variable_without_a_gradient_is_left_alone_with_a_note(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        train(dataset(), blocked=True)
    program = convert(write(graph, tmp_path), num_replicas=2)
    note = "not trained, as in TensorFlow: 'gate', which the loss reads through 'Greater', an op without a gradient"
    assert program.report["notes"] == [note]


@pytest.mark.parametrize("moved", [False, True])
def test_a_network_of_targets_is_one_line_unless_it_is_moved(tmp_path: Path, *, moved: bool) -> None:
    """A frozen teacher; with ``moved`` the key network of momentum contrast, which the step writes itself."""
    with tf.Graph().as_default() as graph:
        own, targets = (
            [tf1.get_variable(f"{name}/{part}", shape=[4, 4]) for part in "ab"] for name in ("own", "target")
        )
        x = dataset()
        loss = tf.reduce_mean(tf.square(x @ own[0] @ own[1] - tf.stop_gradient(x @ targets[0] @ targets[1])))
        tf1.summary.scalar("loss", loss)
        trained = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([trained]):
            pairs = zip(targets, own, strict=True) if moved else []
            tf.group(trained, *[tf1.assign(target, 0.9 * target + 0.1 * o) for target, o in pairs], name="train")
    program = convert(write(graph, tmp_path), num_replicas=2)
    note = "not trained, as in TensorFlow: 'target/a' and 1 more, which the loss reads through 'StopGradient'"
    assert [text.startswith(note) for text in program.report["notes"]] == [True] * (not moved)


def test_a_bare_graph_does_not_say_what_was_to_be_trained(tmp_path: Path) -> None:
    """Without the collection it may have been made with trainable=False: a note, and no refusal."""
    with tf.Graph().as_default() as graph:
        train(dataset(), blocked=True)
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    program = convert(path, num_replicas=2)
    assert program.report["trained"] == ["w"]
    note = "not trained, as in TensorFlow: 'gate', which the loss reads through 'Greater', an op without a gradient"
    assert note in program.report["notes"]
    assert f"note        {note}" in program.summary()


def test_a_frozen_variable_is_no_fault(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        w, frozen = tf1.get_variable("w", shape=[4, 1]), tf1.get_variable("frozen", shape=[1])
        loss = tf.reduce_mean(tf.square(dataset() @ w + frozen))
        tf1.summary.scalar("loss", loss)
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        optimizer.minimize(loss, global_step=tf1.train.get_or_create_global_step(), var_list=[w])
    program = convert(write(graph, tmp_path), num_replicas=2)
    assert program.report["trained"] == ["w"]
    assert program.report["notes"] == []

"""How losses combine over cores: each kind against the plain graph on the whole batch (relative tolerance 1e-4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpugraph.compiler import convert
from tpugraph.errors import ConversionError, RolesError
from tpugraph.runtime.session import TPUSession

tf1 = tf.compat.v1
CORES, ROWS, STEPS = 4, 8, 5
Loss = Callable[[Any, Any, Any], Any]


def build(loss_of: Loss, rows: int) -> tf.Graph:
    random = np.random.default_rng(5)
    features = random.normal(size=(160, 6)).astype("float32")
    targets = (features @ random.normal(size=(6, 1)) + 0.3).astype("float32")
    tf1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.from_tensor_slices((features, targets)).repeat().batch(rows, True)
        x, y = tf1.data.make_initializable_iterator(data).get_next()
        start = np.cos(np.arange(18)).reshape(6, 3).astype("float32") / 3
        w = tf1.get_variable("w", initializer=start, use_resource=True)
        v = tf1.get_variable("v", initializer=np.ones((3, 1), "float32") / 2, use_resource=True)
        loss = loss_of(tf.tanh(x @ w) @ v, y, w)
        tf1.summary.scalar("loss", loss)
        tf1.train.GradientDescentOptimizer(0.02).minimize(loss, global_step=tf1.train.get_or_create_global_step())
    return graph


def plain(graph: tf.Graph) -> list[float]:
    with graph.as_default(), tf1.Session() as session:
        session.run(
            [tf1.global_variables_initializer(), *(o for o in graph.get_operations() if o.type == "MakeIterator")]
        )
        loss = graph.get_operation_by_name("loss").inputs[1]
        return [float(session.run([loss, "GradientDescent"])[0]) for _ in range(STEPS)]


def convert_loss(loss_of: Loss, folder: Path, **options: Any) -> Any:
    path = folder / "model.pb"
    path.write_bytes(build(loss_of, ROWS).as_graph_def().SerializeToString())
    return convert(path, num_replicas=CORES, iterations_per_loop=3, **options)


def mean(p: Any, y: Any, w: Any) -> Any:
    return tf.reduce_mean(tf.square(p - y))


def halved_mean(p: Any, y: Any, w: Any) -> Any:
    return 0.125 * mean(p, y, w) + mean(p, y, w) / 8.0


def total(p: Any, y: Any, w: Any) -> Any:
    return 0.1 * tf.reduce_sum(tf.square(p - y)) + 0.5 * tf.nn.l2_loss(w)


def divided(p: Any, y: Any, w: Any) -> Any:
    return tf.reduce_sum(tf.square(p - y)) / tf.cast(tf.shape(y)[0], tf.float32) + 0.01 * tf.nn.l2_loss(w)


def masked(p: Any, y: Any, w: Any) -> Any:
    mask = tf.cast(y > 0, tf.float32)
    return tf.reduce_sum(tf.square(p - y) * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)


def masked_and_mean(p: Any, y: Any, w: Any) -> Any:
    mask = tf.cast(y > 0.5, tf.float32)
    second = tf.reduce_sum(tf.abs(p - y) * mask) / (tf.reduce_sum(mask) + 1e-5)
    return masked(p, y, w) + second + mean(p, y, w)


def by_constant_weights(p: Any, y: Any, w: Any) -> Any:
    """As ``sequence_loss`` with weights that are known when the model is traced."""
    weights = tf.constant(np.tile(np.float32([1, 0.5, 0.25]), (y.shape[0], 1)))
    return tf.reduce_sum(tf.reduce_sum(tf.square(p - y) * weights, 0) / tf.reduce_sum(weights, 0))


def by_half_weights(p: Any, y: Any, w: Any) -> Any:
    weights = tf.constant(np.full((y.shape[0], 1), 0.5, "float32"))
    return tf.reduce_sum(tf.square(p - y) * weights) / tf.reduce_sum(weights)


@pytest.mark.parametrize(
    ("loss_of", "kind"),
    [(mean, "mean"), (halved_mean, "mean"), (total, "sum"), (divided, "mean"), (masked, "weighted"),
     (masked_and_mean, "weighted"), (by_constant_weights, "mean"), (by_half_weights, "mean")],
)  # fmt: skip
def test_training_is_that_of_the_whole_batch(loss_of: Loss, kind: str, tmp_path: Path) -> None:
    program = convert_loss(loss_of, tmp_path)
    assert program.report["reduction"]["kind"] == kind
    with TPUSession(program) as session:
        np.testing.assert_allclose(session.train(STEPS), plain(build(loss_of, CORES * ROWS)), rtol=1e-4)


def outer(p: Any, y: Any, w: Any) -> Any:
    error = p - y
    return tf.squeeze(tf.matmul(error, error, transpose_a=True))


def chosen(p: Any, y: Any, w: Any) -> Any:
    return tf.reduce_mean(tf.boolean_mask(tf.square(p - y), tf.squeeze(y, 1) > 0))


def root(p: Any, y: Any, w: Any) -> Any:
    return tf.sqrt(mean(p, y, w))


def mixed(p: Any, y: Any, w: Any) -> Any:
    return mean(p, y, w) + tf.reduce_sum(tf.abs(p - y))


@pytest.mark.parametrize(
    ("loss_of", "words"),
    [
        (outer, "how the rows of the batch combine in the loss cannot be told from"),
        (chosen, "averages over rows that a mask chooses"),
        (root, "how the rows of the batch combine in the loss cannot be told from"),
        (mixed, "the loss adds a mean over the batch and a sum over it"),
    ],
)
def test_what_is_not_certain_is_refused(loss_of: Loss, words: str, tmp_path: Path) -> None:
    with pytest.raises(RolesError, match=words) as caught:
        convert_loss(loss_of, tmp_path)
    assert "--loss_reduction=mean" in str(caught.value)
    assert len(str(caught.value)) < 700


def test_a_sum_that_is_no_sum_op_can_be_named(tmp_path: Path) -> None:
    program = convert_loss(outer, tmp_path, loss_reduction="sum")
    with TPUSession(program) as session:
        np.testing.assert_allclose(session.train(STEPS), plain(build(outer, CORES * ROWS)), rtol=1e-4)


def test_a_divisor_that_depends_on_variables_is_refused(tmp_path: Path) -> None:
    def dice(p: Any, y: Any, w: Any) -> Any:
        q = tf.sigmoid(p)
        return tf.reduce_sum(q * y) / tf.reduce_sum(q)

    with pytest.raises((ConversionError, RolesError), match="depends on variables"):
        convert_loss(dice, tmp_path)


def test_a_literal_that_equals_the_batch_is_noted(tmp_path: Path) -> None:
    program = convert_loss(lambda p, y, w: tf.reduce_sum(tf.square(p - y)) / 8.0, tmp_path)
    assert any("is taken for the size of the batch of 8" in note for note in program.report["notes"])

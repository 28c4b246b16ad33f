"""``tpugraph verify``: it finds no difference where there is none, and finds one where there is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
from models import CORPUS, batches, finish, rows_of, saved, tf1, trace, variable
from tpugraph import cli
from tpugraph.compiler import ConvertOptions
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError
from tpugraph.testing import verification
from tpugraph.testing.plain_run import Values, read_pieces
from tpugraph.testing.verification import Comparison, Verification, relative

IRIS = CORPUS / "iris_dnn"


def check(model: Path, *, steps: int = 3, rebind: dict[str, str] | None = None, **options: Any) -> Verification:
    return verification.verify(str(model), steps, ConvertOptions(**{"num_replicas": 2, **options}), rebind=rebind)


def test_the_same_from_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(IRIS / "model.pb"), f"--checkpoint={IRIS}", "--num-replicas=4", "--steps=3", "--json"]
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["ok"] is True
    assert [c["steps"] for c in result["comparisons"]] == [3, 3]
    assert "3 steps, global batch 32 = 4 cores x 8" in captured.err
    assert "4 cores, 3 steps, with the plain graph: no variable differs by more than" in captured.err
    assert "4 cores, one loop of 3, with the plain graph: no variable differs by more than" in captured.err


def of_data(count: int, batched: Callable[[Any], Any], folder: Path) -> Path:
    """The file of a model that reads so many rows as a dataset batches them."""

    def build() -> None:
        data = batched(tf1.data.Dataset.from_tensor_slices(rows_of(count, 2)))
        features, _ = tf1.data.make_initializable_iterator(data).get_next()
        finish(tf.reduce_mean(tf.square(features @ variable("w", (2, 1)))), tf1.train.GradientDescentOptimizer(0.1))

    return saved(trace(build), folder)


def whole_batches(dataset: Any) -> Any:
    return dataset.batch(4, drop_remainder=True)


def noisy_towers() -> None:
    """Two towers with batch norm and dropout, noise in the input, and a loss over all pairs of the batch."""
    left, _ = batches(rows_of(64, 6), 16)

    def tower(name: str, value: Any) -> Any:
        with tf1.variable_scope(name):
            hidden = tf.nn.relu(value @ variable("kernel", (6, 8)))
            mean, variance = tf.nn.moments(hidden, [0])
            moving = variable("moving_mean", (8,), trainable=False)
            tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, tf1.assign_sub(moving, 0.1 * (moving - mean)))
            hidden = tf.nn.batch_normalization(hidden, mean, variance, None, variable("gamma", (8,)), 1e-3)
            return tf.nn.l2_normalize(tf.nn.dropout(hidden, rate=0.25) @ variable("out", (8, 4)), 1)

    scores = tf.matmul(tower("query", left), tower("item", left + tf1.random_normal(tf.shape(left))), transpose_b=True)
    labels = tf.range(tf.shape(scores)[0])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=4.0 * scores))
    with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        finish(loss, tf1.train.AdamOptimizer(0.01))


def test_what_is_drawn_and_what_the_whole_batch_decides_is_compared_like_anything_else(tmp_path: Path) -> None:
    found = check(saved(trace(noisy_towers), tmp_path), steps=6, num_replicas=8)
    assert found.ok, found.comparisons
    assert len(found.comparisons[0].variables) > 16
    assert not any("rounding" in note for note in found.notes)


def test_both_sides_batch_alike(tmp_path: Path) -> None:
    found = check(CORPUS / "dynamic_batch" / "model.pb", steps=4)
    assert found.ok
    assert any("drops its last partial batch" in note for note in found.notes)
    data = tf1.data.experimental.map_and_batch(lambda rows, targets: (rows * 2.0, targets), 8)
    found = check(of_data(16, lambda dataset: dataset.repeat().apply(data), tmp_path))
    assert found.ok
    assert any("drops its last partial batch" in note for note in found.notes)


def test_a_replica_program_is_refused(tmp_path: Path) -> None:
    def build() -> None:
        features, labels = batches(rows_of(16, 2), 4)
        loss = tf.reduce_mean(tf.square(features @ variable("w", (2, 1)) - tf.reshape(labels, [4, 1])))
        finish(tf.raw_ops.CrossReplicaSum(input=loss, group_assignment=[[0, 1]]), tf1.train.AdamOptimizer(0.01))

    with pytest.raises(RunError, match="a replica program is compared with no plain graph"):
        check(saved(trace(build), tmp_path))


def test_a_difference_that_rounding_makes_is_none_and_is_named() -> None:
    """As many examples of each class: the first gradient of a bias that starts at 0 is 0, but for what sums round."""
    found = check(CORPUS / "linear_classifier" / "model.pb", steps=2, num_replicas=8)
    assert found.comparisons[0].as_dict()["difference"] > found.tolerance
    assert found.ok
    assert any("rounding alone makes as much of" in note and "bias_weights" in note for note in found.notes)


def test_a_difference_is_found_and_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    honest = TPUSession.values

    def wrong(self: TPUSession) -> Values:
        return {name: value * 1.01 if name == "dense/kernel" else value for name, value in honest(self).items()}

    monkeypatch.setattr(TPUSession, "values", wrong)
    asked = ["verify", str(IRIS / "model.pb"), "--num_replicas=2", "--steps=2"]
    assert cli.main(asked) == 1
    text = capsys.readouterr().out
    assert "2 cores, 2 steps, with the plain graph: DIFFERS, 'dense/kernel' by 1.0e-02 in step" in text
    assert text.count("DIFFERS") == 2
    assert cli.main([*asked, "--tolerance=0.1"]) == 0


def test_what_ends_or_compares_nothing_is_no_yes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TPUSession, "train", lambda self, steps: [])
    assert not check(IRIS / "model.pb", steps=2).ok
    with pytest.raises(RunError, match="the data end before the first step"):
        check(of_data(3, whole_batches, tmp_path))
    assert not Verification([Comparison("none")], 1e-4, []).ok
    assert not Verification([Comparison("loss", [0.0, 1e-3])], 1e-4, []).ok
    rounding = Comparison("rounding", [0.0, 1e-4])
    assert Verification([Comparison("loss", [0.0, 1e-3], rounding=rounding)], 1e-4, []).ok


def test_tensors_are_compared_for_as_long_as_there_are_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = of_data(8, whole_batches, tmp_path)
    found = tpugraph.compare(model, num_replicas=2, steps=3)
    assert (found.notes, found.differences) == (["the data of plain and emulator end after 2 steps"], [])
    train, calls = TPUSession.train, list[int]()
    monkeypatch.setattr(
        TPUSession, "train", lambda self, steps: calls.append(steps) or train(self, steps)[len(calls) // 2 :]
    )
    found = tpugraph.compare(model, num_replicas=2, steps=3)
    assert found.notes == ["the data of emulator end after 1 step"]
    assert found.first is not None
    assert (found.first.step, found.first.engine, found.first.difference) == (2, "emulator", float("inf"))


def test_a_loss_that_is_no_number_is_said(tmp_path: Path) -> None:
    def build() -> None:
        features, _ = batches(rows_of(16, 2), 4)
        finish(
            tf.reduce_mean(tf.math.log(features @ variable("w", (2, 1)) - 100)), tf1.train.GradientDescentOptimizer(0.1)
        )

    note = "the loss of the plain graph is nan from step 1 on, the cores' should be too"
    assert note in check(saved(trace(build), tmp_path)).notes


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([0.0, 2.0], [0.1, 2.0], 0.05),
        ([0.0], [1e-7], 0.1),
        ([float("nan"), 1.0], [float("nan"), 1.0], 0.0),
        ([float("nan")], [1.0], float("inf")),
        ([1.0], [1.0, 1.0], float("inf")),
    ],
)
def test_relative_difference(expected: list[float], actual: list[float], difference: float) -> None:
    assert relative(np.asarray(expected), np.asarray(actual)) == pytest.approx(difference)


def test_a_slice_is_read_though_the_rest_of_the_whole_is_in_no_checkpoint(tmp_path: Path) -> None:
    """As TensorFlow 1 saves the slots of a partitioned variable that it makes inside a scope."""
    part = np.arange(8, dtype=np.float32).reshape(2, 4)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.raw_ops.SaveV2(prefix=str(tmp_path / "c"), tensor_names=["slot", "w"], tensors=[part, part],
                                      shape_and_slices=["5 4 1,2:-", ""]))  # fmt: skip
    found = read_pieces(tmp_path / "c", {"a": ("slot", "5 4 1,2:-"), "b": ("w", "")})
    assert list(found) == ["a", "b"]
    for value in found.values():
        np.testing.assert_array_equal(value, part)

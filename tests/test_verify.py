"""``tpugraph verify``: it finds no difference where there is none, and finds one where there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpugraph import cli
from tpugraph.compiler import ConvertOptions
from tpugraph.testing import verification
from tpugraph.testing.checkpoint_pieces import Values, read_pieces
from tpugraph.testing.comparison import Comparison, relative
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.verification import Verification

CORPUS = Path(__file__).parent / "data" / "corpus"
IRIS = CORPUS / "iris_dnn"


def check(name: str, *, steps: int = 3, rebind: dict[str, str] | None = None, **options: Any) -> Verification:
    folder = CORPUS / name
    chosen = ConvertOptions(**{"num_replicas": 2, **options})
    return verification.verify(str(folder / "model.pb"), steps, chosen, rebind=rebind)


def test_the_same_from_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(IRIS / "model.pb"), f"--checkpoint={IRIS}", "--num-replicas=4", "--steps=3", "--json"]
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["ok"] is True
    assert [c["steps"] for c in result["comparisons"]] == [3, 3, 3, 1]
    assert not any(c["skipped"] for c in result["comparisons"])
    assert "3 steps, global batch 128 = 4 cores x 32" in captured.err
    assert "the same: " in captured.err


def test_a_dry_run_says_what_would_be_run_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verification, "TPUSession", None)
    monkeypatch.setattr(verification, "PlainRun", None)
    asked = ["verify", str(CORPUS / "mnist_cnn_no_dropout" / "model.pb"), "--steps=2", "--num_replicas=2", "--dry_run"]
    assert cli.main(asked) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{asked[1]}: 2 steps, global batch 128 = 2 cores x 64, tolerance 0.0001",
        "would run   the plain graph, 2 steps",
        "would run   1 core, 2 single steps, then one loop of 2",
        "would run   2 cores, 2 single steps, then one loop of 2",
        "reads       mnist.tfrecords",
        "starts from the first values that the graph gives",
        "nothing was run",
    ]
    assert cli.main([*asked, f"--checkpoint={IRIS}"]) == 2
    assert "does not match the graph; missing: conv2d/bias" in capsys.readouterr().err


def test_the_global_batch_is_compared_with_the_plain_graph_at_the_same_batch() -> None:
    found = check("iris_dnn", batch_mode="global")
    assert found.ok
    assert found.comparisons[-1].what == "2 cores, single steps, with the plain graph at the same batch"
    assert found.comparisons[-1].variable


def test_random_numbers_are_compared_on_one_core_only() -> None:
    files = {"mnist.tfrecords": str(CORPUS / "mnist.tfrecords")}
    found = check("mnist_cnn", steps=2, rebind=files)
    assert found.ok
    assert "draws random numbers (dropout" in found.comparisons[-1].skipped
    assert any("with 1 core they are the plain graph's" in note for note in found.notes)


def test_a_dropped_partial_batch_is_dropped_on_both_sides() -> None:
    found = check("dynamic_batch", steps=4)
    assert found.ok
    assert any("drops its last partial batch" in note for note in found.notes)


def test_a_difference_is_found_and_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    honest = PlainRun.train

    def wrong(self: PlainRun, steps: int, start: Any, **more: Any) -> tuple[list[float], Values]:
        losses, variables = honest(self, steps, start, **more)
        variables["dense/kernel"] = variables["dense/kernel"] * 1.01
        return losses, variables

    monkeypatch.setattr(PlainRun, "train", wrong)
    assert cli.main(["verify", str(IRIS / "model.pb"), "--num_replicas=2", "--steps=2"]) == 1
    text = capsys.readouterr().out
    assert text.count("DIFFERS") == 2
    assert "NOT the same: 'dense/kernel' differs most, by 9.9e-03" in text
    assert cli.main(["verify", str(IRIS / "model.pb"), "--num_replicas=2", "--steps=2", "--tolerance=0.1"]) == 0


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


def test_what_was_skipped_does_not_count_as_a_difference() -> None:
    found = Verification([Comparison("one", skipped="no data"), Comparison("two", 3, 0.0, "w", 1e-6)], 1e-4)
    assert found.ok
    assert not Verification([Comparison("three", 3, 1e-3)], 1e-4).ok


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

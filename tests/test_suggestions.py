"""What somebody may have meant: nodes by their path, flags, commands, topologies and passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpugraph import cli
from tpugraph.support.suggestions import did_you_mean, near, near_nodes

IRIS = str(Path(__file__).parent / "data" / "corpus" / "iris_dnn" / "model.pb")
NODES = [
    "dense/kernel",
    "dense/bias",
    "dense_1/kernel",
    "dense_1/bias",
    "gradients/dense/MatMul_grad/MatMul",
    "train/Adam",
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("dense/kernle", ["dense/kernel"]),
        ("dense_2/kernel", ["dense_1/kernel", "dense/kernel"]),
        ("gradeints/dense/MatMul_grad/MatMull", ["gradients/dense/MatMul_grad/MatMul"]),
        ("gradients/dense/MatMul_grad", ["gradients/dense/MatMul_grad/MatMul"]),
        ("tower/train/Adam", ["train/Adam"]),
        ("adam", ["train/Adam"]),
        ("zzzz", []),
    ],
)
def test_nodes_by_their_path(name: str, found: list[str]) -> None:
    assert near_nodes(name, NODES)[: len(found) or None] == found


def test_case_and_dashes_count_for_nothing() -> None:
    assert near("Batch-Mode", ["batch_mode", "train_op"]) == ["batch_mode"]
    assert did_you_mean("qqq", ["batch_mode"], "one of many") == "one of many"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inspekt", IRIS], "did you mean 'tpugraph inspect'?"),
        (["convert", IRIS, "--iteration_per_loop=3"], "did you mean --iterations_per_loop?"),
        (["check", IRIS, "--topolgy=v4"], "--topology is a flag of: tpugraph reduce, tpugraph compile, tpugraph report"),
        (["convert", IRIS, "--passes=prune,infed,..."], "did you mean infeed?"),
        (["convert", IRIS, "--batch_norm=globl"], "did you mean global?"),
        (["compile", IRIS, "--topology=v5e:2x5"], "did you mean v5e:2x"),
        (["inspect", IRIS, "--why=dense/kernle"], "did you mean dense/kernel?"),
        (["convert", IRIS, "--dry_run", "--loss=sparse_softmax_cross_entropy_los/value"],
         "did you mean sparse_softmax_cross_entropy_loss/value"),
        (["convert", IRIS, "--dry_run", "--dump_changed", "--dump_after=prun"], "did you mean prune?"),
    ],
)  # fmt: skip
def test_the_command_line_asks(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert said in capsys.readouterr().err

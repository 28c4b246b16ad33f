"""``tpugraph run`` and ``convert`` with --mode=eval and --mode=predict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf
from evaluating import evaluation, plain_metrics, prediction

from models import tf1, trace
from tpugraph import cli
from tpugraph.ir import graphdef


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with eval.pb, predict.pb and a checkpoint of the model's first values."""
    for name, build in (("eval", evaluation(8, count=77)), ("predict", prediction(8, 77))):
        graph_def = graphdef.to_graph_def(trace(build))
        (tmp_path / f"{name}.pb").write_bytes(graphdef.serialize(graph_def))
    with tf.Graph().as_default(), tf1.Session() as session:
        evaluation(8)()
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=0, write_meta_graph=False)
    return tmp_path


def test_metrics_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    converted = str(folder / "eval_tpu.pb")
    assert cli.main(["convert", str(folder / "eval.pb"), "--mode=eval", "--num_replicas=4"]) == 0
    assert "metric      accuracy = accuracy/value" in capsys.readouterr().out
    assert cli.main(["run", converted, f"--checkpoint={folder}"]) == 0
    assert "evaluated 77 examples in 3 steps" in capsys.readouterr().out
    assert cli.main(["run", converted, f"--checkpoint={folder}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    plain = plain_metrics(trace(evaluation(32, count=77)))
    assert found["metrics"] == pytest.approx(plain, rel=1e-6)
    assert found["examples"] == 77


def test_predictions_are_lines_of_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = folder / "rows.jsonl"
    command = ["run", str(folder / "predict.pb"), "--mode=predict", f"--model_dir={folder}", "--num_replicas=4"]
    assert cli.main([*command, f"--output={rows}"]) == 0
    assert "predicted 77 examples" in capsys.readouterr().out
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(lines) == 77
    assert lines[0].keys() == {"both", "guess"}
    assert cli.main([*command, "--predictions=chance=both"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["chance"] for line in printed] == [pytest.approx(line["both"]) for line in lines]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "eval.pb", "--mode=eval"], "--checkpoint=PREFIX"),
        (["run", "eval.pb", "--mode=eval", "--checkpoint=.", "--losses=x"], "--losses is for training"),
        (["run", "eval.pb", "--mode=eval", "--checkpoint=.", "--output=x"], "--output is for predictions"),
        (
            ["run", "predict.pb", "--mode=predict", "--checkpoint=.", "--steps=3"],
            "--steps does not go with predictions",
        ),
        (["run", "predict.pb", "--mode=predict", "--checkpoint=.", "--json"], "both ask for stdout"),
        (["convert", "eval.pb", "--mode=eval", "--metrics=accuracy"], "not of the form"),
        (["convert", "eval.pb", "--mode=eval", "--metrics=accuracy=accuracy/value"], "not of the form"),
        (["convert", "eval.pb", "--predictions=a=b"], "--mode=predict"),
    ],
)
def test_flags_that_do_not_go_together(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    assert cli.main(words) == 2
    assert said in capsys.readouterr().err

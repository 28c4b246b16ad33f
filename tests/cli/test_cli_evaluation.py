"""``tpugraph run`` and ``convert`` with --mode=eval and --mode=predict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from evaluating import data, evaluation, plain_metrics, prediction, probabilities, take

from models import CORPUS, tf1, trace, variable
from tpugraph import cli
from tpugraph.ir import graphdef
from tpugraph.support.errors import LoadError

IRIS = CORPUS / "iris_dnn" / "model.ckpt-0.meta"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with eval.pb, predict.pb and a checkpoint of the model's first values."""
    for name, build in (("eval", evaluation(32, count=77)), ("predict", prediction(32, 77))):
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


def test_a_loss_of_batches_that_drop_the_remainder_runs_on_the_cores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build() -> None:
        features, labels, _ = take(data(64), 32, drop_remainder=True)
        tf1.metrics.mean(tf1.losses.sparse_softmax_cross_entropy(labels, features @ variable("w", (4, 3))), name="mean")

    path = tmp_path / "eval.pb"
    path.write_bytes(graphdef.serialize(graphdef.to_graph_def(trace(build))))
    assert cli.main(["check", str(path), "--mode=eval", "--num_replicas=2"]) == 0
    assert "can run on a TPU" in capsys.readouterr().out
    with tf.Graph().as_default(), tf1.Session() as session:
        build()
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=0, write_meta_graph=False)
    assert cli.main(["run", str(path), "--mode=eval", "--num_replicas=2", f"--checkpoint={tmp_path}"]) == 0
    assert "evaluated 64 examples in 2 steps" in capsys.readouterr().out


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


# --------------------------------------------------------------------------- from a model_dir


@pytest.fixture
def model_dir(folder: Path, tmp_path: Path) -> Path:
    """A model_dir as Estimator leaves it: checkpoints, and the graph of its evaluations in event files below it alone."""
    (folder / "predict.pb").unlink()
    plain = trace(evaluation(32, count=77))
    (folder / "eval.pb").unlink()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graphdef.to_graph_def(plain), name="")
        with tf1.summary.FileWriter(str(folder / "eval"), graph) as writer:
            summary = tf1.Summary()
            summary.value.add(tag="loss", simple_value=0.5)
            writer.add_summary(summary, 0)
    return folder


def test_a_model_dir_is_evaluated_by_the_graph_in_its_event_files(
    model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", str(model_dir), "--mode=eval", "--num_replicas=4", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["metrics"] == pytest.approx(plain_metrics(trace(evaluation(32, count=77))), rel=1e-6)
    assert found["examples"] == 77
    assert f"restored {model_dir}/model.ckpt-0" in printed.err


@pytest.mark.parametrize("words", [["inspect"], ["check"], ["convert", "--dry_run"]])
def test_other_commands_find_it_too(words: list[str], model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, str(model_dir), "--mode=eval"]) == 0
    assert "accuracy/value" in capsys.readouterr().out or words == ["check"]


def test_the_folder_of_evaluations_and_the_event_file_are_models(
    model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (model_dir / "eval").iterdir()
    for model in (model_dir / "eval", path):
        assert cli.main(["inspect", str(model), "--mode=eval"]) == 0
        assert f"{path}: event file, a plain graph" in capsys.readouterr().out
    assert (
        cli.main(["run", str(path), "--mode=eval", "--num_replicas=2", f"--checkpoint={model_dir}", "--steps=1"]) == 0
    )
    assert "evaluated 32 examples" in capsys.readouterr().out


def test_an_event_file_that_was_cut_off_is_read_as_far_as_it_goes(model_dir: Path) -> None:
    (path,) = (model_dir / "eval").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert graphdef.sniff(path).kind == "event file"
    path.write_bytes(whole[:300])
    with pytest.raises(LoadError, match="holds no graph"):
        graphdef.sniff(path)


def test_a_folder_that_a_converted_graph_trained_is_evaluated_as_that_of_the_plain_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted, out = tmp_path / "iris.pb", tmp_path / "out"
    assert cli.main(["convert", str(IRIS), "-o", str(converted), "--num_replicas=2", "--iterations_per_loop=2"]) == 0
    assert cli.main(["run", str(converted), "--steps=2", f"--model_dir={out}"]) == 0
    asked = ["--mode=eval", "--steps=2", "--json"]
    capsys.readouterr()
    assert cli.main(["run", str(out), *asked]) == 0
    printed = capsys.readouterr()
    assert "global batch 32 = 2 cores x 16" in printed.err
    assert cli.main(["run", str(IRIS), f"--checkpoint={out}", *asked]) == 0
    found, plain = json.loads(printed.out), json.loads(capsys.readouterr().out)
    assert found["metrics"] == plain["metrics"]
    assert list(found["metrics"]) == ["acc_op"]
    assert cli.main(["run", str(out), "--mode=eval", "--num_replicas=4"]) == 2
    assert "repeats without an end" in capsys.readouterr().err


def test_a_damaged_plain_graph_within_a_converted_one_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted = tmp_path / "iris.pb"
    assert cli.main(["convert", str(IRIS), "-o", str(converted)]) == 0
    graph_def = tf1.GraphDef.FromString(converted.read_bytes())
    graph_def.node[-1].attr["value"].tensor.string_val[0] = b"no graph"
    converted.write_bytes(graphdef.serialize(graph_def))
    assert cli.main(["run", str(converted), "--mode=eval", f"--checkpoint={IRIS.with_suffix('')}"]) == 2
    assert "the plain graph in" in capsys.readouterr().err


def test_evaluations_of_several_names_are_asked_about(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model_dir / "eval").rename(model_dir / "eval_first")
    assert cli.main(["inspect", str(model_dir), "--mode=eval"]) == 0
    shutil.copytree(model_dir / "eval_first", model_dir / "eval_second")
    capsys.readouterr()
    assert cli.main(["run", str(model_dir), "--mode=eval"]) == 2
    assert "holds evaluations of several names: eval_first, eval_second" in capsys.readouterr().err


# --------------------------------------------------------------------------- a graph that also trains


def training_with_metrics() -> None:
    """The model of :func:`evaluation`, trained on the same rows, with the metrics that its author watches."""
    features, labels, weights = take(data(64), 8)
    chance = probabilities(features)
    loss = tf1.losses.log_loss(labels, chance, weights)
    tf1.metrics.accuracy(labels, tf.cast(chance > 0.5, tf.int64), name="accuracy")
    tf1.metrics.mean(chance, weights, name="chance")
    tf1.train.AdamOptimizer(0.01).minimize(loss, tf1.train.get_or_create_global_step())
    tf1.train.Saver()


def test_a_graph_that_trains_too_is_evaluated_by_its_metrics_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = folder / "train.pb"
    model.write_bytes(graphdef.serialize(graphdef.to_graph_def(trace(training_with_metrics))))
    with tf.Graph().as_default(), tf1.Session() as session:
        training_with_metrics()
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(folder / "trained.ckpt"), write_meta_graph=False)
    command = [
        "run",
        str(model),
        "--mode=eval",
        f"--checkpoint={folder / 'trained.ckpt'}",
        "--num_replicas=4",
        "--json",
    ]
    assert cli.main(command) == 0
    found = json.loads(capsys.readouterr().out)
    plain = plain_metrics(trace(evaluation(32, count=64)))
    assert found["metrics"].keys() == {"accuracy", "chance"}
    assert found["metrics"] == pytest.approx({name: plain[name] for name in found["metrics"]}, rel=1e-6)


def test_a_metric_that_waits_for_training_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def build() -> None:
        features, labels, _ = take(data(64), 8)
        chance = probabilities(features)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf1.losses.log_loss(labels, chance))
        with tf.control_dependencies([train]):
            tf1.metrics.accuracy(labels, tf.cast(chance > 0.5, tf.int64), name="accuracy")
        tf1.train.Saver()

    model = tmp_path / "train.pb"
    model.write_bytes(graphdef.serialize(graphdef.to_graph_def(trace(build))))
    assert cli.main(["convert", str(model), "--mode=eval", "--dry_run"]) == 2
    assert "the graph trains: 'GradientDescent/update_" in capsys.readouterr().err


def test_a_folder_that_run_trained_is_evaluated_from_the_first_batch(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its checkpoint holds the position of the training's input, which is no position of the evaluation's."""
    model, trained = folder / "positioned.pb", str(folder / "trained_by_run")
    model.write_bytes(graphdef.serialize(graphdef.to_graph_def(trace(training_with_metrics))))
    assert cli.main(["run", str(model), "--steps=2", "--num_replicas=2", f"--model_dir={trained}"]) == 0
    assert cli.main(["run", trained, "--mode=eval", "--num_replicas=4"]) == 0
    said = capsys.readouterr().out
    assert "evaluated 64 examples" in said
    assert f"restored {trained}/model.ckpt-2 at step 2" in said


def test_an_input_without_an_end_asks_for_steps(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", str(IRIS.parent), "--mode=eval"]  # a model_dir that was never evaluated: its training graph
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "the input of the graph repeats without an end" in said
    assert "--steps=N evaluates so many global batches" in said
    assert cli.main([*command, "--steps=2"]) == 0
    assert "evaluated 64 examples in 2 steps" in capsys.readouterr().out

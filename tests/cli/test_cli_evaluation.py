"""``tpugraph run`` and ``convert`` with --mode=eval and --mode=predict."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from evaluating import data, evaluation, plain_metrics, prediction, probabilities, take

from command_line import Command
from models import CORPUS, tf1, trace, variable
from tpugraph.ir import graphdef
from tpugraph.support.errors import LoadError

IRIS = CORPUS / "iris_dnn" / "model.ckpt-0.meta"


def written(path: Path, build: Callable[[], Any]) -> Path:
    graphdef.save(trace(build), path)
    return path


def first_values(prefix: Path, build: Callable[[], Any]) -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        build()
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(prefix), write_meta_graph=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with eval.pb, predict.pb and a checkpoint of the model's first values."""
    written(tmp_path / "eval.pb", evaluation(32, count=77))
    written(tmp_path / "predict.pb", prediction(32, 77))
    first_values(tmp_path / "model.ckpt-0", evaluation(8))
    return tmp_path


def test_metrics_are_printed(folder: Path, command: Command) -> None:
    converting = command("convert", folder / "eval.pb", "--mode=eval", "--num_replicas=4").out
    assert "metric      accuracy = accuracy/value" in converting
    evaluate = ["run", folder / "eval_tpu.pb", f"--checkpoint={folder}"]
    assert "evaluated 77 examples in 3 steps" in command(*evaluate).out
    found = command.json(*evaluate)
    assert found["metrics"] == pytest.approx(plain_metrics(trace(evaluation(32, count=77))), rel=1e-6)
    assert found["examples"] == 77


def test_a_loss_of_batches_that_drop_the_remainder_runs_on_the_cores(tmp_path: Path, command: Command) -> None:
    def build() -> None:
        features, labels, _ = take(data(64), 32, drop_remainder=True)
        tf1.metrics.mean(tf1.losses.sparse_softmax_cross_entropy(labels, features @ variable("w", (4, 3))), name="mean")

    asked = [written(tmp_path / "eval.pb", build), "--mode=eval", "--num_replicas=2"]
    assert "can run on a TPU" in command("check", *asked).out
    first_values(tmp_path / "model.ckpt-0", build)
    assert "evaluated 64 examples in 2 steps" in command("run", *asked, f"--checkpoint={tmp_path}").out


def test_predictions_are_lines_of_json(folder: Path, command: Command) -> None:
    rows = folder / "rows.jsonl"
    predict = ["run", folder / "predict.pb", "--mode=predict", f"--model_dir={folder}", "--num_replicas=4"]
    assert "predicted 77 examples" in command(*predict, f"--output={rows}").out
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(lines) == 77
    assert lines[0].keys() == {"both", "guess"}
    printed = command(*predict, "--predictions=chance=both").out.splitlines()
    assert [json.loads(line)["chance"] for line in printed] == [pytest.approx(line["both"]) for line in lines]


@pytest.fixture
def model_dir(folder: Path) -> Path:
    """A model_dir as Estimator leaves it: checkpoints, and the graph of its evaluations in event files below it alone."""
    for name in ("predict.pb", "eval.pb"):
        (folder / name).unlink()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graphdef.to_graph_def(trace(evaluation(32, count=77))), name="")
        with tf1.summary.FileWriter(str(folder / "eval"), graph) as writer:
            writer.add_summary(tf1.Summary(value=[tf1.Summary.Value(tag="loss", simple_value=0.5)]), 0)
    return folder


def test_a_model_dir_is_evaluated_by_the_graph_in_its_event_files(model_dir: Path, command: Command) -> None:
    printed = command("run", model_dir, "--mode=eval", "--num_replicas=4", "--json")
    found = json.loads(printed.out)
    assert found["metrics"] == pytest.approx(plain_metrics(trace(evaluation(32, count=77))), rel=1e-6)
    assert found["examples"] == 77
    assert f"restored {model_dir}/model.ckpt-0" in printed.err


@pytest.mark.parametrize("words", [["inspect"], ["check"], ["convert", "--dry_run"]])
def test_other_commands_find_it_too(words: list[str], model_dir: Path, command: Command) -> None:
    assert "accuracy/value" in command(*words, model_dir, "--mode=eval").out or words == ["check"]


def test_the_folder_of_evaluations_and_the_event_file_are_models(model_dir: Path, command: Command) -> None:
    (path,) = (model_dir / "eval").iterdir()
    for model in (model_dir / "eval", path):
        assert f"{path}: event file, a plain graph" in command("inspect", model, "--mode=eval").out
    said = command("run", path, "--mode=eval", "--num_replicas=2", f"--checkpoint={model_dir}", "--steps=1").out
    assert "evaluated 32 examples" in said


def test_an_event_file_that_was_cut_off_is_read_as_far_as_it_goes(model_dir: Path) -> None:
    (path,) = (model_dir / "eval").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert graphdef.sniff(path).kind == "event file"
    path.write_bytes(whole[:300])
    with pytest.raises(LoadError, match="holds no graph"):
        graphdef.sniff(path)


def test_a_folder_that_a_converted_graph_trained_is_evaluated_as_that_of_the_plain_one(tmp_path: Path,
                                                                                       command: Command) -> None:  # fmt: skip
    converted, out = tmp_path / "iris.pb", tmp_path / "out"
    command("convert", IRIS, "-o", converted, "--num_replicas=2", "--iterations_per_loop=2")
    command("run", converted, "--steps=2", f"--model_dir={out}")
    asked = ["--mode=eval", "--steps=2", "--json"]
    printed = command("run", out, *asked)
    assert "global batch 32 = 2 cores x 16" in printed.err
    metrics = json.loads(printed.out)["metrics"]
    assert metrics == command.json("run", IRIS, f"--checkpoint={out}", *asked)["metrics"]
    assert list(metrics) == ["acc_op"]
    assert "repeats without an end" in command.refused("run", out, "--mode=eval", "--num_replicas=4")


def test_a_damaged_plain_graph_within_a_converted_one_is_said(tmp_path: Path, command: Command) -> None:
    converted = tmp_path / "iris.pb"
    command("convert", IRIS, "-o", converted)
    graph_def = tf1.GraphDef.FromString(converted.read_bytes())
    graph_def.node[-1].attr["value"].tensor.string_val[0] = b"no graph"
    converted.write_bytes(graphdef.serialize(graph_def))
    error = command.refused("run", converted, "--mode=eval", f"--checkpoint={IRIS.with_suffix('')}")
    assert "the plain graph in" in error


def test_evaluations_of_several_names_are_asked_about(model_dir: Path, command: Command) -> None:
    (model_dir / "eval").rename(model_dir / "eval_first")
    command("inspect", model_dir, "--mode=eval")
    shutil.copytree(model_dir / "eval_first", model_dir / "eval_second")
    error = command.refused("run", model_dir, "--mode=eval")
    assert "holds evaluations of several names: eval_first, eval_second" in error


def training_with_metrics() -> None:
    """The model of :func:`evaluation`, trained on the same rows, with the metrics that its author watches."""
    features, labels, weights = take(data(64), 8)
    chance = probabilities(features)
    loss = tf1.losses.log_loss(labels, chance, weights)
    tf1.metrics.accuracy(labels, tf.cast(chance > 0.5, tf.int64), name="accuracy")
    tf1.metrics.mean(chance, weights, name="chance")
    tf1.train.AdamOptimizer(0.01).minimize(loss, tf1.train.get_or_create_global_step())
    tf1.train.Saver()


def test_a_graph_that_trains_too_is_evaluated_by_its_metrics_alone(folder: Path, command: Command) -> None:
    model = written(folder / "train.pb", training_with_metrics)
    first_values(folder / "trained.ckpt", training_with_metrics)
    found = command.json("run", model, "--mode=eval", f"--checkpoint={folder / 'trained.ckpt'}", "--num_replicas=4")
    plain = plain_metrics(trace(evaluation(32, count=64)))
    assert found["metrics"].keys() == {"accuracy", "chance"}
    assert found["metrics"] == pytest.approx({name: plain[name] for name in found["metrics"]}, rel=1e-6)


def test_a_metric_that_waits_for_training_is_refused(command: Command, tmp_path: Path) -> None:
    def build() -> None:
        features, labels, _ = take(data(64), 8)
        chance = probabilities(features)
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf1.losses.log_loss(labels, chance))
        with tf.control_dependencies([train]):
            tf1.metrics.accuracy(labels, tf.cast(chance > 0.5, tf.int64), name="accuracy")
        tf1.train.Saver()

    error = command.refused("convert", written(tmp_path / "train.pb", build), "--mode=eval", "--dry_run")
    assert "the graph trains: 'GradientDescent/update_" in error


def test_a_folder_that_run_trained_is_evaluated_from_the_first_batch(folder: Path, command: Command) -> None:
    """Its checkpoint holds the position of the training's input, which is no position of the evaluation's."""
    model, trained = written(folder / "positioned.pb", training_with_metrics), folder / "trained_by_run"
    command("run", model, "--steps=2", "--num_replicas=2", f"--model_dir={trained}")
    said = command("run", trained, "--mode=eval", "--num_replicas=4").out
    assert "evaluated 64 examples" in said
    assert f"restored {trained}/model.ckpt-2 at step 2" in said


def test_an_input_without_an_end_asks_for_steps(command: Command) -> None:
    evaluate = ["run", IRIS.parent, "--mode=eval"]  # a model_dir that was never evaluated: its training graph
    said = command.refused(*evaluate)
    assert "the input of the graph repeats without an end" in said
    assert "--steps=N evaluates so many global batches" in said
    assert "evaluated 64 examples in 2 steps" in command(*evaluate, "--steps=2").out

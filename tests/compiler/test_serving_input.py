"""Predictions of a SavedModel: its signature names them, its variables are the checkpoint, a file of examples is its input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import rows_of, tf1, variable
from tpugraph import cli, testing
from tpugraph.analysis import in_cluster
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.support.errors import ConversionError, UsageError

ROWS = 77
FEATURES, _ = rows_of(ROWS, 3)
COUNTS = np.arange(ROWS) % 5


def export(folder: Path, *, parsed: bool, rows: int | None = None) -> Path:
    """A SavedModel with three signatures, as TensorFlow 1 writes it; fed serialised examples, or its features."""
    with tf.Graph().as_default(), tf1.Session() as session, tf1.variable_scope("", use_resource=True):
        tf1.train.get_or_create_global_step()
        if parsed:
            fed = {"examples": tf1.placeholder(tf.string, [rows], name="input_example_tensor")}
            spec = {"x": tf.io.FixedLenFeature([3], tf.float32), "n": tf.io.FixedLenFeature([], tf.int64)}
            features: dict[str, Any] = tf.io.parse_example(fed["examples"], spec)
        else:
            fed = {"x": tf1.placeholder(tf.float32, [rows, 3]), "n": tf1.placeholder(tf.int32, [rows])}
            features = fed
        hidden = tf.tanh(features["x"] @ variable("w", (3, 2)) + tf.cast(features["n"], tf.float32)[:, None])
        chance = tf.sigmoid(tf.squeeze(hidden @ variable("out", (2, 1)), 1))
        outputs = {"chance": chance, "hidden": hidden}
        sign = tf1.saved_model.predict_signature_def
        signatures = {"serving_default": sign(fed, outputs), "chance": sign(fed, {"chance": chance}),
                      "whole": sign(fed, {"mean": tf.reduce_mean(chance)})}  # fmt: skip
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return folder


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "mine.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as file:
        for row, count in zip(FEATURES, COUNTS, strict=True):
            held = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                    "n": tf.train.Feature(int64_list=tf.train.Int64List(value=[count]))}  # fmt: skip
            file.write(tf.train.Example(features=tf.train.Features(feature=held)).SerializeToString())
    return path


def expected() -> tuple[np.ndarray, np.ndarray]:
    w, out = (0.5 * np.cos(1.7 * np.arange(1, n + 1) + length) for n, length in ((6, 1), (2, 3)))
    hidden = np.tanh(FEATURES @ w.reshape(3, 2) + COUNTS[:, None])
    return 1 / (1 + np.exp(-hidden @ out)), hidden


@pytest.mark.parametrize("parsed", [True, False])
def test_a_saved_model_predicts_what_its_signature_names(
    parsed: bool, tmp_path: Path, examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, rows = export(tmp_path / "saved", parsed=parsed), tmp_path / "rows.jsonl"
    command = ["run", str(model), "--mode=predict", "--num_replicas=2", f"--rebind=examples.tfrecord={examples}"]
    assert cli.main([*command, f"--output={rows}"]) == 0
    said = capsys.readouterr().out
    assert "global batch 32 = 2 cores x 16" in said
    assert f"reads       {examples}" in said
    assert f"restored {model}/variables/variables at step 0" in said
    assert "predicted 77 examples" in said
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    chance, hidden = expected()
    np.testing.assert_allclose([line["chance"] for line in lines], chance, rtol=1e-5)
    np.testing.assert_allclose([line["hidden"] for line in lines], hidden, rtol=1e-5, atol=1e-6)


def test_lists_of_any_length_are_read_as_sparse_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = [np.arange(row % 4) * (row + 3) % 11 for row in range(ROWS)]
    data, rows = tmp_path / "lists.tfrecord", tmp_path / "rows.jsonl"
    with tf.io.TFRecordWriter(str(data)) as file:
        for values, ids in zip(FEATURES, lists, strict=True):
            held = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=values)),
                    "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=ids))}  # fmt: skip
            file.write(tf.train.Example(features=tf.train.Features(feature=held)).SerializeToString())
    with tf.Graph().as_default(), tf1.Session() as session, tf1.variable_scope("", use_resource=True):
        tf1.train.get_or_create_global_step()
        fed = tf1.placeholder(tf.string, [None])
        spec = {"x": tf.io.FixedLenFeature([3], tf.float32), "ids": tf.io.VarLenFeature(tf.int64)}
        parsed = tf.io.parse_example(fed, spec)
        found = tf1.nn.safe_embedding_lookup_sparse(variable("table", (11, 3)), parsed["ids"], combiner="sum")
        score = tf.reduce_sum(found * parsed["x"], 1)
        session.run(tf1.global_variables_initializer())
        saved = tf1.saved_model.Builder(str(tmp_path / "saved"))
        signature = tf1.saved_model.predict_signature_def({"examples": fed}, {"score": score})
        saved.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        saved.save()
        table = session.run("table/Read/ReadVariableOp:0")
    command = ["run", str(tmp_path / "saved"), "--mode=predict", "--num_replicas=2", f"--output={rows}"]
    assert cli.main([*command, f"--rebind=examples.tfrecord={data}"]) == 0
    assert "predicted 77 examples" in capsys.readouterr().out
    expected = [table[ids].sum(0) @ values for values, ids in zip(FEATURES, lists, strict=True)]
    np.testing.assert_allclose([json.loads(line)["score"] for line in rows.read_text().splitlines()], expected,
                               rtol=1e-5, atol=1e-6)  # fmt: skip


def test_another_signature_and_a_traced_batch(
    tmp_path: Path, examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, made = export(tmp_path / "saved", parsed=True, rows=4), str(tmp_path / "made.pb")
    assert cli.main(["inspect", str(model), "--mode=predict", "--signature=chance"]) == 0
    said = capsys.readouterr().out
    assert "prediction    Sigmoid (chance)" in said
    assert "(hidden)" not in said
    assert cli.main(["convert", str(model), "--mode=predict", "--num_replicas=2", "-o", made]) == 0
    assert "global batch 4 = 2 cores x 2" in capsys.readouterr().out
    assert all(in_cluster(node) for node in graphdef.load(made).of_type("MatMul"))
    rebind = f"--rebind=examples.tfrecord={examples}"
    assert cli.main(["run", made, f"--checkpoint={model}/variables/variables", rebind]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose([row["chance"] for row in rows], expected()[0], rtol=1e-5)


def test_check_view_and_report_take_a_saved_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, page = str(export(tmp_path / "saved", parsed=True)), tmp_path / "page.html"
    assert cli.main(["check", model, "--mode=predict"]) == 0
    assert "can run on a TPU: 39 nodes on the device" in capsys.readouterr().out
    assert cli.main(["view", model, "--mode=predict", f"--output={page}"]) == 0
    assert page.stat().st_size > 100_000
    assert cli.main(["report", model, "--mode=predict", f"--output={page}"]) == 0
    assert "note: only training graphs are compiled for TPUs" in capsys.readouterr().out
    found = json.loads(page.with_suffix(".json").read_text())
    assert (found["runs"], found["targets"], found["facts"][-1][:20]) == (True, [], "only training graphs")
    assert cli.main(["compile", model, "--mode=predict"]) == 2
    assert "only training graphs are compiled for a TPU" in capsys.readouterr().err


def test_a_saved_model_without_its_mode_is_told_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(export(tmp_path / "saved", parsed=True))
    assert cli.main(["check", model]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "cannot run on a TPU: tpugraph cannot convert the graph"
    assert "`tpugraph run --mode=predict` computes what a signature of the SavedModel names" in "".join(said)


def test_what_no_signature_gives_is_refused(tmp_path: Path) -> None:
    model = export(tmp_path / "saved", parsed=False)
    assert_raises = testing.assert_raises_block
    assert_raises(convert, model, mode="predict", signature="chanc", words=["has no signature 'chanc'", "did you mean chance?"],
                  max_length=300, kind=UsageError)  # fmt: skip
    assert_raises(
        convert,
        model,
        mode="predict",
        signature="whole",
        words=["'mean' is one number for the whole batch"],
        max_length=300,
    )
    graph = graphdef.load(model)
    graph.signatures = {name: found for name, found in graph.signatures.items() if name != "serving_default"}
    assert_raises(convert, graph, mode="predict", words=["has several signatures: chance, whole", "--signature=chance"],
                  max_length=300, kind=UsageError)  # fmt: skip
    graph = graphdef.load(model)
    graph.set_attr(graph["Placeholder"], "shape", (None, None))
    assert_raises(convert, graph, mode="predict", words=["no example can hold the input 'x': float32 of shape [None, None]",
                                                         "serialised examples"], max_length=400, kind=ConversionError)  # fmt: skip
    assert_raises(convert, model, signature="chance", words=["--signature does not go with --mode=train"], max_length=300,
                  kind=UsageError)  # fmt: skip

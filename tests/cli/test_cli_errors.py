"""Bad input on the command line: one block that names fault and fix, exit code 2, no file, no traceback."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.core.framework import graph_pb2

from command_line import Command
from tpugraph.ir.side_effects import missing_file_error

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
IRIS = CORPUS / "iris_dnn"
MODEL = IRIS / "model.pb"

Block = Callable[..., str]


@pytest.fixture
def block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Block:
    """Runs a command that must fail in an empty folder; returns its error block."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*words: object) -> str:
        error = command.refused(*words)
        assert os.listdir(folder) == []
        assert error.startswith("error: ")
        assert "Traceback" not in error
        assert all(line.startswith("  ") for line in error.splitlines()[1:])
        assert "  fix     " in error
        assert len(error) < 1000
        return error

    return run


# --------------------------------------------------------------------------- files


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "truncated": (lambda: MODEL.read_bytes()[:40_000], "is not a graph (it may be cut off"),
    "cut.pbtxt": (lambda: b'node { name: "x" op: "Const', "text, but not a graph in text form (it may be cut off)"),
    "empty": (lambda: b"", "is empty"),
    "random": (lambda: np.random.default_rng(1).bytes(5000), "is not a graph"),
    "weights.h5": (lambda: b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5 file (Keras weights), not a graph"),
    "arrays.npz": (lambda: (IRIS / "final_plain.npz").read_bytes(), "a zip archive, not a graph"),
    "gzip": (lambda: b"\x1f\x8b\x08" + bytes(100), "gunzip"),
    "zeros": (lambda: bytes(1000), "is not a graph"),
    "records": (lambda: (CORPUS / "mnist.tfrecords").read_bytes()[:3000], "is not a graph"),
    "golden.json": (lambda: (IRIS / "golden.json").read_bytes(), "text, but not a graph"),
    "index": (lambda: (IRIS / "model.ckpt-0.index").read_bytes(), "is not a graph"),
}


@pytest.mark.parametrize("name", list(FILES))
def test_a_file_that_is_no_graph(name: str, tmp_path: Path, block: Block) -> None:
    make, words = FILES[name]
    path = tmp_path / name
    path.write_bytes(make())
    error = block("convert", path, "-o", "o.pb", "--report=r.json")
    assert f"'{path}'" in error
    assert words in error


@pytest.mark.parametrize("words", [("convert", "-o", "o.pb"), ("run", "--steps=1")])
def test_what_cannot_be_read_is_an_error_of_any_command(words: tuple[str, ...], block: Block) -> None:
    assert "error: '/dev/zero' is a device, which may have no end" in block(*words, "/dev/zero")
    assert "error: '/proc/self/mem' cannot be read: Input/output error" in block(*words, "/proc/self/mem")


def test_an_output_that_exists_stays_as_it_is(tmp_path: Path, block: Block) -> None:
    (tmp_path / "o.pb").write_bytes(b"old")
    (tmp_path / "bad.pb").write_bytes(b"\1\2")
    block("convert", tmp_path / "bad.pb", "-o", tmp_path / "o.pb")
    assert (tmp_path / "o.pb").read_bytes() == b"old"


def test_places_that_cannot_be(tmp_path: Path, block: Block) -> None:
    model = tmp_path / "m.pb"
    model.write_bytes(MODEL.read_bytes())
    assert "there is no file 'nope.pb'" in block("convert", "nope.pb")
    assert "the folder" in block("convert", tmp_path / "here")
    assert "would overwrite the input" in block("convert", model, "-o", model)
    assert "would overwrite the input" in block("convert", model, f"--report={model}", "-o", "o.pb")
    assert "would overwrite the output" in block("convert", model, "--report=o.pb", "-o", "o.pb")
    assert f"{tmp_path} is a folder" in block("convert", model, "-o", tmp_path)
    assert "mkdir -p nodir" in block("convert", model, "-o", "nodir/o.pb")
    assert "mkdir -p nodir" in block("run", model, "--steps=1", "--losses=nodir/l.jsonl")
    too_long = "r" * 250  # with the ending of a temporary file
    assert "cannot be written: File name too long" in block("convert", model, "-o", "o.pb", f"--report={too_long}")
    assert model.read_bytes() == MODEL.read_bytes()


# --------------------------------------------------------------------------- graphs that are not well formed


Change = Callable[[Any, dict[str, Any]], object]


def broken(folder: Path, change: Change, model: Path = MODEL) -> Path:
    graph_def = graph_pb2.GraphDef.FromString(model.read_bytes())
    change(graph_def, {node.name: node for node in graph_def.node})
    (folder / "broken.pb").write_bytes(graph_def.SerializeToString())
    return folder / "broken.pb"


def test_a_graph_that_tensorflow_refuses_names_the_node(tmp_path: Path, block: Block) -> None:
    """What else is not well formed is refused when the graph is loaded (tests/ir/test_validate.py)."""

    def transposed(graph_def: Any, nodes: dict[str, Any]) -> None:
        nodes["dense/MatMul"].attr["transpose_b"].b = True

    error = block("convert", broken(tmp_path, transposed), "-o", "o.pb")
    for words in ("TensorFlow refuses the graph", "  node    dense/MatMul (MatMul)", "--why=dense/MatMul"):
        assert words in error


# --------------------------------------------------------------------------- roles and cores that cannot be


@pytest.mark.parametrize(("flag", "words"), [
    ("--train_op=nope", ["the train op 'nope' is not in the graph"]),
    ("--train_op=dense/MatMul", ["it writes no variable"]),
    ("--loss=nope", ["the loss 'nope' is not in the graph"]),
    ("--num_replicas=5", ["a batch of 32 rows cannot be split over 5 cores",
                          "--num_replicas=4 (cores that divide 32: 4, 2, 1), or a batch of 30 or 35 rows"]),
    ("--iterations_per_loop=3000000000", ["a loop counts in 32 bits"]),
    ("--dump_after=prune", ["--dump_after needs a folder"]),
])  # fmt: skip
def test_flags_of_convert_that_cannot_work(flag: str, words: list[str], block: Block) -> None:
    error = block("convert", MODEL, flag, "-o", "o.pb")
    assert all(word in error for word in words), error


@pytest.mark.parametrize(("name", "words"), [
    ("global_step", "it holds int64"),
    ("dense/kernel", "it has 40 elements, not one"),
    ("dense/MatMul", "it has 320 elements, not one"),
    ("sparse_softmax_cross_entropy_loss/value:3", "has 1 outputs"),
    ("acc_op/count/Initializer/zeros", "it does not depend on the input"),
])  # fmt: skip
def test_a_loss_that_is_none(name: str, words: str, block: Block) -> None:
    error = block("convert", MODEL, f"--loss={name}", "-o", "o.pb")
    assert f"'{name}' is no loss: " in error
    assert words in error


# --------------------------------------------------------------------------- running


def test_missing_data_files_are_named_with_their_rebind(block: Block) -> None:
    arguments = ("--steps=2", "--num_replicas=2", "--losses=l.jsonl", "--model_dir=out")
    error = block("run", CORPUS / "mnist_cnn" / "model.pb", *arguments)
    assert "the data file 'mnist.tfrecords' is not there" in error
    assert "--rebind=mnist.tfrecords=PATH" in error
    error = missing_file_error("assertion failed: [No files matched pattern: /data/train-*]\n\t [[x]]", "model.pb")
    assert error is not None
    assert "no file matches the pattern '/data/train-*'" in error.block()
    assert "'--rebind=/data/train-*=PATH'" in error.block()
    error = block("run", CORPUS / "mnist_cnn" / "model.pb", "--steps=2", "--rebind=train.csv=x.csv")
    assert "no constant of the graph holds the file name 'train.csv'" in error
    assert "file names in the graph: mnist.tfrecords" in error
    assert "is not of the form OLD=NEW" in block("run", MODEL, "--steps=2", "--rebind=x.csv")


def test_a_missing_data_file_with_a_blank_in_its_name(block: Block, tmp_path: Path) -> None:
    def rename(graph_def: Any, nodes: dict[str, Any]) -> None:
        for node in nodes.values():
            values = node.attr["value"].tensor.string_val
            for place, value in enumerate(values):
                values[place] = value.replace(b"mnist.tfrecords", b"my digits.tfrecords")

    model = broken(tmp_path, rename, CORPUS / "mnist_cnn" / "model.pb")
    error = block("run", model, "--steps=2", "--num_replicas=2")
    assert "the data file 'my digits.tfrecords' is not there" in error
    assert "'--rebind=my digits.tfrecords=PATH'" in error


def test_a_model_dir_that_cannot_be_made_is_refused_before_training(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "out"):
        error = block("run", MODEL, "--steps=2", f"--model_dir={place}", "--losses=l.jsonl")
        assert f"--model_dir={place} cannot be made: '{file}' is no folder" in error


def test_flags_that_cannot_work(block: Block) -> None:
    assert "--tolerance=nan is not a number" in block("verify", MODEL, "--tolerance=nan")
    assert "needs a MODEL" in block("convert", "")
    assert "needs the number of steps" in block("run", MODEL)
    assert "--save_steps needs a folder" in block("run", MODEL, "--steps=2", "--save_steps=1")


def test_a_checkpoint_that_does_not_match_says_how(block: Block) -> None:
    common = ("run", MODEL, "--steps=2", "--num_replicas=2", "--losses=l.jsonl")
    error = block(*common, f"--checkpoint={CORPUS / 'clip_adam' / 'model.ckpt-0'}")
    for words in ("missing: dense_2/bias (nearest: dense_1/bias)", "of another shape: dense/bias is [32], not [10]",
                  "extra: beta1_power"):  # fmt: skip
        assert words in error
    assert "there is: model.ckpt-0" in block(*common, f"--checkpoint={IRIS / 'model.ckpt-9'}")
    assert "holds no checkpoint" in block(*common, "--checkpoint=.")


def test_a_graph_that_is_not_as_asked(tmp_path: Path, block: Block, command: Command) -> None:
    place = tmp_path / "o.pb"
    command("convert", MODEL, "-o", place)
    assert "a TPU graph already" in block("convert", place, "-o", "again.pb")
    assert "--num_replicas cannot change" in block("run", place, "--steps=1", "--num_replicas=4")
    assert "is converted already" in block("verify", place)
    said = command("convert", MODEL, "-o", tmp_path / "part.pb", "--passes=prune,resource-variables").out
    assert said.startswith("partly rewritten model.pb: ")
    assert "passes      prune, resource-variables\nno TPU graph" in said
    assert "None" not in said
    assert "converted" not in said

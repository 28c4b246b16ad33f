"""Bad input that no file of ``test_refusals`` is: one block that names fault and fix, exit code 2, no file, no traceback."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


# --------------------------------------------------------------------------- running


def test_a_pattern_that_no_data_file_matches_is_named_with_its_rebind() -> None:
    error = missing_file_error("assertion failed: [No files matched pattern: /data/train-*]\n\t [[x]]", "model.pb")
    assert error is not None
    assert "no file matches the pattern '/data/train-*'" in error.block()
    assert "'--rebind=/data/train-*=PATH'" in error.block()


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


def test_a_report_whose_name_is_too_long(block: Block) -> None:
    too_long = "r" * 250  # with the ending of a temporary file
    assert "cannot be written: File name too long" in block("convert", MODEL, "-o", "o.pb", f"--report={too_long}")


def test_a_graph_that_is_rewritten_in_part_is_called_so(tmp_path: Path, command: Command) -> None:
    said = command("convert", MODEL, "-o", tmp_path / "part.pb", "--passes=prune,resource-variables").out
    assert said.startswith("partly rewritten model.pb: ")
    assert "passes      prune, resource-variables\nno TPU graph" in said
    assert "None" not in said
    assert "converted" not in said

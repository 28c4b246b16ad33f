"""What a command that only looks at a graph must not do: run an op of it that reads a file, writes one, prints or calls Python."""

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from command_line import Command
from models import batches, finish, rows_of, squared_error, tf1, variable
from tpugraph import cli, ops
from tpugraph.ir import graphdef
from tpugraph.ir.side_effects import files_touched, side_effects

FEATURES, TARGETS = rows_of(16, 3)
_ANY_USE = 0x00000FFF  # of inotify: opened, read, written, made, renamed, removed


class Watch:
    """Tells whether anything in a folder was opened, read, written, made or removed (Linux's inotify)."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._events = libc.inotify_init1(os.O_NONBLOCK)
        assert self._events >= 0
        assert libc.inotify_add_watch(self._events, os.fsencode(folder), _ANY_USE) >= 0

    def touched(self) -> bool:
        try:
            return bool(os.read(self._events, 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._events)


@pytest.fixture
def guarded_folder(tmp_path: Path) -> Path:
    """A folder with a file that holds the shape [4, 3], a table of words and an example."""
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "file").write_bytes(np.asarray([4, 3], np.int32).tobytes())
    (folder / "words").write_text("a\nb\nc\n", encoding="utf-8")
    return folder


@pytest.fixture
def watch(guarded_folder: Path) -> Iterator[Callable[[], Watch]]:
    made: list[Watch] = []

    def start() -> Watch:
        made.append(Watch(guarded_folder))
        return made[-1]

    yield start
    for one in made:
        one.close()


def _numbers(path: str) -> Any:
    return tf1.decode_raw(tf1.read_file(path), tf.int32)


def in_a_shape(path: Path, features: Any) -> Any:
    return tf.reshape(features, _numbers(f"{path}/file"))


def in_a_constant(path: Path, features: Any) -> Any:
    return features * tf.cast(tf.reduce_sum(_numbers(f"{path}/file")), tf.float32)


def in_an_initialiser(path: Path, features: Any) -> Any:
    first = tf.cast(tf.reduce_sum(tf.ensure_shape(_numbers(f"{path}/file"), [2])), tf.float32)
    return features * tf1.get_variable("scale", initializer=first)


def in_a_table(path: Path, features: Any) -> Any:
    table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(f"{path}/words", tf.string, 0, tf.int64, -1), -1)
    return features * tf.cast(table.lookup(tf.constant("b")), tf.float32)


def in_the_step(path: Path, features: Any) -> Any:
    with tf.control_dependencies([tf1.write_file(f"{path}/written", tf.strings.as_string(tf.reduce_sum(features)))]):
        return tf.identity(features)


def in_a_write_of_constants(path: Path, features: Any) -> Any:
    with tf.control_dependencies([tf1.write_file(f"{path}/written", "x"),
                                  tf.print("seen", output_stream=f"file://{path}/out")]):  # fmt: skip
        return tf.identity(features)


def in_python(path: Path, features: Any) -> Any:
    return tf.ensure_shape(tf1.py_func(lambda x: (path / "written").write_bytes(b"") or x, [features], tf.float32),
                           [4, 3])  # fmt: skip


def in_a_vocabulary(path: Path, features: Any) -> Any:
    found = tf.raw_ops.GenerateVocabRemapping(new_vocab_file=f"{path}/words", old_vocab_file=f"{path}/words",
                                              new_vocab_offset=0, num_new_vocab=3)  # fmt: skip
    return tf.reshape(features, [found.num_present + 1, 3])


STAGES = (in_a_shape, in_a_constant, in_an_initialiser, in_a_table, in_the_step, in_a_write_of_constants, in_python,
          in_a_vocabulary)  # fmt: skip


def model(stage: Callable[[Path, Any], Any], guarded: Path, place: Path) -> str:
    """A training graph in a file, with an op planted; TensorFlow, which builds it, may touch the files."""
    with tf.Graph().as_default() as graph:
        features, targets = batches((FEATURES, TARGETS), 4)
        used = stage(guarded, features)
        finish(tf.reduce_mean(squared_error(used, targets, variable("w", (3, 1)))),
               tf1.train.GradientDescentOptimizer(0.1))  # fmt: skip
    place.write_bytes(graph.as_graph_def(add_shapes=False).SerializeToString())
    return str(place)


def test_tensorflow_itself_reads_the_file_when_it_imports_the_graph(guarded_folder: Path, watch: Callable[[], Watch],
                                                                    tmp_path: Path) -> None:  # fmt: skip
    path = model(in_a_shape, guarded_folder, tmp_path / "model.pb")
    looking = watch()
    with tf.Graph().as_default():
        tf1.import_graph_def(tf1.GraphDef.FromString(Path(path).read_bytes()))
    assert looking.touched(), "or the watch sees nothing, and the tests below say nothing"


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_no_command_that_looks_at_a_graph_touches_a_file(stage: Callable[[Path, Any], Any], guarded_folder: Path,
                                                         watch: Callable[[], Watch], tmp_path: Path,
                                                         capfd: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    path = model(stage, guarded_folder, tmp_path / "model.pb")
    held = sorted(os.listdir(guarded_folder))
    looking = watch()
    for words in (["inspect"], ["check", "--num_replicas=2"]):
        assert cli.main([*words, path]) in (0, 1, 2)
        assert not looking.touched(), words
    converted = cli.main(["convert", path, "--num_replicas=2", "-o", str(tmp_path / "tpu.pb")])
    assert not looking.touched(), "convert"
    if converted == 0:
        for words in (["inspect"], ["check"], ["compile", "-o", str(tmp_path / "step.tpugraph")]):
            cli.main([*words, str(tmp_path / "tpu.pb")])
            assert not looking.touched(), f"{words} of the converted graph"
    assert "Traceback" not in capfd.readouterr().err
    assert sorted(os.listdir(guarded_folder)) == held


def test_a_bundle_needs_no_file_of_a_table(guarded_folder: Path, watch: Callable[[], Watch], tmp_path: Path) -> None:
    path = model(in_a_table, guarded_folder, tmp_path / "model.pb")
    looking = watch()
    code = cli.main(["compile", path, "-o", str(tmp_path / "step.tpugraph"), "--num_replicas=2"])
    assert not looking.touched()
    assert code != 0 or (tmp_path / "step.tpugraph").exists()


def test_a_bundle_whose_variables_begin_with_a_file_is_refused(guarded_folder: Path, tmp_path: Path,
                                                               command: Command) -> None:  # fmt: skip
    path = model(in_an_initialiser, guarded_folder, tmp_path / "model.pb")
    said = command.refused("compile", path, "-o", tmp_path / "step.tpugraph", "--num_replicas=2")
    assert "an op would be run that reads a file" in said
    assert "ReadFile" in said
    assert not (tmp_path / "step.tpugraph").exists()


def test_the_ops_that_reach_outside_are_known() -> None:
    folded = sorted(op for op in ops.REACH if ops.is_folded_away(op))
    assert {"ReadFile", "MatchingFiles", "GenerateVocabRemapping", "ImmutableConst", "PyFuncStateless",
            "DebugIdentity"} <= set(folded)  # fmt: skip
    assert all(not ops.op_def(op).is_stateful for op in folded)
    assert all(ops.op_def(op) is not None for op in ops.REACH)
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session as native

    every = op_def_pb2.OpList.FromString(native.TF_GetBuffer(native.TF_GetAllOpList()))
    names = {"filename", "filenames", "file_pattern", "pattern", "memory_region_name", "new_vocab_file", "ckpt_path"}
    folded = {definition.name for definition in every.op if not definition.is_stateful
              and names & {part.name for part in (*definition.input_arg, *definition.attr)}}  # fmt: skip
    harmless = {"RegexFullMatch", "RegexReplace", "StaticRegexFullMatch", "StaticRegexReplace"}
    assert folded - harmless <= set(ops.REACH)


def test_an_imported_graph_is_not_written_with_what_keeps_it_from_running(guarded_folder: Path, tmp_path: Path) -> None:
    from tpugraph.analysis import shapes

    graph = graphdef.load(model(in_a_shape, guarded_folder, tmp_path / "model.pb"))
    shapes.infer(graph)
    assert not any("_kernel" in node.attr for node in graphdef.to_graph_def(graph).node)


def test_what_a_graph_reads_and_writes(guarded_folder: Path, tmp_path: Path) -> None:
    read = graphdef.load(model(in_a_constant, guarded_folder, tmp_path / "read.pb"))
    assert files_touched(read) == {"reads": [f"{guarded_folder}/file"]}
    written = graphdef.load(model(in_the_step, guarded_folder, tmp_path / "written.pb"))
    assert files_touched(written) == {"writes": [f"{guarded_folder}/written"]}
    assert [found.words for found in side_effects(written, written)] == ["writes a file"]


def test_run_lists_the_files_first(tmp_path: Path, in_corpus: Path, command: Command) -> None:
    said = command("run", "mnist_cnn_no_dropout/model.pb", "--steps=1", "--num_replicas=1").out.splitlines()
    assert "reads       mnist.tfrecords" in said
    first = next(place for place, line in enumerate(said) if line.startswith("step 1"))
    assert said.index("reads       mnist.tfrecords") < first

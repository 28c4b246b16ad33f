"""Files become graphs by their content, and bad files become one clear error."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format

from models import corpus, tf1
from tpugraph import testing
from tpugraph.ir import function_library, graphdef

IRIS = corpus("iris_dnn").folder


def definition(name: str = "iris_dnn") -> tf1.GraphDef:
    return tf1.GraphDef.FromString((corpus(name).folder / "model.pb").read_bytes())


@pytest.fixture
def written(tmp_path: Path):
    def write(data: bytes | str, name: str = "model.pb") -> Path:
        place = tmp_path / name
        place.write_bytes(data if isinstance(data, bytes) else data.encode())
        return place

    return write


@pytest.mark.parametrize(
    ("name", "kind"), [("model.pb", "GraphDef"), ("graph.pbtxt", "GraphDef"), ("model.ckpt-0.meta", "MetaGraphDef")]
)
def test_each_kind_is_told_by_content_and_is_the_same_graph(name: str, kind: str, tmp_path: Path) -> None:
    shutil.copy(IRIS / name, tmp_path / "misleading.jpg")
    assert graphdef.sniff(tmp_path / "misleading.jpg").kind == kind
    assert testing.graph_text(graphdef.load(IRIS / name)) == testing.graph_text(graphdef.load(IRIS / "model.pb"))


def test_a_model_dir(tmp_path: Path) -> None:
    for step, name in ((0, "iris_dnn"), (100, "ref_variables")):
        shutil.copy(corpus(name).folder / "model.ckpt-0.meta", tmp_path / f"model.ckpt-{step}.meta")
    assert graphdef.sniff(tmp_path).path.name == "model.ckpt-100.meta"
    (tmp_path / "text").mkdir()
    shutil.copy(IRIS / "graph.pbtxt", tmp_path / "text" / "graph.pbtxt")
    assert len(graphdef.load(tmp_path / "text")) == len(graphdef.load(IRIS / "model.pb"))


def test_kinds_of_files(tmp_path: Path, written) -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2], name="x")
        y = tf.identity(x * 2.0, name="y")
        tf1.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": y})
    assert "y" in graphdef.load(tmp_path / "saved")
    assert graphdef.sniff(tmp_path / "saved" / "saved_model.pb").kind == "SavedModel"
    meta = tf1.MetaGraphDef.FromString((IRIS / "model.ckpt-0.meta").read_bytes())
    assert graphdef.sniff(written(text_format.MessageToString(meta))).kind == "MetaGraphDef"
    graph = graphdef.load(IRIS / "model.ckpt-0.meta")
    assert "dense/kernel" in graph.collections["trainable_variables"]
    assert "train_op" in graph.collections
    assert graphdef.load(IRIS / "model.pb").collections == {}
    graph = corpus("mnist_cnn").graph()
    assert function_library.functions_named(graph)
    graphdef.save(graph, tmp_path / "again.pb")
    again = graphdef.load(tmp_path / "again.pb")
    assert function_library.functions_named(again).keys() == function_library.functions_named(graph).keys()


def test_no_graph_there(tmp_path: Path) -> None:
    testing.assert_raises_block(graphdef.load, tmp_path / "no.pb", words=["there is no file", "no.pb"], max_length=400)
    testing.assert_raises_block(graphdef.load, tmp_path, words=["holds no graph", "model_dir"], max_length=400)


def test_an_op_that_this_tensorflow_does_not_know(written) -> None:
    graph = definition()
    graph.node.add(name="strange", op="FrobnicateV7")
    graph.node.add(name="stranger", op="Frobnicate")
    testing.assert_raises_block(graphdef.load, written(graph.SerializeToString()), max_length=500,
                                words=[tf.__version__, "ops Frobnicate, FrobnicateV7", "strange", "load_op_library"])  # fmt: skip


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    graph = corpus("iris_dnn").graph()
    place = tmp_path / "no" / "folder" / "model.pb"
    testing.assert_raises_block(graphdef.save, graph, place, words=["cannot be written"], max_length=400)
    graphdef.save(graph, tmp_path / "model.pb")
    assert [p.name for p in tmp_path.iterdir()] == ["model.pb"]


def test_a_graph_beyond_two_gigabytes_names_its_biggest_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphdef, "_MAX_BYTES", 10_000)
    testing.assert_raises_block(graphdef.serialize, definition(), max_length=500,
                                words=["more than the 2 GiB", "MiB", "constants"])  # fmt: skip

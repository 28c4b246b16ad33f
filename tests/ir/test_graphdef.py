"""Files become graphs by their content, and bad files become one clear error."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format

from models import CORPUS, ORACLE, corpus, tf1
from tpugraph import testing
from tpugraph.ir import function_library, graphdef
from tpugraph.support.errors import LoadError

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


@pytest.mark.parametrize("name", ["model.pb", "graph.pbtxt", "model.ckpt-0.meta"])
def test_each_kind_is_the_same_graph(name: str) -> None:
    assert testing.graph_text(graphdef.load(IRIS / name)) == testing.graph_text(graphdef.load(IRIS / "model.pb"))


@pytest.mark.parametrize(
    ("name", "kind"), [("model.pb", "GraphDef"), ("graph.pbtxt", "GraphDef"), ("model.ckpt-0.meta", "MetaGraphDef")]
)
def test_the_kind_is_told_by_content(name: str, kind: str, tmp_path: Path) -> None:
    shutil.copy(IRIS / name, tmp_path / "misleading.jpg")
    assert graphdef.sniff(tmp_path / "misleading.jpg").kind == kind


def test_collections_travel_with_a_metagraph() -> None:
    graph = graphdef.load(IRIS / "model.ckpt-0.meta")
    assert "dense/kernel" in graph.collections["trainable_variables"]
    assert "train_op" in graph.collections
    assert graphdef.load(IRIS / "model.pb").collections == {}


def test_a_model_dir_is_its_newest_meta(tmp_path: Path) -> None:
    for step, name in ((0, "iris_dnn"), (100, "ref_variables")):
        shutil.copy(corpus(name).folder / "model.ckpt-0.meta", tmp_path / f"model.ckpt-{step}.meta")
    assert graphdef.sniff(tmp_path).path.name == "model.ckpt-100.meta"


def test_a_model_dir_without_meta_is_its_text_graph(tmp_path: Path) -> None:
    shutil.copy(IRIS / "graph.pbtxt", tmp_path / "graph.pbtxt")
    assert len(graphdef.load(tmp_path)) == len(graphdef.load(IRIS / "model.pb"))


def test_a_saved_model(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2], name="x")
        y = tf.identity(x * 2.0, name="y")
        tf1.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": y})
    assert "y" in graphdef.load(tmp_path / "saved")
    assert graphdef.sniff(tmp_path / "saved" / "saved_model.pb").kind == "SavedModel"


def test_a_metagraph_as_text(written) -> None:
    meta = tf1.MetaGraphDef.FromString((IRIS / "model.ckpt-0.meta").read_bytes())
    assert graphdef.sniff(written(text_format.MessageToString(meta))).kind == "MetaGraphDef"


def test_the_function_library_travels(tmp_path: Path) -> None:
    graph = corpus("mnist_cnn").graph()
    assert function_library.functions_named(graph)
    graphdef.save(graph, tmp_path / "again.pb")
    again = graphdef.load(tmp_path / "again.pb")
    assert function_library.functions_named(again).keys() == function_library.functions_named(graph).keys()


def test_every_oracle_loads() -> None:
    for path in sorted(ORACLE.glob("*.pb")):
        assert len(graphdef.load(path)) > 100


BAD: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", ["is empty", "copy the file again"]),
    "cut off": ((IRIS / "model.pb").read_bytes()[:-1000], ["cut off"]),
    "cut off in the middle": ((IRIS / "model.pb").read_bytes()[:40_000], []),
    "random": (bytes((i * 7919 + i // 251) % 256 for i in range(5000)), ["not a graph"]),
    "text of another kind": (b"Hello, this is no graph.\n" * 50, ["text, but not a graph"]),
    "a text graph that is cut off": ((IRIS / "graph.pbtxt").read_bytes()[:5001], ["text, but not a graph"]),
    "Keras weights": (b"\x89HDF\r\n\x1a\n" + b"\0" * 100, ["HDF5", "not a graph"]),
    "a zip": (b"PK\x03\x04" + b"\0" * 100, ["zip archive"]),
    "a gzip": (b"\x1f\x8b\x08" + b"\0" * 100, ["gunzip"]),
    "a checkpoint": ((IRIS / "model.ckpt-0.index").read_bytes(), ["not a graph"]),
    "records": ((CORPUS / "mnist.tfrecords").read_bytes()[:3000], ["not a graph"]),
    "zeros": (b"\0" * 1000, ["not a graph"]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_clear_error(name: str, written) -> None:
    data, words = BAD[name]
    place = written(data)
    error = testing.assert_raises_block(graphdef.load, place, words=words, max_length=700, kind=LoadError)
    assert error.fix


def test_nothing_there(tmp_path: Path) -> None:
    testing.assert_raises_block(graphdef.load, tmp_path / "no.pb", words=["there is no file", "no.pb"], max_length=400)


def test_a_folder_without_a_graph(tmp_path: Path) -> None:
    testing.assert_raises_block(graphdef.load, tmp_path, words=["holds no graph", "model_dir"], max_length=400)


def test_two_nodes_of_one_name(written) -> None:
    graph = definition()
    graph.node.add().CopyFrom(graph.node[5])
    testing.assert_raises_block(graphdef.load, written(graph.SerializeToString()), max_length=400,
                                words=["two nodes have the name", graph.node[5].name])  # fmt: skip


@pytest.mark.parametrize("text", ["gone", "gone:1", "^gone"])
def test_an_input_that_is_not_there(written, text: str) -> None:
    graph = definition()
    graph.node[-1].input.append(text)
    testing.assert_raises_block(graphdef.load, written(graph.SerializeToString()), max_length=400,
                                words=["'gone' is not in the graph", graph.node[-1].name, "cut off"])  # fmt: skip


def test_an_input_behind_a_control_input(written) -> None:
    graph = definition()
    graph.node[-1].input.extend([f"^{graph.node[0].name}", graph.node[1].name])
    testing.assert_raises_block(graphdef.load, written(graph.SerializeToString()), max_length=400,
                                words=[f"'{graph.node[1].name}' stands behind a control input", graph.node[-1].name])  # fmt: skip


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


def test_control_inputs_come_last() -> None:
    graph = testing.parse("a = Test()\nb = Test(a, a:2) ^a")
    assert list(graphdef.to_graph_def(graph).node[1].input) == ["a", "a:2", "^a"]

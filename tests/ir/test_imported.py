"""What TensorFlow knows of a graph follows its edits, and no graph that it refuses leaves the compiler."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from models import corpus, trace
from tpugraph import compiler
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, attrs, graphdef, imported
from tpugraph.ir.imported import Imported

FLOAT, INT = attrs.dtype("float32"), attrs.dtype("int32")


def small() -> Graph:
    def build() -> None:
        x = tf.compat.v1.placeholder(tf.float32, [4, 6], "x")
        wide = tf.reshape(x, tf.constant([3, 8], name="size"), name="wide")
        tf.identity(tf.nn.relu(wide, name="relu"), name="end")
        tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x), name="while")

    graph = trace(build)
    shapes.infer(graph)
    return graph


def assert_as_imported_whole(graph: Graph, held: Imported) -> None:
    whole = Imported(graph)
    whole.update()
    assert {node.name: held.outputs(node) for node in graph} == {node.name: whole.outputs(node) for node in graph}


def other_size(graph: Graph) -> None:
    graph.set_attr(graph["size"], "value", np.asarray([2, 12], np.int32))


def other_input(graph: Graph) -> None:
    node = graph.add("Placeholder", "other", attrs={"dtype": FLOAT, "shape": (2, 12)}, outputs=[(FLOAT, (2, 12))])
    graph.set_input(graph["relu"], 0, node.out())


def other_op(graph: Graph) -> None:
    graph.retype(graph["wide"], "Shape", inputs=[graph["x"].out()], attrs={"T": FLOAT, "out_type": INT})
    graph.set_attr([graph["relu"], graph["end"]], "T", INT)


def copies(graph: Graph) -> None:
    for node in graph.clone_subgraph(
        [graph["wide"], graph["relu"], graph["size"]], lambda name: f"{name}/copy"
    ).values():
        node.outputs = None


@pytest.mark.parametrize("edit", [other_size, other_input, other_op, copies])
def test_an_edit_and_all_that_follows_from_it_are_imported_again(edit: Callable[[Graph], None]) -> None:
    graph = small()
    edit(graph)
    shapes.infer(graph)
    assert_as_imported_whole(graph, graph.imported)
    assert {node.name: node.outputs for node in graph} == {node.name: graph.imported.outputs(node) for node in graph}


def test_nothing_is_imported_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small()
    imported: list[list[str]] = []
    inner = Imported._import
    monkeypatch.setattr(Imported, "_import",
                        lambda self, nodes: (imported.append([n.name for n in nodes]), inner(self, nodes)))  # fmt: skip
    shapes.infer(graph)
    graph.set_device(graph["relu"], "/device:CPU:0")
    graph.add_control(graph["end"], graph["x"])
    shapes.infer(graph)
    assert imported == []
    other_size(graph)
    shapes.infer(graph)
    assert imported == [["size", "wide"], ["relu"], ["end"]]


@pytest.mark.parametrize("name", ["iris_dnn", "while_cond", "lstm_dynamic", "ref_variables"])
def test_what_is_known_of_a_converted_graph_is_what_a_whole_import_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Graph] = []
    inner = shapes.check

    def checked(graph: Graph) -> None:
        inner(graph)
        assert_as_imported_whole(graph, graph.imported)
        seen.append(graph)

    monkeypatch.setattr(shapes, "check", checked)
    compiler.convert(corpus(name).graph())
    assert seen
    assert seen[0].imported is None


def whole() -> tf.compat.v1.GraphDef:
    """A graph with a function of its library, devices and operations that ask to be placed beside others."""

    @tf.function
    def twice(x: tf.Tensor) -> tf.Tensor:
        return x * 2.0

    def build() -> None:
        with tf.device("/device:CPU:0"):
            x = tf.compat.v1.placeholder(tf.float32, [2], "x")
        with tf.compat.v1.colocate_with(x.op):
            tf.identity(twice(x), name="end")

    return graphdef.to_graph_def(trace(build))


def test_another_tensorflow_imports_it_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(imported.native, "TF_GraphImportGraphDefWithResultsNoSerialization")
    assert {op.name for op in shapes.import_graph_def(whole()).get_operations()} >= {"x", "end"}

"""Operands and attributes over which TensorFlow's own shape functions end the process are refused in words."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tensorflow as tf

from campaigns.graph_mutants import op_graph
from models import trace
from tpugraph import cli, ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, attrs, graphdef
from tpugraph.support.errors import GraphError, TpuGraphError

tf1 = tf.compat.v1
GUARDED = sorted(ops.TRUSTED)


def looked_up() -> None:
    rows = tf1.placeholder(tf.float32, [4, 5], "rows")
    which = tf1.placeholder(tf.int32, [4, 2], "which")
    tf.gather(rows, which, batch_dims=1, axis=1, name="chosen")


def split() -> None:
    rows = tf1.placeholder(tf.float32, [4, 5], "rows")
    tf.split(rows, tf1.placeholder(tf.int32, [2], "sizes"), axis=1, num=2, name="parts")


def definition_of(build: Callable[[], None]) -> Any:
    with tf.Graph().as_default() as graph:
        build()
    return graph.as_graph_def()


def test_what_tensorflow_checks_passes_and_is_written_without_guards(tmp_path: Path) -> None:
    graph = trace(looked_up)
    shapes.infer(graph)
    assert graph["chosen"].out().shape == (4, 2)
    parts = trace(split)
    shapes.infer(parts)
    assert [len(shape or ()) for _, shape in parts["parts"].outputs or []] == [2, 2]
    graph = trace(looked_up)
    shapes.infer(graph)
    graphdef.save(graph, tmp_path / "model.pb")
    written = tf1.GraphDef.FromString((tmp_path / "model.pb").read_bytes())
    assert {node.name for node in written.node} == {node.name for node in graph}
    assert not any(text.startswith("^") for node in written.node for text in node.input)


def test_ranks_are_looked_at_behind_edits_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    definition = definition_of(looked_up)
    next(node for node in definition.node if node.op == "GatherV2").attr["batch_dims"].i = 7
    with pytest.raises(GraphError, match="input 1 has another rank than 7 or more"):
        shapes.infer(graphdef.from_graph_def(definition))
    (tmp_path / "damaged.pb").write_bytes(definition.SerializeToString())
    assert cli.main(["convert", str(tmp_path / "damaged.pb"), f"--output={tmp_path / 'out.pb'}"]) == 2
    said = capsys.readouterr().err
    assert "error: TensorFlow refuses the graph" in said
    assert "chosen (GatherV2)" in said
    assert not (tmp_path / "out.pb").exists()
    graph: Graph = trace(split)
    shapes.infer(graph)
    kind = attrs.dtype("int32")
    sizes = graph.add("Placeholder", "number", attrs={"dtype": kind, "shape": ()}, outputs=[(kind, ())])
    graph.set_input(graph["parts"], 1, sizes.out())
    with pytest.raises(GraphError, match="input 1 has another rank than 1"):
        shapes.infer(graph)


def test_ops_at_random_end_no_process() -> None:
    met = Counter[str]()
    for op in GUARDED:
        for number in range(25):
            definition = op_graph(Random(f"{op}/{number}"), op)
            try:
                shapes.infer(
                    graphdef.from_graph_def(definition)
                )  # a fault of TensorFlow's would be the end of this test
                met["shapes"] += 1
            except TpuGraphError:
                met["refused"] += 1
    assert met["shapes"] >= len(GUARDED)
    assert met["refused"] >= len(GUARDED)


@pytest.mark.parametrize("op", ["SplitV", "GatherV2"])
def test_a_function_that_is_run_is_looked_at_first(op: str) -> None:
    def read() -> None:
        rows = tf1.data.Dataset.range(6).map(lambda i: tf.split(tf.fill([4], i), [2, 2])[0])
        rows = rows.map(lambda row: tf.gather(row, tf.constant([0, 1])))
        tf1.data.make_one_shot_iterator(rows.batch(2)).get_next(name="rows")

    definition = definition_of(read)
    shapes.import_graph(graphdef.from_graph_def(definition))
    function = next(f for f in definition.library.function if any(node.op == op for node in f.node_def))
    node = next(node for node in function.node_def if node.op == op)
    if op == "GatherV2":
        node.attr["batch_dims"].i = 9
    else:
        sizes = next(other for other in function.node_def if node.input[1].startswith(f"{other.name}:"))
        sizes.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(2, dtype=sizes.attr["dtype"].type))
    with pytest.raises(
        GraphError, match=rf"in the function '{function.signature.name}': .* input 1 has another rank than"
    ) as refusal:
        shapes.import_graph(graphdef.from_graph_def(definition))
    assert "correct the function where the graph is written" in refusal.value.block()

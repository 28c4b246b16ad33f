"""How two graphs differ: additions, removals and changes by meaning; and what each pass of a conversion changed."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from models import corpus
from tpugraph import cli, testing
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.difference import difference
from tpugraph.ir.text import changed_lines

IRIS = Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn" / "model.pb"
PLAIN = """
x = Placeholder() {dtype: float32}
w = Const() {dtype: float32, value: float32[]2.0}
layer/product = Mul(x, w) {T: float32}
layer/out = Relu(layer/product) {T: float32}
loss = Neg(layer/out) {T: float32}
"""


def between(before: str, after: str) -> list[str]:
    """The difference of two graphs as text, one line a fact."""
    found = difference(testing.parse(before), testing.parse(after))
    lines = [f"+ {name}" for name in found.added] + [f"- {name}" for name in found.removed]
    return lines + [f"{change.node}: {text}" for change in found.changed for _, text in change.facts]


def edited(old: str, new: str) -> str:
    assert old in PLAIN
    return PLAIN.replace(old, new)


def test_the_order_of_nodes_is_ignored_and_a_renamed_node_is_another() -> None:
    lines = PLAIN.strip().splitlines()
    random.Random(3).shuffle(lines)
    assert between(PLAIN, "\n".join(lines)) == []
    assert not difference(corpus("iris_dnn").graph(), corpus("iris_dnn").graph())
    assert between(PLAIN, PLAIN.replace("layer/out", "out")) == [
        "+ out",
        "- layer/out",
        "loss: input 0: layer/out -> out",
    ]


def test_changes_of_inputs_devices_and_op_types() -> None:
    assert between(PLAIN, edited("Relu(layer/product)", "Relu(x)")) == ["layer/out: input 0: layer/product -> x"]
    assert between(PLAIN, edited("Relu(layer/product)", "Relu(layer/product) ^w")) == [
        "layer/out: control input added: w"
    ]
    assert between(edited("Relu(layer/product)", "Relu(layer/product) ^w"), PLAIN) == [
        "layer/out: control input removed: w"
    ]
    assert between(
        PLAIN, edited("loss = Neg(layer/out) {T: float32}", "loss = Neg(layer/out) {T: float32} @/device:CPU:0")
    ) == ["loss: device: none -> /device:CPU:0"]
    assert between(PLAIN, edited("= Relu(", "= Elu(")) == ["layer/out: Relu -> Elu"]
    after = edited("loss = Neg(layer/out)", "id = Identity(layer/out) {T: float32}\nloss = Neg(id)")
    assert between(PLAIN, after) == ["+ id", "loss: input 0: layer/out -> id"]
    assert between(after, PLAIN) == ["- id", "loss: input 0: id -> layer/out"]


def test_defaults_inferred_shapes_and_storage_mean_nothing() -> None:
    before = "a = Const() {dtype: float32, value: float32[4][1.0, 1.0, 1.0, 1.0]}\nb = MatMul(a, a) {T: float32}"
    after = before.replace("{T: float32}", "{T: float32, transpose_a: false, _output_shapes: ([4])}")
    stored = graphdef.to_graph_def(testing.parse(after))
    stored.node[0].attr["value"].tensor.tensor_content = b""
    stored.node[0].attr["value"].tensor.float_val[:] = [1.0]  # one value stands for all
    assert not difference(testing.parse(before), graphdef.from_graph_def(stored))
    stored.node[0].attr["value"].tensor.float_val[:] = [np.nan]
    assert difference(testing.parse(before), graphdef.from_graph_def(stored))
    nan = graphdef.from_graph_def(stored)
    assert not difference(nan, graphdef.from_graph_def(stored))


def test_functions_are_compared_by_name() -> None:
    def library(**bodies: str) -> Graph:
        graph_def = graphdef.to_graph_def(testing.parse("x = NoOp()"))
        for name, description in bodies.items():
            graph_def.library.function.add().signature.name = name
            graph_def.library.function[-1].signature.description = description
        return graphdef.from_graph_def(graph_def)

    found = difference(library(f="1", g="1", h="1"), library(g="1", h="2", i="1"))
    assert found.functions == {"f": "removed", "h": "changed", "i": "added"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    converted = tmp_path / "iris_tpu.pb"
    program = convert(IRIS)
    program.save(converted)
    assert cli.main(["diff", str(IRIS), str(converted), "--json"]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["added_ops"]["TPUReplicateMetadata"] == 1
    assert {"node": "Adagrad/update_dense/kernel/ApplyAdagrad", "op": "ResourceApplyAdagrad"}.items() <= next(
        change for change in found["changed"] if "update_dense/kernel" in change["node"]
    ).items()
    size = len(program.graph_def.node)
    assert f"{IRIS}: 427 nodes; {converted}: {size} nodes" in printed.err
    assert "more that were changed; --all lists all" in printed.err
    assert cli.main(["diff", str(IRIS), str(converted), "--all"]) == 1
    assert "more that were" not in capsys.readouterr().out
    assert cli.main(["diff", str(IRIS), str(IRIS)]) == 0
    assert capsys.readouterr().out.endswith("\nthe same graph\n")
    assert cli.main(["diff", str(IRIS)]) == 2
    assert "'tpugraph diff' needs a second model, OTHER" in capsys.readouterr().err
    assert cli.main(["convert", str(IRIS), "--dry_run", "--dump_changed", "--json"]) == 0
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert "\n16 entry-points\n" in printed.err


def test_what_each_pass_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert changed_lines(["a = A()", "b = B()", "d = D()"], ["b = B2()", "c = C()", "d = D()"]) == [
        "- a = A()", "- b = B()", "+ b = B2()", "+ c = C()",
    ]  # fmt: skip
    convert(IRIS, ConvertOptions(dump_changed=True, dump_after=("pad-lookups", "partition")))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "05 pad-lookups: nothing changed"
    assert lines[1] == "10 partition"
    assert all(line.startswith(("- ", "+ ")) for line in lines[2:])
    assert any(line.startswith("+ CrossReplicaSum = CrossReplicaSum(") for line in lines)
    assert not any("BatchDatasetV2 = " in line for line in lines)  # the input keeps all but its inferred shapes

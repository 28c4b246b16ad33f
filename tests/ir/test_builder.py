"""Made nodes: what their operands decide is not said again."""

import numpy as np
import pytest

from tpugraph import testing
from tpugraph.ir import Graph, attrs
from tpugraph.ir.builder import Builder
from tpugraph.support.errors import GraphError

INT32 = attrs.dtype("int32")


def test_dtypes_and_counts_follow_from_the_operands() -> None:
    graph = Graph()
    make = Builder(graph, "s", device="/cpu:0", marks={"_mark": "m"})
    rows = make.placeholder(attrs.dtype("float32"), (2, 3), name="rows")
    joined = make.add("ConcatV2", [rows, rows, make.constant(0, INT32, name="axis")], (4, 3))
    make.node("SaveV2", [make.constant(np.asarray(["x"], object), attrs.dtype("string"))] * 3 + [joined], name="save")
    assert testing.graph_text(graph) == (
        's/rows = Placeholder() {_mark: "m", dtype: float32, shape: [2,3]} @/cpu:0 : float32[2,3]\n'
        's/axis = Const() {_mark: "m", dtype: int32, value: int32[]0} @/cpu:0 : int32[]\n'
        's/ConcatV2 = ConcatV2(s/rows, s/rows, s/axis) {N: 2, T: float32, Tidx: int32, _mark: "m"} @/cpu:0 : float32[4,3]\n'
        's/const = Const() {_mark: "m", dtype: string, value: object[1]["x"]} @/cpu:0 : string[1]\n'
        's/save = SaveV2(s/const, s/const, s/const, s/ConcatV2) {_mark: "m", dtypes: (float32)} @/cpu:0\n'
    )


def test_dtypes_of_outputs_follow_from_attributes_and_defaults() -> None:
    graph = Graph()
    make = Builder(graph)
    x = make.placeholder(attrs.dtype("float32"), None)
    assert make.add("Shape", [x], (2,)).dtype == INT32
    assert make.add("Shape", [x], (2,), out_type=attrs.dtype("int64")).dtype.name == "int64"
    merge = make.node("Merge", [x, x], shapes=[()])
    assert merge.outputs == [(x.dtype, ()), (INT32, None)]
    assert make.cast(x, INT32).dtype == INT32
    entered = make.enter(x, "loop")
    assert (entered.node.attr("frame_name"), entered.node.attr("is_constant"), entered.dtype) == ("loop", True, x.dtype)


def test_nodes_know_for_whose_sake_they_were_made() -> None:
    graph = testing.parse("x = Placeholder() {dtype: float32, shape: [1]} : float32[1]")
    made = Builder(graph, "copy", source=graph["x"], made_by="someone").identity(
        graph["x"].out(), controls=[graph["x"]]
    )
    assert (made.node.origin, made.node.made_by, made.node.controls) == ("x", "someone", (graph["x"],))
    assert Builder(graph).reshape(made, [1, 1]).shape == (1, 1)
    handle = Builder(graph, "v").variable(INT32, (), name="count")
    assert (handle.name, handle.attr("shared_name"), handle.out().dtype.name) == ("v/count", "v/count", "resource")


def test_what_cannot_be_known_is_refused() -> None:
    make = Builder(Graph())
    with pytest.raises(GraphError, match="TensorFlow has no op 'NoSuchOp'"):
        make.node("NoSuchOp")
    with pytest.raises(GraphError, match=r"a new ReadVariableOp lacks the attribute .dtype."):
        make.node("ReadVariableOp", [make.variable(INT32, (), name="v").out()])

"""The door: a graph that is not as TensorFlow defines it is refused once, with one block, before TensorFlow sees it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2, types_pb2

from models import corpus, tf1
from tpugraph import testing
from tpugraph.ir import graphdef
from tpugraph.support.errors import LoadError
from tpugraph.support.process import without_garbage_collection

Edit = Callable[[Any], None]
NODES = """
node { name: "x" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1 } } } }
node { name: "n" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
       attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } }
node { name: "neg" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "pack" op: "Pack" input: "x" input: "neg" attr { key: "T" value { type: DT_FLOAT } }
       attr { key: "N" value { i: 2 } } attr { key: "axis" value { i: 0 } } }
node { name: "split" op: "Split" input: "n" input: "pack" attr { key: "T" value { type: DT_FLOAT } }
       attr { key: "num_split" value { i: 2 } } }
node { name: "conv" op: "MaxPool" input: "pack" attr { key: "T" value { type: DT_FLOAT } } attr { key: "padding" value { s: "SAME" } }
       attr { key: "ksize" value { list { i: [1, 2, 2, 1] } } } attr { key: "strides" value { list { i: [1, 1, 1, 1] } } } }
node { name: "call" op: "f" input: "x" }
node { name: "last" op: "NoOp" input: "^call" }
library { function {
  signature { name: "f" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "r" type: DT_FLOAT } }
  node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
             attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 } } } }
  node_def { name: "m" op: "Mul" input: "a" input: "c:output:0" attr { key: "T" value { type: DT_FLOAT } } }
  ret { key: "r" value: "m:z:0" } } }
"""


def sound() -> Any:
    return text_format.Parse(NODES, graph_pb2.GraphDef())


def node(graph: Any, name: str) -> Any:
    return next(held for held in graph.node if held.name == name)


def refuse(edit: Edit, *words: str) -> LoadError:
    graph = sound()
    edit(graph)
    return testing.assert_raises_block(
        lambda: graphdef.from_graph_def(graph, source="model.pb"),
        words=[*words, "model.pb"],
        max_length=500,
        kind=LoadError,
    )


ATTRIBUTES: dict[str, tuple[Edit, str]] = {
    "missing": (lambda g: node(g, "neg").attr.pop("T"), "the attribute 'T' of Neg is missing ... neg (Neg)"),
    "unknown": (lambda g: setattr(node(g, "neg").attr["speed"], "i", 3), "Neg has no attribute 'speed'"),
    "nameless": (lambda g: setattr(node(g, "neg").attr[""], "i", 3), "an attribute has no name"),
    "nameless and empty": (lambda g: node(g, "neg").attr[""].Clear(), "an attribute has no name"),
    "kind": (lambda g: setattr(node(g, "neg").attr["T"], "i", 1), "the attribute 'T' holds int, not type"),
    "no dtype": (lambda g: setattr(node(g, "neg").attr["T"], "type", 99), "'T' holds 99, which is no dtype of a tensor"),
    "reference": (lambda g: setattr(node(g, "neg").attr["T"], "type", 101), "'T' holds 101, which is no dtype"),
    "dtype not taken": (lambda g: setattr(node(g, "neg").attr["T"], "type", 7), "'T' is string, which Neg does not take"),
    "text not taken": (lambda g: setattr(node(g, "conv").attr["padding"], "s", b"MOST"), "'padding' is 'MOST', which MaxPool"),
    "list too short": (lambda g: node(g, "conv").attr["ksize"].list.i.pop(), "'ksize' is a list of 3, less than 4"),
    "list of others": (lambda g: node(g, "conv").attr["ksize"].list.s.append(b"x"), "'ksize' holds list, not list(int)"),
    "too small": (lambda g: setattr(node(g, "split").attr["num_split"], "i", 0), "'num_split' is 0, less than 1"),
    "claims inputs": (
        lambda g: setattr(node(g, "pack").attr["N"], "i", 10**9),
        "claims 1,000,000,000 inputs of Pack; it has 2",
    ),
    "claims outputs": (lambda g: setattr(node(g, "split").attr["num_split"], "i", 10**9), "1,000,000,000 outputs of Split"),
}  # fmt: skip


def _shape(graph: Any, *sizes: int) -> None:
    shape = node(graph, "x").attr["value"].tensor.tensor_shape
    del shape.dim[:]
    for size in sizes:
        shape.dim.add(size=size)


CONSTANTS: dict[str, tuple[Edit, str]] = {
    "negative": (lambda g: _shape(g, -5), "a shape with a dimension of -5"),
    "open": (lambda g: _shape(g, -1), "of an unknown shape"),
    "deep": (lambda g: _shape(g, *[1] * 300), "a shape of 300 dimensions"),
    "huge": (lambda g: _shape(g, 10**9, 10**9, 10**9), "elements; at most"),
    "dtype": (lambda g: setattr(node(g, "x").attr["value"].tensor, "dtype", 3), "another dtype than it declares"),
    "short": (lambda g: setattr(node(g, "x").attr["value"].tensor, "tensor_content", b"abc"), "it holds 3 bytes"),
    "long": (lambda g: node(g, "x").attr["value"].tensor.float_val.extend([1.0] * 5), "it holds 6 values, but its shape makes 2"),
}  # fmt: skip


def _text(field: str, value: str, name: str = "neg") -> Edit:
    return lambda graph: setattr(node(graph, name), field, value)


def _input(name: str, *texts: str) -> Edit:
    def edit(graph: Any) -> None:
        del node(graph, name).input[:]
        node(graph, name).input.extend(texts)

    return edit


NODES_AND_EDGES: dict[str, tuple[Edit, str]] = {
    "name": (_text("name", "a b", "last"), "'a b' is no name of a node"),
    "name with a line": (_text("name", "a\nb", "last"), r"'a\nb' is no name of a node"),
    "name with an underscore": (_text("name", "_last", "last"), "'_last' is no name of a node"),
    "device": (_text("device", "/gpu:"), "'/gpu:' is no device"),
    "op": (_text("op", "Frobnicate"), "does not know the op Frobnicate"),
    "twice": (_text("name", "x"), "two nodes have the name 'x'"),
    "too few": (_input("neg"), "Neg takes 1 input here and has 0"),
    "too many": (_input("neg", "x", "x"), "Neg takes 1 input here and has 2"),
    "dtype": (_input("neg", "n"), "input 0, 'n', is int32, and Neg takes float32"),
    "port": (_input("neg", "split:2"), "input 0 is output 2 of 'split', which has 2"),
    "no port": (_input("neg", "x:one"), "the input 'x:one' names no output"),
    "nothing": (_input("neg", "y"), "the input 'y' names no node"),
    "control with a port": (_input("last", "^call:0"), "the control input '^call:0' names an output"),
    "behind a control": (_input("neg", "^x", "x"), "stands behind a control input"),
    "circle": (_input("neg", "neg"), "a cycle that is no loop: neg"),
    "circle of controls": (lambda g: node(g, "x").input.append("^split"), "a cycle that is no loop"),
}


def _function(graph: Any) -> Any:
    return graph.library.function[0]


def _calls_itself(graph: Any) -> None:
    other = graph.library.function.add()
    other.CopyFrom(_function(graph))
    other.signature.name = "g"
    other.node_def.add(name="back", op="f", input=["a"])
    _function(graph).node_def.add(name="on", op="g", input=["a"])


FUNCTIONS: dict[str, tuple[Edit, str]] = {
    "attribute": (lambda g: _function(g).node_def[1].attr.pop("T"), "'f': the attribute 'T' of Mul ... m (Mul)"),
    "constant": (lambda g: setattr(_function(g).node_def[0].attr["value"].tensor, "tensor_content", b"abc"), "it holds 3 bytes"),
    "input": (lambda g: _function(g).node_def[1].input.__setitem__(1, "d:output:0"), "the input 'd:output:0' names no node"),
    "output": (lambda g: _function(g).node_def[1].input.__setitem__(1, "c:result:0"), "'c:result:0' names no output"),
    "number": (lambda g: _function(g).node_def[1].input.__setitem__(1, "c:output:7"), "output 7 of 'c', which has 1"),
    "dtype": (lambda g: setattr(_function(g).signature.input_arg[0], "type", 3), "input 0, 'a', is int32, and Mul takes float32"),
    "result": (lambda g: _function(g).ret.pop("r"), "the result 'r' is not computed"),
    "result dtype": (lambda g: setattr(_function(g).signature.output_arg[0], "type", 3), "the result 'r' takes int32"),
    "circle": (lambda g: _function(g).node_def[1].input.__setitem__(0, "m:z:0"), "a cycle that is no loop"),
    "op": (lambda g: setattr(_function(g).node_def[1], "op", "Frobnicate"), "does not know the op Frobnicate"),
    "two of a name": (lambda g: g.library.function.add().CopyFrom(_function(g)), "there are two functions of that name"),
    "recursion": (_calls_itself, "the function 'f' calls itself"),
    "gradient": (lambda g: g.library.gradient.add(function_name="f", gradient_func="h"), "the gradient function 'h'"),
}  # fmt: skip


FAULTS = [*ATTRIBUTES.items(), *NODES_AND_EDGES.items(), *FUNCTIONS.items(),
          *((name, (edit, f"the constant 'x' ... {words}")) for name, (edit, words) in CONSTANTS.items())]  # fmt: skip


@pytest.mark.parametrize(("edit", "words"), [found for _, found in FAULTS], ids=[name for name, _ in FAULTS])
def test_what_tensorflow_does_not_define_is_refused(edit: Edit, words: str) -> None:
    refuse(edit, *words.split(" ... "))


def loop() -> Any:
    with tf.Graph().as_default() as graph:
        tf1.disable_control_flow_v2()
        tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2.0), [0, tf.constant(1.0)])
    return graph.as_graph_def()


LOOPS: dict[str, tuple[Edit, str]] = {
    "no beginning": (lambda g: _as_identity(g, "while/Enter"), "LoopCond stands outside of any loop"),
    "no return": (lambda g: setattr(node(g, "while/NextIteration"), "op", "Identity"), "a cycle that is no loop"),
    "no condition": (lambda g: _as_identity(g, "while/LoopCond"), "the loop 'while/while_context' has no condition"),
    "two loops": (lambda g: setattr(node(g, "while/Enter_1").attr["frame_name"], "s", b"other"), "are in different loops"),
}  # fmt: skip


def _as_identity(graph: Any, name: str) -> None:
    held = node(graph, name)
    kind = held.attr["T"].type or types_pb2.DT_BOOL
    held.op = "Identity"
    held.attr.clear()
    held.attr["T"].type = kind


@pytest.mark.parametrize("name", list(LOOPS))
def test_loops(name: str) -> None:
    graph = loop()
    graphdef.from_graph_def(graph)
    LOOPS[name][0](graph)
    testing.assert_raises_block(lambda: graphdef.from_graph_def(graph, source="model.pb"), words=[LOOPS[name][1]],
                                max_length=500, kind=LoadError)  # fmt: skip


# --------------------------------------------------------------------------- what holds for every file


def test_damaged_files(tmp_path: Any) -> None:
    meta = tf1.MetaGraphDef.FromString((corpus("iris_dnn").folder / "model.ckpt-0.meta").read_bytes())
    meta.collection_def["trainable_variables"].bytes_list.value[0] = b"\xff\xff"
    place = tmp_path / "model.meta"
    place.write_bytes(meta.SerializeToString())
    testing.assert_raises_block(lambda: graphdef.load(place), kind=LoadError,
                                words=["the collection 'trainable_variables' is damaged"])  # fmt: skip
    place = tmp_path / "model.pbtxt"
    place.write_text('node { attr { key: "f" value { ' + "func { attr { value { " * 5000, encoding="utf-8")
    testing.assert_raises_block(lambda: graphdef.load(place), max_length=400, kind=LoadError,
                                words=["text, but not a graph"])  # fmt: skip


def test_large_claims_are_refused_at_once() -> None:
    graph = sound()
    for name in ("N", "num_split"):
        holder = "pack" if name == "N" else "split"
        node(graph, holder).attr[name].i = 10**9
        started = time.perf_counter()
        with pytest.raises(LoadError):
            graphdef.from_graph_def(graph)
        assert time.perf_counter() - started < 1
    graph = graph_pb2.GraphDef()
    graph.node.add().CopyFrom(node(sound(), "x"))
    for index in range(40):
        held = graph.node.add(name=f"u{index}", op="Unpack", input=["x"])
        held.attr["T"].type = types_pb2.DT_FLOAT
        held.attr["num"].i = 60_000
    with pytest.raises(LoadError, match="claim 2,400,001 outputs together"):
        graphdef.from_graph_def(graph)


def test_constants_that_hold_fewer_values_than_elements() -> None:
    graph = sound()
    _shape(graph, 10**6, 10**4)
    value = graphdef.from_graph_def(graph)["x"].attr("value")
    assert value.shape == (10**6, 10**4)
    assert value.strides == (0, 0)
    assert np.float32(1) == value[7, 7]
    graph = sound()
    held = node(graph, "x").attr
    held["dtype"].type = held["value"].tensor.dtype = types_pb2.DT_STRING
    held["value"].tensor.ClearField("float_val")
    del graph.node[2:]
    assert graphdef.from_graph_def(graph)["x"].attr("value").tolist() == [b"", b""]
    graph = sound()
    node(graph, "x").attr["value"].tensor.float_val.append(2)
    _shape(graph, 1000, 1000)
    value = graphdef.from_graph_def(graph)["x"].attr("value")
    assert (value[0, 0], value[0, 1], value[999, 999]) == (1, 2, 2)
    _shape(graph, 10**6, 10**6)
    with pytest.raises(LoadError, match="claims 1,000,000,000,000 elements and holds 2"):
        graphdef.from_graph_def(graph)
    held = node(graph, "x").attr
    held["dtype"].type = held["value"].tensor.dtype = types_pb2.DT_STRING
    _shape(graph, 100_000)
    with pytest.raises(LoadError, match="claims 100,000 elements and holds 0"):
        graphdef.from_graph_def(graph)


def test_the_door_takes_time_in_proportion_to_the_graph() -> None:
    def chain(count: int) -> Any:
        graph = graph_pb2.GraphDef()
        graph.node.add().CopyFrom(node(sound(), "x"))
        for index in range(count):
            held = graph.node.add(name=f"n{index}", op="Neg", input=[graph.node[index].name])
            held.attr["T"].type = types_pb2.DT_FLOAT
        return graph

    def seconds(graph: Any) -> float:
        best = 9.0
        for _ in range(3):
            started = time.process_time()
            with without_garbage_collection():
                graphdef.from_graph_def(graph)
            best = min(best, time.process_time() - started)
        return best

    small, large = seconds(chain(4_000)), seconds(chain(32_000))
    assert large < small * 8 * 2.5

"""A converted graph has the form of the graphs that TensorFlow 1.15's own TPUEstimator built from the same models."""

import functools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from models import CORPUS, ORACLE, corpus
from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER_ATTR, in_cluster
from tpugraph.compiler import convert
from tpugraph.ir import Graph, Node, graphdef
from tpugraph.tpu.invariants import ENTRY_POINTS

CORES = 8
MODELS = {"iris_dnn": "iris_tpu.pb", "mnist_cnn": "mnist_cnn_tpu.pb"}
DTYPES_OF_AN_INFEED = {"bool", "int32", "int64", "uint32", "bfloat16", "float32", "complex64", "uint8", "int8"}


@functools.cache
def converted(name: str) -> Graph:
    program = convert(corpus(name).folder / "model.pb", num_replicas=CORES)
    return graphdef.from_graph_def(program.graph_def, source=name)


@functools.cache
def oracle(name: str) -> Graph:
    return graphdef.load(ORACLE / MODELS[name])


@pytest.fixture(params=sorted(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["ours", "oracle"])
def graph(name: str, request: pytest.FixtureRequest) -> Graph:
    """Ours, and the oracle, so that each rule below is checked against what it was read from."""
    return converted(name) if request.param == "ours" else oracle(name)


def one(graph: Graph, op: str) -> Node:
    found = graph.of_type(op)
    assert len(found) == 1, f"{len(found)} {op}"
    return found[0]


def dtypes(node: Node) -> list[str]:
    return [str(d) for d in node.attr("dtypes")]


def source_variable(node: Node) -> str:
    """The variable that a handle operand leads to."""
    while node.op in ("Enter", "Identity", "TPUReplicatedInput"):
        node = node.inputs[0].node
    assert node.op == "VarHandleOp"
    return node.name


def device_frame(graph: Graph) -> tuple[dict[Node, str], str]:
    frames = analysis.frames(graph)
    return frames, frames[one(graph, "InfeedDequeueTuple")]


# ------------------------------------------------------------------ the system


def test_system_ops_entry_points_and_metadata(name: str) -> None:
    graph = converted(name)
    for op in ("ConfigureDistributedTPU", "ShutdownDistributedTPU"):
        assert one(graph, op).device.endswith("/device:TPU_SYSTEM:0")
        assert not one(graph, op).inputs
    assert [entry for entry in ENTRY_POINTS if entry not in converted(name)] == []
    ours, theirs = one(converted(name), "TPUReplicateMetadata"), one(oracle(name), "TPUReplicateMetadata")
    for attr in theirs.raw_attrs:
        if attr not in (CLUSTER_ATTR, "_output_shapes"):
            assert ours.attr(attr) == theirs.attr(attr), attr
    assert [c.op for c in ours.controls] == [c.op for c in theirs.controls] == ["NoOp"]
    assert not in_cluster(ours.controls[0])
    graph = converted(name)
    for node in graph:
        if in_cluster(node) and node.op != "TPUReplicateMetadata":
            assert all(in_cluster(c) for c in node.controls), node
        if not in_cluster(node) and node.op != "TPUCompilationResult":
            assert not any(in_cluster(c) for c in node.controls), node


def test_the_cluster(graph: Graph) -> None:
    assert len({node.attr(CLUSTER_ATTR) for node in graph if in_cluster(node)}) == 1
    status = one(graph, "TPUCompilationResult")
    assert status.attr("_tpu_compilation_status") == one(graph, "TPUReplicateMetadata").attr(CLUSTER_ATTR)
    assert one(graph, "TPUReplicateMetadata") in status.controls
    frames, frame = device_frame(graph)
    assert [n.name for n in graph if frames[n] == frame and not in_cluster(n)] == []
    # What is outside and read inside is a variable's handle or a TPUReplicatedInput
    outside = {t.node.op for n in graph if in_cluster(n) for t in n.inputs if not in_cluster(t.node)}
    assert outside <= {"VarHandleOp", "TPUReplicatedInput"}
    outputs = graph.of_type("TPUReplicatedOutput")
    assert outputs
    for output in outputs:
        assert output.attr("num_replicas") == CORES
        marked = output.inputs[0].node
        assert marked.op == "Identity"
        assert marked.attr("_tpu_output_identity") is True
        assert in_cluster(marked)
        assert not in_cluster(output)
    leaks = [
        n for n in graph if not in_cluster(n) and n.op != "TPUReplicatedOutput" for t in n.inputs if in_cluster(t.node)
    ]
    assert leaks == []


# ------------------------------------------------------------------ loops


def test_the_device_loop(graph: Graph) -> None:
    frames, frame = device_frame(graph)
    conditions = [n for n in graph.of_type("LoopCond") if frames[n] == frame]
    assert len(conditions) == 1
    less = conditions[0].inputs[0].node
    assert less.op == "Less"
    assert less.inputs[0].node.op == "Merge"
    assert less.inputs[1].node.op == "ReadVariableOp"
    limit = graph[source_variable(less.inputs[1].node.inputs[0].node)]
    assert str(limit.attr("dtype")) == "int32"
    assert limit.attr("shape") == ()
    assert limit.name.endswith("iterations_per_loop")
    # Each Merge closes over a NextIteration, each Exit leaves from a Switch, handles enter as loop constants
    merges = [n for n in graph.of_type("Merge") if frames[n] == frame and n.inputs[0].node.op == "Enter"]
    assert len(merges) == 2  # the counter and the loss
    for merge in merges:
        assert [t.node.op for t in merge.inputs] == ["Enter", "NextIteration"]
    exits = [n for n in graph.of_type("Exit") if frames[n] == frame]
    assert all(n.inputs[0].node.op == "Switch" and n.inputs[0].port == 0 for n in exits)
    for enter in graph.of_type("Enter"):
        if frames[enter] == frame and str(enter.attr("T")) == "resource":
            assert enter.attr("is_constant") is True


def test_the_infeed_loop_is_on_the_host(graph: Graph) -> None:
    frames = analysis.frames(graph)
    enqueues = graph.of_type("InfeedEnqueueTuple")
    (frame,) = {frames[n] for n in enqueues}
    assert frame
    assert {frames[n] for n in graph.of_type("IteratorGetNext")} == {frame}
    nodes = [n for n in graph if frames[n] == frame]
    assert not any(in_cluster(n) for n in nodes)
    enters = [n for n in nodes if n.op == "Enter"]
    assert {n.attr("parallel_iterations") for n in enters} == {1}
    assert {n.device for n in nodes if n.op in ("InfeedEnqueueTuple", "IteratorGetNext")} == {
        "/job:tpu_worker/task:0/device:CPU:0"
    }


# ------------------------------------------------------------------ infeed and outfeed


def test_one_enqueue_a_core_with_what_the_dequeue_takes(graph: Graph) -> None:
    dequeue = one(graph, "InfeedDequeueTuple")
    enqueues = graph.of_type("InfeedEnqueueTuple")
    assert sorted(n.attr("device_ordinal") for n in enqueues) == list(range(CORES))
    for node in enqueues:
        assert dtypes(node) == dtypes(dequeue)
        assert node.attr("shapes") == dequeue.attr("shapes")
        assert all(None not in shape for shape in node.attr("shapes"))
        assert len(node.inputs) == len(dtypes(node))
    assert set(dtypes(dequeue)) <= DTYPES_OF_AN_INFEED
    assert dequeue.device == "/device:TPU_REPLICATED_CORE:0"
    assert [c.op for c in dequeue.controls] == ["Identity"]  # the pivot of the loop's body


def test_infeed_tensors_are_the_oracles(name: str) -> None:
    """The oracle splits a batch of another size; a core gets the same dtypes and, rows aside, the same shapes."""
    ours, theirs = one(converted(name), "InfeedDequeueTuple"), one(oracle(name), "InfeedDequeueTuple")

    def kinds(node: Node) -> list[tuple[str, int]]:
        return sorted(zip(dtypes(node), (int(np.prod(s[1:])) for s in node.attr("shapes")), strict=True))

    if name == "iris_dnn":
        assert kinds(ours) == kinds(theirs)
    else:  # its images are decoded bytes: ours cross as bytes and are cast on the device
        assert [size for _, size in kinds(ours)] == [size for _, size in kinds(theirs)]


def test_outfeed(graph: Graph) -> None:
    enqueue = one(graph, "OutfeedEnqueueTuple")
    assert in_cluster(enqueue)
    assert enqueue.device == "/device:TPU_REPLICATED_CORE:0"
    dequeues = graph.of_type("OutfeedDequeueTuple")
    assert sorted(n.attr("device_ordinal") for n in dequeues) == list(range(CORES))
    for node in dequeues:
        assert dtypes(node) == dtypes(enqueue)
        assert all(len(shape) >= 1 and None not in shape for shape in node.attr("shapes"))
    assert dtypes(enqueue)[0] == "float32"
    assert dequeues[0].attr("shapes")[0] == (1,)  # the loss, as a vector
    before = graph.ancestors([one(graph, "OutfeedEnqueueTuple")])
    for node in graph:
        if node.op in ops.WRITES and in_cluster(node):
            assert node in before


# ------------------------------------------------------------------ gradients and variables


def updates(graph: Graph) -> dict[str, Node]:
    """The optimizer's apply ops in the cluster, by variable."""
    return {source_variable(n.inputs[0].node): n for n in graph if in_cluster(n) and n.op.startswith("ResourceApply")}


def test_every_apply_reads_a_sum(graph: Graph) -> None:
    found = updates(graph)
    assert found
    for variable, node in found.items():
        summed = node.inputs[ops.WRITES[node.op].value].node
        while summed.op in ops.IDENTITIES:
            summed = summed.inputs[0].node
        assert summed.op == "CrossReplicaSum", variable
        groups = summed.inputs[1].node
        assert groups.op == "Const"
        assert in_cluster(groups)
        assert groups.attr("value").tolist() == [list(range(CORES))]


def test_updates_sums_and_checkpoint_keys_are_the_oracles(name: str) -> None:
    ours = {variable: node.op for variable, node in updates(converted(name)).items()}
    theirs = {variable: node.op for variable, node in updates(oracle(name)).items()}
    assert ours == theirs
    ours = [n for n in converted(name).of_type("CrossReplicaSum") if analysis.frames(converted(name))[n]]
    theirs = oracle(name).of_type("CrossReplicaSum")
    assert len(ours) == len(theirs) == len(updates(oracle(name)))

    def keys(node: Node) -> set[str]:
        return {key.decode() for key in node.inputs[1].node.attr("value").tolist()}

    assert keys(converted(name)["tpugraph/save"]) == keys(oracle(name)["save/SaveV2"])


def test_variables_and_constants_of_the_loop(graph: Graph) -> None:
    assert graph.of_type(*ops.REF_VARIABLES) == []
    assert not any(n.op in ("Assign", "AssignAdd") or n.op.startswith("Apply") for n in graph if in_cluster(n))
    frames, frame = device_frame(graph)
    reads = [n for n in graph.of_type("ReadVariableOp") if in_cluster(n)]
    assert reads
    assert all(frames[n] == frame for n in reads)
    # A constant of the body without a control input would be outside the loop's frame
    frames, frame = device_frame(graph)
    for node in graph.of_type("Const"):
        if in_cluster(node) and any(frames.get(c) == frame and c.op != "Enter" for c in node.consumers()):
            assert node.controls, node
            assert all(in_cluster(c) for c in node.controls)


# ------------------------------------------------------------------ the whole


@pytest.mark.parametrize("name", sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir()))
def test_every_converted_graph_imports(name: str) -> None:
    program = convert(corpus(name).folder / "model.pb")
    with tf.Graph().as_default() as imported:
        tf.compat.v1.import_graph_def(program.graph_def, name="")
    assert len(imported.get_operations()) == len(program.graph_def.node)
    kinds = Counter(node.op for node in program.graph_def.node)
    assert kinds["TPUReplicateMetadata"] == 1
    assert kinds["InfeedEnqueueTuple"] == kinds["OutfeedDequeueTuple"] == program.report["num_replicas"]

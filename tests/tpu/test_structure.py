"""A converted graph has the form of the graphs that TensorFlow 1.15's own TPUEstimator built from the same models."""

import functools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from models import CORPUS, GOLDEN, ORACLE, corpus
from tpugraph import analysis, ops
from tpugraph.analysis import CLUSTER_ATTR, in_cluster
from tpugraph.compiler import convert
from tpugraph.ir import Graph, Node, graphdef
from tpugraph.tpu.form_check import missing_entry_points

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


LOOPS = frozenset("Enter Exit LoopCond Merge NextIteration Switch".split())
TPU = frozenset(
    "InfeedDequeueTuple InfeedEnqueueTuple TPUCompilationResult TPUReplicateMetadata TPUReplicatedOutput".split()
)


def form(graph: Graph) -> set[str]:
    """A line per kind of node in the device loop, the infeed loop and the cluster."""
    frames, found = analysis.frames(graph), set()
    loops = {frames[graph.of_type(op)[0]]: name for op, name in (("InfeedDequeueTuple", "device loop"),
                                                                 ("InfeedEnqueueTuple", "infeed loop"))}  # fmt: skip
    for node in graph:
        if node.op in TPU or (node.op in LOOPS and frames[node] in loops):
            entered = [node.attr(name) for name in ("T", "is_constant", "parallel_iterations") if node.op == "Enter"]
            reads = [t.node.op for t in node.inputs if node.op in LOOPS - {"Enter"} or node.op == "TPUReplicatedOutput"]
            waits = sorted({f"^{control.op}" for control in node.controls})
            place = (
                "cluster" if in_cluster(node) else "host",
                loops.get(frames[node], "no loop"),
                node.device or "no device",
            )
            found.add(f"{' '.join(map(str, [node.op, *entered]))}({', '.join([*reads, *waits])}): {', '.join(place)}")
    return found


def test_the_loops_and_the_cluster_have_the_recorded_form(graph: Graph) -> None:
    """Handles enter as constants, each Merge closes over a NextIteration, and the infeed loop runs on the host."""
    assert sorted(form(graph)) == (GOLDEN / "structure" / "loops.txt").read_text(encoding="utf-8").splitlines()


# ------------------------------------------------------------------ the system


def test_system_ops_entry_points_and_metadata(name: str) -> None:
    graph = converted(name)
    for op in ("ConfigureDistributedTPU", "ShutdownDistributedTPU"):
        assert one(graph, op).device.endswith("/device:TPU_SYSTEM:0")
        assert not one(graph, op).inputs
    assert missing_entry_points(graph, "train") == []
    ours, theirs = one(graph, "TPUReplicateMetadata"), one(oracle(name), "TPUReplicateMetadata")
    for attr in theirs.raw_attrs:
        if attr not in (CLUSTER_ATTR, "_output_shapes"):
            assert ours.attr(attr) == theirs.attr(attr), attr
    assert not in_cluster(ours.controls[0])
    for node in graph:
        if in_cluster(node) and node.op != "TPUReplicateMetadata":
            assert all(in_cluster(c) for c in node.controls), node
        if not in_cluster(node) and node.op != "TPUCompilationResult":
            assert not any(in_cluster(c) for c in node.controls), node


def test_the_cluster(graph: Graph) -> None:
    assert len({node.attr(CLUSTER_ATTR) for node in graph if in_cluster(node)}) == 1
    status = one(graph, "TPUCompilationResult")
    assert status.attr("_tpu_compilation_status") == one(graph, "TPUReplicateMetadata").attr(CLUSTER_ATTR)
    frames = analysis.frames(graph)
    frame = frames[one(graph, "InfeedDequeueTuple")]
    assert [n.name for n in graph if frames[n] == frame and not in_cluster(n)] == []
    # What is outside and read inside is a variable's handle or a TPUReplicatedInput
    outside = {t.node.op for n in graph if in_cluster(n) for t in n.inputs if not in_cluster(t.node)}
    assert outside <= {"VarHandleOp", "TPUReplicatedInput"}
    for output in graph.of_type("TPUReplicatedOutput"):
        assert output.attr("num_replicas") == CORES
        assert output.inputs[0].node.attr("_tpu_output_identity") is True
    read = {t.node: n.op for n in graph if not in_cluster(n) for t in n.inputs if in_cluster(t.node)}
    assert set(read.values()) == {"TPUReplicatedOutput"}
    # The limit of the loop is a variable, and the loop reads its variables in each iteration
    (less,) = {n.inputs[0].node for n in graph.of_type("LoopCond") if frames[n] == frame}
    limit = graph[source_variable(less.inputs[1].node.inputs[0].node)]
    assert (less.op, str(limit.attr("dtype")), limit.attr("shape")) == ("Less", "int32", ())
    assert limit.name.endswith("iterations_per_loop")
    assert {frames[n] for n in graph.of_type("ReadVariableOp") if in_cluster(n)} == {frame}
    assert graph.of_type(*ops.REF_VARIABLES) == []
    # A constant of the body without a control input would be outside the loop's frame
    for node in graph.of_type("Const"):
        if in_cluster(node) and any(frames.get(c) == frame and c.op != "Enter" for c in node.consumers()):
            assert node.controls, node


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

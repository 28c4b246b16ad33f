from dataclasses import replace

import pytest
import tensorflow as tf

from models import by_hand, check, finish, linear, squared_error, tf1, trains_on_cores
from tpugraph import testing
from tpugraph.analysis import in_cluster
from tpugraph.analysis.step import Results
from tpugraph.ir import Graph
from tpugraph.passes.replicate import Replicate


def test_golden_step() -> None:
    graph = check(Replicate(num_replicas=2), "step", num_replicas=2, iterations_per_loop=3)
    roots = [n for n in graph if in_cluster(n) and not n.inputs and n.op != "TPUReplicateMetadata"]
    assert all(n.controls for n in roots), "a root of the cluster waits for the metadata or for the loop"


@pytest.mark.parametrize("cores", [1, 2, 8])
@trains_on_cores(relative=2e-5, absolute=1e-6, rows=2)
def test_any_number_of_cores(rows: int, cores: int) -> None:
    finish(tf.reduce_mean(squared_error(*linear(rows))), tf1.train.MomentumOptimizer(0.1, 0.9))


def test_the_loop_comes_first() -> None:
    graph = testing.parse(
        'infeed = InfeedDequeueTuple() {dtypes: (float32), shapes: ([2]), _tpu_replicate: "cluster"} : float32[2]'
    )
    testing.assert_raises_block(testing.run_pass, Replicate(), graph,
                                words=["before replicate", "outside the device loop", "training-loop"])  # fmt: skip


DEVICE = '_tpu_replicate: "cluster"} @/device:TPU_REPLICATED_CORE:0'
STEP = f"""
    limit = TPUReplicatedInput() : int32[]
    share = Test() {{{DEVICE} : float32[]
    loop = Test() {{_output_shapes: ([2]), {DEVICE} : float32[2]
    fed = Neg(loop) {{T: float32, {DEVICE} : float32[2]
    waits = Test() ^loop {{{DEVICE} : float32[2]
    called = Test(limit) {{{DEVICE} : float32[2]
    loss = Identity(share) {{T: float32, {DEVICE} : float32[]
    train = NoOp() ^loss {{{DEVICE}
    """


def replicated(cores: int, *, mode: str = "train") -> Graph:
    graph = testing.parse(STEP)
    graph.keep(Results({"train": "share", "enqueue": "kept"}))
    testing.run_pass(Replicate(num_replicas=cores), graph, roles=replace(by_hand(graph), mode=mode))
    return graph


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_the_cluster_holds_one_copy_and_an_output_for_each_core(cores: int) -> None:
    graph = replicated(cores)
    assert len([node for node in graph if in_cluster(node)]) == 11
    output = graph["tpugraph/loss/replicated"]
    assert (output.attr("num_replicas"), len(output.outputs or ())) == (cores, cores)
    assert graph["TPUReplicateMetadata"].attr("num_replicas") == cores
    assert not any(node.has_attr("_output_shapes") for node in graph)  # inference has made new ones


@pytest.mark.parametrize("mode", ["eval", "predict"])
def test_without_training_nothing_is_summed(mode: str) -> None:
    graph = replicated(4, mode=mode)
    assert not graph.of_type("CrossReplicaSum")
    assert graph["tpugraph/loss/output"].inputs[0] == graph["share"].out()


def test_what_a_session_runs_is_read_from_core_0() -> None:
    assert replicated(2).result(Results).names == {"train": "tpugraph/loss/core_0", "enqueue": "kept"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"late = Test(limit) {{{DEVICE} : int32[]\nlimit = Test() : int32[]", ["fed_by_infeed", "reads 'limit'", "pass infeed"]),
        (f"y = Test() {{{DEVICE} : int32[]\nread = Test(y)", ["fed_to_outfeed", "reads 'y'", "pass outfeed"]),
    ],
)  # fmt: skip
def test_the_host_and_the_device_are_apart_before(line: str, words: list[str]) -> None:
    testing.assert_raises_block(testing.run_pass, Replicate(), testing.parse(line), words=["before replicate", *words])

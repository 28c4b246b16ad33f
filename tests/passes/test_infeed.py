from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from models import assert_same_on_cores, batches, check, finish, rows_of, squared_error, tf1, trace, variable
from tpugraph import testing
from tpugraph.analysis.step import Cut, Enqueues
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.passes.infeed import Infeed
from tpugraph.roles.evaluation_roles import NO_LOSS
from tpugraph.roles.findings import Roles
from tpugraph.support.errors import ConversionError

SGD = tf1.train.GradientDescentOptimizer


@pytest.mark.parametrize(("case", "cores"), [("step", 2), ("one_core", 1)])
def test_golden(case: str, cores: int) -> None:
    graph = check(Infeed(num_replicas=cores), case, num_replicas=cores)
    assert graph.result(Enqueues).nodes == tuple(f"tpugraph/infeed/enqueue/{core}" for core in range(cores))


def test_open_rows_are_padded_and_come_back_with_their_number() -> None:
    """What a string lookup finds has another number of rows in each batch."""
    ids = np.random.default_rng(1).integers(0, 6, (96, 3)).astype(np.int64)

    def build(rows: int) -> None:
        number, targets = batches((ids, rows_of(96, 1)[1]), rows)
        text = tf.strings.as_string(number)
        kept = tf1.where(tf.not_equal(text, "3"))
        buckets = tf.strings.to_hash_bucket_fast(tf.gather_nd(text, kept), 8)
        picked = tf.cast(buckets, tf.float32) * variable("scale", ())
        summed = tf1.unsorted_segment_sum(picked, kept[:, 0], rows)
        finish(tf.reduce_mean(tf.square(summed - targets)), SGD(1e-3))

    program = convert(trace(lambda: build(8)), num_replicas=2)
    graph = graphdef.from_graph_def(program.graph_def)
    (dequeue,) = graph.of_type("InfeedDequeueTuple")
    assert all(None not in shape for shape in dequeue.attr("shapes"))
    assert graph.of_type("XlaSetDynamicDimensionSize")
    assert_same_on_cores(build)


def test_the_host_works_once_a_step_for_all_cores() -> None:
    def build() -> None:
        features, targets = batches(rows_of(96, 3), 8)
        word = tf.strings.as_string(tf.random.uniform([8], seed=4))
        noise = tf.cast(tf.strings.to_hash_bucket_fast(word, 3), tf.float32)
        finish(tf.reduce_mean(squared_error(features, targets + noise, variable("w", (3, 1)))), SGD(0.01))

    graph = graphdef.from_graph_def(convert(trace(build), num_replicas=4).graph_def)
    assert [len(graph.of_type(op)) for op in ("IteratorGetNext", "RandomUniform", "StringToHashBucketFast")] == [1] * 3


def test_a_step_without_input() -> None:
    graph = testing.parse('x = Const() {dtype: float32, value: float32[]1.0, _tpu_replicate: "cluster"} : float32[]')
    testing.assert_raises_block(testing.run_pass, Infeed(), graph, kind=ConversionError,
                                words=["infeed", "reads no host tensor", "--train_op"])  # fmt: skip


HOST = """
    it = IteratorV2() {container: "", output_shapes: ([2,3]), output_types: (float32), shared_name: ""} : resource[]
    batch = IteratorGetNext(it) {output_shapes: ([2,3]), output_types: (float32)} : float32[2,3]
    table = Const() {dtype: float32, value: float32[3][1.0, 2.0, 3.0]} : float32[3]
    """
DEVICE = '{T: float32, _tpu_replicate: "cluster"} @/device:TPU_REPLICATED_CORE:0'
STEP = f"""{HOST}
    x = Neg(batch) {{T: float32}} : float32[2,3]
    y = Mul(x, table) {DEVICE} : float32[2,3]
    z = Mul(y, x) {DEVICE} : float32[2,3]
    """


def infeed(text: str, *, cores: int, results: Sequence[object] = ()) -> tuple[Graph, str]:
    """A replica program behind the pass, where each core takes its own batch, and the edits of the pass."""
    graph = testing.parse(text)
    graph.roles = Roles(NO_LOSS, [], None, [], {}, [], replica=True)
    for result in (Cut(), *results):
        graph.keep(result)
    return graph, str(testing.run_pass(Infeed(num_replicas=cores), graph))


def reads(graph: Graph, name: str) -> list[str]:
    return [str(tensor) for tensor in graph[name].inputs]


def test_a_core_takes_its_batch_behind_the_one_before() -> None:
    graph, edits = infeed(STEP, cores=3)
    assert edits == "+8 -0 ~5"  # new: what the device takes, three tuples, and two copies of batch and x
    assert len(graph.of_type("Const")) == 1  # the same for every core
    assert [graph[f"batch/core_{core}"].controls[0].name for core in (1, 2)] == ["batch", "batch/core_1"]
    for core in (1, 2):
        assert reads(graph, f"x/core_{core}") == [f"batch/core_{core}"]
        assert f"x/core_{core}" in reads(graph, f"tpugraph/infeed/enqueue/{core}")
        assert "table" in reads(graph, f"tpugraph/infeed/enqueue/{core}")


def test_random_numbers_beside_the_batch_are_drawn_for_each_core_and_stateless_ones_are_not() -> None:
    drawn = """
    size = Const() {dtype: int32, value: int32[1][3]} : int32[1]
    noise = RandomUniform(size) {T: int32, dtype: float32, seed: 1, seed2: 2} : float32[3]
    key = Const() {dtype: int32, value: int32[2][1, 2]} : int32[2]
    same = StatelessRandomUniform(size, key) {T: int32, Tseed: int32, dtype: float32} : float32[3]
    """
    graph, _ = infeed(f"{STEP}{drawn}w = Mul(noise, same) {DEVICE} : float32[3]", cores=2)
    assert len(graph.of_type("RandomUniform")) == 2
    assert len(graph.of_type("StatelessRandomUniform")) == 1
    assert "noise/core_1" in reads(graph, "tpugraph/infeed/enqueue/1")

"""What is cut out of a TPU graph for a compiler: arguments, results, random streams, dense updates, sizes that data decide."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from models import tf1
from tpugraph import analysis, testing
from tpugraph.analysis import shapes
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime.pjrt.devices import Devices
from tpugraph.support.errors import RunError
from tpugraph.xla import cut_cluster, jax_client, legalize, stateless_random
from tpugraph.xla.bridge import DataSized
from tpugraph.xla.module import Module, Value

IRIS = Path(__file__).parents[2] / "examples" / "iris" / "model.pb"


@pytest.fixture(scope="module")
def converted() -> bytes:
    return graphdef.serialize(convert(IRIS, num_replicas=2, iterations_per_loop=3).graph_def)


def cut(serialized: bytes) -> cut_cluster.Cluster:
    return cut_cluster.cut(graphdef.from_graph_def(tf1.GraphDef.FromString(serialized)))


def test_the_cluster_alone_is_left_with_arguments_for_what_it_reads(converted: bytes) -> None:
    found = cut(converted)
    assert all(analysis.in_cluster(node) or node.op == "Const" for node in found.graph)
    assert {t.shape[0] for t in found.infeed if t.shape} == {3}
    assert found.num_replicas == 2
    assert set(found.written) <= set(found.variables)
    assert "dense/kernel" in found.written
    assert not found.graph.of_type("InfeedDequeueTuple", "OutfeedEnqueueTuple", "TPUReplicateMetadata")


def test_a_plain_graph_has_no_cluster_to_cut_out() -> None:
    with pytest.raises(RunError, match="the graph has 0 TPU clusters, not one"):
        cut_cluster.cut(graphdef.load(IRIS))


def test_a_loop_that_counts_to_something_else_is_named(converted: bytes) -> None:
    graph = graphdef.from_graph_def(tf1.GraphDef.FromString(converted))
    condition = next(node for node in graph.of_type("LoopCond") if analysis.in_cluster(node))
    graph.retype(condition.inputs[0].node, "LessEqual")
    with pytest.raises(RunError, match=r"over its number of iterations \('.*' \(LessEqual\) is no Less\)"):
        cut_cluster.cut(graph)


def test_a_batch_of_open_size_has_no_buffer(converted: bytes) -> None:
    graph = graphdef.from_graph_def(tf1.GraphDef.FromString(converted))
    shapes.infer(graph)
    (take,) = graph.of_type("InfeedDequeueTuple")
    graph.set_outputs(take, [(kind, (None, *(shape or ())[1:])) for kind, shape in take.outputs or ()])
    with pytest.raises(RunError, match="its size is not known"):
        cut_cluster.cut(graph)


def test_random_ops_draw_from_the_seed_of_the_call(converted: bytes) -> None:
    found = cut(converted)
    mark = {"_tpu_replicate": "cluster"}
    kind = found.count.dtype
    shape = found.graph.add("Const", "shape", attrs={"dtype": kind, "value": np.array([2], np.int32), **mark},
                            outputs=[(kind, (1,))])  # fmt: skip
    drawn = found.graph.add("RandomUniform", "drawn", [shape.out()], outputs=[(found.infeed[0].dtype, (2,))],
                            attrs={"T": kind, "dtype": found.infeed[0].dtype, "seed": 1, "seed2": 2, **mark})  # fmt: skip
    found.streams[drawn] = True
    seed, own = stateless_random.own_streams(found)
    assert (seed.dtype.name, seed.shape) == ("int32", (2,))
    assert drawn.op == "StatelessRandomUniform"
    assert seed.node in found.graph.ancestors([drawn])
    assert own == ["drawn"]


SPARSE = """
    table = VarHandleOp() {dtype: float32, shape: [5,2], shared_name: "table", container: ""} : resource[]
    rate = Const() {dtype: float32, value: float32[]0.1} : float32[]
    rows = Placeholder() {dtype: float32, shape: [3,2]} : float32[3,2]
    numbers = Placeholder() {dtype: int32, shape: [3]} : int32[3]
    slot = VarHandleOp() {dtype: float32, shape: [5,2], shared_name: "slot", container: ""} : resource[]
    step = ResourceSparseApplyAdagrad(table, slot, rate, rows, numbers) {T: float32, Tindices: int32}
    """


def test_a_sparse_step_becomes_a_dense_one_where_rows_of_zeros_change_nothing() -> None:
    graph = testing.parse(SPARSE)
    count = graph["numbers"].out()
    found = cut_cluster.Cluster(graph, 1, 1, count, "", count, {})
    assert legalize.make_dense(found, dict.fromkeys(("table", "slot"), ("float32", (5, 2)))) == 1
    assert graph["step"].op == "ResourceApplyAdagrad"
    assert graph["step"].inputs[3].shape == (5, 2)


def test_the_first_node_whose_size_the_data_decide_is_blamed() -> None:
    graph: Graph = testing.parse("""
        x = Placeholder() {dtype: bool, shape: [4]} : bool[4]
        where = Where(x) {T: bool} : int64[?,1]
        more = Neg(where) {T: int64} : int64[?,1]
        other = Neg(x) {T: bool} : bool[4]
        """)
    found = DataSized(graph)
    assert found.behind("more") == "where"
    assert found.behind("other") == "other"
    assert found.fatal is None


def test_what_data_say_to_be_one_row_or_more_is_not_repeated_by_xla() -> None:
    """It would read the row as if there were as many as there may be."""
    graph = testing.parse("""
        x = Placeholder() {dtype: bool, shape: [4]} : bool[4]
        numbers = Placeholder() {dtype: int64, shape: [4, 1]} : int64[4,1]
        where = Where(x) {T: bool} : int64[?,1]
        twice = AddV2(where, where) {T: int64} : int64[?,1]
        beside = Sub(numbers, where) {T: int64} : int64[4,1]
        """)
    assert DataSized(graph).fatal == "beside"


@pytest.mark.parametrize(("dimensions", "images", "kernel", "strides", "groups"), [
    (("NHWC", "HWIO", "NHWC"), (4, 7, 5, 3), (3, 2, 3, 6), (1, 1), 1),
    (("NCHW", "OIHW", "NCHW"), (4, 6, 7, 5), (6, 2, 3, 2), (2, 1), 3),
    (("HNWC", "OHWI", "CWNH"), (7, 4, 5, 3), (6, 3, 2, 3), (1, 2), 1),
    (("NWC", "WIO", "NWC"), (4, 7, 3), (3, 3, 6), (2,), 1),
])  # fmt: skip
def test_convolutions_in_the_order_of_the_cpu_compute_the_same(
    dimensions: tuple[str, str, str],
    images: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    groups: int,
) -> None:
    """The gradients by images and kernel are convolutions of other orders."""

    def gradients(x: Any, k: Any) -> Any:
        def squares(x: Any, k: Any) -> Any:
            y = jax.lax.conv_general_dilated(
                x, k, strides, "SAME", dimension_numbers=dimensions, feature_group_count=groups
            )
            return (y * y).sum()

        return jax.grad(squares, (0, 1))(x, k)

    random = np.random.default_rng(1)
    x, k = (random.normal(size=shape).astype(np.float32) for shape in (images, kernel))
    code = jax.jit(gradients).lower(x, k).as_text().encode()
    parsed = jax_client.parse(code)
    jax_client.order_convolutions(parsed)
    space = ", ".join(map(str, range(len(strides))))
    assert str(parsed).count("stablehlo.convolution(") == str(parsed).count(f"[b, {space}, f]x[{space}, i, o]->") == 3
    takes, gives = (tuple(Value(kind, name, "float32", shape) for name, shape in (("x", images), ("k", kernel)))
                    for kind in ("host", "output"))  # fmt: skip
    _, found = Devices(Module(code, 1, 1, takes, gives)).run(1, (0, 0), [], {"x": x, "k": k})
    for name, wanted in zip("xk", gradients(x, k), strict=True):
        np.testing.assert_allclose(found[name], wanted, atol=1e-5 * float(abs(wanted).max()))


def test_products_are_exact_for_gpus() -> None:
    def step(x: Any, k: Any) -> Any:
        return jax.lax.conv(x, k, (1, 1), "SAME").reshape(4, -1) @ x.reshape(-1, 4)

    made = jax.jit(step).lower(np.ones((4, 3, 5, 5), "f"), np.ones((3, 3, 2, 2), "f"))
    parsed = jax_client.parse(made.as_text().encode())
    assert "HIGHEST" not in str(parsed)
    jax_client.exact_products(parsed)
    assert str(parsed).count("HIGHEST") == 4  # both operands of both
    assert parsed.operation.verify()

"""The step rewritten for the cores: local sizes, level values made as small as they are needed, and what is gathered."""

import pytest
import tensorflow as tf
from test_spmd import CASES, CORES, Build, counted, solved

from tpugraph.analysis import shapes
from tpugraph.ir import Graph
from tpugraph.rewrite.local_sizes import local_shape
from tpugraph.rewrite.partition import Rewriting


def rewritten(build: Build) -> tuple[Graph, Rewriting]:
    """The graph of one core, of which TensorFlow has inferred the shapes."""
    graph, demands = solved(build)
    step = Rewriting(demands.placing)
    step.apply()
    graph.set_attr(graph["x"], "shape", (8 // CORES, 6))
    shapes.infer(graph)
    return graph, step


@pytest.mark.parametrize("build", [build for build, _ in CASES.values()], ids=CASES)
def test_tensorflow_infers_the_shapes_that_placements_say(build: Build) -> None:
    plain = solved(build)[0]["end"].inputs[0]
    graph, step = rewritten(build)
    assert graph["end"].inputs[0].shape == local_shape(plain.shape, step.placing.read(graph.tensor(str(plain))), CORES)


LEVEL = {
    "zeros": lambda x, w: x + tf.zeros([8, 6]),
    "gradient of a mean": lambda x, w: tf.gradients(tf.reduce_mean(tf.square(x)), x)[0],
}


@pytest.mark.parametrize("build", LEVEL.values(), ids=LEVEL)
def test_of_a_level_value_each_core_makes_its_own_rows(build: Build) -> None:
    graph, _ = rewritten(build)
    assert not graph.of_type("Slice", "TPUReplicatedInput")


def test_rows_that_differ_are_cut_out_by_the_number_of_the_core() -> None:
    graph, _ = rewritten(CASES["a weight for each row"][0])
    assert [node.out().shape for node in graph.of_type("Slice")] == [(4, 1)]
    assert graph.of_type("TPUReplicatedInput")


def test_what_is_gathered_is_listed_with_its_bytes_and_why() -> None:
    _, step = rewritten(CASES["one row"][0])
    assert step.conversions.gathered == {"x": "192 bytes, for 'strided_slice' (StridedSlice): takes all rows together"}


def test_rows_are_gathered_that_are_as_long_as_data_say() -> None:
    graph, step = rewritten(lambda x, w: tf.cumsum(counted(x), 0))
    assert list(step.conversions.gathered) == ["strided_slice"]
    assert len(graph["Cumsum"].inputs[0].shape or ()) == 2


def test_what_every_core_has_made_whole_is_not_gathered() -> None:
    graph, step = rewritten(CASES["sums by distinct class"][0])
    assert sorted(step.conversions.gathered) == ["ArgMax", "x"]
    assert graph["UnsortedSegmentSum"].inputs[1] == graph["Unique"].out(1)

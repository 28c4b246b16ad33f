"""The step rewritten for the cores: local sizes, level values made as small as they are needed, and what is gathered."""

import pytest
from test_spmd import CASES, CORES, Build, solved

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

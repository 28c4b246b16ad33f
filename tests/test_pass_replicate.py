"""The pass replicate."""

from __future__ import annotations

import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, check, finish, linear, squared_error, tf1
from tpugraph import testing
from tpugraph.analysis import CLUSTER_ATTR, in_cluster
from tpugraph.passes.replicate import Replicate


def test_golden_step() -> None:
    graph = check(Replicate(num_replicas=2), "step", num_replicas=2, iterations_per_loop=3)
    (metadata,) = graph.of_type("TPUReplicateMetadata")
    assert metadata.attr("num_replicas") == 2
    assert metadata.attr("step_marker_location") == "STEP_MARK_AT_TOP_LEVEL_WHILE_LOOP"
    (output,) = graph.of_type("TPUReplicatedOutput")
    assert output.inputs[0].node.attr("_tpu_output_identity") is True
    roots = [n for n in graph if in_cluster(n) and not n.inputs and n is not metadata]
    assert all(n.controls for n in roots), "a root of the cluster waits for the metadata or for the loop"
    assert {n.attr(CLUSTER_ATTR) for n in graph if in_cluster(n)} == {"cluster"}


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_any_number_of_cores(cores: int) -> None:
    def build(rows: int) -> None:
        finish(tf.reduce_mean(squared_error(*linear(rows))), tf1.train.MomentumOptimizer(0.1, 0.9))

    assert_cores_are_the_whole_batch(build, relative=2e-5, absolute=1e-6, cores=cores, rows=2)


def test_the_loop_comes_first() -> None:
    graph = testing.parse(
        'infeed = InfeedDequeueTuple() {dtypes: (float32), shapes: ([2]), _tpu_replicate: "cluster"} : float32[2]'
    )
    testing.assert_raises_block(
        testing.run_pass, Replicate(), graph, words=["before replicate", "outside the device loop", "training-loop"],
        max_length=300,
    )  # fmt: skip

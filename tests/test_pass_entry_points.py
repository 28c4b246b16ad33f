"""The pass entry-points."""

from __future__ import annotations

from pathlib import Path

import evaluating
import numpy as np
import tensorflow as tf

from models import check, corpus, finish, linear, squared_error, tf1, trace
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.passes.entry_points import EntryPoints
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import InvariantError
from tpugraph.tpu.invariants import ENTRY_POINTS, ENTRY_POINTS_OF


def test_golden_step() -> None:
    graph = check(EntryPoints(), "step", num_replicas=2, iterations_per_loop=3)
    assert all(name in graph for name in ENTRY_POINTS)
    assert graph["tpugraph/save"].op == "SaveV2"
    assert graph["tpugraph/configure"].device == graph["tpugraph/shutdown"].device == "/device:TPU_SYSTEM:0"


def test_golden_evaluation() -> None:
    graph = evaluating.check(EntryPoints(), "evaluation", num_replicas=2, iterations_per_loop=3)
    assert all(name in graph for name in ENTRY_POINTS_OF["eval"])
    assert graph["tpugraph/metrics/mean"].attr("_tpugraph_name") == "mean"
    controls = graph["tpugraph/init_metrics"].controls
    assert [node.name for node in controls] == ["total/Assign", "seen/Assign"]


def test_a_checkpoint_goes_both_ways(tmp_path: Path) -> None:
    """Plain to converted, six steps, back to plain, six steps: twelve steps of the recording of one core."""
    model = corpus("ref_variables")
    with TPUSession(convert(model.folder / "model.pb", num_replicas=1, iterations_per_loop=6)) as session:
        session.restore(model.checkpoint)
        session.train(6)
        prefix = session.save(tmp_path / "model.ckpt")
    held = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    wanted = tf.train.load_checkpoint(str(model.checkpoint)).get_variable_to_shape_map()
    assert {key: shape for key, shape in held.items() if not key.startswith("tpugraph/")} == wanted
    back = testing.run_plain(model.folder / "model.pb", steps=1, checkpoint=prefix)
    assert np.isfinite(back.losses[0])
    assert back.variables["global_step"] == 7


def test_a_graph_without_step_counter_is_counted_by_the_session() -> None:
    def build() -> None:
        loss = tf.reduce_mean(squared_error(*linear(4)))
        tf1.summary.scalar("loss", loss)
        tf1.train.GradientDescentOptimizer(0.1).minimize(loss)

    with TPUSession(convert(trace(build), num_replicas=2, iterations_per_loop=2)) as session:
        assert len(session.train(4)) == 4
        assert session.global_step == 4


def test_a_graph_without_saver_saves_every_variable() -> None:
    def build() -> None:
        finish(tf.reduce_mean(squared_error(*linear(4))), tf1.train.MomentumOptimizer(0.1, 0.9))

    graph = trace(build)
    for node in graph.of_type("SaveV2", "RestoreV2"):
        graph.remove_all(graph.descendants([node]))
    found = testing.run_on_cores(graphdef.from_graph_def(graphdef.to_graph_def(graph)), steps=2, num_replicas=2)
    assert set(found.variables) == {"w", "w/Momentum", "global_step"}


def test_the_cluster_comes_first() -> None:
    testing.assert_raises_block(
        testing.run_pass, EntryPoints(), testing.parse("x = Test()"), words=["TPUReplicateMetadata", "replicate"],
        max_length=200, kind=InvariantError,
    )  # fmt: skip

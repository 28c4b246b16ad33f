"""TPUSession: loops, resuming, end of data, queues, the first cause, TPUEstimator's own graphs, a TPU master."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sampling import part

from models import CORPUS, DATA, batches, corpus, finish, rows_of, squared_error, tf1, trace, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime import masters
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import CheckpointError, RunError
from tpugraph.testing import Training

IRIS = corpus("iris_dnn")
ORACLE = DATA / "oracle"


def iris(*, repeat: int | None = None, **options: Any) -> Any:
    graph = IRIS.graph()
    for node in graph.of_type("RepeatDataset") if repeat is not None else []:
        graph.set_attr(node.inputs[1].node, "value", np.asarray(repeat, "int64"))
    return convert(graph, **options)


@pytest.mark.parametrize("loop", [5, 200], ids=["op by op", "compiled"])
def test_resumed_training_is_uninterrupted_training(loop: int, tmp_path: Path) -> None:
    program = iris(iterations_per_loop=loop)
    whole = IRIS.trained(program, 150)
    with IRIS.session(program) as session:
        first = session.train(107)
        assert session.save(tmp_path / "model.ckpt").endswith("model.ckpt-107")
    with TPUSession(program) as session:
        assert session.restore(tmp_path) == 107
        found = Training(first + session.train(43), session.values())
    testing.assert_same_training(found, whole, relative=0, absolute=0)


def test_a_plain_saver_reads_our_checkpoint(tmp_path: Path) -> None:
    with IRIS.session(iris(iterations_per_loop=6)) as session:
        session.train(6)
        session.save(tmp_path / "model.ckpt")
        values = session.values()
    with tf.Graph().as_default() as graph:
        saver = tf1.train.import_meta_graph(str(IRIS.folder / "model.ckpt-0.meta"))
        with tf1.Session(graph=graph) as plain:
            saver.restore(plain, tf.train.latest_checkpoint(str(tmp_path)))
            for name, value in values.items():
                np.testing.assert_array_equal(plain.run(f"{name}:0"), value)


@pytest.mark.timeout(60)
def test_an_infeed_that_ends_early_ends_the_other_parts() -> None:
    """What waits for the dead side of a branch never runs, and the loop around it stops without an error."""
    program = iris(iterations_per_loop=6)
    nodes = {node.name: node for node in program.graph_def.node}
    pivot = "tpugraph/infeed/while/Identity"
    truth = program.graph_def.node.add(name="truth", op="Const", input=[f"^{pivot}"])
    truth.attr["dtype"].type = tf.bool.as_datatype_enum
    truth.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(True))
    switch = program.graph_def.node.add(name="branch", op="Switch", input=["truth", "truth"])
    dead = program.graph_def.node.add(name="dead", op="Identity", input=["branch"])
    for node in (switch, dead):
        node.attr["T"].type = tf.bool.as_datatype_enum
    nodes["tpugraph/infeed/enqueue/0"].input.append("^dead")
    with TPUSession(program, queues=True) as session:
        session.initialize()
        with pytest.raises(RunError, match="does not have value"):
            session.train(6)


def test_the_first_cause_of_three_parts_is_reported() -> None:
    program, fault = iris(repeat=3, iterations_per_loop=20), "the data ended in the middle of a loop"
    with IRIS.session(program, queues=True) as session, pytest.raises(RunError, match=fault) as caught:
        session.train(20)
    assert caught.value.stage == "infeed"
    assert "repeat the dataset" in str(caught.value)


def test_checkpoints_that_cannot_be_restored(tmp_path: Path) -> None:
    with TPUSession(iris()) as session, pytest.raises(CheckpointError) as caught:
        session.restore(CORPUS / "clip_adam" / "model.ckpt-0")
    text = str(caught.value)
    assert "does not match the graph" in text
    assert "missing: dense_2/bias (nearest: dense_1/bias)" in text
    assert "extra: beta1_power" in text
    assert len(text) < 1200
    with TPUSession(iris()) as session:
        with pytest.raises(CheckpointError, match="there is no checkpoint"):
            session.restore(tmp_path / "model.ckpt-3")
        with pytest.raises(CheckpointError, match="holds no checkpoint"):
            session.restore(tmp_path)
        for file in IRIS.folder.glob("model.ckpt-0.*"):
            data = file.read_bytes()
            (tmp_path / file.name).write_bytes(data[:100] if ".data-" in file.name else data)
        with pytest.raises(CheckpointError, match=r"is damaged: '.+': Read less bytes than requested") as caught:
            session.restore(tmp_path / "model.ckpt-0")
    assert caught.value.fix == "take an earlier one"


def test_an_input_that_fails_is_told_from_the_model() -> None:
    def build() -> None:
        numbers = tf.data.Dataset.range(64).map(lambda i: tf.strings.to_number(tf.where(i < 40, "1.5", "one")))
        value = tf1.data.make_one_shot_iterator(numbers.batch(4, True)).get_next()
        finish(tf.reduce_mean(tf.square(value * variable("w", ()))), tf1.train.GradientDescentOptimizer(0.1))

    with TPUSession(convert(trace(build), num_replicas=2)) as session:
        session.initialize()
        with pytest.raises(RunError, match="could not correctly convert string: one") as caught:
            session.train(20)
    assert str(caught.value.node).startswith("IteratorGetNext")
    assert str(caught.value.fix).startswith("the input fails, not the model")


# --------------------------------------------------------------------------- graphs of TPUEstimator


def test_iris_of_tpuestimator_ends_where_the_plain_graph_ends() -> None:
    """Both read their own data; the plain graph's shuffle gets the seeds of the other, and it reads the 64 rows of two replicas."""
    plain = graphdef.load(ORACLE / "iris_plain" / "model.ckpt-0.meta")
    theirs = graphdef.load(ORACLE / "iris_tpu.pb").of_type("ShuffleDataset")[0]
    for mine in plain.of_type("ShuffleDataset"):
        for index in (2, 3):
            plain.set_attr(mine.inputs[index].node, "value", theirs.inputs[index].node.attr("value"))
    checkpoint = ORACLE / "iris_plain" / "model.ckpt-0"
    program = convert(plain, num_replicas=2, global_batch=64, iterations_per_loop=10)
    with TPUSession(program) as ours, TPUSession(ORACLE / "iris_tpu.pb") as oracle:
        ours.restore(checkpoint)
        oracle.restore(checkpoint)
        np.testing.assert_allclose(ours.train(60), oracle.train(60), rtol=1e-4)
        assert ours.global_step == oracle.global_step == 60
        for name, value in oracle.values().items():
            np.testing.assert_allclose(ours.values()[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.sampled
@pytest.mark.parametrize("name", part(["mnist_host_call_tpu", "lstm_dynamic_tpu", "batch_norm_tpu", "mnist_cnn_tpu"],
                                      2))  # fmt: skip
def test_graphs_of_tpuestimator_train(name: str, in_corpus: Path) -> None:
    with TPUSession(ORACLE / f"{name}.pb") as session:
        assert session.num_replicas == 8
        losses = session.train(5)
        assert session.global_step == 5
        assert np.isfinite(losses).all()
        assert np.mean(losses[-3:]) < losses[0]


# --------------------------------------------------------------------------- a master with TPU devices

DEVICES = ["/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:TPU_SYSTEM:0"] + [
    f"/job:worker/replica:0/task:0/device:TPU:{core}" for core in range(8)
]


def test_on_a_tpu_the_graph_runs_on_the_job_that_has_the_cores() -> None:
    def build() -> None:
        x, y = batches(rows_of(96, 3), 4)
        errors = squared_error(x, y, variable("w", (3, 1)))
        with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(errors), 1e9)]):
            finish(tf.reduce_mean(errors), tf1.train.AdamOptimizer())

    graph = graphdef.from_graph_def(convert(trace(build)).graph_def)
    assert masters.has_tpu(DEVICES)
    notes = masters.place_on_master(graph, DEVICES)
    assert notes == ["dropped 1 Assert in the cluster: a TPU does not run them"]
    assert graph["tpugraph/configure"].device == "/job:worker/task:0/device:TPU_SYSTEM:0"
    assert not any("tpu_worker" in node.device for node in graph)
    assert graph["tpugraph/infeed/enqueue/0"].device == "/job:worker/task:0/device:CPU:0"


def test_graphs_and_masters_that_do_not_fit() -> None:
    with pytest.raises(RunError, match="for 8 cores and the master has 2") as caught:
        masters.place_on_master(graphdef.from_graph_def(iris().graph_def), DEVICES[:4])
    assert "--num_replicas=2" in str(caught.value)
    with pytest.raises(RunError, match="plain graph, not a TPU graph"):
        TPUSession(IRIS.folder / "model.pb")


def test_a_graph_without_a_step_counter_counts_in_the_session(tmp_path: Path) -> None:
    def build() -> None:
        rows, _ = batches(rows_of(8, 4), 4)
        loss = tf.reduce_mean(tf.square(rows @ variable("w", (4, 1))), name="loss")
        tf1.summary.scalar("loss", loss)
        tf1.train.GradientDescentOptimizer(0.1).minimize(loss)

    program = convert(trace(build), num_replicas=2, iterations_per_loop=2)
    with TPUSession(program) as session:
        assert len(session.train(6)) == 6
        assert session.save(tmp_path / "model.ckpt").endswith("model.ckpt-6")
        rest = session.train(2)
    with TPUSession(program) as session:
        assert session.restore(tmp_path) == 6
        assert session.train(2) == rest
        assert session.global_step == 8

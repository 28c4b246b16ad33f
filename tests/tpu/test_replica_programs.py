"""Programs that combine their replicas themselves: traced as one of them, and replicated as they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.platform import tf_logging
from tensorflow.python.tpu import tpu_function

import tpugraph
from closeness import assert_close
from estimators import FEATURES, TARGETS, by_hand, dataset, estimator, input_fn, losses_in
from tpugraph.ir import graphdef

tf1 = tf.compat.v1
SUM, MEAN = tf1.losses.Reduction.SUM, tf1.losses.Reduction.MEAN
CORES, ROWS = 4, 32


def trained(folder: Path, model_fn: Any, *, steps: int = 4, **arguments: Any) -> Any:
    return estimator(folder, model_fn, save_summary_steps=1, **arguments).train(input_fn, max_steps=steps)


def linear(features: Any) -> Any:
    return tf.squeeze(features["x"] @ tf1.get_variable("w", [3, 1], initializer=tf1.zeros_initializer()), 1)


def spec(mode: str, loss: Any, optimizer: Any) -> Any:
    return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf1.train.get_global_step()))


@pytest.mark.parametrize(("wraps", "expected"), [(True, [(8, 8, 4, 4)]), (False, [(8, 8, 4, 4), (32, 32, 1, 1)])])
def test_a_model_function_is_one_replica_or_the_whole(tmp_path: Path, wraps: bool, expected: list[Any]) -> None:
    """It is called as one replica first, and once more for the whole batch where it combines nothing."""
    seen = []

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        shards = tpu_function.get_tpu_context().number_of_shards
        seen.append((params["batch_size"], features["x"].shape[0], params["context"].num_replicas, shards))
        optimizer = tf1.train.MomentumOptimizer(0.05, 0.9)
        loss = tf.reduce_mean(tf.square(linear(features) - labels))
        return spec(mode, loss, tpugraph.CrossShardOptimizer(optimizer) if wraps else optimizer)

    made = trained(tmp_path, model_fn)
    assert seen == expected
    assert_close(made.get_variable_value("w")[:, 0], by_hand(4)[1], 1e-5)
    assert_close(np.asarray(list(losses_in(tmp_path).values())), np.asarray(by_hand(4)[0]), 1e-5)


def test_a_model_function_that_needs_the_whole_batch_is_told_what_it_was_given(tmp_path: Path) -> None:
    """A grid of 4 x 8 images cannot be made of a core's 8 rows."""

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        tf.reshape(features["x"], [4, 8, 3])
        return spec(mode, tf.reduce_mean(tf.square(linear(features) - labels)), tf1.train.GradientDescentOptimizer(0.1))

    with pytest.raises(ValueError, match="Cannot reshape") as caught:
        trained(tmp_path, model_fn)
    (note,) = caught.value.__notes__
    assert note.startswith("model_fn was given 8 rows, those of one core")
    assert "each of the 4 cores has its part of the 32 rows" in note


def test_what_replicas_do_not_share_asks_for_the_whole(tmp_path: Path) -> None:
    """Statistics of all rows are those of one program, whose wrapper does nothing."""
    seen = []

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        seen.append(params["batch_size"])
        loss = tf.reduce_mean(tf.square(linear(features) - labels))
        return spec(mode, loss, tpugraph.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.05, 0.9)))

    config = tpugraph.RunConfig(tpugraph.TPUConfig(2, CORES, batch_norm="global"), model_dir=tmp_path)
    made = tpugraph.TPUEstimator(model_fn, config=config, train_batch_size=ROWS).train(input_fn, max_steps=4)
    assert seen == [ROWS]
    assert_close(made.get_variable_value("w")[:, 0], by_hand(4)[1], 1e-5)


@pytest.mark.parametrize("wrapper", [tpugraph.CrossShardOptimizer, tf1.tpu.CrossShardOptimizer])
@pytest.mark.parametrize(("reduction", "reduce"), [(MEAN, tf.reduce_mean), (SUM, tf.reduce_sum)])
def test_reductions_are_those_of_the_wrapper(tmp_path: Path, wrapper: Any, reduction: str, reduce: Any) -> None:
    """The mean of a mean, or the sum of a sum, of the replicas' rows: what the plain program computes of all rows."""

    def model(wrapped: bool) -> Any:
        def model_fn(features: Any, labels: Any, mode: str) -> Any:
            optimizer = tf1.train.AdamOptimizer(0.1)
            loss = reduce(tf.square(linear(features) - labels))
            return spec(mode, loss, wrapper(optimizer, reduction=reduction) if wrapped else optimizer)

        return model_fn

    found = trained(tmp_path / "replicas", model(True))
    wanted = trained(tmp_path / "plain", model(False), use_tpu=False)
    assert_close(found.get_variable_value("w"), wanted.get_variable_value("w"), 1e-5)


def test_a_sum_of_means_is_as_many_times_the_mean(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_mean(tf.square(linear(features) - labels))
        return spec(mode, loss, tpugraph.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.05 / CORES, 0.9), SUM))

    assert_close(trained(tmp_path, model_fn).get_variable_value("w")[:, 0], by_hand(4)[1], 1e-5)
    again = tpugraph.convert(
        tmp_path / "model.ckpt-0.meta", num_replicas=CORES
    )  # the graph as it was traced, with no more in it
    assert "a replica program" in again.summary()


def contrastive(gathers: bool) -> Any:
    """Each row against all rows of the batch, which replicas gather by a one-hot of their number, or by scatter_nd."""

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        weights = tf1.get_variable("w", initializer=np.float32([[1, 0], [0, 1], [1, -1]]))
        found, replicas = features["x"] @ weights, params["context"].num_replicas
        every, first, rows = found, 0, found.shape[0]
        optimizer = tf1.train.AdamOptimizer(0.01)
        if gathers:
            me = xla.replica_id()
            mine = tf.scatter_nd([[me]], [found], [replicas, *found.shape.as_list()])
            every, first = tf.reshape(tf1.tpu.cross_replica_sum(mine), [-1, 2]), me * rows
            optimizer = tpugraph.CrossShardOptimizer(optimizer)
        places = tf.one_hot(tf.range(rows) + first, rows * replicas if gathers else rows)
        loss = tf.reduce_mean(
            tf.nn.softmax_cross_entropy_with_logits(places, tf.matmul(found, every, transpose_b=True))
        )
        return spec(mode, loss, optimizer)

    return model_fn


@pytest.mark.parametrize("batch_norm", ["per_core", "global"])
def test_replicas_gather_their_rows(tmp_path: Path, batch_norm: str) -> None:
    """The only replica, where one program is asked for, has them all."""
    config = tpugraph.RunConfig(
        tpugraph.TPUConfig(4, CORES, batch_norm=batch_norm), save_summary_steps=1, tf_random_seed=7
    )
    found = tpugraph.TPUEstimator(contrastive(True), str(tmp_path / "replicas"), config, train_batch_size=ROWS)
    found.train(input_fn, max_steps=4)
    wanted = trained(tmp_path / "plain", contrastive(False))
    assert_close(found.get_variable_value("w"), wanted.get_variable_value("w"), 1e-5)
    losses = [np.asarray(list(losses_in(tmp_path / name).values())) for name in ("replicas", "plain")]
    assert_close(*losses, 1e-5)


@pytest.mark.parametrize("how", ["mean", "counts"])
def test_what_replicas_write_differently_becomes_one_value(tmp_path: Path, how: str) -> None:
    """A moving average of each core's own batch is the mean of theirs; of whole numbers core 0's are written."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        made = spec(mode, tf.reduce_mean(tf.square(linear(features) - labels)),
                    tpugraph.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.1)))  # fmt: skip
        own = (
            tf.reduce_mean(features["x"], 0)
            if how == "mean"
            else tf.reduce_sum(tf.cast(features["x"] > 0, tf.int32), 0)
        )
        average = tf1.get_variable("own", [3], own.dtype, tf1.zeros_initializer(), trainable=False)
        return made._replace(train_op=tf.group(made.train_op, average.assign_add(own)))

    found = trained(tmp_path, model_fn, steps=3).get_variable_value("own")
    batches = FEATURES[: 3 * ROWS].reshape(3, ROWS, 3)
    wanted = batches.mean(1).sum(0) if how == "mean" else (batches[:, : ROWS // CORES] > 0).sum((0, 1))
    assert_close(found, wanted, 1e-5)


def test_batches_of_a_queue_are_one_program_and_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing deals them out to replicas: the model is the only one, of all rows."""
    rows, warned = [], list[str]()
    monkeypatch.setattr(tf_logging, "warn", warned.append)
    monkeypatch.setattr(tf_logging, "warning", lambda *words: None)  # TensorFlow's own, of these functions

    def queued(params: Any) -> Any:
        rows.append(params["batch_size"])
        taken = tf1.train.range_input_producer(len(FEATURES), shuffle=False).dequeue_many(ROWS)
        return {"x": tf.gather(FEATURES, taken)}, tf.gather(TARGETS, taken)

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        loss = tf.reduce_mean(tf.square(linear(features) - labels))
        return spec(mode, loss, tpugraph.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.05, 0.9)))

    made = estimator(tmp_path, model_fn).train(queued, max_steps=4)
    assert rows == [ROWS, ROWS // CORES]
    assert "Input pipeline contains one or more QueueRunners" in warned[0]
    assert_close(made.get_variable_value("w")[:, 0], by_hand(4)[1], 1e-5)


def replica_program(rows: int = 8, *, update: Any = None) -> Any:
    with tf.Graph().as_default() as graph, tpu_function.tpu_shard_context(CORES):
        features, labels = tf1.data.make_one_shot_iterator(dataset(rows)).get_next()
        loss = tf.reduce_mean(tf.square(linear(features) - labels))
        step = tf1.train.get_or_create_global_step()
        train = tf1.tpu.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.05, 0.9)).minimize(loss, step)
        if update is not None:
            train = tf.group(train, update(features["x"]))
        return graphdef.from_graph_def(graph.as_graph_def(add_shapes=True)), loss.name, train.name


@pytest.mark.parametrize("named", [True, False])
def test_a_file_is_replicated_as_it_is(*, named: bool) -> None:
    """Each core reads batches of its own, in order. Without names, the loss is what was scaled to a replica's share."""
    graph, loss, train = replica_program()
    roles = {"loss": loss, "train_op": train} if named else {}
    program = tpugraph.convert(graph, num_replicas=CORES, iterations_per_loop=4, **roles)
    assert program.report["batch"]["line"] == "global batch 32 = 4 cores x 8"
    assert "a replica program, replicated as it is on 4 cores" in program.summary()
    assert program.report["collectives"]["sums"] == 1
    with tpugraph.TPUSession(program) as session:
        session.initialize()
        assert_close(np.asarray(session.train(4)), np.asarray(by_hand(4)[0]), 1e-5)


def test_replica_programs_that_are_refused() -> None:
    graph, loss, train = replica_program()
    with pytest.raises(tpugraph.ConversionError, match="one of 4 replicas, not of 8") as error:
        tpugraph.convert(graph, num_replicas=8, loss=loss, train_op=train)
    assert error.value.fix == "--num_replicas=4"

    def update(x: Any) -> Any:
        table = tf1.get_variable("table", [5], initializer=tf1.zeros_initializer(), trainable=False, use_resource=True)
        return table.scatter_add(tf.IndexedSlices(x[:, 0], tf.cast(tf.abs(x[:, 1]), tf.int32) % 5))

    graph, loss, train = replica_program(update=update)
    with pytest.raises(tpugraph.ConversionError, match="each core would write other rows of 'table'"):
        tpugraph.convert(graph, num_replicas=CORES, loss=loss, train_op=train)

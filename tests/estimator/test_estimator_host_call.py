"""host_call: a function on the host in each step, in training and evaluation, on cores and without."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2 as contrib_summary

import tpugraph
from closeness import assert_close
from estimators import TARGETS, by_hand, dataset, estimator, input_fn, linear_fn, scalars_in

tf1 = tf.compat.v1
STEPS = 12


def reporting(folder: Path, every: int = 1) -> Any:
    """The linear model; its host call writes the step, the loss and the mean of the labels every so many steps."""

    def report(step: Any, loss: Any, labels: Any) -> Any:
        step = tf.cast(step[0], tf.int64)
        with (contrib_summary.create_file_writer(str(folder), max_queue=4, filename_suffix=".host").as_default(),
              contrib_summary.record_summaries_every_n_global_steps(every, step)):  # fmt: skip
            contrib_summary.scalar("step", step, step=step)
            contrib_summary.scalar("loss", tf.reduce_mean(loss), step=step)
            contrib_summary.scalar("label", tf.reduce_mean(labels), step=step)
            return contrib_summary.all_v2_summary_ops()

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = linear_fn(features, labels, mode, params)
        step = tf.cast(tf1.train.get_global_step(), tf.int32)
        call = (report, [tf.reshape(step, [1]), tf.reshape(spec.loss, [1]), labels])
        return spec._replace(host_call=call)

    return model_fn


def reported(folder: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for _, tag, value in scalars_in(folder):
        found.setdefault(tag, []).append(value)
    return found


def test_it_runs_in_each_step(tmp_path: Path, use_tpu: bool) -> None:
    events, folder = tmp_path / "events", tmp_path / "model"
    made = estimator(folder, reporting(events), loop=5, use_tpu=use_tpu, save_summary_steps=None)
    made.train(input_fn, max_steps=STEPS)
    found, (losses, _) = reported(events), by_hand(STEPS)
    assert_close(np.asarray(found["loss"]), np.asarray(losses), 1e-4)
    assert [value - found["step"][0] for value in found["step"]] == list(range(STEPS))
    assert len(found["label"]) == STEPS


def test_it_may_run_every_so_many_steps_of_a_loop(tmp_path: Path) -> None:
    """Of loops of five and seven steps: 0, 2, 4, then 5, 7, 9, 11; recorded are those that three divides."""
    tpu = tpugraph.TPUConfig(5, 4, experimental_host_call_every_n_steps=2)
    config = tpugraph.RunConfig(tpu, model_dir=tmp_path / "model", tf_random_seed=7)
    made = tpugraph.TPUEstimator(reporting(tmp_path / "events", 3), config=config, train_batch_size=32)
    made.train(input_fn, max_steps=STEPS)
    first = int(reported(tmp_path / "events")["step"][0]) % 3
    assert first == 0
    ran = [0, 2, 4, 5, 7, 9, 10]
    assert reported(tmp_path / "events")["step"] == [step for step in ran if step % 3 == 0]


def test_an_evaluation_calls_it_with_the_true_rows_of_each_batch(tmp_path: Path) -> None:
    """77 rows in loops of two batches of 32; again from a checkpoint, whose step stays what it is; a scalar is one number."""

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = linear_fn(features, labels, mode, params)
        call = {"step": tf1.train.get_global_step(), "found": tf.stack([labels, labels], 1), "loss": spec.loss}
        return spec._replace(host_call=(report, call))

    def report(step: Any, found: Any, loss: Any) -> Any:
        with contrib_summary.create_file_writer(str(tmp_path / "events")).as_default():
            with contrib_summary.always_record_summaries():
                contrib_summary.scalar("rows", tf.shape(found)[0], step=step)
                contrib_summary.scalar("total", tf.reduce_sum(found), step=step)
                contrib_summary.scalar("dimensions", tf.rank(loss), step=step)
            return contrib_summary.all_v2_summary_ops()

    made = estimator(tmp_path / "model", model_fn, loop=2)
    made.evaluate(lambda params: dataset(32, repeat=False).unbatch().take(77).batch(params["batch_size"]))
    found = reported(tmp_path / "events")
    assert found["rows"] == [32, 32, 13]
    assert found["dimensions"] == [0, 0, 0]
    assert sum(found["total"]) == pytest.approx(2 * float(TARGETS[:77].sum()), rel=1e-5)
    made.train(input_fn, max_steps=2)
    made.evaluate(input_fn, steps=1)
    steps = [step for step, tag, _ in scalars_in(tmp_path / "events") if tag == "rows"]
    assert steps[:3] == [0, 0, 0]
    assert steps[-1] == 2


def test_summaries_of_the_graph_are_those_of_a_loop(tmp_path: Path) -> None:
    """``tf.summary`` in a host call goes to the estimator's own event file, with its other summaries."""

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = linear_fn(features, labels, mode, params)
        return spec._replace(host_call=(lambda largest: tf1.summary.scalar("largest", largest[0]), {"largest": labels}))

    estimator(tmp_path, model_fn, loop=4, save_summary_steps=4).train(input_fn, max_steps=8)
    assert [step for step, tag, _ in scalars_in(tmp_path) if tag == "largest"] == [4, 8]


def test_a_metric_in_it_goes_on_from_step_to_step(tmp_path: Path, use_tpu: bool) -> None:
    """Its local variables are initialised; what it is given may be made behind an update, as of batch norm."""

    def report(step: Any, loss: Any) -> Any:
        _, mean = tf1.metrics.mean(loss)
        with (contrib_summary.create_file_writer(str(tmp_path / "events")).as_default(),
              contrib_summary.always_record_summaries()):  # fmt: skip
            contrib_summary.scalar("step", step[0], step=step[0])
            contrib_summary.scalar("so_far", mean, step=step[0])
            return contrib_summary.all_v2_summary_ops()

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        average = tf1.get_variable("average", [], trainable=False, use_resource=True)
        spec = linear_fn(features, labels, mode, params)
        with tf1.control_dependencies([tf1.assign(average, tf.reduce_mean(labels)).op]):
            given = [tf.reshape(tf1.train.get_global_step(), [1]), tf.reshape(spec.loss, [1])]
        return spec._replace(host_call=(report, given))

    made = estimator(tmp_path / "model", model_fn, loop=5, use_tpu=use_tpu, save_summary_steps=None)
    made.train(input_fn, max_steps=STEPS)
    found, (losses, _) = reported(tmp_path / "events"), by_hand(STEPS)
    assert [step - found["step"][0] for step in found["step"]] == list(range(STEPS))
    assert_close(np.asarray(found["so_far"]), np.cumsum(losses) / np.arange(1, STEPS + 1), 1e-4)

"""What goes wrong: arguments, functions that return the wrong thing, a NaN loss, Ctrl-C, a full disk."""

import functools
import inspect
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
from estimators import assert_trained, checkpoint_of, dataset, estimator, input_fn, linear_fn
from tpugraph import RunConfig, TPUConfig, TPUEstimator
from tpugraph.estimator.tpu_serving import ExportSavedModelApiVersion
from tpugraph.runtime.checkpoints.saver import Saver

tf1 = tf.compat.v1


# --------------------------------------------------------------------------- the constructor


def test_the_constructor_has_the_arguments_and_defaults() -> None:
    parameters = inspect.signature(TPUEstimator.__init__).parameters
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    for name, flag in (("predict", "yield_single_examples"), ("export_saved_model", "as_text")):
        order = list(inspect.signature(getattr(TPUEstimator, name)).parameters)
        assert order.index(flag) == {"predict": 5, "export_saved_model": 4}[name]
    found = {name: p.default for name, p in parameters.items() if name != "self"}
    assert found == {
        "model_fn": None, "model_dir": None, "config": None, "params": None, "use_tpu": True, "train_batch_size": None,
        "eval_batch_size": None, "predict_batch_size": None, "batch_axis": None, "eval_on_tpu": True,
        "export_to_tpu": True, "export_to_cpu": True, "warm_start_from": None, "embedding_config_spec": None,
        "export_saved_model_api_version": ExportSavedModelApiVersion.V1,
    }  # fmt: skip


def test_what_the_folder_holds(tmp_path: Path, said: list[str]) -> None:
    made = TPUEstimator(linear_fn, config=RunConfig(), train_batch_size=8, params={"a": [1]})
    assert said == [f"model_dir is the temporary folder {made.model_dir}"]
    os.rmdir(made.model_dir)
    assert TPUEstimator(linear_fn, "", RunConfig(model_dir=tmp_path), train_batch_size=8).model_dir == str(tmp_path)
    made.params["a"].append(2)
    assert made.params == {"a": [1]}
    assert made.model_fn is linear_fn
    assert made.config.model_dir == made.model_dir
    assert made.eval_dir("x") == os.path.join(made.model_dir, "eval_x")
    same = TPUEstimator(linear_fn, str(tmp_path), RunConfig(model_dir=tmp_path), train_batch_size=8)
    assert same.model_dir == str(tmp_path)
    made = TPUEstimator(linear_fn, tmp_path, RunConfig(), {}, use_tpu=False, eval_on_tpu=False)
    assert "eval_on_tpu has no effect" in said[1]
    made.train(lambda: dataset(8), steps=1)
    assert made.get_variable_value("global_step") == 1


def test_params_reach_the_functions_as_copies(tmp_path: Path) -> None:
    seen = []

    def reads(params: dict[str, Any], mode: str, config: Any) -> Any:
        seen.append((params["list"], mode, config.model_dir))
        params["list"].append(1)
        return dataset(params["batch_size"])

    def models(features: Any, labels: Any, mode: str, params: Any, config: Any, *, scale: float) -> Any:
        seen.append((params["list"], mode, config.model_dir))
        return linear_fn(features, labels, mode, params)

    made = estimator(tmp_path, functools.partial(models, scale=1.0), params={"list": [0]}).train(reads, steps=1)
    assert seen == [([0, 1], "train", str(tmp_path)), ([0], "train", str(tmp_path))]
    assert made.params == {"list": [0]}


def test_nothing_is_trained_yet(tmp_path: Path) -> None:
    made = estimator(tmp_path)
    assert made.latest_checkpoint() is None
    for ask in (made.get_variable_names, lambda: made.get_variable_value("w")):
        with pytest.raises(ValueError, match="there is no checkpoint in"):
            ask()
    made.train(input_fn, steps=1)
    with pytest.raises(ValueError, match="there is no variable 'v' in"):
        made.get_variable_value("v")


def test_predictions_before_training_are_those_of_the_first_values(tmp_path: Path, use_tpu: bool,
                                                                   said: list[str]) -> None:  # fmt: skip
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        weights = tf1.get_variable("w", [3, 1], initializer=tf1.ones_initializer())
        return tpugraph.TPUEstimatorSpec(mode, predictions={"sum": tf.squeeze(features @ weights, 1)})

    rows = np.arange(15, dtype="float32").reshape(5, 3)
    made = estimator(tmp_path, model_fn, use_tpu=use_tpu, rows=4)
    found = made.predict(lambda params: tf.data.Dataset.from_tensor_slices(rows).batch(params["batch_size"]))
    assert [float(row["sum"]) for row in found] == rows.sum(1).tolist()
    assert f"there is no checkpoint in {tmp_path}: predictions are made with the model's first values" in said


# --------------------------------------------------------------------------- model functions


def other_graph(features: Any, labels: Any, mode: str) -> Any:
    spec = linear_fn(features, labels, mode, {})
    with tf.Graph().as_default():
        return tpugraph.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=spec.train_op)


def untrained(features: Any, labels: Any, mode: str) -> Any:
    loss = tf.reduce_mean(labels) + tf1.get_variable("w", [])
    return tpugraph.EstimatorSpec(mode, loss=loss, train_op=tf.no_op())


@pytest.mark.parametrize(("model_fn", "error", "words"), [
    (other_graph, ValueError, "the loss of model_fn 'other_graph' was made in another graph"),
    (untrained, tpugraph.RolesError, "'NoOp'"),
])  # fmt: skip
def test_model_functions_that_cannot_be_used(tmp_path: Path, model_fn: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        estimator(tmp_path, model_fn).train(input_fn, steps=1)


def test_an_error_of_the_compiler_names_the_line(tmp_path: Path) -> None:
    def models(features: Any, labels: Any, mode: str) -> Any:
        given = [tf1.get_variable("v", [2]), features["x"]]
        made = tf1.py_func(lambda w, x: x * (w.sum() * 0 + 1), given, tf.float32)
        made.set_shape([8, 3])
        return linear_fn({"x": made}, labels, mode, {})

    with pytest.raises(tpugraph.ConversionError) as caught:
        estimator(tmp_path, models).train(input_fn, steps=1)
    assert f"{__file__}:" in str(caught.value)
    assert ", in models" in str(caught.value)


# --------------------------------------------------------------------------- the input


def widening(rows: int, *, batches: bool) -> Any:
    """Examples of three numbers, from the 71st or from the sixth batch on of four; the graph believes in three."""
    shape = [rows] if batches else []

    def generate() -> Any:
        for index in range(20 if batches else 400):
            width = 3 if index < (5 if batches else 70) else 4
            yield {"x": np.ones([*shape, width], np.float32)}, np.ones(shape, np.float32)

    def believe(features: Any, labels: Any) -> Any:
        features["x"].set_shape([*shape, 3])
        return features, labels

    kinds = {"x": tf.TensorSpec([*shape, None], tf.float32)}, tf.TensorSpec(shape, tf.float32)
    data = tf.data.Dataset.from_generator(generate, output_signature=kinds).map(believe)
    return data if batches else data.batch(rows, drop_remainder=True)


@pytest.mark.parametrize("batches", [True, False])
def test_another_shape_in_a_later_batch(tmp_path: Path, use_tpu: bool, batches: bool) -> None:
    with pytest.raises(tpugraph.RunError) as caught:
        estimator(tmp_path, use_tpu=use_tpu).train(lambda params: widening(params["batch_size"], batches=batches),
                                                   max_steps=12)  # fmt: skip
    text = str(caught.value)
    assert f"batch {6 if batches else 3} of the input has another shape: " in text
    assert ("each core's part had [8, 3], [8]" if use_tpu else "the first one had [32, 3], [32]") in text
    assert "fix     give all batches one shape: padded_batch" in text
    assert len(text) < 600


def test_a_checkpoint_of_other_shapes(tmp_path: Path, use_tpu: bool) -> None:
    checkpoint = checkpoint_of(tmp_path, w=np.ones([3, 2], np.float32))
    made = estimator(tmp_path, use_tpu=use_tpu)
    for call in (made.evaluate, lambda read, steps: made.train(read, steps=steps)):
        with pytest.raises(tpugraph.CheckpointError, match=r"of another shape: w is \[3, 2\], not \[3, 1\]") as raised:
            call(input_fn, steps=1)
        assert checkpoint in str(raised.value)


def test_a_batch_that_cannot_be_read(tmp_path: Path, use_tpu: bool) -> None:
    def reads(params: dict[str, Any]) -> Any:
        texts = tf.data.Dataset.from_tensor_slices(["many" if number == 70 else str(number) for number in range(200)])
        rows = texts.map(lambda text: ({"x": tf.fill([3], tf.strings.to_number(text))}, tf.constant(1.0)))
        return rows.batch(params["batch_size"], drop_remainder=True)

    words = "batch 3 of the input cannot be read: StringToNumberOp could not correctly convert string: many"
    with pytest.raises(tpugraph.RunError, match=words):
        estimator(tmp_path, use_tpu=use_tpu).train(reads, max_steps=5)


# --------------------------------------------------------------------------- while it trains


def poisoned(params: dict[str, Any]) -> Any:
    data = dataset(params["batch_size"]).enumerate()
    return data.map(lambda i, e: (e[0], tf.where(tf.equal(i, 5), np.float32("nan"), e[1])))


def test_a_loss_that_is_no_number(tmp_path: Path, use_tpu: bool) -> None:
    trained = estimator(tmp_path, use_tpu=use_tpu, save_checkpoints_steps=2)
    with pytest.raises(tpugraph.NanLossDuringTrainingError, match="the loss is nan at step 6") as caught:
        trained.train(poisoned, max_steps=20)
    assert caught.value.step == 6
    assert "no longer finite: w" in str(caught.value)
    assert trained.get_variable_value("global_step") == 4
    assert np.isfinite(trained.get_variable_value("w")).all()
    assert trained.train(input_fn, steps=2).get_variable_value("global_step") == 6


@pytest.mark.usefixtures("answers_ctrl_c")
def test_ctrl_c_writes_a_checkpoint(tmp_path: Path, use_tpu: bool, said: list[str]) -> None:
    trained, trains = estimator(tmp_path, use_tpu=use_tpu, loop=50), threading.Event()

    class Watch(tf1.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            trains.set()

    def press() -> None:
        trains.wait()
        time.sleep(0.1)  # in the middle of a loop
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        trained.train(input_fn, max_steps=10**7, hooks=[Watch()])
    presser.join()
    step = int(trained.get_variable_value("global_step"))
    assert step > 0
    assert trained.latest_checkpoint() == str(tmp_path / f"model.ckpt-{step}")
    if use_tpu:
        assert step % 50 == 0
        assert "stopping at the end of this loop; once more to stop at once" in said
    assert int(trained.train(input_fn, steps=1).get_variable_value("global_step")) == step + 1


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                said: list[str]) -> None:  # fmt: skip
    """Saving fails from step 8 to step 12: training goes on, and the last save works again."""
    real = Saver.save

    def full(saver: Saver, prefix: Path, **options: Any) -> Any:
        if prefix.name in ("model.ckpt-8", "model.ckpt-12"):
            raise tpugraph.CheckpointError(f"the checkpoint '{prefix}' cannot be written: No space left on device")
        return real(saver, prefix, **options)

    monkeypatch.setattr(Saver, "save", full)
    assert_trained(estimator(tmp_path, save_checkpoints_steps=4).train(input_fn, max_steps=16), 16)
    assert len([line for line in said if "No space left" in line and "last checkpoint is that of step 4" in line]) == 2
    with pytest.raises(tpugraph.CheckpointError, match="No space left"):
        estimator(tmp_path / "other", save_checkpoints_steps=4).train(input_fn, max_steps=8)
    assert tf.train.latest_checkpoint(str(tmp_path / "other")) == str(tmp_path / "other" / "model.ckpt-4")


# --------------------------------------------------------------------------- replicas of several cores


def spanning(tmp_path: Path, model_fn: Any = linear_fn, *, dims: Any = None, shards: int | None = 2) -> TPUEstimator:
    tpu = TPUConfig(4, shards, 2, tpugraph.InputPipelineConfig.PER_HOST_V2, input_partition_dims=dims)
    config = RunConfig(tpu, model_dir=tmp_path, tf_random_seed=7)
    return TPUEstimator(model_fn, config=config, train_batch_size=32, eval_batch_size=32)


def test_a_replica_of_several_cores_is_computed_as_one(tmp_path: Path, said: list[str]) -> None:
    seen: list[Any] = []

    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        seen.append((params["context"].device_assignment, params["context"].num_replicas, params["batch_size"]))
        return linear_fn(features, labels, mode, params)

    made = spanning(tmp_path, models, dims=[{"x": [1, 2]}, None]).train(input_fn, steps=6)
    assert "note: the 2 cores of a replica compute it as one; TPUConfig(engine='xla') divides it among them" in said
    assert "global batch 32 = 2 cores x 16" in said
    [(cores, replicas, rows)] = seen
    assert isinstance(cores, tf.tpu.experimental.DeviceAssignment)
    assert (cores.num_replicas, cores.num_cores_per_replica, replicas, rows) == (2, 2, 2, 16)
    assert made.evaluate(input_fn, steps=2)["global_step"] == 6
    assert_trained(made, 6)


def test_replicas_share_the_cores(tmp_path: Path) -> None:
    """Eight cores are four replicas of two."""
    seen: list[Any] = []

    def reads(params: Any) -> Any:
        context = params["context"]
        seen.append((params["batch_size"], context.num_replicas, context.device_for_replica(3)))
        return input_fn(params)

    spanning(tmp_path, shards=None).train(reads, steps=1)
    assert seen == [(8, 4, ("/task:0/device:CPU:0", 4))]  # TensorFlow lays the replicas in a ring

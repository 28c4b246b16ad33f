"""TPUEstimator.train: the result, steps and loops, batches, checkpoints, event files."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_function

import tpugraph
from estimators import (
    FEATURES,
    ROWS,
    TARGETS,
    assert_trained,
    by_hand,
    dataset,
    estimator,
    input_fn,
    linear_fn,
    linear_with,
    losses_in,
    saved,
    scalars_in,
)

tf1 = tf.compat.v1


@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped", "bare"])
def test_training_is_right(tmp_path: Path, use_tpu: bool, wrapped: bool) -> None:
    """On 4 cores and without, with CrossShardOptimizer and without: what NumPy computes on the whole batch."""
    trained = estimator(tmp_path, use_tpu=use_tpu, params={"wrapped": wrapped}, save_summary_steps=1)
    assert trained.train(input_fn, max_steps=10) is trained
    found = losses_in(tmp_path)
    assert sorted(found) == list(range(1, 11)) if use_tpu else len(found) == 10
    assert np.allclose([found[step] for step in sorted(found)], by_hand(10)[0], rtol=1e-4, atol=1e-6)
    assert_trained(trained, 10)
    assert trained.get_variable_value("global_step") == 10


def test_collectives_of_tensorflow_itself_reduce_once(tmp_path: Path, use_tpu: bool) -> None:
    """cross_replica_sum by hand with the number of shards; ``test_replica_programs`` has tf.compat.v1.tpu.CrossShardOptimizer."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        spec = linear_fn(features, labels, mode, {"wrapped": False})
        weights, optimizer = tf1.trainable_variables()[0], tf1.train.MomentumOptimizer(0.05, 0.9)
        (slope,) = tf.gradients(spec.loss, weights)
        slope = tf1.tpu.cross_replica_sum(slope) / tpu_function.get_tpu_context().number_of_shards
        return spec._replace(train_op=optimizer.apply_gradients([(slope, weights)], tf1.train.get_global_step()))

    assert tf1.tpu.cross_replica_sum is not None  # TensorFlow keeps what was asked for once
    assert_trained(estimator(tmp_path, model_fn, use_tpu=use_tpu).train(input_fn, max_steps=6), 6)
    assert tpu_function.get_tpu_context().number_of_shards is None


def test_steps_max_steps_and_resuming(tmp_path: Path, use_tpu: bool, said: list[str]) -> None:
    trained = estimator(tmp_path, use_tpu=use_tpu).train(input_fn, steps=5).train(input_fn, steps=5)
    assert trained.get_variable_value("global_step") == 10
    for _ in range(2):
        trained.train(input_fn, max_steps=12)
        assert trained.latest_checkpoint() == str(tmp_path / "model.ckpt-12")
    assert "nothing to train up to step 12" in said[-1]
    other = estimator(tmp_path, use_tpu=not use_tpu)  # the checkpoints go both ways
    assert other.train(input_fn, max_steps=13).get_variable_value("global_step") == 13


@pytest.mark.parametrize(("counts", "runs"), [(2, 2), (0.5, 8)])
def test_max_steps_are_those_that_the_model_counts(tmp_path: Path, counts: float, runs: int, use_tpu: bool) -> None:
    """One model counts two steps in a run; one that accumulates gradients counts every other run."""

    def models(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        spec, step = linear_fn(features, labels, mode, params), tf1.train.get_global_step()
        done = tf1.get_variable("runs", [], tf.int64, initializer=tf1.zeros_initializer(), trainable=False)
        change = tf1.train.GradientDescentOptimizer(0.1).minimize(spec.loss)
        with tf.control_dependencies([change, done.assign_add(1)]):
            if counts == 2:
                return spec._replace(train_op=tf.group(step.assign_add(2)))
            odd = tf.equal(done.read_value() % 2, 1)
            return spec._replace(train_op=tf1.cond(odd, tf.no_op, lambda: tf.group(step.assign_add(1))))

    trained = estimator(tmp_path, models, use_tpu=use_tpu, loop=1, save_checkpoints_steps=2).train(
        input_fn, max_steps=4
    )
    assert (trained.get_variable_value("global_step"), trained.get_variable_value("runs")) == (4, runs)
    assert saved(tmp_path) == [0, 2, 4]
    assert min(losses_in(tmp_path)) == int(counts)  # the step after the first run


def test_the_start_says_how_the_batch_is_made_up(tmp_path: Path, use_tpu: bool, said: list[str]) -> None:
    estimator(tmp_path, use_tpu=use_tpu, log_step_count_steps=4).train(input_fn, max_steps=10)
    assert ("global batch 32 = 4 cores x 8" if use_tpu else "batch 32, without TPU") in said
    assert [line for line in said if "steps/s" in line and "examples/s" in line]
    assert [line for line in said if line.startswith("trained 10 steps in ") and ", to step 10, loss " in line]


def test_a_loop_may_last_a_time(tmp_path: Path) -> None:
    trained = estimator(tmp_path, loop="1s").train(input_fn, max_steps=300)
    assert trained.get_variable_value("global_step") == 300
    assert_trained(trained, 300, relative=1e-3)


def tensors(params: dict[str, Any], **how: Any) -> Any:
    return tf1.data.make_one_shot_iterator(dataset(params["batch_size"], **how)).get_next()


@pytest.mark.parametrize("reads", [lambda params: dataset(params["batch_size"], repeat=False),
                                   lambda params: tensors(params, repeat=False)], ids=["dataset", "tensors"])  # fmt: skip
def test_the_end_of_the_data_ends_training(tmp_path: Path, use_tpu: bool, reads: Any, said: list[str]) -> None:
    trained = estimator(tmp_path, use_tpu=use_tpu).train(reads, max_steps=100)
    assert "the data ended after 3 steps" in said
    assert trained.latest_checkpoint() == str(tmp_path / "model.ckpt-3")
    assert_trained(trained, 3)


# --------------------------------------------------------------------------- input


@pytest.mark.parametrize(("mode", "host"), [(tpugraph.InputPipelineConfig.PER_HOST_V1, 32),
                                            (tpugraph.InputPipelineConfig.PER_HOST_V2, 8)])  # fmt: skip
def test_batch_sizes_of_datasets(tmp_path: Path, mode: int, host: int) -> None:
    seen: dict[str, Any] = {}

    def reads(params: dict[str, Any]) -> Any:
        seen["input"] = params
        return dataset(params["batch_size"])

    def models(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        seen["model"] = params
        assert features["x"].shape == (8, 3)
        return linear_fn(features, labels, mode, params)

    assert_trained(estimator(tmp_path, models, per_host=mode).train(reads, max_steps=6), 6)
    assert (seen["input"]["batch_size"], seen["model"]["batch_size"]) == (host, 8)
    assert seen["input"]["use_tpu"] is seen["model"]["use_tpu"] is True
    context = seen["input"]["context"]
    assert (context.num_replicas, context.num_hosts, context.current_host) == (4, 1, 0)
    assert context.current_input_fn_deployment() == ("/replica:0/task:0/device:CPU:0", 0, 1, 4)
    assert context.device_for_replica(3) == ("/task:0/device:CPU:0", 3)
    with pytest.raises(RuntimeError, match="must not be called from input_fn"):
        context.device_assignment()
    with pytest.raises(RuntimeError, match="current_host is known in input_fn only"):
        seen["model"]["context"].current_host  # noqa: B018


def test_without_tpu_the_batch_is_whole(tmp_path: Path) -> None:
    seen: list[Any] = []

    def reads(params: dict[str, Any]) -> Any:
        seen.append((params["batch_size"], params["use_tpu"], "context" in params))
        return dataset(params["batch_size"])

    estimator(tmp_path, use_tpu=False).train(reads, max_steps=1)
    assert seen == [(32, False, False)]


@pytest.mark.parametrize(("per_host", "calls", "rows"), [(True, [(0, 1, 4)], 32),
                                                         (False, [(core, 4, 1) for core in range(4)], 8)])  # fmt: skip
def test_tensors_instead_of_a_dataset(tmp_path: Path, per_host: bool, calls: list[Any], rows: int) -> None:
    """Called once for a host, whose batch is split, or once for each core, which reads its own."""
    seen: list[Any] = []

    def reads(params: dict[str, Any]) -> Any:
        assert params["batch_size"] == rows
        seen.append(params["context"].current_input_fn_deployment()[1:])
        iterator = tf1.data.make_initializable_iterator(dataset(rows))
        tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        features, labels = iterator.get_next()
        return {"x": features["x"] * 1.0}, labels

    def models(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        assert features["x"].shape == (8, 3)
        assert params["batch_size"] == 8
        return linear_fn(features, labels, mode, params)

    trained = estimator(tmp_path, models, per_host=per_host, save_summary_steps=1).train(reads, max_steps=16)
    found = losses_in(tmp_path)
    assert np.allclose([found[step] for step in sorted(found)], by_hand(16, rows=rows)[0], rtol=1e-4, atol=1e-6)
    assert_trained(trained, 16, rows=rows)
    assert seen == calls


def test_broadcast_input_is_the_same_on_every_core(tmp_path: Path, said: list[str]) -> None:
    """Called once, for all rows; their number need not divide by the cores."""
    seen: list[Any] = []

    def reads(params: dict[str, Any]) -> Any:
        seen.append((params["batch_size"], params["context"].current_input_fn_deployment()))
        return dataset(params["batch_size"])

    trained = estimator(tmp_path, per_host=tpugraph.InputPipelineConfig.BROADCAST, rows=31).train(reads, max_steps=6)
    assert_trained(trained, 6, rows=31)
    assert seen == [(31, ("/replica:0/task:0/device:CPU:0", 0, 1, 4))]
    assert "batch 31, the same on each of 4 cores" in said


def of_python(params: dict[str, Any]) -> Any:
    rows = lambda: ((x, y) for _ in range(9) for x, y in zip(FEATURES, TARGETS, strict=True))  # noqa: E731
    kinds = tf.TensorSpec([3], tf.float32), tf.TensorSpec([], tf.float32)
    data = tf.data.Dataset.from_generator(rows, output_signature=kinds).map(lambda x, y: ({"x": x}, y))
    return data.batch(params["batch_size"], drop_remainder=True)


def with_partial_batches(params: dict[str, Any]) -> Any:
    whole = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, TARGETS))
    return whole.concatenate(whole.take(5)).batch(params["batch_size"]).repeat()


@pytest.mark.parametrize("reads", [of_python, with_partial_batches, lambda: tensors({"batch_size": ROWS})],
                         ids=["Python", "a partial batch is left out", "tensors of a fixed batch"])  # fmt: skip
def test_other_inputs_give_the_same_rows(tmp_path: Path, reads: Any) -> None:
    assert_trained(estimator(tmp_path).train(reads, max_steps=6), 6)


@pytest.mark.parametrize("how", [{"batch_axis": (1, 0)}, {"per_host": tpugraph.InputPipelineConfig.PER_HOST_V2}],
                         ids=["split by the host", "batches of cores"])  # fmt: skip
def test_the_batch_may_be_another_dimension(tmp_path: Path, how: dict[str, Any]) -> None:
    def reads(params: dict[str, Any]) -> Any:
        return dataset(params["batch_size"]).map(lambda f, y: (tf.transpose(f["x"]), y))

    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        assert features.shape == (3, 8)
        return linear_fn({"x": tf.transpose(features)}, labels, mode, params)

    assert_trained(estimator(tmp_path, models, **how).train(reads, max_steps=6), 6)


# --------------------------------------------------------------------------- files


def test_checkpoints_every_so_many_steps(tmp_path: Path, use_tpu: bool) -> None:
    trained = estimator(tmp_path, use_tpu=use_tpu, save_checkpoints_steps=4, keep_checkpoint_max=3)
    trained.train(input_fn, max_steps=18)
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [Path(p).name for p in state.all_model_checkpoint_paths] == [f"model.ckpt-{s}" for s in (12, 16, 18)]
    assert saved(tmp_path) == saved(tmp_path, ".meta") == [12, 16, 18]
    assert trained.get_variable_names() == ["global_step", "w", "w/Momentum"]


def test_the_saver_of_the_model_says_how_many_are_kept(tmp_path: Path, use_tpu: bool) -> None:
    models = linear_with(lambda spec: spec._replace(
        scaffold_fn=lambda: tf1.train.Scaffold(saver=tf1.train.Saver(max_to_keep=2))))  # fmt: skip
    estimator(tmp_path, models, loop=1, use_tpu=use_tpu, save_checkpoints_steps=1).train(input_fn, max_steps=5)
    assert saved(tmp_path) == [4, 5]


@pytest.mark.parametrize(("config", "steps"), [
    ({"save_checkpoints_steps": 1, "keep_checkpoint_max": 0}, 8),
    ({"save_checkpoints_steps": 1, "keep_checkpoint_max": None}, 8),
    ({"save_checkpoints_secs": 1e-6}, 3),
], ids=["0 are kept", "None are kept", "by the clock"])  # fmt: skip
def test_all_checkpoints_are_kept(tmp_path: Path, config: Any, steps: int) -> None:
    estimator(tmp_path, loop=1, **config).train(input_fn, max_steps=steps)
    assert saved(tmp_path) == list(range(steps + 1))


def test_event_files(tmp_path: Path) -> None:
    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        tf1.summary.scalar("largest", tf.reduce_max(labels))
        tf1.summary.scalar("tpugraph_smallest", tf.reduce_min(labels))
        return linear_fn(features, labels, mode, params)

    estimator(tmp_path, models, save_summary_steps=4, log_step_count_steps=4).train(input_fn, max_steps=12)
    found = {(tag, step): value for step, tag, value in scalars_in(tmp_path)}
    assert {tag for tag, _ in found} == {"loss", "largest", "tpugraph_smallest", "global_step/sec", "examples/sec"}
    assert {step for tag, step in found if tag == "largest"} == {4, 8, 12}
    assert np.allclose([found["loss", step] for step in (4, 8, 12)], by_hand(12)[0][3::4], rtol=1e-4)
    events = [e for p in tmp_path.glob("events*") for e in tf1.train.summary_iterator(str(p))]
    assert [e for e in events if e.graph_def]
    assert [e for e in events if e.session_log.checkpoint_path.endswith("model.ckpt-12")]


def test_the_same_input_is_not_traced_again(tmp_path: Path) -> None:
    calls = {"model": 0, "input": 0}

    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        calls["model"] += 1
        return linear_fn(features, labels, mode, params)

    def reads(params: dict[str, Any]) -> Any:
        calls["input"] += 1
        return dataset(params["batch_size"]).map(scaled)

    def scaled(features: Any, labels: Any) -> Any:
        return {"x": features["x"] * 1.0}, labels

    trained = estimator(tmp_path, models).train(reads, max_steps=3).train(reads, max_steps=6)
    assert calls == {"model": 1, "input": 2}
    assert trained.get_variable_value("global_step") == 6
    trained.train(lambda params: dataset(params["batch_size"]).skip(1), max_steps=9)
    assert calls["model"] == 2
    trained.close()
    trained.train(reads, max_steps=10)
    assert calls["model"] == 3


def test_a_bar_on_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_tpu: bool, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", stream)
    estimator(tmp_path, use_tpu=use_tpu, loop=4).train(input_fn, max_steps=12)
    shown = stream.getvalue()
    assert "\r[####################] step 12 of 12, " in shown
    assert "step 12 of 12" not in "\n".join(said)  # the log has its own lines
    assert shown.endswith("\n")
    estimator(tmp_path).train(input_fn, max_steps=4)
    assert "[#" not in capsys.readouterr().err

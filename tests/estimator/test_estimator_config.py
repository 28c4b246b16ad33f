"""The configuration classes of the Estimator API: names, defaults, checks and error kinds."""

from __future__ import annotations

import inspect
import json

import pytest
import tensorflow as tf

import tpugraph
from tpugraph import InputPipelineConfig, RunConfig, TPUClusterResolver, TPUConfig


def defaults(function: object) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {p.name: p.default for p in parameters if p.name not in ("self", "cls")}


def test_mode_keys_are_those_of_tensorflow() -> None:
    keys = tpugraph.ModeKeys
    assert (keys.TRAIN, keys.EVAL, keys.PREDICT) == ("train", "eval", "infer")


# --------------------------------------------------------------------------- TPUConfig


def test_tpu_config_defaults() -> None:
    config = TPUConfig()
    assert config.iterations_per_loop == 2
    assert config.num_shards is None
    assert config.num_cores_per_replica is None
    assert config.per_host_input_for_training == InputPipelineConfig.PER_HOST_V1
    assert config.tpu_job_name is None
    assert config.initial_infeed_sleep_secs is None
    assert config.input_partition_dims is None
    assert config.eval_training_input_configuration == InputPipelineConfig.PER_HOST_V1
    assert config.experimental_host_call_every_n_steps == 1
    assert (config.experimental_allow_per_host_v2_parallel_get_next, config.experimental_feed_hook) == (False, None)


def test_an_infeed_hook_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no infeed hook to replace"):
        TPUConfig(experimental_feed_hook=object)


def test_tpu_config_takes_its_fields_by_position_and_replaces_them() -> None:
    config = TPUConfig(50, 8, 1, True, "job", 3)
    assert (config.iterations_per_loop, config.num_shards, config.tpu_job_name) == (50, 8, "job")
    assert config._replace(num_shards=4) == TPUConfig(50, 4, 1, True, "job", 3)


@pytest.mark.parametrize("value", [0, -1, "x", "30|", "0s", "-3m", "1.5h", 2.5, None, True, "s", " 3s"])
def test_iterations_per_loop_refuses(value: object) -> None:
    with pytest.raises(ValueError, match="iterations_per_loop is") as caught:
        TPUConfig(value)  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)
    assert "30s" in str(caught.value)


@pytest.mark.parametrize("value", [1, 500, "30s", "5m", "1h", "30"])
def test_iterations_per_loop_takes(value: int | str) -> None:
    assert TPUConfig(value).iterations_per_loop == value


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), ("x", TypeError), (2.5, TypeError)])
def test_num_shards_is_a_positive_whole_number(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="num_shards"):
        TPUConfig(num_shards=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 3, "x", 256])
def test_num_cores_per_replica_is_a_power_of_two(value: object) -> None:
    with pytest.raises(ValueError, match=r"num_cores_per_replica must be 1, 2, 4, 8, 16, 32, 64, 128; got"):
        TPUConfig(num_cores_per_replica=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "mode"), [(True, "PER_HOST_V1"), (False, "PER_SHARD_V1"), (3, "PER_HOST_V2")])
def test_per_host_input_for_training_is_a_mode(given: object, mode: str) -> None:
    assert TPUConfig(per_host_input_for_training=given).per_host_input_for_training == getattr(
        InputPipelineConfig, mode
    )


@pytest.mark.parametrize("value", [7, "x", None])
def test_per_host_input_for_training_refuses(value: object) -> None:
    with pytest.raises(ValueError, match="per_host_input_for_training is"):
        TPUConfig(per_host_input_for_training=value)


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (2.5, TypeError)])
def test_initial_infeed_sleep(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="initial_infeed_sleep_secs"):
        TPUConfig(initial_infeed_sleep_secs=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1, 3, 4, "x"])
def test_evaluation_input_is_per_host_or_sliced(value: object) -> None:
    with pytest.raises(ValueError, match="PER_HOST_V1 or SLICED"):
        TPUConfig(eval_training_input_configuration=value)  # type: ignore[arg-type]


def test_input_partition_dims() -> None:
    with pytest.raises(ValueError, match="with one or two elements"):
        TPUConfig(num_cores_per_replica=2, input_partition_dims=[[1, 2], None, None])
    with pytest.raises(ValueError, match="requires setting num_cores_per_replica"):
        TPUConfig(per_host_input_for_training=3, input_partition_dims=[[1, 2]])
    with pytest.raises(ValueError, match="only supported in PER_HOST_V2 mode"):
        TPUConfig(num_cores_per_replica=2, input_partition_dims=[[1, 2]])


def test_host_call_every_n_steps() -> None:
    with pytest.raises(ValueError, match="experimental_host_call_every_n_steps"):
        TPUConfig(experimental_host_call_every_n_steps=0)


# --------------------------------------------------------------------------- RunConfig


def test_run_config_defaults() -> None:
    config = RunConfig()
    assert config.model_dir is None
    assert config.tf_random_seed is None
    assert config.save_summary_steps == 100
    assert config.save_checkpoints_secs == 600
    assert config.save_checkpoints_steps is None
    assert config.keep_checkpoint_max == 5
    assert config.keep_checkpoint_every_n_hours == 10000
    assert config.log_step_count_steps == 100
    assert config.session_creation_timeout_secs == 7200
    assert config.tpu_config == TPUConfig()
    assert (config.master, config.evaluation_master, config.cluster, config.cluster_spec) == ("", "", None, None)
    assert (config.is_chief, config.task_type, config.task_id, config.num_worker_replicas) == (True, "worker", 0, 1)


def test_the_ways_to_save() -> None:
    assert RunConfig(save_checkpoints_steps=5).save_checkpoints_secs is None
    assert RunConfig(save_checkpoints_secs=5).save_checkpoints_steps is None
    neither = RunConfig(save_checkpoints_secs=None)
    assert (neither.save_checkpoints_secs, neither.save_checkpoints_steps) == (None, None)
    with pytest.raises(ValueError, match=r"both save_checkpoints_steps \(2\) and save_checkpoints_secs \(1\)"):
        RunConfig(save_checkpoints_secs=1, save_checkpoints_steps=2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"model_dir": ""},
        {"save_checkpoints_secs": -1},
        {"save_checkpoints_steps": -1},
        {"keep_checkpoint_max": -1},
        {"save_summary_steps": -1},
        {"keep_checkpoint_every_n_hours": 0},
        {"log_step_count_steps": 0},
        {"session_creation_timeout_secs": 0},
        {"tf_random_seed": 1.5},
        {"session_config": 3},
        {"protocol": "smoke"},
        {"device_fn": 3},
        {"device_fn": lambda one, two: None},
        {"train_distribute": object()},
    ],
    ids=lambda a: next(iter(a)),
)
def test_run_config_refuses(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"RunConfig {next(iter(arguments))}"):
        RunConfig(**arguments)  # type: ignore[arg-type]


def test_run_config_refuses_another_tpu_config() -> None:
    with pytest.raises(TypeError, match="tpu_config"):
        RunConfig(tpu_config=3)  # type: ignore[arg-type]


def test_replace_changes_what_may_change() -> None:
    config = RunConfig(model_dir="here", save_checkpoints_secs=60)
    changed = config.replace(model_dir="there", tpu_config=TPUConfig(7), save_checkpoints_steps=3)
    assert (changed.model_dir, changed.tpu_config.iterations_per_loop) == ("there", 7)
    assert (changed.save_checkpoints_steps, changed.save_checkpoints_secs) == (3, None)
    assert (config.model_dir, config.save_checkpoints_secs) == ("here", 60)
    with pytest.raises(ValueError, match="no 'master' to replace"):
        config.replace(master="x")
    with pytest.raises(ValueError, match="keep_checkpoint_max"):
        config.replace(keep_checkpoint_max=-1)


def test_masters() -> None:
    assert RunConfig(master="grpc://a:1").evaluation_master == "grpc://a:1"
    assert RunConfig(master="grpc://a:1", evaluation_master="grpc://b:1").evaluation_master == "grpc://b:1"


def test_a_cluster_gives_the_master() -> None:
    config = RunConfig(cluster=TPUClusterResolver("grpc://a:1"))
    assert config.master == config.evaluation_master == "grpc://a:1"
    assert config.cluster_spec.as_dict() == {"worker": ["a:1"]}
    with pytest.raises(ValueError, match="both a cluster and the master"):
        RunConfig(cluster=TPUClusterResolver("grpc://a:1"), master="grpc://b:1")
    session = tf.compat.v1.ConfigProto()
    session.cluster_def.job.add(name="worker")
    with pytest.raises(ValueError, match="cluster_def"):
        RunConfig(cluster=TPUClusterResolver("grpc://a:1"), session_config=session)


# --------------------------------------------------------------------------- TF_CONFIG

TRAINING = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "service": {"a": 1}}


def told(monkeypatch: pytest.MonkeyPatch, **config: object) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_tf_config_names_the_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, session_master="m:1", eval_session_master="e:1", service={"tpu_worker_job_name": "job"})
    config = RunConfig()
    assert (config.master, config.evaluation_master, config.tpu_config.tpu_job_name) == ("m:1", "e:1", "job")
    assert (RunConfig(master="x:1").evaluation_master, RunConfig(evaluation_master="y:1").master) == ("e:1", "m:1")
    assert TPUConfig(tpu_job_name="own").tpu_job_name == "own"
    told(monkeypatch, session_master="m:1")
    assert RunConfig().evaluation_master == "m:1"


@pytest.mark.parametrize(
    ("kind", "index", "number", "chief", "master"),
    [("chief", 0, 0, True, "grpc://a:1"), ("worker", 1, 2, False, "grpc://c:1"), ("ps", 0, 3, False, "grpc://d:1")],
)
def test_tf_config_tells_the_task(
    monkeypatch: pytest.MonkeyPatch, kind: str, index: int, number: int, chief: bool, master: str
) -> None:
    told(monkeypatch, **TRAINING, task={"type": kind, "index": index})
    config = RunConfig()
    assert (config.task_type, config.task_id, config.global_id_in_cluster) == (kind, index, number)
    assert (config.is_chief, config.master, config.service) == (chief, master, {"a": 1})
    assert (config.num_worker_replicas, config.num_ps_replicas) == (3, 1)
    assert config.cluster_spec.as_dict() == TRAINING["cluster"]


def test_an_evaluator_is_in_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, **TRAINING, task={"type": "evaluator", "index": 0})
    config = RunConfig(master="m:1")
    assert (config.master, config.evaluation_master, config.cluster_spec) == ("m:1", "", None)
    assert (config.task_type, config.global_id_in_cluster, config.is_chief) == ("evaluator", None, False)
    assert (config.num_worker_replicas, config.num_ps_replicas) == (0, 0)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}, "must have one chief, but has 0"),
        ({"cluster": TRAINING["cluster"]}, "calls this process nothing 0"),
        ({"cluster": TRAINING["cluster"], "task": {"type": "worker", "index": 2}}, "calls this process worker 2"),
        ({"task": {"type": "chief", "index": 0}}, "no cluster, but the task chief 0"),
        ([1], "must be a JSON object"),
    ],
)
def test_a_tf_config_that_cannot_be(monkeypatch: pytest.MonkeyPatch, config: object, words: str) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match=words):
        RunConfig()


def test_a_tf_config_that_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(ValueError, match="TF_CONFIG in the environment is no JSON"):
        RunConfig()
    told(monkeypatch, service=[1])
    with pytest.raises(TypeError, match="must be a dict"):
        RunConfig()


# --------------------------------------------------------------------------- TPUClusterResolver


@pytest.fixture(autouse=True)
def no_tpu_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_NAME", raising=False)
    monkeypatch.delenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", raising=False)


def test_resolver_arguments() -> None:
    expected = ["tpu", "zone", "project", "job_name", "coordinator_name", "coordinator_address", "credentials",
                "service", "discovery_url", "tpu_names"]  # fmt: skip
    assert list(defaults(TPUClusterResolver.__init__)) == expected


@pytest.mark.parametrize("name", ["", "local", [""], b"local"])
def test_local_cores(name: str) -> None:
    resolver = TPUClusterResolver(name)
    assert resolver.master() == resolver.get_master() == ""
    assert resolver.cluster_spec() is None
    assert resolver.get_job_name() is None


def test_a_server_address() -> None:
    resolver = TPUClusterResolver("grpc://a:1", coordinator_name="me", coordinator_address="b:2", job_name="tpus")
    assert resolver.master() == "grpc://a:1"
    assert resolver.cluster_spec().as_dict() == {"tpus": ["a:1"], "me": ["b:2"]}
    assert resolver.get_job_name() == "tpus"
    assert resolver.environment == ""
    assert TPUClusterResolver(tpu_names=["grpc://c:1"]).get_master() == "grpc://c:1"


def test_the_environment_names_the_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no TPU is named"):
        TPUClusterResolver()
    monkeypatch.setenv("TPU_NAME", "grpc://a:1")
    assert TPUClusterResolver().master() == "grpc://a:1"
    monkeypatch.setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://b:1")
    assert TPUClusterResolver().master() == "grpc://b:1"


def test_names_that_are_not_looked_up() -> None:
    with pytest.raises(ValueError, match="'my-tpu' is no address"):
        TPUClusterResolver("my-tpu")
    with pytest.raises(NotImplementedError, match="2 TPUs"):
        TPUClusterResolver(["grpc://a:1", "grpc://b:1"])
    with pytest.raises(TypeError, match="must be a name"):
        TPUClusterResolver(3)  # type: ignore[arg-type]

"""The configuration classes of the Estimator API: names, defaults, checks and error kinds."""

import inspect
import json

import pytest
import tensorflow as tf

import tpugraph
from tpugraph import InputPipelineConfig, RunConfig, TPUClusterResolver, TPUConfig


def held(config: object, names: object) -> dict[str, object]:
    return {name: getattr(config, name) for name in names}


# --------------------------------------------------------------------------- TPUConfig


def test_tpu_config_has_its_fields_and_defaults() -> None:
    expected = {"iterations_per_loop": 2, "num_shards": None, "num_cores_per_replica": None,
                "per_host_input_for_training": InputPipelineConfig.PER_HOST_V1, "tpu_job_name": None,
                "initial_infeed_sleep_secs": None, "input_partition_dims": None,
                "eval_training_input_configuration": InputPipelineConfig.PER_HOST_V1,
                "experimental_host_call_every_n_steps": 1, "experimental_feed_hook": None,
                "experimental_allow_per_host_v2_parallel_get_next": False}  # fmt: skip
    assert held(TPUConfig(), expected) == expected
    config = TPUConfig(50, 8, 1, True, "job", 3)
    assert (config.iterations_per_loop, config.num_shards, config.tpu_job_name) == (50, 8, "job")
    assert config._replace(num_shards=4) == TPUConfig(50, 4, 1, True, "job", 3)


def test_what_a_conversion_is_told() -> None:
    """By default replicas normalise by their own rows, as on a TPU."""
    usual = {"batch_norm": "per_core", "max_ids": 0, "shard_tables": 0, "step_order": "reads_first"}
    told = {"batch_norm": "global", "max_ids": 6, "shard_tables": 40, "step_order": "writes_first"}
    assert TPUConfig().choices(tables=False) == usual
    assert TPUConfig(**told).choices(tables=False) == told


@pytest.mark.parametrize("value", [1, 500, "30s", "5m", "1h", "30"])
def test_iterations_per_loop_takes(value: int | str) -> None:
    assert TPUConfig(value).iterations_per_loop == value


# --------------------------------------------------------------------------- RunConfig


def test_run_config_defaults() -> None:
    expected = {"model_dir": None, "tf_random_seed": None, "save_summary_steps": 100, "save_checkpoints_secs": 600,
                "save_checkpoints_steps": None, "keep_checkpoint_max": 5, "keep_checkpoint_every_n_hours": 10000,
                "log_step_count_steps": 100, "session_creation_timeout_secs": 7200, "tpu_config": TPUConfig(),
                "master": "", "evaluation_master": "", "cluster": None, "cluster_spec": None, "is_chief": True,
                "task_type": "worker", "task_id": 0, "num_worker_replicas": 1}  # fmt: skip
    assert held(RunConfig(), expected) == expected
    keys = tpugraph.ModeKeys
    assert (keys.TRAIN, keys.EVAL, keys.PREDICT) == ("train", "eval", "infer")


def test_what_replace_changes_and_how_to_save() -> None:
    assert RunConfig(save_checkpoints_steps=5).save_checkpoints_secs is None
    assert RunConfig(save_checkpoints_secs=5).save_checkpoints_steps is None
    neither = RunConfig(save_checkpoints_secs=None)
    assert (neither.save_checkpoints_secs, neither.save_checkpoints_steps) == (None, None)
    config = RunConfig(model_dir="here", save_checkpoints_secs=60)
    changed = config.replace(model_dir="there", tpu_config=TPUConfig(7), save_checkpoints_steps=3)
    assert (changed.model_dir, changed.tpu_config.iterations_per_loop) == ("there", 7)
    assert (changed.save_checkpoints_steps, changed.save_checkpoints_secs) == (3, None)
    assert (config.model_dir, config.save_checkpoints_secs) == ("here", 60)
    with pytest.raises(ValueError, match="keep_checkpoint_max"):
        config.replace(keep_checkpoint_max=-1)


def test_masters_and_clusters() -> None:
    assert RunConfig(master="grpc://a:1").evaluation_master == "grpc://a:1"
    assert RunConfig(master="grpc://a:1", evaluation_master="grpc://b:1").evaluation_master == "grpc://b:1"
    config = RunConfig(cluster=TPUClusterResolver("grpc://a:1"))
    assert config.master == config.evaluation_master == "grpc://a:1"
    assert config.cluster_spec.as_dict() == {"worker": ["a:1"]}
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
def test_tf_config_tells_the_task(monkeypatch: pytest.MonkeyPatch, kind: str, index: int, number: int, chief: bool,
                                  master: str) -> None:  # fmt: skip
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


@pytest.mark.parametrize(("config", "words"), [
    ({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}, "must have one chief, but has 0"),
    ({"cluster": TRAINING["cluster"]}, "calls this process nothing 0"),
    ({"cluster": TRAINING["cluster"], "task": {"type": "worker", "index": 2}}, "calls this process worker 2"),
    ({"task": {"type": "chief", "index": 0}}, "no cluster, but the task chief 0"),
    ([1], "must be a JSON object"),
])  # fmt: skip
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
    for name in ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)


def test_a_server_address() -> None:
    expected = ["self", "tpu", "zone", "project", "job_name", "coordinator_name", "coordinator_address", "credentials",
                "service", "discovery_url", "tpu_names"]  # fmt: skip
    assert list(inspect.signature(TPUClusterResolver.__init__).parameters) == expected
    resolver = TPUClusterResolver("grpc://a:1", coordinator_name="me", coordinator_address="b:2", job_name="tpus")
    assert resolver.master() == "grpc://a:1"
    assert resolver.cluster_spec().as_dict() == {"tpus": ["a:1"], "me": ["b:2"]}
    assert resolver.get_job_name() == "tpus"
    assert resolver.environment == ""
    assert TPUClusterResolver(tpu_names=["grpc://c:1"]).get_master() == "grpc://c:1"


@pytest.mark.parametrize("name", ["", "local", [""], b"local"])
def test_local_cores(name: str) -> None:
    resolver = TPUClusterResolver(name)
    assert resolver.master() == resolver.get_master() == ""
    assert resolver.cluster_spec() is None
    assert resolver.get_job_name() is None


def test_who_names_the_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_NAME", "grpc://a:1")
    assert TPUClusterResolver().master() == "grpc://a:1"
    monkeypatch.setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://b:1")
    assert TPUClusterResolver().master() == "grpc://b:1"

"""TPUEstimator on a mesh: what ``TPUConfig(engine="xla")`` trains is what one device trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
from tpugraph import InputPipelineConfig, RunConfig, TPUConfig, TPUEstimator, TPUEstimatorSpec
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1
VARIABLES = ("w1", "w2", "w1/Adam", "w2/Adam_1")


def images(params: dict[str, Any]) -> Any:
    draw = np.random.RandomState(0)
    pixels, labels = draw.rand(64, 8, 8, 3).astype("float32"), draw.randint(0, 10, 64).astype("int32")
    return (
        tf.data.Dataset.from_tensor_slices((pixels, labels)).repeat().batch(params["batch_size"], drop_remainder=True)
    )


def convolution(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> TPUEstimatorSpec:
    def variable(name: str, shape: list[int], seed: int) -> Any:
        return tf1.get_variable(name, shape, initializer=tf1.random_normal_initializer(stddev=0.2, seed=seed))

    hidden = tf.nn.max_pool2d(
        tf.nn.relu(tf.nn.conv2d(features, variable("w1", [3, 3, 3, 8], 1), 1, "SAME")), 2, 2, "SAME"
    )
    logits = tf.reshape(hidden, [-1, 128]) @ variable("w2", [128, 10], 2)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tpugraph.CrossShardOptimizer(tf1.train.AdamOptimizer(0.01))
    return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf1.train.get_global_step()))


def trained(folder: Path, *, use_tpu: bool = True, **config: Any) -> dict[str, Any]:
    tpu_config = TPUConfig(4, per_host_input_for_training=InputPipelineConfig.PER_HOST_V2, **config)
    run_config = RunConfig(tpu_config=tpu_config, tf_random_seed=3)
    estimator = TPUEstimator(convolution, folder, run_config, use_tpu=use_tpu, train_batch_size=16)
    estimator.train(images, max_steps=8)
    return {name: estimator.get_variable_value(name) for name in VARIABLES}


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained(tmp_path_factory.mktemp("plain"), use_tpu=False)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"num_shards": 4}, "on the mesh data:4 (cpu): all-reduce"),
        (
            {"num_shards": 4, "num_cores_per_replica": 2, "input_partition_dims": [[1, 2, 1, 1], None]},
            "on the mesh data:4,dim1:2 (cpu): collective-permute, all-reduce",
        ),
        ({"mesh": "data:4,model:2", "shard": ["w2=-,model"], "shard_optimizer": "data"}, "on the mesh data:4,model:2"),
        ({"platform": "cpu"}, "on the mesh data:8 (cpu): all-reduce"),
    ],
)
def test_a_mesh_trains_as_one_device(
    config: dict[str, Any], says: str, on_one_device: dict[str, Any], tmp_path: Path, said: list[str]
) -> None:
    found = trained(tmp_path, **{"engine": "xla"} | config if "num_shards" in config else config)
    assert says in "\n".join(said)
    for name, expected in on_one_device.items():
        assert np.abs(found[name] - expected).max() <= 1e-5 * np.abs(expected).max()


def test_joined_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would write into the folder, and one would wait for the other."""
    monkeypatch.setattr("tpugraph.estimator.cluster.joined", lambda: True)
    with pytest.raises(ArgumentError, match="an estimator trains in one process"):
        trained(tmp_path, mesh="data:8")


def test_devices_that_are_named_mean_the_engine() -> None:
    assert not TPUConfig().by_xla
    assert TPUConfig(mesh="data:8").by_xla
    assert TPUConfig()._replace(platform="gpu").by_xla
    for config in ({"shard": ["w2=-,model"]}, {"engine": "emulator", "platform": "gpu"}):
        with pytest.raises(ArgumentError, match="are for XLA's own partitioner"):
            TPUConfig(**config)

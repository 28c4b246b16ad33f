"""Models of the corpus written as model functions: through TPUEstimator they train as TensorFlow 1.15 recorded."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sampling import runs

import tpugraph
from estimators import losses_in
from models import corpus
from tpugraph import EstimatorSpec, layers

tf1 = tf.compat.v1
STEPS = 24


def finish(mode: str, loss: Any, optimizer: Any, predicted: Any, labels: Any) -> EstimatorSpec:
    """A plain spec, with a metric and a summary in the training graph as the corpus has them."""
    accuracy = tf1.metrics.accuracy(labels, predicted, name="acc_op")
    tf1.summary.scalar("accuracy", accuracy[1])
    step = tf1.train.get_global_step()
    return EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step), eval_metric_ops={"accuracy": accuracy}
    )


def iris_dnn(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    names = ("PetalLength", "PetalWidth", "SepalLength", "SepalWidth")
    net = tf1.feature_column.input_layer(features, [tf.feature_column.numeric_column(name) for name in names])
    for units in (10, 10):
        net = layers.dense(net, units=units, activation=tf.nn.relu)
    logits = layers.dense(net, 3, activation=None)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    return finish(mode, loss, tf1.train.AdagradOptimizer(learning_rate=0.1), tf.argmax(logits, 1), labels)


def ref_variables(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    net = layers.flatten(features)
    graph = corpus("ref_variables").graph()
    shapes = {name: graph[f"net/{name}"].attr("shape") for name in ("w1", "b1", "w2")}
    with tf1.variable_scope("net", use_resource=False):
        w1, b1, w2 = (tf1.get_variable(name, shape) for name, shape in shapes.items())
        count = tf1.get_variable("count", [], trainable=False, initializer=tf1.zeros_initializer())
    with tf.control_dependencies([tf1.assign_add(count, 1.0)]):
        logits = tf.nn.relu(net @ w1 + b1) @ w2
        loss = tf1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    loss += float(graph["mul/x"].attr("value")) * count
    return finish(mode, loss, tf1.train.AdamOptimizer(0.01), tf.argmax(logits, 1), labels)


MODELS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (iris_dnn, ref_variables)}


def arrays_of(name: str) -> Any:
    """The features and labels that the graph of the corpus holds, and its batch size."""
    graph = corpus(name).graph()
    parts = [tensor.node.attr("value") for tensor in graph["TensorSliceDataset"].inputs]
    rows = int(graph["batch_size"].attr("value"))
    if name == "iris_dnn":
        names = ("PetalLength", "PetalWidth", "SepalLength", "SepalWidth")
        return (dict(zip(names, parts[:4], strict=True)), parts[4]), rows
    return tuple(parts), rows


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("mode", "cores", "name"),
    [
        pytest.param(mode, cores, name, id=f"{cores or 'plain'}-{name}")
        for turn, (mode, cores) in enumerate([("global8", 8), ("plain", 1), ("plain", None)])
        for place, name in enumerate(sorted(MODELS))
        if runs((turn + place) % 2 == 0)
    ],
)
def test_the_recorded_training(name: str, mode: str, cores: int | None, tmp_path: Path) -> None:
    model, (arrays, rows) = corpus(name), arrays_of(name)
    for file in model.folder.glob("model.ckpt-0.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"\n')

    def input_fn(params: dict[str, Any]) -> Any:
        data = tf.data.Dataset.from_tensor_slices(arrays).repeat()
        return data.batch(params["batch_size"], drop_remainder=True)

    config = tpugraph.RunConfig(tpugraph.TPUConfig(6, cores), model_dir=tmp_path, save_summary_steps=1)
    trained = tpugraph.TPUEstimator(MODELS[name], config=config, use_tpu=cores is not None,
                                    train_batch_size=rows * (cores or 1))  # fmt: skip
    trained.train(input_fn, max_steps=STEPS)
    recorded = model.recorded(mode)
    relative = 1e-3 if mode == "global8" else 1e-4
    losses = losses_in(tmp_path)
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert np.allclose([losses[s] for s in sorted(losses)], recorded.losses, rtol=relative, atol=1e-5)
    assert set(recorded.variables) <= set(trained.get_variable_names())
    for key, value in recorded.variables.items():
        assert np.allclose(trained.get_variable_value(key), value, rtol=relative, atol=1e-5), key

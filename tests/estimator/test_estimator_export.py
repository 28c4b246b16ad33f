"""Exports besides the plain one for serving: graphs for TPUs, evaluation graphs, version 2."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import tpugraph
from closeness import assert_close
from estimators import FEATURES, TARGETS, checkpoint_of, example, served
from tpugraph import export
from tpugraph.compat.v1 import Session
from tpugraph.estimator.tpu_serving import (
    BatchConfig,
    ExportSavedModelApiVersion,
    inference_on_tpu,
    model_fn_inference_on_tpu,
)

tf1 = tf.compat.v1
SPEC = {"x": tf.io.FixedLenFeature([3], tf.float32)}
receive = export.build_parsing_serving_input_receiver_fn(SPEC)


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """A linear model; exports know no batch size."""
    assert "batch_size" not in params
    found = tf.squeeze(features["x"] @ tf1.get_variable("w", [3, 1]), 1)
    if mode == tpugraph.ModeKeys.PREDICT:
        outputs = {"serving_default": export.PredictOutput({"y": found}), "value": export.RegressionOutput(found)}
        return tpugraph.TPUEstimatorSpec(mode, predictions={"y": found}, export_outputs=outputs)
    loss = tf.reduce_mean(tf.square(found - labels))
    metrics = (lambda y: {"mean": tf1.metrics.mean(y)}, [found])
    return tpugraph.TPUEstimatorSpec(mode, loss=loss, predictions={"y": found}, eval_metrics=metrics)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint_of(tmp_path_factory.mktemp("w"))


def exported(folder: Path, checkpoint: str, function: Any = model_fn, **arguments: Any) -> dict[tuple[str, ...], Any]:
    made = tpugraph.TPUEstimator(function, config=tpugraph.RunConfig(), train_batch_size=8, **arguments)
    path = made.export_saved_model(os.fsencode(folder), receive, checkpoint_path=checkpoint)
    definition = SavedModel.FromString(Path(path, "saved_model.pb").read_bytes())
    return {tuple(sorted(graph.meta_info_def.tags)): graph for graph in definition.meta_graphs}


def ops_of(graph: Any) -> set[str]:
    inside = [node.op for function in graph.graph_def.library.function for node in function.node_def]
    return {*inside, *(node.op for node in graph.graph_def.node)}


def on_emulated_core(folder: Path, row: np.ndarray) -> Any:
    """What the graph for TPUs of an exported model says of a row."""
    with tf.Graph().as_default(), Session() as session:
        signature = tf1.saved_model.load(session, ["serve", "tpu"], str(folder)).signature_def["serving_default"]
        session.run(tf1.tpu.initialize_system())
        return session.run(signature.outputs["y"].name, {signature.inputs["examples"].name: [example(x=row)]})


def test_graphs_for_tpus_and_for_hosts(tmp_path: Path, checkpoint: str) -> None:
    found = exported(tmp_path, checkpoint)
    assert set(found) == {("serve",), ("serve", "tpu")}
    assert not {"TPUPartitionedCall", "TPUReplicateMetadata"} & ops_of(found["serve",])
    assert {"TPUPartitionedCall", "TPUReplicateMetadata", "TPUOrdinalSelector"} <= ops_of(found["serve", "tpu"])
    assert (
        set(found["serve", "tpu"].signature_def) == set(found["serve",].signature_def) == {"serving_default", "value"}
    )
    (folder,) = tmp_path.iterdir()
    found_y = served(folder, examples=[example(x=FEATURES[0])])["y"]
    assert_close(found_y, FEATURES[:1] @ [1, -2, 3], 1e-5)
    assert_close(on_emulated_core(folder, FEATURES[0]), found_y, 1e-6)
    assert set(exported(tmp_path / "a", checkpoint, export_to_tpu=False)) == {("serve",)}
    assert set(exported(tmp_path / "b", checkpoint, export_to_cpu=False)) == {("serve", "tpu")}


def test_a_model_that_no_tpu_can_serve(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    def words(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if params["use_tpu"]:
            raise ValueError("only on a host")
        return model_fn(features, labels, mode, params)

    assert set(exported(tmp_path / "a", checkpoint, words)) == {("serve",)}
    assert "warning: the exported model has no graph for TPUs: only on a host" in said
    with pytest.raises(ValueError, match="the model cannot be exported for TPUs: only on a host"):
        exported(tmp_path / "b", checkpoint, words, export_to_cpu=False)


def test_the_model_puts_its_computation_on_tpus_itself(tmp_path: Path, checkpoint: str) -> None:
    """Version 2, with requests that are gathered to batches."""

    def whole(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode == tpugraph.ModeKeys.PREDICT and params["use_tpu"]:
            return model_fn_inference_on_tpu(model_fn, features, labels, None, params, BatchConfig(1, 2, 100, [2]))
        return model_fn(features, labels, mode, params)

    def part(features: Any, labels: Any, mode: str, params: Any) -> Any:
        def compute(x: Any) -> Any:
            return tf.squeeze(x @ tf1.get_variable("w", [3, 1]), 1)

        found = inference_on_tpu(compute, [features["x"]], 1, 2, 100) if params["use_tpu"] else compute(features["x"])
        return tpugraph.TPUEstimatorSpec(mode, predictions={"y": found})

    for number, function in enumerate((whole, part)):
        version = ExportSavedModelApiVersion.V2
        found = exported(tmp_path / str(number), checkpoint, function, export_saved_model_api_version=version)
        assert set(found) == {("serve",), ("serve", "tpu")}
        assert {"BatchFunction", "TPUPartitionedCall"} <= ops_of(found["serve", "tpu"])
        assert "BatchFunction" not in ops_of(found["serve",])
        (folder,) = (tmp_path / str(number)).iterdir()
        assert_close(on_emulated_core(folder, FEATURES[1]), FEATURES[1:2] @ [1, -2, 3], 1e-5)


def test_a_graph_for_evaluation(tmp_path: Path, checkpoint: str) -> None:
    examples = {"x": tf.TensorSpec([2, 3], tf.float32)}, tf.TensorSpec([2], tf.float32, name="truth")
    made = tpugraph.TPUEstimator(model_fn, config=tpugraph.RunConfig(), train_batch_size=8)
    supervised = export.build_raw_supervised_input_receiver_fn(*examples)
    folder = made.export_saved_model(tmp_path, supervised, checkpoint_path=checkpoint, experimental_mode="eval")
    with tf.Graph().as_default(), tf1.Session() as session:
        loaded = tf1.saved_model.loader.load(session, ["eval"], folder)
        signature = loaded.signature_def["eval"]
        fed = {signature.inputs["x"].name: FEATURES[:5], signature.inputs["label"].name: TARGETS[:5]}
        found = session.run({key: signature.outputs[key].name for key in ("loss", "predictions/y")}, fed)
        session.run(signature.outputs["metrics/mean/update_op"].name, fed)
        mean = session.run(signature.outputs["metrics/mean/value"].name)
    wanted = FEATURES[:5] @ [1, -2, 3]
    assert_close(found["predictions/y"], wanted, 1e-5)
    assert found["loss"] == pytest.approx(np.mean((wanted - TARGETS[:5]) ** 2), rel=1e-5)
    assert mean == pytest.approx(wanted.mean(), rel=1e-5)
    with pytest.raises(ValueError, match="experimental_mode is 'test'"):
        made.export_saved_model(tmp_path, supervised, checkpoint_path=checkpoint, experimental_mode="test")


def test_receivers_with_labels() -> None:
    with tf.Graph().as_default():
        fed = tf1.placeholder(tf.float32, [None])
        assert export.SupervisedInputReceiver(fed, {"y": fed}, fed).receiver_tensors == {"input": fed}

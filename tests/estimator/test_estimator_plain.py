"""Evaluation and prediction with cores and without, and export, at a checkpoint that the cores trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from evaluating import area
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from classifier import COUNT, FEATURES, LABELS, eval_fn, make, train_fn
from closeness import assert_close
from estimators import checkpoint_of, example, scalars_in, served
from tpugraph import EstimatorSpec, ModeKeys, RunConfig, TPUEstimator, export

tf1 = tf.compat.v1


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TPUEstimator]:
    found = make(tmp_path_factory.mktemp("trained")).train(train_fn, max_steps=30)
    yield found
    found.close()


def scores_of(trained: TPUEstimator) -> np.ndarray:
    kernel, bias = trained.get_variable_value("dense/kernel"), trained.get_variable_value("dense/bias")
    return 1 / (1 + np.exp(-(FEATURES.astype(float) @ kernel[:, 0] + bias[0])))


@pytest.mark.parametrize("plain", [True, False], ids=["dict", "eval_metrics"])
def test_metrics_are_those_of_numpy(trained: TPUEstimator, *, plain: bool, use_tpu: bool, said: list[str]) -> None:
    made = make(Path(trained.model_dir), params={"plain": plain}, use_tpu=use_tpu)
    found = made.evaluate(eval_fn, name=f"{plain}{use_tpu}")
    scores = scores_of(trained)
    guessed = scores > 0.5
    assert found["accuracy"] == pytest.approx(np.mean(guessed == LABELS), abs=1e-6)
    assert found["precision"] == pytest.approx(np.sum(guessed & (LABELS == 1)) / np.sum(guessed), abs=1e-6)
    assert found["auc"] == pytest.approx(area(LABELS, scores), abs=1e-6)
    assert found["mean"] == pytest.approx(scores.mean(), abs=1e-6)
    assert found["global_step"] == 30
    batches = np.split(-(LABELS * np.log(scores) + (1 - LABELS) * np.log(1 - scores)), range(64, COUNT, 64))
    assert found["loss"] == pytest.approx(np.mean([b.mean() for b in batches]), rel=1e-5)
    done = "1,026 examples in 17 batches on 8 cores" if use_tpu else "17 batches"
    assert len(said) == 1
    assert said[0].startswith(f"evaluated {done} at step 30: accuracy ")
    events = {tag: value for _, tag, value in scalars_in(made.eval_dir(f"{plain}{use_tpu}"))}
    assert events["accuracy"] == pytest.approx(found["accuracy"])
    assert "global_step" not in events


def test_evaluation_at_other_checkpoints(tmp_path: Path, trained: TPUEstimator, said: list[str]) -> None:
    made = make(tmp_path)
    assert made.evaluate(eval_fn)["global_step"] == 0
    assert "evaluated with its first values" in said[0]
    assert made.evaluate(eval_fn, checkpoint_path=trained.latest_checkpoint())["global_step"] == 30
    made.evaluate(eval_fn, steps=100)
    assert "the data ended after 17 of 100 batches" in said


@pytest.mark.parametrize("count", [1, 7, 64, 65, 0])
def test_predictions_in_order(trained: TPUEstimator, count: int, use_tpu: bool, said: list[str]) -> None:
    def reads(params: dict[str, Any]) -> Any:
        return tf.data.Dataset.from_tensor_slices({"x": FEATURES[:count]}).batch(params["batch_size"])

    made = make(Path(trained.model_dir), use_tpu=use_tpu)
    found = list(made.predict(reads))
    assert said == []
    assert len(found) == count
    assert np.array_equal([f["features"] for f in found], FEATURES[:count].reshape(count, 3)) or not count
    assert_close([f["score"] for f in found], scores_of(trained)[:count], 1e-5)


def test_predictions_may_be_left_and_chosen(trained: TPUEstimator) -> None:
    before = tf1.get_default_graph()
    found = trained.predict(eval_fn, predict_keys=["score"])
    assert list(next(found)) == ["score"]
    assert tf1.get_default_graph() is before
    found.close()  # type: ignore[attr-defined]
    assert len(next(trained.predict(eval_fn, yield_single_examples=False))["score"]) == 64
    for keys, error, words in ((10, TypeError, "predict takes no steps"), (["x"], ValueError, "none of")):
        with pytest.raises(error, match=words):
            trained.predict(eval_fn, keys)


def test_metrics_that_read_another_batch(trained: TPUEstimator, use_tpu: bool, said: list[str]) -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_mean(features["x"] @ tf1.get_variable("dense/kernel", [3, 1]))
        metrics = {"good": tf1.metrics.mean(labels), "largest": (tf.reduce_max(features["x"]), tf.no_op())}
        return EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    made = TPUEstimator(model, config=RunConfig(model_dir=trained.model_dir), use_tpu=use_tpu, train_batch_size=64,
                        eval_batch_size=64)  # fmt: skip
    with pytest.raises(ValueError, match="the value of the metric 'largest' reads another batch"):
        made.evaluate(eval_fn)
    assert any("the value of the metric 'largest' depends on the batch" in line for line in said) == use_tpu


def test_the_saved_model_serves(trained: TPUEstimator, tmp_path: Path) -> None:
    extra = tmp_path / "words.txt"
    extra.write_text("a b")
    receive = export.build_raw_serving_input_receiver_fn({"x": tf.TensorSpec([None, 3], tf.float32)})
    folder = trained.export_saved_model(tmp_path / "out", receive, {"words.txt": str(extra)})
    assert Path(folder, "assets.extra", "words.txt").read_text() == "a b"
    assert [p.name for p in (tmp_path / "out").iterdir()] == [Path(folder).name]
    assert_close(served(folder, x=FEATURES[:5])["score"], scores_of(trained)[:5], 1e-5)
    names = {name for name, _ in tf.train.list_variables(str(Path(folder, "variables", "variables")))}
    assert names == {"dense/bias", "dense/kernel", "global_step"}
    model = SavedModel.FromString(Path(folder, "saved_model.pb").read_bytes())
    [definition] = [g.SerializeToString() for g in model.meta_graphs if "tpu" not in g.meta_info_def.tags]
    for word in (b"TPUReplicate", b"CrossReplicaSum", b"Infeed", b"tpugraph"):
        assert word not in definition


def test_serving_of_examples(trained: TPUEstimator, tmp_path: Path) -> None:
    receive = export.build_parsing_serving_input_receiver_fn({"x": tf.io.FixedLenFeature([3], tf.float32)})
    folder = trained.export_savedmodel(tmp_path, receive, as_text=True)
    assert Path(folder, "saved_model.pbtxt").exists()
    found = served(folder, examples=[example(x=FEATURES[0])])
    assert_close(found["score"], scores_of(trained)[:1], 1e-5)


def test_exports_that_cannot_be(trained: TPUEstimator, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no checkpoint"):
        make(tmp_path).export_saved_model(tmp_path, lambda: None)
    with pytest.raises(TypeError, match="which is no receiver"):
        trained.export_saved_model(tmp_path, lambda: None)
    # They reach the model in a dict, unless the receiver is the one for tensors
    with tf.Graph().as_default():
        fed = tf1.placeholder(tf.float32, [None, 3])
        assert export.ServingInputReceiver(fed, fed).features == {"feature": fed}
        assert export.TensorServingInputReceiver(fed, fed).features is fed
        assert export.TensorServingInputReceiver(fed, fed).receiver_tensors == {"input": fed}


def test_several_signatures(tmp_path: Path, said: list[str]) -> None:
    """Classification and regression of examples, and the features fed as they are; what serving does not know is left out."""

    def model(features: Any, labels: Any, mode: str) -> Any:
        del labels, mode
        score = tf.sigmoid(features["x"] @ tf1.get_variable("w", initializer=np.float32([[1], [-2], [3]])))
        outputs = {
            "serving_default": export.PredictOutput({"score": score}),
            "classes": export.ClassificationOutput(score, tf.as_string(score > 0.5)),
            "value": export.RegressionOutput(score),
        }
        return EstimatorSpec(ModeKeys.PREDICT, predictions={"score": score}, export_outputs=outputs)

    def receive() -> Any:
        serialized = tf1.placeholder(tf.string, [None])
        parsed = tf.io.parse_example(serialized, {"x": tf.io.FixedLenFeature([3], tf.float32)})
        return export.ServingInputReceiver(parsed, {"examples": serialized}, {"raw": parsed["x"]})

    saved = checkpoint_of(tmp_path)
    config = RunConfig(model_dir=tmp_path / "made")
    made = TPUEstimator(model, config=config, use_tpu=False, export_to_tpu=False)
    folder = made.export_saved_model(tmp_path / "out", receive, checkpoint_path=saved)
    warned = sorted(line for line in said if "left out" in line)
    assert [line.split("'")[1] for line in warned] == ["raw:classes", "raw:value"]
    assert "can only accept a single tensor input of type tf.string" in warned[0]
    [definition] = SavedModel.FromString(Path(folder, "saved_model.pb").read_bytes()).meta_graphs
    assert set(definition.signature_def) == {"serving_default", "classes", "value", "raw:serving_default"}
    wanted = 1 / (1 + np.exp(-(FEATURES[:5].astype(float) @ [1, -2, 3])))
    found = served(folder, "raw:serving_default", input=FEATURES[:5])["score"]
    assert_close(found[:, 0], wanted, 1e-5)
    classes = served(folder, "classes", inputs=[example(x=row) for row in FEATURES[:5]])
    assert_close(classes["scores"][:, 0], wanted, 1e-5)
    assert [name.decode() for name in classes["classes"][:, 0]] == ["true" if one > 0.5 else "false" for one in wanted]

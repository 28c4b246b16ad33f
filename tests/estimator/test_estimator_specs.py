"""What model functions return, and the optimizer wrapper."""

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

import tpugraph
from tpugraph import CrossShardOptimizer, EstimatorSpec, ModeKeys, TPUEstimatorSpec

tf1 = tf.compat.v1
TRAIN, EVAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
BOTH = pytest.mark.parametrize("spec", [EstimatorSpec, TPUEstimatorSpec])


@pytest.fixture(autouse=True)
def in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def test_fields() -> None:
    assert EstimatorSpec._fields == (
        "mode", "predictions", "loss", "train_op", "eval_metric_ops", "export_outputs", "training_chief_hooks",
        "training_hooks", "scaffold", "evaluation_hooks", "prediction_hooks")  # fmt: skip
    assert TPUEstimatorSpec._fields == (
        "mode", "predictions", "loss", "train_op", "eval_metrics", "export_outputs", "scaffold_fn", "host_call",
        "training_hooks", "evaluation_hooks", "prediction_hooks")  # fmt: skip
    assert issubclass(tpugraph.ArgumentError, (ValueError, tpugraph.UsageError))
    assert issubclass(tpugraph.ArgumentTypeError, (TypeError, tpugraph.TpuGraphError))
    assert issubclass(tpugraph.NanLossDuringTrainingError, RuntimeError)


@BOTH
def test_what_each_mode_needs(spec: Any) -> None:
    loss, step = tf.constant(1.0), tf.no_op()
    assert spec(TRAIN, loss=loss, train_op=step).loss is loss
    assert spec(TRAIN, loss=loss, train_op=loss).train_op is loss
    assert spec(EVAL, loss=loss).train_op is None
    assert spec(EVAL, loss=tf.constant([1.0])).loss.shape == ()
    assert spec(PREDICT, predictions={"a": loss}).predictions == {"a": loss}
    for mode, given, missing in [(TRAIN, {"train_op": step}, "loss"), (TRAIN, {"loss": loss}, "train_op"),
                                 (EVAL, {}, "loss"), (PREDICT, {}, "predictions")]:  # fmt: skip
        with pytest.raises(ValueError, match=f"no {missing}, which mode"):
            spec(mode, **given)
    with pytest.raises(ValueError, match="mode is 'practice'"):
        spec("practice", loss=loss)


NO_PAIR = r"'m' must be a pair .*\n +fix +a function of tf.compat.v1.metrics"
ESTIMATOR, TPU, ANY = [EstimatorSpec], [TPUEstimatorSpec], [EstimatorSpec, TPUEstimatorSpec]


@pytest.mark.parametrize(("specs", "name", "make", "error", "words"), [
    (ANY, "loss", lambda: 1.0, TypeError, r"loss must be a tensor, but is 1\.0"),
    (ANY, "loss", lambda: tf.constant([1.0, 2.0]), ValueError, r"loss must be a scalar, but 'Const.*' has the shape \(2,\)"),
    (ANY, "train_op", lambda: "train", TypeError, "train_op must be an op"),
    (ANY, "predictions", lambda: {"a": [1.0]}, TypeError, "predictions: 'a'"),
    (ANY, "export_outputs", lambda: [1], TypeError, "export_outputs"),
    (ESTIMATOR, "training_chief_hooks", lambda: [1], TypeError, "training_chief_hooks"),
    (ESTIMATOR, "scaffold", lambda: 1, TypeError, "scaffold must be"),
    (ESTIMATOR, "eval_metric_ops", lambda: [tf.constant(1.0)], TypeError, "eval_metric_ops must be a dict"),
    (ESTIMATOR, "eval_metric_ops", lambda: {"m": tf.constant(1.0)}, TypeError, NO_PAIR),
    (ESTIMATOR, "eval_metric_ops", lambda: {"m": tf.keras.metrics.Mean()}, TypeError, NO_PAIR),
    (TPU, "scaffold_fn", lambda: 3, TypeError, "scaffold_fn must be a function"),
])  # fmt: skip
def test_types_of_fields(specs: Any, name: str, make: Any, error: type[Exception], words: str) -> None:
    for spec in specs:
        with pytest.raises(error, match=words):
            spec(**{"mode": TRAIN, "loss": tf.constant(1.0), "train_op": tf.no_op(), name: make()})


@BOTH
@pytest.mark.parametrize("name", ["training_hooks", "evaluation_hooks", "prediction_hooks"])
def test_hooks_are_session_hooks(spec: Any, name: str) -> None:
    hook = tf1.train.SessionRunHook()
    assert getattr(spec(EVAL, loss=tf.constant(1.0), **{name: [hook]}), name) == (hook,)
    for wrong in ([object()], hook):
        with pytest.raises(TypeError, match=name):
            spec(EVAL, loss=tf.constant(1.0), **{name: wrong})


@pytest.mark.parametrize("name", ["eval_metrics", "host_call"])
@pytest.mark.parametrize(("pair", "error", "words"), [
    ("metrics", TypeError, "must be a tuple"),
    ((len,), ValueError, "has 1 elements"),
    ((3, []), TypeError, "must be a function"),
    ((lambda a: a, 3), TypeError, "must be a list or dict"),
    ((lambda a: a, [1, 2]), ValueError, "gets 2 tensors"),
    ((lambda a: a, {"b": 1}), ValueError, r"gets the tensors \['b'\]"),
])  # fmt: skip
def test_five_ways_to_get_a_call_wrong(name: str, pair: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"{name}.*{words}"):
        TPUEstimatorSpec(EVAL, loss=tf.constant(1.0), **{name: pair})


def test_as_estimator_spec_calls_the_functions() -> None:
    loss, seen = tf.constant(1.0), []
    scaffold = tf1.train.Scaffold()
    spec = TPUEstimatorSpec(EVAL, loss=loss, eval_metrics=(lambda a: {"m": tf1.metrics.mean(a)}, {"a": loss}),
                            scaffold_fn=lambda: scaffold, host_call=(seen.append, [loss])).as_estimator_spec()  # fmt: skip
    assert list(spec.eval_metric_ops) == ["m"]
    assert spec.scaffold is scaffold
    assert seen == [loss]
    with pytest.raises(ValueError, match="scaffold_fn returned None"):
        TPUEstimatorSpec(EVAL, loss=loss, scaffold_fn=lambda: None).as_estimator_spec()


def test_the_wrapper() -> None:
    weight = tf1.get_variable("w", initializer=3.0)
    wrapped = CrossShardOptimizer(tf1.train.MomentumOptimizer(0.5, 0.9))
    train = wrapped.minimize(weight * weight)
    assert wrapped.get_slot_names() == ["momentum"]
    assert wrapped.get_slot(weight, "momentum") is not None
    assert len(wrapped.variables()) == 1
    assert not [op for op in tf1.get_default_graph().get_operations() if op.type == "CrossReplicaSum"]
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        session.run(train)
        assert session.run(weight) == 0.0
    plain = tf1.train.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="the reduction 'none'"):
        CrossShardOptimizer(plain, reduction=tf1.losses.Reduction.NONE)
    with pytest.raises(TypeError, match="got object"):
        CrossShardOptimizer(object())
    for groups in ([0, 1], [[0, 1], [2]], [[0, 2]], [[0, 1], [2, 3]]):
        with pytest.raises(ValueError, match="group"):
            CrossShardOptimizer(plain, group_assignment=groups)
    assert CrossShardOptimizer(plain, group_assignment=[[0, 1]])

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


@BOTH
@pytest.mark.parametrize("name", ["training_hooks", "evaluation_hooks", "prediction_hooks"])
def test_hooks_are_session_hooks(spec: Any, name: str) -> None:
    hook = tf1.train.SessionRunHook()
    assert getattr(spec(EVAL, loss=tf.constant(1.0), **{name: [hook]}), name) == (hook,)


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
    assert CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.1), group_assignment=[[0, 1]])

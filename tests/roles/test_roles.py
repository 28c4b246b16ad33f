"""Roles are found by structure, with their reasons, and what cannot be told is one clear error."""

import re
from collections.abc import Callable

import pytest
import tensorflow as tf

from models import (
    CORPUS,
    FAMILIES,
    Model,
    batches,
    corpus,
    family,
    finish,
    linear,
    rows_of,
    squared_error,
    tf1,
    trace,
    variable,
)
from tpugraph import roles, testing
from tpugraph.ir import graphdef
from tpugraph.roles.findings import Finding
from tpugraph.support.errors import RolesError

SGD = tf1.train.GradientDescentOptimizer
FAMILY_NAMES = sorted(f.name for f in FAMILIES.iterdir() if f.name != "gan_estimator")


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_loss_and_train_op_are_those_of_the_estimator(name: str) -> None:
    """The recording of a family names the tensors that the Estimator itself ran."""
    model = family(name)
    graph = model.graph()
    found = roles.find(graph)
    wanted = graph.tensor(model.golden["loss_tensor"].removesuffix(":0"))
    mine = graph.tensor(found.loss.name)
    same = {mine.node, *(n for n in graph.ancestors([mine.node, wanted.node]) if n.op == "Identity")}
    assert wanted == mine or wanted.node in same or mine.node in graph.ancestors([wanted.node])
    train = graph[model.golden["train_op"].partition(":")[0]]
    cone = graph.ancestors(graph[f.name] for f in found.train_ops)
    assert {n for n in graph.ancestors([train]) if n.op in ("AssignAdd", "AssignAddVariableOp")} <= set(cone)


@pytest.mark.parametrize("name", ["iris_dnn", "lstm_dynamic", "dnn_classifier", "clip_adam"])
def test_collections_agree_with_structure(name: str) -> None:
    meta = graphdef.load(corpus(name).folder / "model.ckpt-0.meta")
    bare = graphdef.load(corpus(name).folder / "model.pb")
    with_hints, without = roles.find(meta), roles.find(bare)
    assert with_hints.loss.name == without.loss.name
    assert [f.name for f in with_hints.train_ops] == [f.name for f in without.train_ops]
    assert set(without.trained) == set(meta.collections["trainable_variables"])
    assert without.step is not None
    assert without.step.name == "global_step"


def test_collections_that_mislead_do_not_decide() -> None:
    graph = graphdef.load(corpus("iris_dnn").folder / "model.ckpt-0.meta")
    right = roles.find(graph)
    graph.collections["train_op"] = ["dense/BiasAdd"]
    graph.collections["global_step"] = ["dense/kernel"]
    wrong = roles.find(graph)
    assert [f.name for f in wrong.train_ops] == [f.name for f in right.train_ops]
    assert wrong.step is not None
    assert wrong.step.name == "global_step"


@pytest.mark.parametrize(
    "model", [corpus(p.name) for p in sorted(CORPUS.iterdir()) if p.is_dir()], ids=lambda m: m.name
)
def test_every_finding_has_a_reason_and_exists(model: Model) -> None:
    graph = model.graph()
    found = roles.find(graph)
    for finding in (
        found.loss,
        *found.train_ops,
        *found.inputs,
        *found.updates,
        *found.summaries,
        *found.metrics,
        *found.savers,
    ):
        assert finding.reason
        assert finding.name.partition(":")[0] in graph
    assert found.trained
    assert all(v.key and v.initializer for v in found.variables.values() if v.trained)


def test_findings_say_why() -> None:
    reason = {name: roles.find(corpus(name).graph()).inputs[0].reason for name in ("iris_dnn", "queue_runner")}
    assert reason == {
        "iris_dnn": "takes the next batch from an iterator",
        "queue_runner": "takes the next batch from a queue",
    }
    found = roles.find(corpus("iris_dnn").graph())
    assert "summarised under the tag 'loss'" in found.loss.reason
    assert found.step is not None
    assert re.fullmatch("a scalar int64 that '.*' increments by one", found.step.reason)


# ------------------------------------------------------------------ names given by the user


def test_names_given_by_the_user_win() -> None:
    graph = corpus("iris_dnn").graph()
    loss = roles.find(graph).loss.name
    found = roles.find(graph, loss=f"{loss}:0", train_op="Adagrad/update")
    assert found.loss == Finding(loss, "named by the user")
    assert [f.name for f in found.train_ops] == ["Adagrad/update"]


def test_several_train_ops_together() -> None:
    graph = family("gan_estimator").graph()
    error = testing.assert_raises_block(roles.find, graph, max_length=1200, kind=RolesError,
                                        words=["run them together"])  # fmt: skip
    both = (error.fix or "").rpartition("--train_op=")[2]
    found = roles.find(graph, train_op=both)
    assert [f.name for f in found.train_ops] == both.split(",")
    assert {name.partition("/")[0] for name in found.trained} == {"Discriminator", "Generator"}


def test_the_collection_tells_the_train_op_from_what_nothing_runs() -> None:
    """Moving averages whose updates the train op does not wait for, as of batch norm without its update ops, are no rival."""

    def build() -> None:
        features, targets, weights = linear(4)
        loss = tf.reduce_mean(squared_error(features, targets, weights))
        average = variable("average", (3, 1))
        tf1.assign_sub(average, 0.1 * (average - tf.gradients(loss, weights)[0]), name="alone")
        finish(loss, SGD(0.1))

    graph = trace(build)
    found = roles.find(graph)
    assert "alone" not in [finding.name for finding in found.train_ops]
    graph.collections["train_op"] = [found.train_ops[0].name]
    assert [finding.name for finding in roles.find(graph).train_ops] == [found.train_ops[0].name]
    graph.collections["train_op"] = []


# ------------------------------------------------------------------ what cannot be told


def no_training() -> None:
    tf.reduce_mean(squared_error(*linear(4)))


def no_input() -> None:
    weights = variable("w", (3, 1))
    finish(tf.reduce_sum(tf.square(weights)), SGD(0.1))


def rivals() -> None:
    features, targets, weights = linear(4)
    error = squared_error(features, targets, weights)
    SGD(0.1).minimize(tf.reduce_mean(error), name="one")
    other = variable("other", (3, 1))
    SGD(0.1).minimize(tf.reduce_mean(tf.square(features @ other)), name="two")


def unrelated() -> None:
    features, targets, weights = linear(4)
    tf1.summary.scalar("loss", tf.reduce_mean(squared_error(features, targets, weights)))
    other = variable("other", (3, 1))
    SGD(0.1).minimize(tf.reduce_mean(tf.square(features @ other)), name="other_train")


def accumulated() -> None:
    """What SyncReplicasOptimizer builds: the gradient waits in an accumulator."""
    features, targets, weights = linear(4)
    gradient = tf.gradients(tf.reduce_mean(squared_error(features, targets, weights)), [weights])[0]
    held = tf1.ConditionalAccumulator(tf.float32, shape=(3, 1), shared_name="gradients")
    with tf.control_dependencies([held.apply_grad(gradient)]):
        SGD(0.1).apply_gradients([(held.take_grad(1), weights)])


def staged() -> None:
    features, targets = batches(rows_of(8, 3), 4)
    kinds = [tf.float32, tf.float32]
    tf.raw_ops.Stage(values=[features, targets])
    features, targets = tf.raw_ops.Unstage(dtypes=kinds)
    finish(tf.reduce_mean(squared_error(tf.reshape(features, (4, 3)), targets, variable("w", (3, 1)))), SGD(0.1))


FAULTS: dict[str, tuple[Callable[[], object], dict[str, str], list[str]]] = {
    "no training": (no_training, {}, ["no train op", "evaluation or prediction", "--train_op"]),
    "no input": (no_input, {}, ["no", "input"]),
    "rivals": (rivals, {}, ["several train ops", "one", "two", "--train_op=two,one"]),
    "unrelated": (unrelated, {}, ["no gradient path from the loss", "--loss"]),
    "gradients through an accumulator": (accumulated, {}, ["pass through an accumulator", "optimizer that it wraps"]),
    "batches through a staging area": (staged, {}, ["pass through a staging area", "read the iterator directly"]),
    "no such train op": (rivals, {"train_op": "xyz"}, ["the train op 'xyz' is not in the graph", "inspect"]),
    "a name that is nearly right": (rivals, {"train_op": "step/one"}, ["did you mean one"]),
    "no such loss": (rivals, {"loss": "lost"}, ["the loss 'lost' is not in the graph"]),
    "a train op that trains nothing": (rivals, {"train_op": "w/read"}, ["'w/read' is no train op", "writes no variable"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_clear_error(name: str) -> None:
    build, options, words = FAULTS[name]
    error = testing.assert_raises_block(roles.find, trace(build), max_length=700, kind=RolesError, **options,
                                        words=words)  # fmt: skip
    assert error.fix


def test_a_gradient_that_nothing_reads_is_no_loss() -> None:
    """TensorFlow makes the gradients of the weights of a loss, too; without a summary it was taken for the loss."""

    def build() -> None:
        features, targets, weights = linear(4)
        classes = tf.cast(tf.reshape(targets, [-1]) > 0.0, tf.int32)
        logits = features @ weights @ tf.ones((1, 2))
        SGD(0.1).minimize(tf1.losses.softmax_cross_entropy(tf.one_hot(classes, 2), logits))

    found = roles.find(trace(build))
    assert found.loss.name == "softmax_cross_entropy_loss/value"
    assert not [f.name for f in found.other_candidates.get("loss", ()) if f.name.startswith("gradients/")]


def test_a_number_that_orders_what_an_array_is_asked_is_no_loss() -> None:
    """The gradient of a loop over an array pushes such numbers, and nothing reads what a push gives."""

    def build() -> None:
        features, targets, weights = linear(4)
        errors = tf.map_fn(tf.square, (features @ weights - targets)[:, 0])
        SGD(0.1).minimize(tf.reduce_sum(tf.reshape(errors, [4]), name="errors"))

    found = roles.find(trace(build))
    assert found.loss.name == "errors"
    assert not [f.name for f in found.other_candidates.get("loss", ()) if f.name.startswith("gradients/")]


def test_a_generator_s_loss_is_made_of_noise_alone() -> None:
    with tf.Graph().as_default() as plain:
        real = tf1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(tf.ones([4, 2])).repeat()).get_next()
        made = tf1.random_normal([4, 2]) * tf1.get_variable("generator", [2])
        judge = tf1.get_variable("critic", [2])
        against = tf.reduce_mean((real - made) * judge, name="against")
        fooled = tf.reduce_mean(made * judge, name="fooled")
        steps = [SGD(0.1).minimize(loss, var_list=[v for v in tf1.global_variables() if v.op.name == name])
                 for loss, name in ((against, "critic"), (fooled, "generator"))]  # fmt: skip
        with tf.control_dependencies(steps):
            train = tf1.assign_add(tf1.train.get_or_create_global_step(), 1, name="train").op
    graph = graphdef.from_graph_def(plain.as_graph_def(add_shapes=True), source="gan")
    found = roles.find(graph, loss="fooled", train_op=train.name)
    assert found.loss.name == "fooled"
    assert set(found.trained) == {"generator", "critic"}

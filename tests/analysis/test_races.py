"""Reads that the plain graph puts in no order with the writes of their variable: found, named, put first."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from models import corpus, finish, linear, saved, squared_error, tf1, trace, variable
from tpugraph import analysis, roles
from tpugraph.analysis import races
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph, Node
from tpugraph.testing import verification
from tpugraph.testing.plain_run import PlainRun

SLOW = 400
"""Rows of the matrix whose eigenvalues a read waits for, tens of milliseconds, while the write needs none."""


def roots_of(graph: Graph) -> list[Node]:
    found = roles.find(graph)
    return [graph.tensor(found.loss.name).node, *(graph[op.name] for op in found.train_ops)]


def found_in(graph: Graph) -> set[tuple[str, str, str]]:
    return {(race.read.name, race.write.name, race.variable.name) for race in races.find(graph, roots_of(graph))}


def by_hand(*, late: bool = False) -> None:
    """A step as BERT's optimizer makes one: the gradient by hand, every variable assigned, in no order with its reads."""
    features, targets, weights = linear(4)
    loss = tf.reduce_mean(squared_error(features, targets, weights))
    tf1.summary.scalar("loss", loss)
    step = tf1.train.get_or_create_global_step()
    gradient = tf.gradients(loss, weights)[0]
    momentum = variable("momentum", (), trainable=False)
    begun = step
    if late:  # the counter is read long after it is written
        large = tf.eye(SLOW, dtype=tf.float64) + tf.cast(weights[0, 0], tf.float64) * 1e-6
        begun = step + tf.cast(0 * tf.reduce_sum(tf.linalg.eigvalsh(large)), tf.int64)
    rate = 0.1 / (1.0 + tf.cast(begun, tf.float32))
    new = weights - rate * gradient
    tf.group(tf1.assign(weights, new), tf1.assign(momentum, 0.9 * momentum), tf1.assign(step, step + 1), name="train")


def test_races_of_real_graphs() -> None:
    assert found_in(corpus("iris_dnn").graph()) == set()
    assert found_in(corpus("lstm_dynamic").graph()) == set()
    assert len(found_in(corpus("ref_variables").graph())) == 1


@pytest.mark.parametrize("resource", [False, True])
def test_a_step_by_hand_races_with_its_counter_and_no_longer_once_reads_come_first(resource: bool) -> None:
    graph = trace(lambda: by_hand(late=True), resource=resource)
    raced = races.find(graph, roots_of(graph))
    counter = next(name for name in ("Assign_2", "AssignVariableOp_2") if name in graph)
    assert {(race.write.name, race.variable.name) for race in raced} == {(counter, "global_step")}
    assert {race.first for race in races.settle(graph, roots_of(graph), "reads_first").races} == {"read"}
    assert {race.read for race in raced} <= set(graph[counter].controls)
    assert found_in(graph) == set()


def test_verify_compares_with_the_reads_first_and_says_so(tmp_path: Path) -> None:
    path = saved(trace(lambda: by_hand(late=True)), tmp_path)
    found = verification.verify(str(path), 4, ConvertOptions(num_replicas=1))
    assert found.ok, found.comparisons
    assert any("leaves to chance whether" in note and "reads 'global_step'" in note for note in found.notes)


def test_what_it_would_compare_with_otherwise() -> None:
    """The premise: assigned in place, the counter that was taken before shows the value after, in one of many runs at least."""
    plain, ordered = (trace(lambda: by_hand(late=True)) for _ in range(2))
    races.settle(ordered, roots_of(ordered), "reads_first")
    expected = PlainRun(ordered).train(4, {})[0]
    assert any(PlainRun(plain).train(4, {})[0] != pytest.approx(expected, rel=1e-3) for _ in range(20))


def in_branches(read: Any, write: Any) -> Any:
    """A step with a read and a write of ``best`` beside it, in the branches of one condition."""

    def build() -> None:
        features, targets, weights = linear(4)
        best = variable("best", (), trainable=False)
        loss = tf.reduce_mean(squared_error(features, targets, weights))
        train = finish(loss, tf1.train.GradientDescentOptimizer(0.1))
        odd = tf.equal(tf1.train.get_global_step() % 2, 1)
        tf.group(train, tf1.cond(odd, lambda: write(best), lambda: read(best)), name="both")

    return build


def test_one_branch_does_not_race_with_the_other() -> None:
    graph = trace(in_branches(lambda best: best + 1.0, lambda best: tf1.assign(best, 2.0) + 0.0))
    assert not [race for race in found_in(graph) if race[2] == "best"]


def test_a_read_beside_a_write_in_a_branch_comes_first() -> None:
    def build() -> None:
        features, targets, weights = linear(4)
        best = variable("best", (), trainable=False)
        loss = tf.reduce_mean(squared_error(features, targets, weights)) + 0.0 * best
        odd = tf.greater(tf.reduce_mean(features), 0.0)
        written = tf1.cond(odd, lambda: tf1.assign_add(best, 2.0), lambda: tf.constant(0.0))
        tf.group(finish(loss, tf1.train.GradientDescentOptimizer(0.1)), written, name="both")

    graph = trace(build)
    raced = [race for race in races.find(graph, roots_of(graph)) if race.variable.name == "best"]
    assert {race.write.op for race in raced} == {"AssignAdd"}
    assert {race.first for race in races.settle(graph, roots_of(graph), "reads_first").races} == {"read"}
    assert {race.read for race in raced} <= set(raced[0].write.controls)
    assert not [race for race in found_in(graph) if race[2] == "best"]


def test_a_read_in_a_loop_is_waited_for_where_the_loop_is_left_and_a_write_in_one_is_let_alone() -> None:
    def build() -> None:
        features, targets, weights = linear(4)
        scale, turns = variable("scale", (), trainable=False), variable("turns", (), trainable=False)

        def body(i: Any, total: Any) -> Any:
            with tf.control_dependencies([tf1.assign_add(turns, 1.0)]):
                return i + 1, total + scale

        _, total = tf1.while_loop(lambda i, _: i < 3, body, [tf.constant(0), tf.constant(0.0)])
        loss = tf.reduce_mean(squared_error(features, targets, weights)) + 0.0 * total + 0.0 * turns
        train = finish(loss, tf1.train.GradientDescentOptimizer(0.1))
        tf.group(train, tf1.assign(scale, 0.5 * scale, name="shrink"), name="both")

    graph = trace(build)
    raced = races.find(graph, roots_of(graph))
    assert {race.variable.name for race in raced} == {"scale", "turns"}
    settled = races.settle(graph, roots_of(graph), "reads_first").races
    assert {race.variable for race in settled if not race.first} == {"turns"}
    waited_for = graph["shrink"].controls
    assert waited_for
    assert not any(analysis.frames(graph)[control] for control in waited_for)
    assert PlainRun(graph).train(2, {})[0]

"""The pass prune."""

from __future__ import annotations

import tensorflow as tf

from models import (
    assert_cores_are_the_whole_batch,
    batches,
    by_hand,
    check,
    finish,
    linear,
    rows_of,
    squared_error,
    tf1,
    trace,
)
from tpugraph import roles, testing
from tpugraph.passes.prune import Prune
from tpugraph.support.errors import InvariantError


def test_golden_step() -> None:
    graph = check(Prune(), "step")
    assert "unread" not in graph
    assert "accuracy" not in graph
    assert graph.roles.variables.keys() == {"w", "step", "decay"}


def test_what_initialisers_need_stays() -> None:
    """The first value of one variable is computed from another that the step does not read."""
    graph = testing.parse(
        """
        base = VariableV2() {dtype: float32, shape: []}
        base/init = Test()
        base/Assign = Assign(base, base/init) {T: float32}
        w = VariableV2() {dtype: float32, shape: []}
        w/init = Identity(base) {T: float32}
        w/Assign = Assign(w, w/init) {T: float32}
        loss = Test(w)
        train = NoOp() ^loss
        """
    )

    def find(graph):
        found = by_hand(graph)
        for name in ("base", "w"):
            found.variables[name].initializer = f"{name}/Assign"
        return found

    assert str(testing.run_pass(Prune(), graph, roles=find)) == "+0 -0 ~0"


def test_colocation_with_what_is_gone_is_forgotten() -> None:
    graph = testing.parse('gone = Test()\nloss = Test() {_class: ("loc:@gone")}\ntrain = NoOp() ^loss')
    assert str(testing.run_pass(Prune(), graph, roles=by_hand)) == "+0 -1 ~1"
    assert not graph["loss"].has_attr("_class")


def test_the_queue_that_feeds_the_step_keeps_its_enqueues() -> None:
    def build() -> None:
        queues = [tf1.FIFOQueue(10, tf.float32, [3, 3], name=name) for name in ("used", "unused")]
        values, _ = rows_of(3, 3)
        for queue in queues:
            queue.enqueue(tf.constant(values), name=f"fill_{queue.name}")
        loss = tf.reduce_mean(tf.square(queues[0].dequeue() @ linear(4)[2]))
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    graph = trace(build)
    testing.run_pass(Prune(), graph, roles=roles.find)
    assert graph.roles.enqueues == ("fill_used",)
    assert "used" in graph
    assert "unused" not in graph


def test_roles_must_be_known() -> None:
    testing.assert_raises_block(
        testing.run_pass,
        Prune(),
        testing.parse("x = Test()"),
        words=["the roles of the graph are not known", "roles.find"],
        max_length=200,
        kind=InvariantError,
    )


def test_numbers_do_not_change() -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        error = squared_error(features, targets, weights)
        tf.identity(tf.reduce_max(error), name="unread")
        finish(tf.reduce_mean(error), tf1.train.GradientDescentOptimizer(0.1))
        batches(rows_of(8, 2), 2)  # an input that nothing reads

    assert_cores_are_the_whole_batch(build, relative=1e-5, absolute=1e-6)
